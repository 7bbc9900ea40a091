"""A small server of Horarium's HTTP API for tests of the library: real HTTP, one tenant, state in memory.

It keeps leases by a clock of its own whose wall time is years away from this machine's, so whatever the
library takes from the local clock shows. `plan` puts faults in front of it.
"""

import base64
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from horarium.clock import Clock

WALL = datetime(2001, 9, 9, 1, 46, 40, 250_000, tzinfo=UTC)


@dataclass(frozen=True)
class Seen:
    """One request that came in."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: Any


@dataclass(frozen=True)
class Planned:
    """What to do with the next matching request. `status` 0: close the connection instead of an answer."""

    path: str
    status: int = 0
    body: Any = None
    headers: Mapping[str, str] = field(default_factory=dict)
    do_it_first: bool = False


@dataclass
class Task:
    """An execution as the fake server keeps it."""

    execution_id: str
    task: str
    payload: Any
    lease_sec: int
    status: str = "PENDING"
    attempt: int = 1
    deliveries: int = 0
    epoch: int = 0
    worker_id: str = ""
    claim_id: str = ""
    until: float = 0.0
    deadline: float = float("inf")
    progress: Any = None
    ended: tuple[Any, ...] = ()
    outcome: Any = None
    cancel_requested: bool = False
    retry_at: float = 0.0
    released: int = 0


class FakeServer:
    """The state, and how each request changes it. `tasks` by execution id."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.seen: list[Seen] = []
        self.plans: list[Planned] = []
        self.tasks: dict[str, Task] = {}
        self.jobs: dict[str, Any] = {}
        self.grants: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.changed = threading.Condition()
        self.closing = False
        self.url = ""

    def plan(self, path: str, status: int = 0, body: Any = None, **options: Any) -> None:
        self.plans.append(Planned(path, status, body, **options))

    def add(self, execution_id: str, task: str = "work", payload: Any = None, **more: Any) -> Task:
        with self.changed:
            added = Task(execution_id, task, payload, **{"lease_sec": 60, **more})
            self.tasks[execution_id] = added
            self.changed.notify_all()
        return added

    def cancel(self, execution_id: str) -> None:
        self.tasks[execution_id].cancel_requested = True

    def paths(self, end: str) -> list[Seen]:
        return [seen for seen in list(self.seen) if seen.path.endswith(end)]

    def wall(self, moment: float) -> str:
        return (WALL + timedelta(seconds=moment)).isoformat().replace("+00:00", "Z")

    def nudge(self) -> None:
        with self.changed:
            self.changed.notify_all()

    def answer(self, seen: Seen) -> tuple[int, Any]:
        parts = [unquote(part) for part in seen.path.strip("/").split("/")]
        match parts:
            case ["v1", "pools", _, "claim"]:
                return 200, {"executions": self._claim(seen.body)}
            case ["v1", "executions", "heartbeats"]:
                worker = seen.body["workerId"]
                return 200, {
                    "results": [self._beat({"workerId": worker} | item) for item in seen.body["leases"]]
                }
            case ["v1", "executions", "outcomes"]:
                return 200, {"results": [self._outcome(item) for item in seen.body["outcomes"]]}
            case ["v1", "executions", an_id, "release"]:
                return self._single(self._release(seen.body | {"executionId": an_id}))
            case ["v1", "jobs"] if seen.method == "POST":
                return 201, self._job(seen.headers["idempotency-key"], seen.body)
        return 404, {"code": "not_found", "detail": seen.path, "status": 404}

    def _single(self, item: dict[str, Any]) -> tuple[int, Any]:
        return item["status"], item

    def _job(self, key: str, body: Any) -> Any:
        return self.jobs.setdefault(key, {"jobId": f"job_{len(self.jobs)}", "status": "ACTIVE", **body})

    def _expire(self) -> None:
        now = self.clock.monotonic()
        for task in self.tasks.values():
            if task.status == "RUNNING" and task.until <= now:
                timed_out = task.until >= task.deadline
                task.status = "FAILED" if timed_out else "PENDING"
                task.ended = (task.epoch, "timeout" if timed_out else "lease_lost")
            if task.status == "RETRY" and task.retry_at <= now:
                task.status = "PENDING"

    def _claim(self, body: Any) -> list[Any]:
        deadline = self.clock.monotonic() + body["waitSec"]
        with self.changed:
            while True:
                self._expire()
                held = [
                    task
                    for task in self.tasks.values()
                    if task.status == "RUNNING" and task.claim_id == body["claimId"]
                ]
                pending = [task for task in self.tasks.values() if task.status == "PENDING"]
                if held:
                    return [self._granted(task) for task in held]
                if pending:
                    return [self._grant(task, body) for task in pending[: body["max"]]]
                if self.closing or self.clock.monotonic() >= deadline:
                    return []
                self.changed.wait(5)

    def _grant(self, task: Task, body: Any) -> Any:
        task.status, task.epoch, task.deliveries = "RUNNING", task.epoch + 1, task.deliveries + 1
        task.worker_id, task.claim_id = body["workerId"], body["claimId"]
        task.until = min(self.clock.monotonic() + task.lease_sec, task.deadline)
        self.grants.append(task.execution_id)
        return self._granted(task)

    def _granted(self, task: Task) -> Any:
        granted = {
            "executionId": task.execution_id,
            "jobId": "job",
            "task": task.task,
            "name": task.task,
            "attempt": task.attempt,
            "deliveryCount": task.deliveries,
            "leaseEpoch": task.epoch,
            "fencingToken": 1000 + task.epoch,
            "leaseUntil": self.wall(task.until),
            "deadline": self.wall(min(task.deadline, 21_600)),
            "scheduledTime": self.wall(0),
            "idempotencyKey": task.execution_id,
            "payload": task.payload,
            "progress": task.progress,
            "memberOfALaterVersion": {"x": 1},
        }
        if isinstance(task.payload, bytes):
            granted |= {"payload": None, "payloadBase64": base64.b64encode(task.payload).decode()}
        return granted

    def _held(self, item: Any) -> tuple[Task | None, dict[str, Any]]:
        """The task, if the caller holds its lease; else the refusal."""
        self._expire()
        task = self.tasks.get(item["executionId"])
        if task is None:
            return None, {"status": 404, "code": "not_found"}
        if task.status == "RUNNING" and (task.epoch, task.worker_id) == (
            item["leaseEpoch"],
            item["workerId"],
        ):
            if not task.cancel_requested:
                return task, {}
            task.status, task.ended = "CANCELLED", (task.epoch, "cancelled")
        code = task.ended[1] if task.ended and task.ended[0] == item["leaseEpoch"] else "lease_lost"
        self.refused.append((task.execution_id, code))
        return None, {"status": 409, "code": code}

    def _beat(self, item: Any) -> dict[str, Any]:
        with self.changed:
            task, refusal = self._held(item)
            if task is None:
                return refusal
            task.until = min(self.clock.monotonic() + task.lease_sec, task.deadline)
            task.progress = item.get("progress", task.progress)
            return {"status": 200, "extendUntil": self.wall(task.until)}

    def _outcome(self, item: Any) -> dict[str, Any]:
        with self.changed:
            known = self.tasks.get(item["executionId"])
            if known is not None and known.outcome == item:
                return {"status": 200}
            task, refusal = self._held(item)
            if task is None:
                return refusal
            again = item["status"] == "FAILED" and item["retryable"]
            task.status = "RETRY" if again else item["status"]
            task.retry_at = self.clock.monotonic() + item.get("retryAfterSec", 10)
            task.attempt += again
            task.outcome, task.ended = item, (task.epoch, "already_finished")
            self.changed.notify_all()
            return {"status": 200}

    def _release(self, item: Any) -> dict[str, Any]:
        with self.changed:
            task, refusal = self._held(item)
            if task is None:
                return refusal
            task.status, task.ended, task.released = "RETRY", (task.epoch, "lease_lost"), task.released + 1
            task.retry_at = self.clock.monotonic() + item.get("delaySec", 0)
            return {"status": 200}


