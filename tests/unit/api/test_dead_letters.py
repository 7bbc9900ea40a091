"""Dead letters by filter: replayed in one call, or discarded; alerts and figures beside them."""

from __future__ import annotations

from typing import Any

from tests.unit.api.conftest import Api

ONCE = {"schedule": {"delaySec": 0}, "retryPolicy": {"maxAttempts": 1}}


async def give_up(api: Api, pool: str, count: int = 1, error: str = "broken", **more: Any) -> list[str]:
    for _ in range(count):
        await api.post("/v1/jobs", ONCE | {"target": {"pool": pool, "task": pool}} | more)
    answer = await api.post(f"/v1/pools/{pool}/claim", {"workerId": "w", "max": count, "waitSec": 1})
    executions = answer.json()["executions"]
    outcomes = [
        {
            "executionId": one["executionId"],
            "leaseEpoch": one["leaseEpoch"],
            "status": "FAILED",
            "error": error,
        }
        for one in executions
    ]
    await api.post("/v1/executions/outcomes", {"workerId": "w", "outcomes": outcomes})
    return sorted(one["executionId"] for one in executions)


async def letters(api: Api, query: str = "") -> list[str]:
    found = (await api.get(f"/v1/dead-letters{query}", fresh=True)).json()["deadLetters"]
    return sorted(letter["executionId"] for letter in found)


async def test_a_filter_counts_first_and_then_replays(api: Api) -> None:
    mails, webs = await give_up(api, "mail", 3), await give_up(api, "web", 2)
    assert await letters(api) == sorted(mails + webs)
    wanted = {"filter": {"pool": "mail", "task": "mail", "from": "2026-01-01T00:00:00Z"}}
    dry = await api.post("/v1/dead-letters/replay", wanted | {"dryRun": True}, fresh=True)
    assert (dry.status_code, dry.json()) == (200, {"count": 3})
    assert await letters(api, "?pool=mail") == mails
    body = wanted | {"payload": {"fixed": True}, "reason": "provider is back"}
    done = await api.post("/v1/dead-letters/replay", body, idempotency="r", fresh=True)
    assert done.json() == {"count": 3}
    assert await letters(api) == webs
    again = await api.post("/v1/dead-letters/replay", body, idempotency="r", fresh=True)
    assert again.json() == {"count": 0}
    answer = await api.post("/v1/pools/mail/claim", {"workerId": "w", "max": 10, "waitSec": 1})
    assert sorted(one["executionId"] for one in answer.json()["executions"]) == mails
    assert [one["payload"] for one in answer.json()["executions"]] == [{"fixed": True}] * 3


async def test_a_repeat_goes_on_with_what_is_left_and_runs_none_twice(api: Api) -> None:
    await give_up(api, "mail", 2)
    body = {"filter": {"pool": "mail"}}
    assert (await api.post("/v1/dead-letters/replay", body, idempotency="r", fresh=True)).json()["count"] == 2
    # They fail again: the same request means what it meant.
    answer = await api.post("/v1/pools/mail/claim", {"workerId": "w", "max": 2, "waitSec": 1})
    for one in answer.json()["executions"]:
        report = {"workerId": "w", "leaseEpoch": one["leaseEpoch"], "error": "still"}
        await api.post(f"/v1/executions/{one['executionId']}/fail", report)
    repeated = await api.post("/v1/dead-letters/replay", body, idempotency="r", fresh=True)
    assert repeated.json() == {"count": 0}
    assert len(await letters(api)) == 2
    anew = await api.post("/v1/dead-letters/replay", body, idempotency="s", fresh=True)
    assert anew.json() == {"count": 2}


async def test_a_filter_names_what_is_wrong(api: Api) -> None:
    for body, field in (
        ({}, "filter"),
        ({"filter": {"from": "yesterday"}}, "filter.from"),
        ({"filter": {"label": "x"}}, "filter.label"),
        ({"filter": {}, "payload": 1, "payloadBase64": ""}, "payloadBase64"),
    ):
        answer = await api.post("/v1/dead-letters/replay", body)
        assert answer.status_code == 400, body
        assert [error["field"] for error in answer.json()["errors"]] == [field]
    assert (await api.post("/v1/dead-letters/replay", {"filter": {}}, key="auditor-key")).status_code == 403
    assert not api.log.sent


async def test_a_discarded_one_is_gone_for_good(api: Api) -> None:
    one, other = await give_up(api, "mail", 2, payload={"secret": 1})
    discarded = await api.call("DELETE", f"/v1/dead-letters/{one}", {"reason": "by hand"})
    assert (discarded.status_code, discarded.json()["reason"]) == (200, "discarded")
    assert await letters(api) == [other]
    assert (await api.get(f"/v1/dead-letters/{one}")).status_code == 404
    read = (await api.get(f"/v1/executions/{one}")).json()
    assert (read["status"], read["reason"]) == ("FAILED", "discarded")
    assert read["discardedBy"].startswith("tenant:acme:")
    assert (await api.call("DELETE", f"/v1/dead-letters/{one}")).status_code == 200
    refused = await api.post(f"/v1/dead-letters/{one}/replay", {"payload": 1})
    assert (refused.status_code, refused.json()["code"]) == (409, "not_dead_lettered")
    everything = await api.post("/v1/dead-letters/replay", {"filter": {}}, fresh=True)
    assert everything.json() == {"count": 1}
    assert (await api.call("DELETE", f"/v1/dead-letters/{other}")).json()["code"] == "not_dead_lettered"
    for path in ("nothing", "a.b.c.d"):
        assert (await api.call("DELETE", f"/v1/dead-letters/{path}")).status_code == 404
    assert (await api.call("DELETE", f"/v1/dead-letters/{one}", key="other-key")).status_code == 404


async def test_figures(api: Api) -> None:
    await give_up(api, "mail", 2)
    await api.post("/v1/jobs", ONCE | {"target": {"pool": "web"}})
    year = 366 * 86_400
    stats = (await api.get(f"/v1/stats?window={year}", fresh=True)).json()
    assert (stats["fired"], stats["failed"], stats["failureRate"]) == (3, 2, 1.0)
    assert (stats["backlog"], stats["deadLetters"], stats["lateness"]["count"]) == ({"web": 1}, 2, 2)
    assert (await api.get("/v1/stats?jobId=nobody")).json()["fired"] == 0
    assert (await api.get("/v1/stats?window=0")).status_code == 400
