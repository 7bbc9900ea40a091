"""Golden logs: the events of a rich history as a released version wrote them, replayed for ever.

`python -m tests.golden_log v2` writes that of a version that was just released (tests/data/golden_logs/v2);
it is never written again. Beside the bytes stands what the state must be: a digest of every entity as that
version's schemas know it, so that fields which later versions add with defaults do not change it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import msgspec

from schemas import avsc, codec
from schemas.commands import ConfigureTenant, DiscardDeadLetter, MissedInPause
from schemas.entities import OverlapPolicy, RetryJitter, RetryPolicy
from schemas.events import Event, entity_of
from streams.core import planning, zones
from streams.core.engine import Engine
from tests.unit.core.world import World

FOLDER = Path(__file__).parent / "data" / "golden_logs"
LOG, EXPECTED = "log.jsonl", "expected.json"
OLD_ZONE = Path(__file__).parent / "data" / "tz" / "2025b" / "America-Vancouver"
VANCOUVER = "America/Vancouver"
RETRY = RetryPolicy(
    max_attempts=2, backoff_base_sec=1, backoff_factor=1, backoff_max_sec=1, jitter=RetryJitter.NONE
)

Log = Sequence[tuple[str, bytes | None]]


def story() -> World:
    """A partition in which every type of event occurs; the time zone data change in the middle of it."""
    world = World("2026-11-20T00:00:00Z", seed=7)
    old, newest = zones.Zone(VANCOUVER, OLD_ZONE.read_bytes()), zones._load
    modules = ("zones", "engine", "handlers.registration", "handlers.scheduling", "handlers.rezoning")
    patches: list[Any] = [patch(f"streams.core.{module}.TZ_VERSION", "2025b") for module in modules]

    def load(name: str) -> zones.Zone:
        return old if name == VANCOUVER else newest(name)

    patches.append(patch("streams.core.zones._load", new=load))
    for each in patches:
        each.start()
    planning._built.cache_clear()
    _reopen(world)
    _begin(world)
    for each in patches:
        each.stop()
    planning._built.cache_clear()
    _reopen(world)
    world.run()
    _go_on(world)
    return world


def _reopen(world: World) -> None:
    """As a start of the processor does."""
    world.engine = Engine(0, world.store, codec, world.engine._router)
    world.engine.begin(world.now_ms, world.chance.random)
    world.engine.open_partition(1)
    for event in world.engine.decided().events:
        world.log.append((event.key, event.value))
    world.store.write(world.engine.commit())
    world.engine.written()


def _begin(world: World) -> None:
    world.register("moved", cron="0 9 15 12 *", time_zone=VANCOUVER)
    world.register("every", every_sec=60, overlap=OverlapPolicy.SKIP, jitter_sec=5, lease_sec=20)
    world.register("queue", cron="*/30 * * * * *", queue_limit=2, key="made-once")
    world.register("allow", cron="H/2 * * * *", time_zone="Asia/Kolkata", overlap=OverlapPolicy.ALLOW)
    world.register("newest", every_sec=90, overlap=OverlapPolicy.CANCEL_RUNNING)
    world.register("flaky", delay_sec=5, retry=RETRY, idempotency_key_template="{jobId}:{scheduledTime:%Y}")
    world.register("hopeless", delay_sec=5, retry=RETRY)
    world.register("silent", delay_sec=5, lease_sec=5, max_deliveries=2)
    world.register("slow", delay_sec=5, timeout_sec=10, lease_sec=30, retry=RETRY)
    world.register("late", delay_sec=5, start_deadline_sec=3, pool="nobody")
    world.register("bounded", every_sec=20, max_runs=3, payload=bytes(range(256)))
    world.until(world.now_ms + 10_000)
    _work(world, 30)
    _hold_back(world)


def _hold_back(world: World) -> None:
    """Settings, an exclusion group over two pools, a pool whose jobs fail until its breaker opens."""
    world.run(ConfigureTenant(**world._envelope(), max_running=900))
    for name in ("one", "two"):
        world.register(f"group-{name}", delay_sec=1, exclusion_group="group", pool=f"pool-{name}")
    world.until(world.now_ms + 2_000)
    held = world.claim("A", pool="pool-one") + world.claim("A", pool="pool-two")
    for grant in held + world.claim("A", pool="pool-two"):
        world.complete(grant)
    for number in range(3):
        world.register(f"brittle-{number}", every_sec=86_400, pool="brittle", retry=RETRY)
        for trigger in range(10):
            world.trigger(f"brittle-{number}", key=f"b{number}-{trigger}", overlap=OverlapPolicy.ALLOW)
    for _ in range(3):
        for grant in world.claim("A", 10, pool="brittle"):
            world.fail(grant)
    for _ in range(12):
        world.until(world.now_ms + 10_000)
        for grant in world.claim("A", 10, pool="brittle"):
            world.complete(grant)


def _work(world: World, rounds: int) -> None:
    """Workers come by every ten seconds."""
    for number in range(rounds):
        for grant in world.claim("A", 4, claim_id=f"c{world.now_ms}"):
            job_id, attempt = grant.execution.job_id, grant.execution.attempt
            if job_id == "hopeless" or (job_id == "flaky" and attempt == 1):
                world.fail(grant, "it does not work: é")
            elif job_id == "newest" and number % 3 == 0:
                world.beat(grant, b'{"half": true}')
            elif job_id == "allow" and number % 4 == 0:
                world.release(grant, number % 2 * 5)
            elif job_id not in ("silent", "slow"):
                world.complete(grant, b'{"ok": 1}')
        world.until(world.now_ms + 10_000)


def _go_on(world: World) -> None:
    world.trigger("queue", key="t1", payload=b'{"own": "payload"}')
    world.trigger("every", key="t2", overlap=OverlapPolicy.SKIP)
    world.trigger("every", key="t3", overlap=OverlapPolicy.SKIP)
    world.backfill("2026-11-20T00:01:00Z", "2026-11-20T00:01:30Z", job_id="queue", rerun=True)
    world.update(1, "queue", cron="*/45 * * * * *", payload=b'"second version"')
    world.pause("allow")
    world.pause("every")
    _work(world, 12)
    world.resume("allow", MissedInPause.FIRE_ALL)
    world.resume("every")
    world.now_ms += 3_600_000  # nobody decides for an hour
    world.run()
    _work(world, 10)
    letters = [one for one in world.executions() if one.status == "FAILED"]
    world.run(DiscardDeadLetter(**world._envelope(), execution_id=letters.pop().execution_id))
    for execution in letters:
        world.replay(execution.execution_id, key=f"r-{execution.job_id}", payload=b'"corrected"')
    _work(world, 2)
    running = world.claim("B", 6)
    world.cancel_job("newest")
    world.cancel_job("queue")
    for grant in running:
        world.cancel(grant.execution.execution_id)
        world.complete(grant)
    world.register("queue-again", every_sec=3600)
    world.now_ms += 90_000_000  # finished jobs and executions are forgotten after a day
    world.run()
    world.until(world.now_ms + 60_000)


def types_of(log: Log) -> Counter[str]:
    """How often each type of event occurs; tombstones as `Forgotten`."""
    events = (codec.decode(value) if value is not None else None for _, value in log)
    return Counter(type(event).__name__ if event is not None else "Forgotten" for event in events)


def missing_types(log: Log) -> list[str]:
    """Types of events that the history does not tell of."""
    known = {name.rpartition(".")[2] for name, cls in avsc.record_classes().items() if issubclass(cls, Event)}
    return sorted(known - types_of(log).keys())


def state_digest(version: str, values: Iterable[tuple[str, bytes]]) -> dict[str, Any]:
    """What a released version can say of a state: entities by kind, and a digest of all of them as its
    schemas know them. `values`: keys, and the newest event of each."""
    schemas = avsc.released(version)
    kinds: Counter[str] = Counter()
    digest = hashlib.sha256()
    for key, value in sorted(values):
        event = codec.decode(value)
        if not isinstance(event, Event):
            raise TypeError(f"{key} holds no event")
        entity = entity_of(event)
        schema = schemas.get(f"horarium.entities.{type(entity).__name__}")
        if schema is None:
            continue  # of a kind that the version did not know
        known = as_known(msgspec.to_builtins(entity, builtin_types=(bytes,)), schema, {})
        digest.update(json.dumps([key, known], sort_keys=True, separators=(",", ":")).encode() + b"\n")
        kinds[key.partition(":")[0]] += 1
    return {"entities": dict(sorted(kinds.items())), "digest": digest.hexdigest()}


def as_known(value: Any, schema: Any, named: dict[str, Any]) -> Any:
    """The part of a value that a schema names; bytes as hexadecimal text."""
    if isinstance(schema, str):
        schema = named.get(schema, schema)
    if isinstance(schema, list):  # a union: null and something else
        other = next(one for one in schema if one != "null")
        return None if value is None else as_known(value, other, named)
    if isinstance(schema, dict):
        if "name" in schema:
            named[f"{schema.get('namespace', '')}.{schema['name']}".lstrip(".")] = schema
            named[schema["name"]] = schema
        kind = schema["type"]
        if kind == "record":
            return {
                field["name"]: as_known(value[field["name"]], field["type"], named)
                for field in schema["fields"]
            }
        if kind == "array":
            return [as_known(one, schema["items"], named) for one in value]
        if kind == "map":
            return {key: as_known(one, schema["values"], named) for key, one in value.items()}
    return value.hex() if isinstance(value, bytes) else value


def read(version: str) -> tuple[list[tuple[str, bytes | None]], dict[str, Any]]:
    """The log of a version, and what is expected of it."""
    lines = (FOLDER / version / LOG).read_text(encoding="ascii").splitlines()
    log = [
        (key, base64.b64decode(value) if value is not None else None)
        for key, value in (json.loads(line) for line in lines)
    ]
    return log, json.loads((FOLDER / version / EXPECTED).read_text(encoding="ascii"))


def versions() -> list[str]:
    """Those that have a golden log."""
    return sorted(path.name for path in FOLDER.iterdir())


def state_of(world: World) -> list[tuple[str, bytes]]:
    """Keys, and the newest event of each, of the live state."""
    return [(key[1:].decode(), value) for key, value in world.store.scan(b"e", b"f")]


def write(version: str) -> Path:
    """The golden log of the newest released version, once."""
    folder = FOLDER / version
    if version != avsc.released_versions()[-1]:
        raise SystemExit(f"{version} is not the newest released version")
    if folder.exists():
        raise SystemExit(f"{folder} exists: a golden log is never written again")
    world = story()
    if missing := missing_types(world.log):
        sys.stderr.write(f"the story has none of: {', '.join(missing)}\n")
    folder.mkdir(parents=True)
    with (folder / LOG).open("w", encoding="ascii") as file:
        for key, value in world.log:
            text = base64.b64encode(value).decode() if value is not None else None
            file.write(json.dumps([key, text]) + "\n")
    expected = {
        "events": dict(sorted(types_of(world.log).items())),
        "state": state_digest(version, state_of(world)),
    }
    (folder / EXPECTED).write_text(json.dumps(expected, indent=1) + "\n", encoding="ascii")
    return folder


if __name__ == "__main__":
    sys.stdout.write(f"{write(sys.argv[1])}\n")
