"""The load: registers jobs in batches, claims and completes them, and keeps what is needed to judge.

No-op workers: each claims up to `credit` executions, reports them all COMPLETED in one call, and claims
again. What a claim says is kept as it came; `Seen` judges afterwards, so that judging costs no time.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import msgspec

from bench.report import spread
from bench.wire import Answer, Connection, Refused
from dev.server import Server
from streams.ambient import wall_ms
from streams.core.instants import format_instant, parse_instant

BATCH = 1_000
TRIES = 5
WAIT_SEC = 5
PAYLOAD = {"pad": "x" * 190}


class _Grant(msgspec.Struct, rename="camel"):
    execution_id: str
    scheduled_time: str
    lease_epoch: int
    lease_until: str


class _Grants(msgspec.Struct):
    executions: list[_Grant]


class _Outcome(msgspec.Struct, rename="camel"):
    execution_id: str
    lease_epoch: int
    status: str = "COMPLETED"


class _Outcomes(msgspec.Struct, rename="camel"):
    worker_id: str
    outcomes: list[_Outcome]


class _Job(msgspec.Struct, rename="camel"):
    job_id: str


class _Result(msgspec.Struct):
    status: int
    job: _Job | None = None
    problem: Any = None


class _Results(msgspec.Struct):
    results: list[_Result]


_GRANTS = msgspec.json.Decoder(_Grants)
_RESULTS = msgspec.json.Decoder(_Results)
_ENCODE = msgspec.json.Encoder().encode


@dataclass(slots=True)
class Seen:
    """What the workers saw: grants with the time they came, and accepted outcomes."""

    lease_sec: int
    grants: list[tuple[_Grant, int]] = field(default_factory=list)
    accepted: Counter[str] = field(default_factory=Counter)
    refused: list[Any] = field(default_factory=list)
    last_ms: int = 0

    def verdict(self, registered: int) -> dict[str, Any]:
        """Whether everything ran once and nothing early."""
        lost = registered - len(self.accepted)
        twice = sum(count - 1 for count in self.accepted.values())
        late = self.lateness_ms()
        return {
            "lost": lost,
            "acceptedTwice": twice,
            "early": sum(ms < 0 for ms in late),
            "redelivered": len(self.grants) - len(self.accepted),
            "refused": len(self.refused),
            "grantsPerExecution": round(self.grants_made() / max(1, len(self.accepted)), 2),
            "valid": lost == twice == 0 and all(ms >= 0 for ms in late) and not self.refused,
        }

    def grants_made(self) -> int:
        """Leases given for what was accepted; more than one each were handed back or ran out."""
        epochs = {grant.execution_id: grant.lease_epoch for grant, _ in self.grants}
        return sum(epochs[execution_id] for execution_id in self.accepted)

    def lateness_ms(self) -> list[int]:
        """startedAt - due of each grant. A fresh lease ends `lease_sec` after its execution was started."""
        return [
            parse_instant(grant.lease_until, "leaseUntil")
            - self.lease_sec * 1000
            - parse_instant(grant.scheduled_time, "scheduledTime")
            for grant, _ in self.grants
        ]

    def received_ms(self) -> list[int]:
        """The same until the worker had the execution in its hands: what users feel."""
        return [
            came_ms - parse_instant(grant.scheduled_time, "scheduledTime") for grant, came_ms in self.grants
        ]

    def lateness(self) -> dict[str, dict[str, float]]:
        """Both, as distributions."""
        return {
            "startedLateMs": spread(self.lateness_ms()),
            "receivedLateMs": spread(self.received_ms()),
        }


class Load:
    """Drives one server as one tenant."""

    def __init__(self, server: Server, *, lease_sec: int = 60, wait_sec: int = WAIT_SEC) -> None:
        self._url, self._key = server.url, server.key
        self._wait_sec = wait_sec
        self._lease_sec = lease_sec

    def connection(self) -> Connection:
        """A new connection as the tenant."""
        return Connection(self._url, self._key)

    async def register(self, pool: str, due_ms: Sequence[int], connections: int) -> list[str]:
        """One-off jobs in batches of `BATCH`; their ids. Raises if one is refused."""
        batches = iter(range(0, len(due_ms), BATCH))
        made: list[str] = []

        async def one() -> None:
            async with self.connection() as connection:
                for first in batches:
                    jobs = [self.job(pool, due) for due in due_ms[first : first + BATCH]]
                    made.extend(await registered(connection, _ENCODE({"jobs": jobs}), f"{pool}-{first}"))

        await asyncio.gather(*(one() for _ in range(connections)))
        return made

    def job(self, pool: str, due_ms: int) -> dict[str, Any]:
        """A one-off no-op job with a payload of 200 bytes."""
        return {
            "name": "bench",
            "schedule": {"runAt": format_instant(due_ms)},
            "target": {"pool": pool, "task": "noop"},
            "payload": PAYLOAD,
            "leaseSec": self._lease_sec,
        }

    async def work(self, pool: str, expected: int, workers: int, credit: int, within_sec: float) -> Seen:
        """No-op workers until `expected` outcomes are acknowledged, or the time is up."""
        seen = Seen(self._lease_sec)
        done = asyncio.Event()
        tasks = [
            asyncio.create_task(self._work(f"bench-{number}", pool, credit, seen, expected, done))
            for number in range(workers)
        ]
        everything = asyncio.create_task(done.wait())
        finished, _ = await asyncio.wait(
            [everything, *tasks], timeout=within_sec, return_when=asyncio.FIRST_COMPLETED
        )
        for task in (everything, *tasks):
            task.cancel()
        await asyncio.gather(everything, *tasks, return_exceptions=True)
        for task in finished:
            if not task.cancelled() and (error := task.exception()) is not None:
                raise error
        return seen

    async def _work(
        self, name: str, pool: str, credit: int, seen: Seen, expected: int, done: asyncio.Event
    ) -> None:
        path = f"/v1/pools/{pool}/claim"
        claim = _ENCODE({"workerId": name, "max": credit, "waitSec": self._wait_sec})
        async with self.connection() as connection:
            while not done.is_set():
                answer = await connection.post(path, claim)
                came_ms = wall_ms()
                grants = _GRANTS.decode(answer.expect(200)).executions
                if not grants:
                    continue
                seen.grants += [(grant, came_ms) for grant in grants]
                outcomes = [_Outcome(grant.execution_id, grant.lease_epoch) for grant in grants]
                body = _ENCODE(_Outcomes(name, outcomes))
                answer = await connection.post("/v1/executions/outcomes", body)
                results = _RESULTS.decode(answer.expect(200)).results
                for outcome, result in zip(outcomes, results, strict=True):
                    if result.status == 200:
                        seen.accepted[outcome.execution_id] += 1
                    else:
                        seen.refused.append(result.problem)
                seen.last_ms = wall_ms()
                if len(seen.accepted) >= expected:
                    done.set()


class Posting(Protocol):
    """The part of a connection that registers."""

    async def post(self, path: str, body: bytes, headers: str = "", *, method: str = "POST") -> Answer: ...


async def registered(connection: Posting, body: bytes, key: str) -> list[str]:
    """The ids of a batch's jobs. On a busy machine an answer may come too late (503), and the tenant's limits
    are lifted a moment after the start (429): asked again under the same key, it says what was decided
    meanwhile, and decides the rest."""
    for _ in range(TRIES):
        answer = await connection.post("/v1/jobs/batch", body, f"Idempotency-Key: {key}\r\n")
        results = _RESULTS.decode(answer.expect(200)).results
        again = [result.problem or {} for result in results if result.status in {429, 503}]
        if not again:
            break
        await asyncio.sleep(max(problem.get("retryAfterSec", 0) for problem in again))
    wrong = [result for result in results if result.status not in {200, 201}]
    if wrong:
        raise Refused(f"{len(wrong)} of a batch not registered, the first: {wrong[0]}")
    return [result.job.job_id for result in results if result.job is not None]
