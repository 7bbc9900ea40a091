"""Hostile input: every one is a clear 4xx that names the field, never a 500, and none reaches the log."""

# ruff: noqa: E501  one line an input, so that the tables can be read

from __future__ import annotations

import threading
from typing import Any

import pytest

from api import bodies, strict_json
from api.bodies import IN_LINE_BYTES_MAX, IN_LINE_VALUES_MAX
from api.problems import MEDIA_TYPE
from tests.unit.api.conftest import Api

JOB = '"schedule": {"everySec": 60}'

BODIES: list[tuple[str, bytes, str]] = [
    # (what, body, the field that is named)
    ("nothing at all", b"", "schedule"),
    ("no JSON", b"hello", "body"),
    ("half of it", b'{"schedule": {"everySec": 60}', "body"),
    ("two documents", b'{"schedule": {"everySec": 60}} {}', "body"),
    ("not UTF-8", b'{"name": "\xff", "schedule": {"everySec": 60}}', "body"),
    ("UTF-16", '{"schedule": {"everySec": 60}}'.encode("utf-16"), "body"),
    ("a byte order mark", b'\xef\xbb\xbf{"schedule": {"everySec": 60}}', "body"),
    ("a list", b"[]", "body"),
    ("null", b"null", "body"),
    ("a key twice", f'{{{JOB}, "name": "a", "name": "b"}}'.encode(), "name"),
    ("a key twice, spelt apart", f'{{{JOB}, "name": "a", "n\\u0061me": "b"}}'.encode(), "name"),
    ("a key twice within", b'{"schedule": {"everySec": 60, "everySec": 61}}', "schedule.everySec"),
    ("a key twice in the payload", f'{{{JOB}, "payload": {{"a": [{{"b":1,"b":2}}]}}}}'.encode(), "payload.a[0].b"),
    ("NaN", f'{{{JOB}, "payload": {{"x": NaN}}}}'.encode(), "payload.x"),
    ("Infinity", b'{"schedule": {"everySec": Infinity}}', "schedule.everySec"),
    ("a huge exponent", f'{{{JOB}, "payload": [1e999]}}'.encode(), "payload[0]"),
    ("a huge exponent in a number", b'{"schedule": {"everySec": 1e400}}', "schedule.everySec"),
    ("an endless integer", f'{{{JOB}, "payload": {"9" * 5000}}}'.encode(), "payload"),
    ("a lone surrogate", f'{{{JOB}, "name": "\\ud800"}}'.encode(), "name"),
    ("a lone surrogate in the payload", f'{{{JOB}, "payload": {{"a": "\\udc00x"}}}}'.encode(), "payload.a"),
    ("a lone surrogate as key", f'{{{JOB}, "payload": {{"\\ud800": 1}}}}'.encode(), "payload.?"),
    ("NUL", f'{{{JOB}, "name": "a\\u0000b"}}'.encode(), "name"),
    ("DEL", f'{{{JOB}, "name": "a\x7fb"}}'.encode(), "name"),
    ("C1", f'{{{JOB}, "name": "a\x85b"}}'.encode(), "name"),
    ("a line break", f'{{{JOB}, "name": "a\\nb"}}'.encode(), "name"),
    ("a raw control character", f'{{{JOB}, "payload": "a\tb"}}'.encode(), "body"),
    ("a nesting bomb", f'{{{JOB}, "payload": {"[" * 100_000}{"]" * 100_000}}}'.encode(), "body"),
    ("deep nesting", f'{{{JOB}, "payload": {"[" * 150}{"]" * 150}}}'.encode(), "payload[0][0][0][0][0][0][0]"),
    ("an unknown member", f'{{{JOB}, "nmae": "x"}}'.encode(), "nmae"),
    ("an unknown member within", b'{"schedule": {"everySec": 60, "zone": "UTC"}}', "schedule.zone"),
    ("no schedule", b"{}", "schedule"),
    ("an empty schedule", b'{"schedule": {}}', "schedule"),
    ("two schedules", b'{"schedule": {"everySec": 60, "delaySec": 5}}', "schedule"),
    ("a string for a number", b'{"schedule": {"everySec": "60"}}', "schedule.everySec"),
    ("a float for an integer", b'{"schedule": {"everySec": 60.5}}', "schedule.everySec"),
    ("true for a number", b'{"schedule": {"everySec": true}}', "schedule.everySec"),
    ("beyond 64 bits", b'{"schedule": {"everySec": 99999999999999999999}}', "schedule.everySec"),
    ("negative", b'{"schedule": {"delaySec": -1}}', "schedule.delaySec"),
    ("a list for an object", b'{"schedule": []}', "schedule"),
    ("null for an object", b'{"schedule": null}', "schedule"),
    ("a bad cron", b'{"schedule": {"cron": "61 * * * *"}}', "schedule.cron"),
    ("a long cron", f'{{"schedule": {{"cron": "{"1," * 5000}1 * * * *"}}}}'.encode(), "schedule.cron"),
    ("a bad pool", f'{{{JOB}, "target": {{"pool": "a b"}}}}'.encode(), "target.pool"),
    ("a path as pool", f'{{{JOB}, "target": {{"pool": "../x"}}}}'.encode(), "target.pool"),
    ("a number as label", f'{{{JOB}, "labels": {{"a": 1}}}}'.encode(), "labels"),
    ("many labels", (f'{{{JOB}, "labels": {{' + ",".join(f'"l{n}":"v"' for n in range(17)) + "}}").encode(), "labels"),
    ("a long label", f'{{{JOB}, "labels": {{"a": "{"x" * 256}"}}}}'.encode(), "labels.a"),
    ("a long name", f'{{{JOB}, "name": "{"x" * 101}"}}'.encode(), "name"),
    ("an empty task", f'{{{JOB}, "target": {{"task": ""}}}}'.encode(), "target.task"),
    ("a priority", f'{{{JOB}, "priority": "urgent"}}'.encode(), "priority"),
    ("a lease", f'{{{JOB}, "leaseSec": 0}}'.encode(), "leaseSec"),
    ("a timeout", f'{{{JOB}, "timeoutSec": 604801}}'.encode(), "timeoutSec"),
    ("attempts", f'{{{JOB}, "retryPolicy": {{"maxAttempts": 0}}}}'.encode(), "retryPolicy.maxAttempts"),
    ("a factor", f'{{{JOB}, "retryPolicy": {{"backoffFactor": 101}}}}'.encode(), "retryPolicy.backoffFactor"),
    ("a maximum below the base", f'{{{JOB}, "retryPolicy": {{"backoffBaseSec": 60, "backoffMaxSec": 59}}}}'.encode(), "retryPolicy.backoffMaxSec"),
    ("both payloads", f'{{{JOB}, "payload": 1, "payloadBase64": "AA=="}}'.encode(), "payloadBase64"),
    ("no base64", f'{{{JOB}, "payloadBase64": "A*=="}}'.encode(), "payloadBase64"),
    ("a type without payload", f'{{{JOB}, "contentType": "text/plain"}}'.encode(), "contentType"),
    ("a type of JSON", f'{{{JOB}, "payload": 1, "contentType": "text/plain"}}'.encode(), "contentType"),
    ("a reason with control characters", f'{{{JOB}, "reason": "\\u0007"}}'.encode(), "reason"),
]  # fmt: skip


