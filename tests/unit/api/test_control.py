"""Pause, resume and trigger over HTTP."""

from __future__ import annotations

from typing import Any

from tests.unit.api.conftest import Api, MakeApi

HOURLY = {"schedule": {"cron": "0 * * * *"}}


async def claimed(api: Api) -> list[dict[str, Any]]:
    answer = await api.post("/v1/pools/default/claim", {"workerId": "w", "max": 10, "waitSec": 1})
    executions: list[dict[str, Any]] = answer.json()["executions"]
    return executions


async def test_a_paused_job_says_who_when_and_why(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY)
    paused = await api.post("/v1/jobs/a/pause", {"reason": "month end"}, idempotency="p")
    assert paused.status_code == 200
    read = (await api.get("/v1/jobs/a")).json()
    for answer in (paused.json(), read):
        assert (answer["status"], answer["nextRunAt"], answer["nextExecutionId"]) == ("PAUSED", None, None)
        assert answer["paused"] == {
            "by": answer["createdBy"],
            "at": "2026-05-01T00:00:00Z",
            "reason": "month end",
        }
    again = await api.post("/v1/jobs/a/pause", {"reason": "month end"}, idempotency="p")
    assert again.headers["Idempotent-Replayed"] == "true"
    other = await api.post("/v1/jobs/a/pause", {"reason": "else"}, idempotency="p")
    assert other.json()["code"] == "idempotency_key_reused"
    assert (await api.post("/v1/jobs/a/pause")).status_code == 200
    resumed = await api.post("/v1/jobs/a/resume", {"reason": "done"})
    assert (resumed.json()["status"], resumed.json()["paused"]) == ("ACTIVE", None)
    assert resumed.json()["nextRunAt"] == "2026-05-01T01:00:00Z"
    refused = await api.post("/v1/jobs/a/resume")
    assert (refused.status_code, refused.json()["code"]) == (409, "not_paused")
    types = [event["type"] for event in (await api.get("/v1/jobs/a/events")).json()["events"]]
    assert types == ["JobResumed", "JobPaused", "JobRegistered"]
    for action in ("pause", "resume", "trigger"):
        assert (await api.post(f"/v1/jobs/nobody/{action}")).status_code == 404
        assert (await api.post(f"/v1/jobs/a/{action}", key="other-key")).status_code == 404
        assert (await api.post(f"/v1/jobs/a/{action}", key="auditor-key")).status_code == 403
        assert (await api.post(f"/v1/jobs/a/{action}", {"why": "x"})).status_code == 400


async def test_ovl_012_a_resume_on_the_tick(make_api: MakeApi) -> None:
    async with make_api(now="2026-05-01T00:30:00Z") as api:
        await api.call("PUT", "/v1/jobs/a", HOURLY | {"misfirePolicy": "fire_once"})
        await api.post("/v1/jobs/a/pause")
        api.log.advance(4.5 * 3600)
        resumed = await api.post("/v1/jobs/a/resume", {"missed": "fire_once"})
        assert resumed.json()["nextRunAt"] == "2026-05-01T06:00:00Z"
        assert [one["scheduledTime"] for one in await claimed(api)] == ["2026-05-01T05:00:00Z"]
        bad = await api.post("/v1/jobs/a/resume", {"missed": "some"})
        assert [error["field"] for error in bad.json()["errors"]] == ["missed"]


async def test_ovl_014_a_trigger_of_a_paused_job(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", {"schedule": {"cron": "0 9 * * *"}})
    await api.post("/v1/jobs/a/pause")
    api.log.advance(10 * 3600)
    triggered = await api.post("/v1/jobs/a/trigger", {"reason": "now please"})
    assert triggered.status_code == 202
    [run] = await claimed(api)
    assert (run["kind"], run["scheduledTime"]) == ("manual", "2026-05-01T10:00:00Z")
    await api.post(f"/v1/executions/{run['executionId']}/complete", {"workerId": "w", "leaseEpoch": 1})
    assert (await api.get("/v1/jobs/a")).json()["nextRunAt"] is None
    api.log.advance(3600)
    resumed = await api.post("/v1/jobs/a/resume")
    assert resumed.json()["nextRunAt"] == "2026-05-02T09:00:00Z"
    assert await claimed(api) == []


async def test_a_trigger_has_a_policy_of_its_own(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY | {"overlapPolicy": "skip"})
    await api.post("/v1/jobs/a/trigger")
    skipped = await api.post("/v1/jobs/a/trigger")
    allowed = await api.post("/v1/jobs/a/trigger", {"overlapPolicy": "allow"})
    assert [answer.json()["status"] for answer in (skipped, allowed)] == ["SKIPPED", "PENDING"]
    refused = await api.post("/v1/jobs/a/trigger", {"overlapPolicy": "never"})
    assert [error["field"] for error in refused.json()["errors"]] == ["overlapPolicy"]
    read = (await api.get(f"/v1/executions/{skipped.json()['executionId']}")).json()
    assert (read["status"], read["reason"]) == ("SKIPPED", "overlap")


async def test_a_key_made_of_a_template(api: Api) -> None:
    template = {"idempotencyKeyTemplate": "billing:{jobId}:{scheduledTime:%Y-%m}"}
    schedule = {"schedule": {"cron": "0 0 1 * *", "timeZone": "Asia/Tokyo"}}
    await api.call("PUT", "/v1/jobs/bill", schedule | template)
    api.log.jump(31 * 86_400)
    [run] = await claimed(api)
    assert (run["scheduledTime"], run["idempotencyKey"]) == ("2026-05-31T15:00:00Z", "billing:bill:2026-06")


async def test_a_deadline_for_the_first_start(api: Api) -> None:
    await api.call("PUT", "/v1/jobs/a", HOURLY | {"startDeadlineSec": 60})
    api.log.advance(3600)
    [waiting] = (await api.get("/v1/jobs/a/executions?status=PENDING", fresh=True)).json()["executions"]
    assert waiting["startDeadline"] == "2026-05-01T01:01:00Z"
    api.log.advance(60)
    [skipped] = (await api.get("/v1/jobs/a/executions?status=SKIPPED", fresh=True)).json()["executions"]
    assert skipped["reason"] == "deadline"
