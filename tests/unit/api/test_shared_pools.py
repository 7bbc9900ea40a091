"""Workers of a shared pool over HTTP: what they get, from whom, and what they may do with it."""

from __future__ import annotations

import asyncio
from typing import Any

from schemas.commands import Release
from tests.unit.api.conftest import Api, MakeApi
from tests.waiting import wait_until

CLAIM = "/v1/pools/shared%2Fgpu/claim"


async def make(api: Api, key: str, count: int) -> None:
    for _ in range(count):
        body = {"schedule": {"delaySec": 0}, "target": {"pool": "shared/gpu"}}
        assert (await api.post("/v1/jobs", body, key=key)).status_code == 201


async def claim(api: Api, **body: Any) -> list[dict[str, Any]]:
    answer = await api.post(CLAIM, {"workerId": "w", "waitSec": 5, **body}, key="shared-key")
    assert answer.status_code == 200, answer.json()
    executions: list[dict[str, Any]] = answer.json()["executions"]
    return executions


async def test_work_of_all_tenants_in_all_partitions(make_api: MakeApi) -> None:
    async with make_api(partitions=8, shards={"acme": 4}) as api:
        await make(api, "tenant-key", 6)
        await make(api, "other-key", 3)
        got: list[dict[str, Any]] = []
        while len(got) < 9:
            some = await claim(api, max=9)
            assert some
            got += some
        assert sorted(one["tenant"] for one in got) == ["acme"] * 6 + ["other"] * 3
        items = [
            {
                "executionId": one["executionId"],
                "tenant": one["tenant"],
                "leaseEpoch": 1,
                "status": "COMPLETED",
            }
            for one in got
        ]
        done = await api.post(
            "/v1/executions/outcomes", {"workerId": "w", "outcomes": items}, key="shared-key"
        )
        assert [result["status"] for result in done.json()["results"]] == [200] * 9


async def test_a_repeated_claim_brings_what_it_holds_of_every_tenant(make_api: MakeApi) -> None:
    async with make_api(partitions=1) as api:
        await make(api, "tenant-key", 1)
        await make(api, "other-key", 1)
        first = await claim(api, max=5, claimId="c")
        again = await claim(api, max=5, claimId="c")
        assert {one["tenant"] for one in first} == {"acme", "other"}
        assert {one["executionId"] for one in again} == {one["executionId"] for one in first}


async def test_what_a_pool_may_not_run_is_not_granted(make_api: MakeApi) -> None:
    async with make_api(partitions=4, shards={"acme": 4}) as api:
        limits = {"maxRunning": 2, "tenantMaxRunning": 2}
        await api.call("PUT", "/v1/pools/shared%2Fgpu", limits, key="operator-key")
        await make(api, "tenant-key", 8)
        got = await claim(api, max=8)
        while len(got) < 2:
            got += await claim(api, max=8)
        assert len(got) == 2
        assert await claim(api, max=8, waitSec=1) == []


async def test_what_nobody_waits_for_goes_back_to_its_tenant(make_api: MakeApi) -> None:
    async with make_api(partitions=2) as api:
        waiting = asyncio.create_task(claim(api, max=1, waitSec=20))
        await asyncio.to_thread(wait_until, lambda: bool(api.log.sent))
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await make(api, "other-key", 1)
        [one] = await claim(api, max=1)
        assert one["tenant"] == "other"
        released = [command for command in api.log.sent if isinstance(command, Release)]
        assert {command.tenant for command in released} <= {"other"}


async def test_a_bound_that_holds_in_each_partition_is_told_of_where_it_is_reached(make_api: MakeApi) -> None:
    async with make_api(partitions=4) as api:
        assert api.services.client.partitions_of("acme") != api.services.client.partitions_of("other")
        limits = {"maxRunning": 2, "tenantMaxRunning": 2}
        await api.call("PUT", "/v1/pools/shared%2Fgpu", limits, key="operator-key")
        await make(api, "other-key", 3)
        got = await claim(api, max=5)
        while len(got) < 2:
            got += await claim(api, max=5)
        await make(api, "tenant-key", 1)
        for key, expected in (("other-key", "cap"), ("tenant-key", "worker")):
            answer = await api.get("/v1/executions?status=PENDING", key=key, fresh=True)
            assert [one["waitingFor"] for one in answer.json()["executions"]] == [expected], key
        [share] = (await api.get("/v1/tenant", key="other-key")).json()["share"]
        assert (share["running"], share["runningOfAll"]) == (2, 2)