# One API for each whole table: starting one takes longer than its calls.
async def test_bad_bodies(api: Api) -> None:
    for what, body, field in BODIES:
        answer = await api.post("/v1/jobs", content=body)
        assert answer.status_code == 400, (what, answer.text)
        assert answer.headers["Content-Type"] == MEDIA_TYPE
        problem = answer.json()
        assert (problem["status"], problem["code"]) == (400, "invalid"), what
        assert field in [error["field"] for error in problem["errors"]], (what, problem)
    assert not api.log.sent


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"target": {"http": {"url": "https://example.com"}}}, "target.http", "target_not_supported"),
    ({"target": {"topic": "t", "key": "k"}}, "target.topic", "target_not_supported"),
    ({"target": {"pool": "shared/"}}, "target.pool", "invalid"),
    ({"target": {"pool": "shared/a/b"}}, "target.pool", "invalid"),
    ({"startDeadlineSec": 0}, "startDeadlineSec", "invalid"),
    ({"startDeadlineSec": 31_536_001}, "startDeadlineSec", "invalid"),
    ({"maxConcurrent": 0}, "maxConcurrent", "invalid"),
    ({"maxConcurrent": 10_001}, "maxConcurrent", "invalid"),
    ({"exclusionGroup": "the ledger"}, "exclusionGroup", "invalid"),
    ({"exclusionGroup": ""}, "exclusionGroup", "invalid"),
    ({"idempotencyKeyTemplate": ""}, "idempotencyKeyTemplate", "invalid"),
    ({"idempotencyKeyTemplate": "{job}"}, "idempotencyKeyTemplate", "invalid"),
    ({"idempotencyKeyTemplate": "x" * 256}, "idempotencyKeyTemplate", "invalid"),
    ({"latenessAlertSec": 0}, "latenessAlertSec", "invalid"),
    ({"latenessAlertSec": 86_401}, "latenessAlertSec", "invalid"),
    ({"overlapPolicy": "never"}, "overlapPolicy", "invalid"),
    ({"overlapPolicy": ["skip"]}, "overlapPolicy", "invalid"),
    ({"queueLimit": 0}, "queueLimit", "invalid"),
    ({"queueLimit": 1_001}, "queueLimit", "invalid"),
    ({"queueLimit": True}, "queueLimit", "invalid"),
    ({"misfirePolicy": "fire_some"}, "misfirePolicy", "invalid"),
    ({"misfireWindowSec": 2_592_001}, "misfireWindowSec", "invalid"),
    ({"schedule": {"everySec": 60, "jitterSec": 86_401}}, "schedule.jitterSec", "invalid"),
    ({"schedule": {"everySec": 60, "maxRuns": 0}}, "schedule.maxRuns", "invalid"),
    ({"schedule": {"everySec": 60, "startAt": "x"}}, "schedule.startAt", "invalid"),
    ({"schedule": {"everySec": 60, "endAt": "2026-01-01"}}, "schedule.endAt", "invalid"),
]


