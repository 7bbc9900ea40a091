"""Limits, pauses, a shared pool and dead letters by filter, through the client library, on real processes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from horarium import (
    NONE,
    App,
    AsyncClient,
    Client,
    Conflict,
    Context,
    Delay,
    Every,
    Execution,
    JobSpec,
    RateLimited,
    RetryPolicy,
    RetryRules,
    Snooze,
)
from horarium.work_calls import Outcome

from dev.server import Server
from tests.waiting import wait_until

pytestmark = pytest.mark.kafka

KEYS = (
    "acme=tenant-key,other=other-key,slow=slow-key,full=full-key,moving=moving-key,"
    "ops=operator-key:operator,ops=gpu-key:worker:shared/gpu+shared/cpu"
)
ONCE = RetryPolicy(max_attempts=1)
Connect = Callable[[str], Client]


@pytest.fixture(scope="module")
def server(kafka: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("tenants")
    namespace = f"test-tenants-{time.monotonic_ns() % 1_000_000}"
    settings = {"HORARIUM_DEV_KEYS": KEYS}
    with Server(folder, bootstrap=kafka, namespace=namespace, partitions=4, settings=settings) as server:
        yield server


@pytest.fixture
def connect(server: Server) -> Iterator[Connect]:
    clients: list[Client] = []

    def make(key: str) -> Client:
        clients.append(Client(server.url, key))
        return clients[-1]

    yield make
    for client in clients:
        client.close()


def claimed(client: Client, pool: str, most: int = 10, wait_sec: float = 5) -> list[Any]:
    return list(client.claim(pool, "w", max=most, wait_sec=wait_sec).executions)


def test_a_rate_of_registrations(connect: Connect) -> None:
    connect("operator-key").configure_tenant("slow", registrations_per_sec=5)
    slow = connect("slow-key")
    specs = [JobSpec(schedule=Every(3600)) for _ in range(12)]
    keys: list[str] = []

    def is_refused() -> bool:
        """Whether a new batch is too fast: so it is once the processors know the rate."""
        keys.append(f"batch{len(keys)}")
        with Client(slow.url, "slow-key", retry=RetryRules(for_sec=0)) as hasty:
            items = hasty.create_jobs(specs, idempotency_key=keys[-1])
        limited = [item.error for item in items if item.error is not None]
        assert all(isinstance(error, RateLimited) and error.code == "rate_limited" for error in limited)
        assert all(error.retry_after_sec == 1 for error in limited)
        return bool(limited)

    wait_until(is_refused)
    # The same batch again, with patience: what is in already costs nothing.
    assert [item.status for item in slow.create_jobs(specs, idempotency_key=keys[-1])] == [201] * 12


def test_a_number_of_jobs(connect: Connect) -> None:
    connect("operator-key").configure_tenant("full", max_jobs=1)
    full = connect("full-key")
    full.put_job("a", JobSpec(schedule=Every(3600)))
    refused: list[RateLimited] = []

    def is_refused() -> bool:
        try:
            full.put_job("b", JobSpec(schedule=Every(3600)))
        except RateLimited as error:
            refused.append(error)
            return True
        full.cancel_job("b")  # the processors did not know yet
        return False

    wait_until(is_refused)
    assert [(error.code, error.retry_after_sec) for error in refused] == [("too_many_jobs", 60)]
    full.cancel_job("a")
    assert full.put_job("b", JobSpec(schedule=Every(3600))).status == "ACTIVE"


def test_pauses_take_effect_without_a_restart(connect: Connect) -> None:
    operator, tenant = connect("operator-key"), connect("tenant-key")
    for pause, resume, name in (
        (lambda: tenant.pause_pool("p"), lambda: tenant.resume_pool("p"), "pool"),
        (lambda: operator.pause_tenant("acme"), lambda: operator.resume_tenant("acme"), "tenant"),
    ):
        pause()
        wait_until(lambda: _is_held(tenant, "p"))
        [waiting] = tenant.list_executions(pool="p", status="PENDING").items
        assert (waiting.waiting_for, tenant.get_pool("p").pending_by_priority["normal"]) == (
            "paused_pool",
            1,
        ), name
        resume()
        [execution] = claimed(tenant, "p")
        assert execution.execution_id == waiting.execution_id
        tenant.complete(execution.execution_id, "w", execution.lease_epoch)


def _is_held(tenant: Client, pool: str) -> bool:
    """Whether a new execution is not handed out: a change is told to the API's process before it is answered,
    to the processors a moment later."""
    tenant.create_job(JobSpec(schedule=Delay(0), pool=pool))
    executions = claimed(tenant, pool, wait_sec=1)
    for execution in executions:
        tenant.complete(execution.execution_id, "w", execution.lease_epoch)
    return not executions


def test_a_cap_and_what_waits_for_it(connect: Connect) -> None:
    tenant = connect("tenant-key")
    assert tenant.configure_pool("capped", max_running=1).max_running == 1
    assert tenant.get_pool("capped").max_running == 1
    # Changes are heard in their order: where the pause is known, so is the cap.
    tenant.pause_pool("capped")
    wait_until(lambda: _is_held(tenant, "capped"))
    for _ in range(2):
        tenant.create_job(JobSpec(schedule=Delay(0), pool="capped"))
    tenant.resume_pool("capped")
    held = claimed(tenant, "capped")
    assert len(held) == 1
    assert claimed(tenant, "capped", wait_sec=1) == []
    waiting = tenant.list_executions(pool="capped", status="PENDING").items
    assert [one.waiting_for for one in waiting] == ["cap", "cap"]
    tenant.configure_pool("capped", max_running=NONE)
    more = claimed(tenant, "capped")
    while len(more) < 2:
        more += claimed(tenant, "capped")
    for one in held + more:
        tenant.complete(one.execution_id, "w", one.lease_epoch)


def test_a_shared_pool_serves_tenants_of_all_partitions(connect: Connect) -> None:
    operator, worker = connect("operator-key"), connect("gpu-key")
    operator.configure_pool("shared/gpu", max_running=100, tenant_max_running=100)
    tenants = {"acme": connect("tenant-key"), "other": connect("other-key"), "moving": connect("moving-key")}
    for client in tenants.values():
        for _ in range(5):
            client.create_job(JobSpec(schedule=Delay(0), pool="shared/gpu", retry_policy=ONCE))
    seen: list[str] = []
    deadline = time.monotonic() + 30
    while len(seen) < 15 and time.monotonic() < deadline:
        executions = claimed(worker, "shared/gpu", 4)
        seen += [execution.tenant for execution in executions]
        outcomes = [
            Outcome(
                execution_id=one.execution_id, lease_epoch=one.lease_epoch, worker_id="w", tenant=one.tenant
            )
            for one in executions
        ]
        if outcomes:
            assert {answer.status for answer in worker.outcomes(outcomes)} == {200}
    assert {name: seen.count(name) for name in tenants} == dict.fromkeys(tenants, 5)
    assert [pool.pool for pool in operator.iter_pools()] == ["shared/gpu"]


async def test_a_worker_of_a_shared_pool_says_whose_execution_it_has(
    server: Server, connect: Connect
) -> None:
    app = App(server.url, "gpu-key", pool="shared/cpu", slots=4, wait_sec=5)

    @app.handler("held")
    async def held(ctx: Context[Any]) -> str:
        ctx.heartbeat({"half": True})
        await asyncio.sleep(2.5)  # longer than the lease: only heartbeats keep it
        return ctx.tenant

    @app.handler("handed-back")
    async def handed_back(ctx: Context[Any]) -> Any:
        if ctx.progress:
            return ctx.tenant
        ctx.heartbeat({"seen": True})  # goes along with what ends the delivery
        return Snooze(1)

    tenants = {"acme": connect("tenant-key"), "other": connect("other-key")}
    made = {
        (name, task): client.create_job(
            JobSpec(schedule=Delay(0), pool="shared/cpu", task=task, lease_sec=1, retry_policy=ONCE)
        )
        for name, client in tenants.items()
        for task in ("held", "handed-back")
    }
    async with AsyncClient(server.url, "gpu-key") as client:
        worker = app.worker(client)
        running = asyncio.create_task(worker.run())
        for (name, _), job in made.items():
            ended = await asyncio.to_thread(_ended, tenants[name], str(job.next_execution_id))
            assert (ended.status, ended.result, ended.attempt) == ("COMPLETED", name, 1)
        worker.drain()
        await running


def _ended(client: Client, execution_id: str) -> Execution:
    wait_until(lambda: client.get_execution(execution_id).status == "COMPLETED", timeout_sec=30)
    return client.get_execution(execution_id)


def test_dead_letters_by_filter(connect: Connect) -> None:
    tenant = connect("tenant-key")
    specs = [JobSpec(schedule=Delay(0), pool="bad", task=f"t{n % 2}", retry_policy=ONCE) for n in range(6)]
    tenant.create_jobs(specs)
    failed = 0
    while failed < 6:
        for one in claimed(tenant, "bad"):
            tenant.fail(one.execution_id, "w", one.lease_epoch, "broken")
            failed += 1
    assert tenant.replay_dead_letters(pool="bad", task="t1") == 3
    assert tenant.replay_dead_letters(pool="bad", task="t1", payload={"fixed": 1}, dry_run=False) == 3
    fixed: list[Any] = []
    while len(fixed) < 3:
        fixed += claimed(tenant, "bad")
    assert [one.payload for one in fixed] == [{"fixed": 1}] * 3
    for one in fixed:
        tenant.complete(one.execution_id, "w", one.lease_epoch)
    left = tenant.list_dead_letters(pool="bad").items
    assert len(left) == 3
    assert tenant.discard_dead_letter(left[0].execution_id, reason="by hand").reason == "discarded"
    assert len(tenant.list_dead_letters(pool="bad").items) == 2
    with pytest.raises(Conflict):
        tenant.replay_dead_letter(left[0].execution_id)
    kinds = {alert.kind for alert in tenant.iter_alerts()}
    assert "dead_letter" in kinds


def test_shards_change_only_without_jobs(connect: Connect) -> None:
    operator, moving = connect("operator-key"), connect("moving-key")
    moving.put_job("a", JobSpec(schedule=Every(3600)))
    moving.get_job("a")
    with pytest.raises(Conflict) as raised:
        operator.configure_tenant("moving", shards=4)
    assert raised.value.code == "shards_fixed"
