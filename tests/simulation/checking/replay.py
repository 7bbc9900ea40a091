"""State is a function of the log: rebuilt by replay it equals live state with its indexes, also compacted."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from schemas.entities import Breaker, Cursor, Execution, Tenant
from schemas.events import Event, entity_of
from schemas.ids import job_id_of
from streams.ambient import Chance
from streams.core import keys
from streams.core.engine import Engine
from streams.core.lifecycle import JOB_FINAL
from streams.core.limits import FORGET_AFTER_MS
from streams.core.state import due_of_breaker, due_of_cursor, due_of_execution
from streams.runtime.partition import Partition
from streams.store.kv import KeyValue
from streams.store.memory import MemoryStore
from tests.simulation.history import Happened, History, Readings

FIRED_MAX = 1_000
FAMILIES = b"eabchjknoqrxy"
"""Of the entities and of what are functions of them (`streams.core.keys`)."""
Logged = tuple[str, bytes | None]


class _Anywhere:
    """Replay asks for nobody's place."""

    def partition_of(self, tenant: str, job_id: str) -> int:
        raise AssertionError("replay does not route")

    def partitions_of(self, tenant: str) -> list[int]:
        raise AssertionError("replay does not route")

    def default_jitter_sec(self, tenant: str) -> int:
        raise AssertionError("replay plans nothing")

    def settings_of(self, tenant: str) -> Tenant:
        raise AssertionError("replay knows what the log says of tenants, and nothing else")


class Replica:
    """A partition that is followed by its log alone."""

    def __init__(self, number: int, readings: Readings) -> None:
        self.store = MemoryStore()
        self._engine = Engine(number, self.store, readings, _Anywhere())

    def apply(self, records: Iterable[Logged]) -> None:
        for key, value in records:
            self._engine.apply(key, value)
        self._write()

    def _write(self) -> None:
        self.store.write(self._engine.commit())
        self._engine.written()

    def over(self) -> Iterator[tuple[str, str]]:
        """Tenant and id of each job that is over, with all that it had."""
        state = self._engine.state
        for key, _ in list(self.store.scan(b"ejob:", b"ejob;")):
            tenant, _, job_id = key.decode().removeprefix("ejob:").partition("/")
            job = state.job(tenant, job_id)
            if (
                job is not None
                and state.cursor(job).status in JOB_FINAL
                and not state.has_open(tenant, job_id)
            ):
                yield tenant, job_id

    def at(self, now_ms: int, chance: Chance) -> Iterator[Logged]:
        """What its owner would decide next if it came up at that instant, nobody asking for anything."""
        more = True
        while more or self._engine.next_wakeup_ms(now_ms) <= now_ms:
            self._engine.begin(now_ms, chance.random)
            more = self._engine.fire(now_ms, FIRED_MAX)
            yield from ((event.key, event.value) for event in self._engine.decided().events)
            self._write()


class Replicas:
    """One of each partition, kept up with the history."""

    def __init__(self, history: History) -> None:
        self._history = history
        self._of = [Replica(number, history.readings) for number in range(len(history.of))]
        self._applied = [0] * len(history.of)
        self.compared = 0

    def compare(self, partition: Partition) -> Iterator[str]:
        """A running partition between two steps. One that is behind the log (its transaction's markers are
        late, or another has taken it over) is left for later."""
        number = partition.number
        part = self._history.of[number]
        if partition.store is None or partition.engine is None:
            return
        last = part[-1].offset if part else -1
        if partition.mark.last_offset != last:
            return
        self.compared += 1
        what = f"partition {number}, live at offset {last}"
        yield from _compare(what, partition.store, self.whole(number).store)

    def whole(self, number: int) -> Replica:
        """Of all that is known of the partition."""
        replica, part = self._of[number], self._history.of[number]
        replica.apply((each.key, each.value) for each in part[self._applied[number] :])
        self._applied[number] = len(part)
        return replica


def _compare(what: str, found: KeyValue, replayed: KeyValue) -> Iterator[str]:
    for family in FAMILIES:
        start, end = bytes((family,)), bytes((family + 1,))
        if list(found.scan(start, end)) != list(replayed.scan(start, end)):
            yield f"{what}: the entries {chr(family)!r} differ from the whole log's"


def check_compaction(
    part: Sequence[Happened], whole: Replica, readings: Readings, chance: Chance
) -> Iterator[str]:
    """The log as the cleaner may leave it, its tombstones gone, gives the same state as the whole one: to an
    empty store, and with its tombstones to one that is older. Both have a timer for whatever has to be looked
    at."""
    if not part:
        return
    number, cut, kept = part[0].partition, chance.randint(0, len(part)), chance.randint(0, len(part))
    compacted, older = Replica(number, readings), Replica(number, readings)
    head = [each for each in _newest(part[:cut]) if each[1] is not None]
    compacted.apply([*head, *((each.key, each.value) for each in part[cut:])])
    older.apply((each.key, each.value) for each in part[:kept])
    older.apply(_newest(part[kept:]))
    for what, replica in (
        (f"partition {number}, compacted up to record {cut}", compacted),
        (f"partition {number}, from record {kept} on compacted", older),
    ):
        yield from _compare(what, replica.store, whole.store)
        yield from _check_timers(what, replica.store, readings)


def check_forgetting(
    part: Sequence[Happened], readings: Readings, now_ms: int, chance: Chance
) -> Iterator[str]:
    """A day after the run what is over is forgotten, and nothing of it runs again, whatever of the log the
    owner of then was left with."""
    if not part:
        return
    number, cut = part[0].partition, chance.randint(0, len(part))
    replica = Replica(number, readings)
    replica.apply([*_newest(part[:cut]), *((each.key, each.value) for each in part[cut:])])
    over = set(replica.over())
    for key, value in replica.at(now_ms + FORGET_AFTER_MS, chance):
        kind, _, rest = key.partition(":")
        tenant, _, name = rest.partition("/")
        job_id = job_id_of(name) if kind == "exec" else name
        if value is not None and kind in ("job", "cursor", "exec") and (tenant, job_id) in over:
            yield f"partition {number}: {key} changes a day after its job was over"
    for tenant, job_id in sorted(over.intersection(replica.over())):
        yield f"partition {number}: {tenant}/{job_id} is over and not forgotten after a day"


def _newest(part: Sequence[Happened]) -> list[Logged]:
    newest = {each.key: each.offset for each in part}
    return [(each.key, each.value) for each in part if newest[each.key] == each.offset]


def _check_timers(what: str, store: KeyValue, readings: Readings) -> Iterator[str]:
    """Replay files a timer for the instant at which an entity has to be looked at."""
    filed = set()
    for key, _ in store.scan(b"t", b"u"):
        _, at_ms, log_keys = keys.split_timer(key)
        filed |= {(of, at_ms) for of in log_keys.split("\0")}
    for key, value in store.scan(b"e", b"f"):
        event = readings.decode(value)
        if not isinstance(event, Event):
            raise TypeError(f"{type(event).__name__} in a store")
        entity = entity_of(event)
        match entity:
            case Execution():
                due_ms = due_of_execution(entity)
            case Cursor():
                due_ms = due_of_cursor(entity)
            case Breaker():
                due_ms = due_of_breaker(entity)
            case _:
                due_ms = None
        of = key[1:].decode().replace("cursor:", "job:")
        if due_ms is not None and (of, due_ms) not in filed:
            yield f"{what}: nobody will look at {of} when it is due"
