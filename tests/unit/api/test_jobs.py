"""Jobs and executions over HTTP: what is shown, what changes do, and what reads include."""

from __future__ import annotations

import base64

import pytest

from api.positions import OwnWrites
from schemas.commands import RegisterJob
from tests.unit.api.conftest import Api, MakeApi

CRON = {"name": "nightly", "schedule": {"cron": "0 9 * * MON-FRI", "timeZone": "Europe/London"}}


async def test_a_job_is_shown_as_understood(api: Api) -> None:
    made = (await api.post("/v1/jobs", CRON | {"labels": {"team": "x"}, "payload": {"a": 1}})).json()
    assert made["nextRunAt"] == "2026-05-01T08:00:00Z"
    assert made["schedule"] == {
        "cron": "0 9 * * MON-FRI",
        "cronExpanded": made["schedule"]["cronExpanded"],
        "timeZone": "Europe/London",
    }
    assert made["target"] == {"pool": "default", "task": "nightly"}
    assert made["retryPolicy"]["maxAttempts"] == 4
    assert (made["overlapPolicy"], made["queueLimit"], made["misfirePolicy"]) == ("queue", 1, "fire_all")
    assert "payload" not in made
    read = (await api.get(f"/v1/jobs/{made['jobId']}")).json()
    assert read["payload"] == {"a": 1}
    assert read["counts"] == {"SCHEDULED": 1}
    assert {name: read[name] for name in made} == made


async def test_put_makes_repeats_and_updates(api: Api) -> None:
    first = await api.call("PUT", "/v1/jobs/mine", CRON)
    again = await api.call("PUT", "/v1/jobs/mine", CRON)
    other = await api.call("PUT", "/v1/jobs/mine", CRON | {"name": "another"})
    assert (first.status_code, again.status_code, other.status_code) == (201, 200, 200)
    assert [answer.json()["version"] for answer in (first, again, other)] == [1, 1, 2]
    assert (other.json()["name"], other.headers["ETag"]) == ("another", '"2"')
    assert (await api.call("DELETE", "/v1/jobs/mine", {"reason": "enough"})).json()["status"] == "CANCELLED"
    anew = await api.call("PUT", "/v1/jobs/mine", CRON | {"name": "another"})
    assert anew.status_code == 201


async def test_a_cancelled_job_has_no_next_run(api: Api) -> None:
    job_id = (await api.post("/v1/jobs", CRON)).json()["jobId"]
    cancelled = await api.call("DELETE", f"/v1/jobs/{job_id}")
    assert cancelled.status_code == 200
    assert (cancelled.json()["status"], cancelled.json()["nextRunAt"]) == ("CANCELLED", None)
    read = await api.get(f"/v1/jobs/{job_id}", headers=_position(cancelled.headers))
    assert (read.json()["status"], read.json()["nextRunAt"]) == ("CANCELLED", None)
    assert [job["jobId"] for job in (await api.get("/v1/jobs?status=cancelled")).json()["jobs"]] == [job_id]
    assert (await api.get("/v1/jobs?status=ACTIVE&status=PAUSED")).json()["jobs"] == []


async def test_a_trigger_repeated_is_the_same_execution(api: Api) -> None:
    job_id = (await api.post("/v1/jobs", CRON | {"payload": 1})).json()["jobId"]
    path = f"/v1/jobs/{job_id}/trigger"
    first = await api.post(path, {"payload": {"by": "hand"}}, idempotency="t")
    again = await api.post(path, {"payload": {"by": "hand"}}, idempotency="t")
    assert (first.status_code, again.status_code) == (202, 202)
    assert first.json()["executionId"] == again.json()["executionId"]
    assert again.headers["Idempotent-Replayed"] == "true"
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    [execution] = claim.json()["executions"]
    assert (execution["kind"], execution["payload"]) == ("manual", {"by": "hand"})
    listed = await api.get(f"/v1/jobs/{job_id}/executions?kind=manual")
    assert [e["executionId"] for e in listed.json()["executions"]] == [first.json()["executionId"]]


async def test_bytes_come_back_as_bytes(api: Api) -> None:
    data = bytes(range(256))
    body = {
        "schedule": {"delaySec": 0},
        "payloadBase64": base64.b64encode(data).decode(),
        "contentType": "image/png",
    }
    await api.post("/v1/jobs", body)
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    [execution] = claim.json()["executions"]
    assert base64.b64decode(execution["payloadBase64"]) == data
    assert execution["contentType"] == "image/png"
    assert "payload" not in execution


