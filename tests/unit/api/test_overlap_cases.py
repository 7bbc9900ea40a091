"""The handed cases of misfire and overlap that callers see (the others are in test_control, test_backfill and
tests/unit/core/test_policies.py)."""

from __future__ import annotations

from typing import Any

from tests.unit.api.conftest import Api, MakeApi
from tests.unit.api.test_backfill import occurrences
from tests.unit.api.test_control import claimed


async def done(api: Api, execution: dict[str, Any]) -> None:
    path = f"/v1/executions/{execution['executionId']}/complete"
    report = {"workerId": "w", "leaseEpoch": execution["leaseEpoch"]}
    assert (await api.post(path, report)).status_code == 200


async def test_ovl_001_a_week_of_missed_minutes(api: Api) -> None:
    job = {"schedule": {"cron": "* * * * *"}, "misfirePolicy": "fire_once", "overlapPolicy": "skip"}
    await api.call("PUT", "/v1/jobs/a", job)
    api.log.jump(7 * 86_400 + 30)
    [run] = await claimed(api)
    assert run["scheduledTime"] == "2026-05-08T00:00:00Z"
    read = await api.get("/v1/jobs/a", fresh=True)
    assert read.json()["nextRunAt"] == "2026-05-08T00:01:00Z"
    shown = await occurrences(api, "a", "2026-05-01T00:00:00Z", "2026-05-08T00:01:00Z")
    missed = [one for one in shown["occurrences"] if one["status"] == "SKIPPED"]
    assert sum(one.get("count", 1) for one in missed) == 10_079
    assert {one["reason"] for one in missed} == {"misfire_window", "misfire_policy"}


async def test_ovl_003_skipped_while_an_earlier_one_runs(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", {"schedule": {"cron": "*/5 * * * *"}, "overlapPolicy": "skip"})
    api.log.advance(300)
    answer = await api.post("/v1/pools/default/claim", {"workerId": "w", "leaseSec": 3600})
    [first] = answer.json()["executions"]
    api.log.advance(720)
    await done(api, first)
    api.log.advance(180)
    [second] = await claimed(api)
    assert second["scheduledTime"] == "2026-05-01T00:20:00Z"
    shown = await occurrences(api, "a", "2026-05-01T00:00:00Z", "2026-05-01T00:21:00Z")
    assert [
        (one["scheduledTime"][14:16], one["status"], one.get("reason")) for one in shown["occurrences"]
    ] == [
        ("05", "COMPLETED", None),
        ("10", "SKIPPED", "overlap"),
        ("15", "SKIPPED", "overlap"),
        ("20", "RUNNING", None),
    ]


async def test_ovl_010_one_expression_a_job(api: Api) -> None:
    answer = await api.post("/v1/jobs", {"schedule": {"cron": ["0 8 * * TUE", "0 11 * * THU"]}})
    assert answer.status_code == 400
    [error] = answer.json()["errors"]
    assert error["field"] == "schedule.cron"
    assert "one cron expression per job" in error["detail"]


async def test_ovl_016_two_jobs_with_the_same_expression(make_api: MakeApi) -> None:
    async with make_api(now="2026-05-01T12:30:00Z") as api:
        for job_id in ("j1", "j2"):
            await api.call("PUT", f"/v1/jobs/{job_id}", {"schedule": {"cron": "0 * * * *"}})
        api.log.advance(1_800)
        runs = await claimed(api)
        assert sorted(run["jobId"] for run in runs) == ["j1", "j2"]
        assert {run["scheduledTime"] for run in runs} == {"2026-05-01T13:00:00Z"}


async def test_ovl_018_the_next_start_does_not_slide(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", {"schedule": {"cron": "0 1 * * *"}, "leaseSec": 3600})
    times = []
    api.log.advance(3600)
    for _ in range(5):
        [run] = await claimed(api)
        times.append(run["scheduledTime"])
        for _ in range(8):
            api.log.advance(1_800)
            beat = {"workerId": "w", "leaseEpoch": run["leaseEpoch"]}
            await api.post(f"/v1/executions/{run['executionId']}/heartbeat", beat)
        await done(api, run)
        api.log.advance(20 * 3600)
    assert times == [f"2026-05-0{day}T01:00:00Z" for day in range(1, 6)]


async def test_ovl_020_far_ahead(make_api: MakeApi) -> None:
    async with make_api(now="2026-01-01T00:00:00Z") as api:
        schedules: list[dict[str, Any]] = [
            {"delaySec": days * 86_400} for days in (24, 25, 40, 50, 400, 10_957)
        ]
        schedules.append({"cron": "0 0 29 2 *"})
        for number, schedule in enumerate(schedules):
            made = await api.call("PUT", f"/v1/jobs/j{number}", {"schedule": schedule})
            assert made.status_code == 201
        assert made.json()["nextRunAt"] == "2028-02-29T00:00:00Z"
        assert (await api.get("/v1/jobs/j5")).json()["nextRunAt"] == "2056-01-01T00:00:00Z"
        for day, job_id in ((24, "j0"), (25, "j1"), (40, "j2"), (50, "j3"), (400, "j4")):
            passed = (api.log.cluster.now_ms - 1_767_225_600_000) // 1000
            api.log.jump(day * 86_400 - passed - 1)
            assert (await api.post("/v1/pools/default/claim", {"workerId": "w"})).json()["executions"] == []
            api.log.jump(1)
            [run] = await claimed(api)
            assert run["jobId"] == job_id
            await done(api, run)