async def test_what_is_not_built_or_out_of_range_is_refused(api: Api) -> None:
    for member, field, code in REFUSED:
        job = {"schedule": {"everySec": 60}} | member
        answer = await api.post("/v1/jobs", job)
        assert (answer.status_code, answer.json()["code"]) == (400, code), member
        assert field in [error["field"] for error in answer.json()["errors"]], member
        batch = await api.post("/v1/jobs/batch", {"jobs": [job]})
        assert batch.json()["results"][0]["problem"]["code"] == code, member
    assert not api.log.sent


async def test_the_defaults_may_be_written_out(api: Api) -> None:
    job = {
        "schedule": {"everySec": 60, "jitterSec": 0},
        "overlapPolicy": "queue",
        "queueLimit": 1,
        "misfirePolicy": "fire_all",
    }
    assert (await api.post("/v1/jobs", job)).status_code == 201


KEYS: list[tuple[list[str], int]] = [
    (["k"], 201),
    (['"quoted"'], 201),
    (["x" * 255], 201),
    (["x" * 256], 400),
    ([""], 400),
    (['""'], 400),
    (["a b"], 400),
    (["ä"], 400),
    (["a", "b"], 400),
    (['"a b"'], 400),
]


async def test_idempotency_keys(api: Api) -> None:
    for keys, status in KEYS:
        headers = [("Authorization", "Bearer tenant-key"), *(("Idempotency-Key", key) for key in keys)]
        raw = [(name.encode(), value.encode("latin-1")) for name, value in headers]
        answer = await api.http.post("/v1/jobs", json={"schedule": {"everySec": 60}}, headers=raw)
        assert answer.status_code == status, keys
        if status == 400:
            assert answer.json()["errors"][0]["field"] == "Idempotency-Key"


async def test_a_quoted_key_is_the_bare_one(api: Api) -> None:
    job = {"schedule": {"everySec": 60}}
    first = await api.post("/v1/jobs", job, idempotency="k")
    second = await api.post("/v1/jobs", job, idempotency='"k"')
    assert first.json() == second.json()
    assert second.headers["Idempotent-Replayed"] == "true"