async def test_what_only_claims_to_be_json_is_given_as_bytes(api: Api) -> None:
    body = {
        "schedule": {"delaySec": 0},
        "payloadBase64": base64.b64encode(b'{"broken').decode(),
        "contentType": "application/json",
    }
    await api.post("/v1/jobs", body)
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    assert base64.b64decode(claim.json()["executions"][0]["payloadBase64"]) == b'{"broken'


async def test_the_short_form(api: Api) -> None:
    body = {
        "name": "mail",
        "execute_at": "2026-05-01T00:00:10Z",
        "target_topic": "mails",
        "payload": {"to": "x"},
    }
    made = await api.post("/api/v1/jobs/schedule", body, idempotency="s")
    again = await api.post("/api/v1/jobs/schedule", body, idempotency="s")
    assert made.status_code == again.status_code == 201
    assert made.json() == again.json()
    assert made.json()["status"] == "SCHEDULED"
    assert made.json()["scheduled_time"] == "2026-05-01T00:00:10Z"
    path = f"/v1/executions/{made.json()['instance_id']}"
    assert (await api.get(path)).json()["status"] == "SCHEDULED"
    cancelled = await api.post(f"{path}/cancel")
    assert (cancelled.status_code, cancelled.json()["status"]) == (202, "CANCELLED")
    assert (await api.get(path)).json()["status"] == "CANCELLED"
    for wrong, field in (
        ({"execute_at": "tomorrow"}, "execute_at"),
        ({"execute_at": "2020-01-01T00:00:00Z"}, "execute_at"),
        ({"target_topic": "a b"}, "target_topic"),
        ({"targetTopic": "x"}, "targetTopic"),
    ):
        answer = await api.post("/api/v1/jobs/schedule", body | wrong)
        assert answer.status_code == 400
        assert [error["field"] for error in answer.json()["errors"]] == [field]


async def test_a_dead_letter_is_replayed_with_another_payload(api: Api) -> None:
    job = {"schedule": {"delaySec": 0}, "payload": 1, "retryPolicy": {"maxAttempts": 1}}
    execution = (await api.post("/v1/jobs", job)).json()["nextExecutionId"]
    await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    failed = {"workerId": "w", "leaseEpoch": 1, "error": "no"}
    assert (await api.post(f"/v1/executions/{execution}/fail", failed)).status_code == 200
    path = f"/v1/dead-letters/{execution}"
    letter = (await api.get(path)).json()
    assert (letter["error"], letter["payload"], letter["attempts"][0]["endedBy"]) == ("no", 1, "failed")
    replayed = await api.post(f"{path}/replay", {"payload": 2}, idempotency="r")
    assert (replayed.status_code, replayed.json()["executionId"]) == (202, execution)
    again = await api.post(f"{path}/replay", {"payload": 2}, idempotency="r")
    assert again.headers["Idempotent-Replayed"] == "true"
    claim = await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    [given] = claim.json()["executions"]
    assert (given["payload"], given["leaseEpoch"], given["idempotencyKey"]) == (2, 2, f"{execution}:r1")
    assert (await api.get(path)).status_code == 404


async def test_events_say_who_did_what(api: Api) -> None:
    made = (await api.post("/v1/jobs", CRON | {"payload": {"secret": 1}})).json()
    await api.call("DELETE", f"/v1/jobs/{made['jobId']}")
    answer = await api.get(f"/v1/jobs/{made['jobId']}/events")
    assert [event["type"] for event in answer.json()["events"]] == ["JobCancelled", "JobRegistered"]
    assert {event["actor"] for event in answer.json()["events"]} == {made["createdBy"]}
    assert "secret" not in answer.text


