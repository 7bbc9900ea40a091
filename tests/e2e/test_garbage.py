"""What nobody should send: refused or set aside with a reason, and nothing else is disturbed."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest
from horarium import Delay, Every, JobSpec

from schemas import codec
from schemas.commands import Command, Complete, Completion, RegisterJob, RegisterMode, ScheduleSpec
from schemas.entities import Content, Policies
from schemas.entities import ExecutionStatus as E
from schemas.events import ExecutionCompleted
from schemas.ids import derived_job_id
from schemas.replies import CommandDone, WorkDone
from schemas.topics import partition_of
from streams.ambient import Chance, new_id
from streams.transport.log import Isolation, TopicPartition
from tests.e2e.scene import (
    KEY,
    LARGE,
    OPERATOR_KEY,
    SMALL,
    SMALL_KEY,
    Scene,
    accepted,
    after,
    each,
    opened,
    promised,
)
from tests.e2e.workers import app, working
from tests.waiting import wait_until

PARTITIONS = 4
HOME = partition_of(SMALL, "", 1, PARTITIONS)
QUARANTINE_BYTES = 64 * 1024
ALMOST_TOO_LARGE = 1_000_000  # the broker takes it; nothing that is meant well is as large


@pytest.fixture(scope="module")
def scene(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    with opened(tmp_path_factory.mktemp("garbage"), kafka, partitions=PARTITIONS) as scene:
        yield scene


def registration(a_pool: str, **changes: Any) -> RegisterJob:
    """A command that a trusted service could send, but for the changes."""
    members: dict[str, Any] = {
        "command_id": new_id(),
        "tenant": SMALL,
        "actor": "service:e2e",
        "job_id": f"{a_pool}-kafka",
        "mode": RegisterMode.PUT,
        "schedule": ScheduleSpec(delay_sec=3_600),
        "pool": a_pool,
        "content": Content(name="kafka", task="work"),
        "policies": Policies(),
    }
    return RegisterJob(**members | changes)


def garbage(pool: str) -> list[bytes | None]:
    """None of it is a command."""
    chance = Chance(11)
    whole = codec.encode(registration(pool))
    reply = codec.encode(CommandDone(session="s", command_id="c", status=200, partition=0))
    return [
        *(chance.randbytes(chance.randint(1, 300)) for _ in range(30)),
        None,
        b"",
        whole[:1],
        whole[:2],
        whole[:9],
        whole[:10],
        whole[: len(whole) // 2],
        whole[:-1],
        whole + b"\x00",
        whole[:2] + bytes(8) + whole[10:],
        whole[:2] + chance.randbytes(8) + whole[10:],
        whole[:10] + b"\xff" * 40,
        json.dumps({"tenant": SMALL}).encode(),
        reply,
        chance.randbytes(ALMOST_TOO_LARGE),
        whole[:10] + chance.randbytes(ALMOST_TOO_LARGE),
    ]


def test_garbage_on_commands_and_work_is_set_aside_and_disturbs_nobody(scene: Scene, pool: str) -> None:
    sent: dict[tuple[str, int], bytes | None] = {}
    with (
        scene.client(SMALL_KEY) as client,
        working(app(scene.url, SMALL_KEY, pool, "w", 4)),
    ):
        plans = [
            promised(
                client.create_job(JobSpec(schedule=Every(1), pool=pool, task="work")),
                each(1),
                recurring=True,
            )
        ]
        scene.until(lambda: scene.count(pool, E.COMPLETED) >= 1)
        for value in garbage(pool):
            for topic in (scene.topics.commands, scene.topics.work):
                sent[topic, scene.send(topic, HOME, value)] = value
        # Behind all of it in the same partition.
        job = client.create_job(JobSpec(schedule=Delay(1), pool=pool, task="work"))
        plans.append(promised(job, after(1)))
        before = scene.count(pool, E.COMPLETED)
        scene.until(lambda: scene.count(pool, E.COMPLETED) >= before + 2)
        client.cancel_job(plans[0].job_id)
        scene.until_over(pool, plans)
    verdict = scene.all_well(pool, plans)
    assert verdict.redelivered == 0
    assert not verdict.skipped
    aside = {}
    for record in scene.read(scene.topics.quarantine, HOME):
        said = {name: text.decode() for name, text in record.headers.items()}
        aside[said["topic"], int(said["offset"])] = (said, record.value)
    assert aside.keys() == sent.keys()
    for place, value in sent.items():
        said, kept = aside[place]
        assert int(said["partition"]) == HOME
        assert said["reason"]
        assert int(said["bytes"]) == len(value or b"")
        assert (kept or b"") == (value or b"")[:QUARANTINE_BYTES]
    assert states(scene) == ["RUNNING"] * PARTITIONS


def states(scene: Scene) -> list[str]:
    with scene.client(OPERATOR_KEY) as client:
        return [each.state for each in client.partitions()]


def ask(scene: Scene, topic: str, partition: int, command: Command) -> CommandDone | WorkDone:
    """Sends a command as a trusted service does, and waits for its answer."""
    replies = TopicPartition(scene.topics.replies, command.reply_partition)
    reader = scene.log.reader(Isolation.UNCOMMITTED)
    found: list[CommandDone | WorkDone] = []
    try:
        reader.assign({replies: scene.end_offset(*replies)})
        scene.send(topic, partition, codec.encode(command), command.tenant.encode())

        def answered() -> bool:
            for record in reader.poll(100, 0.1):
                reply = codec.decode(record.value or b"")
                if isinstance(reply, CommandDone | WorkDone) and reply.command_id == command.command_id:
                    found.append(reply)
            return bool(found)

        scene.until(answered, 30)
        return found[0]
    finally:
        reader.close()


ELSEWHERE = next(number for number in range(100) if partition_of(f"t{number}", "", 1, PARTITIONS) != HOME)


WRONG: dict[str, tuple[dict[str, Any], int, str]] = {
    "pool with a space": ({"pool": "no pool"}, 400, "invalid"),
    "no pool": ({"pool": ""}, 400, "invalid"),
    "long pool": ({"pool": "x" * 101}, 400, "invalid"),
    "shared pool without a name": ({"pool": "shared/"}, 400, "invalid"),
    "pool with two slashes": ({"pool": "shared/a/b"}, 400, "invalid"),
    "job id with a slash": ({"job_id": "a/b"}, 400, "invalid"),
    "job id like a derived one": ({"job_id": "job_of_somebody"}, 400, "invalid"),
    "no schedule": ({"schedule": ScheduleSpec()}, 400, "invalid"),
    "negative delay": ({"schedule": ScheduleSpec(delay_sec=-1)}, 400, "invalid"),
    "half a cron": ({"schedule": ScheduleSpec(cron="* * *")}, 400, "invalid"),
    "no lease": ({"policies": Policies(lease_sec=0)}, 400, "invalid"),
    "endless lease": ({"policies": Policies(lease_sec=2**31 - 1)}, 400, "invalid"),
    "large payload": (
        {"content": Content(name="x", task="work", payload=bytes(256 * 1024 + 1))},
        413,
        "too_large",
    ),
    "tenant of another partition": ({"tenant": f"t{ELSEWHERE}"}, 409, "misrouted"),
    "no tenant": ({"tenant": "Not A Tenant"}, 400, "invalid"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_command_of_a_service_with_wrong_contents_is_refused(scene: Scene, pool: str, what: str) -> None:
    changes, status, code = WRONG[what]
    command = registration(pool, **changes | {"session": "e2e", "reply_partition": 3})
    answer = ask(scene, scene.topics.commands, HOME, command)
    assert isinstance(answer, CommandDone)
    assert (answer.status, answer.code) == (status, code), answer
    assert answer.detail
    assert not scene.book.registered[pool]


def test_an_outcome_of_a_service_with_a_wrong_epoch_or_tenant_is_refused(scene: Scene, pool: str) -> None:
    with scene.client(SMALL_KEY) as client:
        plans = accepted(
            client.create_jobs([JobSpec(schedule=Delay(0), pool=pool, task="work", lease_sec=60)]), after(0)
        )
        [held] = client.claim(pool, "w", wait_sec=10).executions

        def report(tenant: str, epoch: int, execution_id: str = held.execution_id) -> tuple[int, str]:
            command = Complete(
                command_id=new_id(),
                tenant=tenant,
                actor="service:e2e",
                session="e2e",
                reply_partition=3,
                items=(Completion(execution_id=execution_id, worker_id="w", lease_epoch=epoch),),
            )
            answer = ask(scene, scene.topics.work, HOME, command)
            assert isinstance(answer, WorkDone)
            return answer.results[0].status, answer.results[0].code

        assert report(SMALL, 0) == (409, "lease_lost")
        assert report(SMALL, held.lease_epoch + 1) == (409, "lease_lost")
        assert report(SMALL, -1) == (400, "invalid")
        assert report(SMALL, held.lease_epoch, "no execution") == (400, "invalid")
        assert report(f"t{ELSEWHERE}", held.lease_epoch)[0] in {404, 409}
        assert report(SMALL, held.lease_epoch) == (200, "")
        scene.until_over(pool, plans)
    scene.all_well(pool, plans)


def call(
    scene: Scene, method: str, path: str, body: Any = None, key: str = KEY, content: bytes | None = None
) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    data = content if content is not None else (None if body is None else json.dumps(body).encode())
    return httpx2.request(method, scene.url + path, content=data, headers=headers, timeout=30)


@pytest.mark.parametrize(
    "name", ["", "no pool", "a/b", "ü", "x" * 101, "\x00", "shared/", 7, None, ["x"]], ids=repr
)
def test_a_bad_pool_name_is_refused(scene: Scene, name: object) -> None:
    answer = call(scene, "POST", "/v1/jobs", {"schedule": {"everySec": 60}, "target": {"pool": name}})
    assert (answer.status_code, answer.json()["code"]) == (400, "invalid"), answer.text
    assert any("pool" in error["field"] for error in answer.json()["errors"])


@pytest.mark.parametrize("name", ["no%20pool", "%00", "x" * 101, "%C3%BC", "%2E%2E%2Fx"], ids=repr)
def test_a_claim_of_a_bad_pool_is_refused(scene: Scene, name: str) -> None:
    answer = call(scene, "POST", f"/v1/pools/{name}/claim", {"workerId": "w", "max": 1, "waitSec": 0})
    assert answer.status_code in {400, 404}, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"


@pytest.mark.parametrize("epoch", ["1", 1.5, True, None, [1], {}, -1, 2**63, 10**40], ids=repr)
def test_an_epoch_that_is_none_is_refused_and_the_lease_goes_on(
    scene: Scene, pool: str, epoch: object
) -> None:
    with scene.client() as client:
        client.create_job(JobSpec(schedule=Delay(0), pool=pool, lease_sec=60))
        [held] = client.claim(pool, "w", wait_sec=10).executions
        path = f"/v1/executions/{held.execution_id}"
        for verb in ("heartbeat", "complete", "fail", "release"):
            body = {"workerId": "w", "leaseEpoch": epoch} | ({"error": "x"} if verb == "fail" else {})
            answer = call(scene, "POST", f"{path}/{verb}", body)
            assert answer.status_code == 400, (verb, answer.text)
            assert any("leaseEpoch" in error["field"] for error in answer.json()["errors"])
        item = {"executionId": held.execution_id, "leaseEpoch": epoch, "status": "COMPLETED"}
        answer = call(scene, "POST", "/v1/executions/outcomes", {"workerId": "w", "outcomes": [item]})
        statuses = (
            [answer.status_code]
            if answer.status_code != 200
            else [each["status"] for each in answer.json()["results"]]
        )
        assert statuses == [400], answer.text
        client.complete(held.execution_id, "w", held.lease_epoch)


def test_another_tenants_things_are_not_there(scene: Scene, pool: str) -> None:
    with scene.client() as client:
        job = client.create_job(JobSpec(schedule=Delay(0), pool=pool, lease_sec=60))
        [held] = client.claim(pool, "w", wait_sec=10).executions
        path, lease = f"/v1/executions/{held.execution_id}", {"workerId": "w", "leaseEpoch": held.lease_epoch}
        for method, url, body in (
            ("GET", f"/v1/jobs/{job.job_id}", None),
            ("DELETE", f"/v1/jobs/{job.job_id}", None),
            ("POST", f"/v1/jobs/{job.job_id}/trigger", {}),
            ("GET", path, None),
            ("POST", f"{path}/cancel", {}),
        ):
            answer = call(scene, method, url, body, key=SMALL_KEY)
            assert (answer.status_code, answer.json()["code"]) == (404, "not_found"), (url, answer.text)
        for verb in ("heartbeat", "complete"):
            answer = call(scene, "POST", f"{path}/{verb}", lease, key=SMALL_KEY)
            assert answer.status_code in {404, 409}, answer.text
        empty = call(
            scene, "POST", f"/v1/pools/{pool}/claim", {"workerId": "x", "max": 1, "waitSec": 0}, SMALL_KEY
        )
        assert empty.json()["executions"] == []
        assert call(scene, "GET", "/v1/partitions", key=SMALL_KEY).status_code == 403
        assert call(scene, "GET", "/v1/jobs", key="nobody").status_code == 401
        # None of it touched the lease.
        client.complete(held.execution_id, "w", held.lease_epoch)


def test_what_is_too_large_is_refused_before_it_reaches_the_log(scene: Scene, pool: str) -> None:
    before = scene.written(scene.topics.commands)
    job = {"schedule": {"everySec": 60}, "target": {"pool": pool}}
    for body in (
        job | {"payload": "x" * (256 * 1024)},
        job | {"payload": "x" * 2_000_000},
        job | {"payloadBase64": "A" * 400_000, "contentType": "application/octet-stream"},
    ):
        answer = call(scene, "POST", "/v1/jobs", body)
        assert (answer.status_code, answer.json()["code"]) == (413, "too_large"), answer.text[:200]
    huge = call(scene, "POST", "/v1/jobs/batch", content=b'{"jobs": [' + b" " * (8 << 20) + b"]}")
    assert huge.status_code == 413
    many = call(scene, "POST", "/v1/jobs/batch", {"jobs": [job] * 1_001})
    assert many.status_code in {400, 413}
    for nonsense in (b"", b"{", b"[]", b"\xff\xfe", b'{"schedule": NaN}', b'{"a":1,"a":2}', b"[" * 100_000):
        answer = call(scene, "POST", "/v1/jobs", content=nonsense)
        assert answer.status_code == 400, answer.text
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert scene.written(scene.topics.commands) == before
    fits = call(scene, "POST", "/v1/jobs", job | {"payload": "x" * (256 * 1024 - 2)})
    assert fits.status_code == 201


def test_an_undecodable_event_stops_its_partition_alone_and_says_where(scene: Scene, pool: str) -> None:
    """The last one here: the partition stays as it is."""
    assert scene.server.stop_part("p0")
    offset = scene.send(scene.topics.events, HOME, b"\xc3\x01 this is no event", b"exec:x/y")
    scene.start_again("p0")
    others = set(range(PARTITIONS)) - {HOME}
    with scene.client(OPERATOR_KEY) as operator:

        def settled() -> bool:
            found = {each.partition: each.state for each in operator.partitions()}
            return found.pop(HOME) == "STOPPED" and set(found.values()) == {"RUNNING"}

        wait_until(settled, 60)
        [stopped] = [each for each in operator.partitions() if each.partition == HOME]
    for told in (stopped.reason or "", alert_of(scene)):
        assert f"{scene.topics.events} [{HOME}]" in told
        assert str(offset) in told

    # Its tenant is told that nothing is known; everybody else is served as ever.
    body = {"schedule": {"delaySec": 0}, "target": {"pool": pool}}
    keys = [key for key in (f"{pool}-{number}" for number in range(40)) if home_of(key) != HOME]
    jobs = [JobSpec(schedule=Delay(0), pool=pool, task="work", request_key=key) for key in keys]
    with (
        scene.client() as client,
        working(app(scene.url, KEY, pool, "w", 4)),
        ThreadPoolExecutor(max_workers=1) as callers,
    ):
        asked = callers.submit(call, scene, "POST", "/v1/jobs", body, SMALL_KEY)
        accepted(client.create_jobs(jobs), after(0))
        wait_until(lambda: completed(scene, pool, others) == len(keys), 60)
        silent = asked.result(30)
    assert (silent.status_code, silent.json()["code"]) == (503, "outcome_unknown")


def home_of(request_key: str) -> int:
    return partition_of(LARGE, derived_job_id(LARGE, request_key), PARTITIONS, PARTITIONS)


def alert_of(scene: Scene) -> str:
    """The newest one of the processor about the partition."""
    lines = scene.server.parts["p0"].log.read_text().splitlines()
    found = [json.loads(line) for line in lines if '"partition_stopped"' in line]
    alert = next(each for each in reversed(found) if each["partition"] == HOME)
    assert alert["level"] == "error"
    return str(alert["message"])


def completed(scene: Scene, pool: str, partitions: set[int]) -> int:
    """Read anew: who follows the whole log stands before the bad event."""
    events = [
        codec.decode(record.value)
        for number in partitions
        for record in scene.read(scene.topics.events, number)
        if record.value is not None
    ]
    return sum(isinstance(each, ExecutionCompleted) and each.execution.pool == pool for each in events)