CALLS: list[tuple[str, str, Any, int]] = [
    ("GET", "/v1/nothing", None, 404),
    ("GET", "/v1/jobs/", None, 404),
    ("PATCH", "/v1/jobs/x", {}, 428),
    ("PATCH", "/v1/jobs", {}, 405),
    ("GET", "/v1/jobs/%00", None, 404),
    ("GET", "/v1/jobs/%ff%fe", None, 404),
    ("GET", "/v1/jobs/" + "x" * 65, None, 404),
    ("PUT", "/v1/jobs/a%20b", {"schedule": {"everySec": 60}}, 400),
    ("PUT", "/v1/jobs/job_mine", {"schedule": {"everySec": 60}}, 400),
    ("GET", "/v1/jobs?pageSize=-1", None, 400),
    ("GET", "/v1/jobs?pageSize=1e3", None, 400),
    ("GET", "/v1/jobs?pageToken=%00", None, 400),
    ("GET", "/v1/jobs?pageToken=AAAA", None, 400),
    ("GET", "/v1/jobs?status=NOT", None, 400),
    ("GET", "/v1/jobs?statsu=ACTIVE", None, 400),
    ("GET", "/v1/jobs?pool=a&pool=b", None, 400),
    ("GET", "/v1/jobs?pageSize=0", None, 400),
    ("GET", "/v1/jobs?exclusionGroup=x&exclusionGroup=y", None, 400),
    ("GET", "/v1/jobs?nextRunBefore=tomorrow", None, 400),
    ("GET", "/v1/jobs?tenant=other", None, 400),
    ("GET", "/v1/executions?kind=odd", None, 400),
    ("GET", "/v1/executions?scheduledFrom=2026-01-01", None, 400),
    ("GET", "/v1/executions/nothing", None, 404),
    ("GET", "/v1/executions/a.b.c.d", None, 404),
    ("POST", "/v1/executions/a.b.c.d/cancel", None, 404),
    ("POST", "/v1/executions/nothing/complete", {"workerId": "w", "leaseEpoch": 1}, 404),
    ("POST", "/v1/executions/a.b.c.d/complete", {"workerId": "w", "leaseEpoch": 1}, 404),
    ("POST", "/v1/executions/a.b.c.d/complete", {"leaseEpoch": 1}, 400),
    ("POST", "/v1/executions/a.b.c.d/complete", {"workerId": "", "leaseEpoch": 1}, 400),
    ("POST", "/v1/executions/a.b.c.d/complete", {"workerId": "w", "leaseEpoch": 1, "lines": []}, 400),
    ("POST", "/v1/executions/a.b.c.d/complete", {"workerId": "w", "leaseEpoch": 1, "result": "x" * 17_000}, 400),
    ("POST", "/v1/executions/a.b.c.d/fail", {"workerId": "w", "leaseEpoch": 1}, 400),
    ("POST", "/v1/executions/a.b.c.d/fail", {"workerId": "w", "leaseEpoch": 1, "error": "x", "retryAfterSec": -1}, 400),
    ("POST", "/v1/executions/a.b.c.d/release", {"workerId": "w", "leaseEpoch": 1, "delaySec": -1}, 400),
    ("POST", "/v1/executions/outcomes", {"outcomes": []}, 400),
    ("POST", "/v1/executions/outcomes", {"outcomes": {}}, 400),
    ("POST", "/v1/executions/outcomes", {"outcomes": [{}] * 1001}, 400),
    ("POST", "/v1/executions/outcomes", {"workerId": 5, "outcomes": [{}]}, 400),
    ("POST", "/v1/executions/outcomes", {"worker": "w", "outcomes": [{}]}, 400),
    ("POST", "/v1/executions/heartbeats", {"leases": [{}]}, 400),
    ("POST", "/v1/jobs/batch", {}, 400),
    ("POST", "/v1/jobs/batch", {"jobs": []}, 400),
    ("POST", "/v1/jobs/batch", {"jobs": [{}] * 1001}, 400),
    ("POST", "/v1/jobs/none/trigger", None, 404),
    ("POST", "/v1/jobs/none/trigger", {"overlapPolicy": "never"}, 400),
    ("DELETE", "/v1/jobs/none", None, 404),
    ("DELETE", "/v1/jobs/none", {"why": "x"}, 400),
    ("POST", "/v1/dead-letters/none/replay", None, 404),
    ("POST", "/v1/dead-letters/a.b.c.d/replay", None, 404),
    ("GET", "/v1/dead-letters/none", None, 404),
    ("GET", "/v1/dead-letters?from=x", None, 400),
    ("POST", "/v1/pools/a%20b/claim", {"workerId": "w"}, 400),
    ("POST", "/v1/pools/shared%2Fgpu/claim", {"workerId": "w"}, 403),
    ("POST", "/v1/pools/shared%2Fa%2Fb/claim", {"workerId": "w"}, 400),
    ("POST", "/v1/pools/p/claim", {}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": ""}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w\n"}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "max": 0}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "max": 1001}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "waitSec": 21}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "waitSec": -1}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "leaseSec": 0}, 400),
    ("POST", "/v1/pools/p/claim", {"workerId": "w", "claimId": ""}, 400),
    ("POST", "/api/v1/jobs/schedule", {"name": "x"}, 400),
    ("POST", "/api/v1/jobs/schedule", {"name": "x", "execute_at": "now", "target_topic": "p"}, 400),
]  # fmt: skip


async def test_bad_calls(api: Api) -> None:
    for method, path, body, status in CALLS:
        answer = await api.call(method, path, body)
        assert answer.status_code == status, (method, path, body, answer.text)
        assert answer.headers["Content-Type"] == MEDIA_TYPE
        assert answer.json()["status"] == status