async def test_tenants_with_shards_are_routed(make_api: MakeApi) -> None:
    async with make_api(partitions=8, shards={"big": 8}) as api:
        jobs = [{"schedule": {"delaySec": 0}, "target": {"pool": "p"}}] * 50
        answer = await api.post("/v1/jobs/batch", {"jobs": jobs}, key="big-key")
        assert {result["status"] for result in answer.json()["results"]} == {201}
        assert len(answer.headers["Horarium-Position"].split(",")) > 4
        done: set[str] = set()
        while len(done) < 50:
            claim = await api.post(
                "/v1/pools/p/claim", {"workerId": "w", "max": 9, "waitSec": 3}, key="big-key"
            )
            executions = claim.json()["executions"]
            assert 0 < len(executions) <= 9
            done |= {execution["executionId"] for execution in executions}
        assert (await api.get("/v1/executions?pool=p&pageSize=100", key="big-key")).json()[
            "nextPageToken"
        ] == ""


async def test_a_read_waits_for_what_it_brings(make_api: MakeApi, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("api.reads.WAIT_SEC", 0.2)
    async with make_api(follow=False) as api:
        made = await api.post("/v1/jobs", CRON)
        # This process wrote it itself: not there yet is not the same as not there.
        one = await api.get(f"/v1/jobs/{made.json()['jobId']}")
        assert (one.status_code, one.json()["code"]) == (503, "projection_behind")
        brought = await api.get("/v1/jobs", headers=_position(made.headers))
        assert (brought.status_code, brought.json()["code"]) == (503, "projection_behind")
        assert brought.headers["Retry-After"]
        # Reads go on without projections.
        assert (await api.get("/v1/jobs")).json()["jobs"] == []
        assert (await api.get("/v1/jobs", key="other-key")).status_code == 200


async def test_a_read_of_one_job_waits_for_what_was_written_of_that_job(
    make_api: MakeApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.reads.WAIT_SEC", 0.2)
    async with make_api(follow=False) as api:
        many = await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"delaySec": 0}}] * 2})
        made = [result["job"] for result in many.json()["results"]]
        for path in (f"/v1/jobs/{made[1]['jobId']}", f"/v1/executions/{made[1]['nextExecutionId']}"):
            assert (await api.get(path)).json()["code"] == "projection_behind"
        assert (await api.get("/v1/jobs/another")).json()["code"] == "not_found"


def test_own_writes_are_known_by_tenant_and_job(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    own = OwnWrites()
    own.note("acme", 3, 7, ["a", "b"])
    own.note("acme", 3, 9, ["a"])
    own.note("acme", 4, -1, ["c"])  # it wrote nothing
    assert (own.of("acme"), own.of("acme", "a"), own.of("acme", "b")) == ({3: 9}, {3: 9}, {3: 7})
    assert own.of("acme", "c") == own.of("other", "a") == own.of("other") == {}
    own.seen("acme", "a", {3: 9})
    assert (own.of("acme"), own.of("acme", "a")) == ({3: 9}, {})
    now += 1.9
    own.note("acme", 3, 11, ["d"])
    assert (own.of("acme", "b"), own.of("acme", "d")) == ({3: 7}, {3: 11})
    now += 0.2
    own.note("acme", 3, 12, ["e"])
    assert (own.of("acme", "b"), own.of("acme", "d"), own.of("acme", "e")) == ({}, {3: 11}, {3: 12})
    now += 3
    assert own.of("acme") == own.of("acme", "e") == {}


async def test_a_reported_outcome_is_a_write_of_its_job(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    made = (await api.post("/v1/jobs", {"schedule": {"delaySec": 0}})).json()
    await api.post("/v1/pools/default/claim", {"workerId": "w", "waitSec": 5})
    noted: list[tuple[str, int, int, set[str]]] = []
    monkeypatch.setattr(OwnWrites, "note", lambda self, *write: noted.append(write))
    outcome = {"workerId": "w", "leaseEpoch": 1}
    execution = f"/v1/executions/{made['nextExecutionId']}"
    assert (await api.post(f"{execution}/complete", outcome)).status_code == 200
    [(tenant, _, _, jobs)] = noted
    assert (tenant, jobs) == ("acme", {made["jobId"]})


async def test_a_command_carries_only_what_the_key_says(api: Api) -> None:
    await api.post("/v1/jobs", CRON | {"reason": "because"}, headers={"X-Tenant": "other"})
    [command] = [command for command in api.log.sent if isinstance(command, RegisterJob)]
    assert (command.tenant, command.reason) == ("acme", "because")


def _position(headers: object) -> dict[str, str]:
    return {"Horarium-Position": headers["Horarium-Position"]}  # type: ignore[index]