def _handler(server: FakeServer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            text = self.rfile.read(length)
            parts = urlsplit(self.path)
            query = {name: values[-1] for name, values in parse_qs(parts.query).items()}
            headers = {name.lower(): value for name, value in self.headers.items()}
            seen = Seen(self.command, parts.path, query, headers, json.loads(text) if text else None)
            server.seen.append(seen)
            planned = next((plan for plan in server.plans if parts.path.endswith(plan.path)), None)
            if planned is None:
                self.reply(*server.answer(seen), {})
                return
            server.plans.remove(planned)
            if planned.do_it_first:
                server.answer(seen)
            if planned.status:
                self.reply(planned.status, planned.body, planned.headers)
            else:
                self.close_connection = True

        do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = do

        def reply(self, status: int, body: Any, headers: Mapping[str, str]) -> None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response_only(status)
            # Real servers cut the time to the second.
            now = WALL + timedelta(seconds=server.clock.monotonic())
            self.send_header("Date", format_datetime(now.replace(microsecond=0), usegmt=True))
            self.send_header("Content-Length", str(len(data)))
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            try:
                self.wfile.write(data)
            except OSError:
                self.close_connection = True  # the caller has gone

        def log_message(self, format: str, *args: Any) -> None:
            pass

    return Handler


class _QuietServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: Any, client_address: Any) -> None:
        pass  # a caller that closes its connection in mid-request is part of the tests


@contextmanager
def running(clock: Clock) -> Iterator[FakeServer]:
    """A server on a free port of the loopback address."""
    server = FakeServer(clock)
    with _QuietServer(("127.0.0.1", 0), _handler(server)) as http:
        server.url = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield server
        finally:
            server.closing = True
            server.nudge()
            http.shutdown()
            thread.join()