async def test_bad_positions(api: Api) -> None:
    for position in ("x", "1", "1:", "1:-1", ":1", "1:1,", "9" * 30 + ":1", "1:1;2:2"):
        answer = await api.get("/v1/jobs", headers={"Horarium-Position": position})
        assert answer.status_code == 400, position
        assert answer.json()["errors"][0]["field"] == "Horarium-Position"


async def test_a_bad_item_does_not_harm_its_neighbours(api: Api) -> None:
    items = [
        '{"schedule": {"everySec": 60}}',
        '{"schedule": {"everySec": 60, "everySec": 61}}',
        '{"schedule": {"everySec": "60"}}',
        '{"schedule": {"everySec": 60}, "requestKey": "a b"}',
        "7",
        '{"schedule": {"everySec": 60}, "payload": "' + "x" * 262_143 + '"}',
        '{"schedule": {"cron": "* * * * *"}, "requestKey": "mine"}',
    ]
    answer = await api.post("/v1/jobs/batch", content=f'{{"jobs": [{",".join(items)}]}}', idempotency="batch")
    results = answer.json()["results"]
    assert [result["status"] for result in results] == [201, 400, 400, 400, 400, 413, 201]
    assert results[1]["problem"]["errors"][0]["field"] == "schedule.everySec"
    assert results[2]["problem"]["errors"][0]["field"] == "schedule.everySec"
    again = await api.post("/v1/jobs/batch", {"jobs": [{"schedule": {"everySec": 60}}]}, idempotency="batch")
    assert again.json()["results"][0]["job"] == results[0]["job"]
    assert again.json()["results"][0]["replayed"] is True
    one = await api.post("/v1/jobs", {"schedule": {"cron": "* * * * *"}}, idempotency="mine")
    assert one.json() == results[6]["job"]


BATCHES = {
    "/v1/jobs/batch": "jobs",
    "/v1/executions/outcomes": "outcomes",
    "/v1/executions/heartbeats": "leases",
}


async def test_odd_members_beside_the_items(api: Api) -> None:
    for path, member in BATCHES.items():
        for name, shown in {"\\ud800": "?", "\\u0000": "?", "a" * 3_000: "a" * 200}.items():
            answer = await api.post(path, content=f'{{"{name}": 1, "workerId": "w", "{member}": []}}')
            assert answer.status_code == 400, (path, answer.text)
            assert answer.json()["errors"][0]["field"] in {shown, "workerId"}


MIB = 1024 * 1024


async def test_a_batch_of_more_values_than_any_honest_one(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def filled(unit: str) -> str:
        rest = '{"jobs": [{"schedule": {"everySec": 60}, "payload": ["\\n", 1]}]}'
        return rest.replace(" 1]", unit * ((8 * MIB - len(rest)) // len(unit)) + " 1]")

    marked = await api.post("/v1/jobs/batch", content=filled('"[{,[{,[{,",'))
    assert marked.json()["results"][0]["status"] == 413  # the payload alone
    monkeypatch.setattr("api.strict_json.json", None)  # nothing is decoded
    for path in BATCHES:
        for unit in ("[],", '{"a":[]},', "[[[[]]]],", '"",'):
            answer = await api.post(path, content=filled(unit))
            assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
            assert answer.json()["detail"] == "body may be at most 1000000 JSON values"


async def test_many_values_are_read_beside_the_loop(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bool] = []
    loop = threading.get_ident()

    def parse(body: bytes) -> strict_json.Document:
        seen.append(threading.get_ident() == loop)
        return strict_json.read(body)

    monkeypatch.setattr(bodies, "parse", parse)
    for values in (10, IN_LINE_VALUES_MAX):
        await api.post("/v1/jobs", {"schedule": {"everySec": 60}, "payload": [[]] * values})
    assert seen == [True, False]
    texts = {"schedule": {"everySec": 60}, "payload": "x" * IN_LINE_BYTES_MAX}
    await api.post("/v1/jobs", texts)
    assert seen == [True, False, False]


async def test_a_batch_may_be_large_but_not_endless(api: Api) -> None:
    payload = "x" * 200_000
    jobs = [{"schedule": {"everySec": 60}, "payload": payload}] * 20
    answer = await api.post("/v1/jobs/batch", {"jobs": jobs})
    assert {result["status"] for result in answer.json()["results"]} == {201}
    answer = await api.post("/v1/jobs/batch", {"jobs": jobs * 3})
    assert (answer.status_code, answer.json()["code"]) == (413, "too_large")
