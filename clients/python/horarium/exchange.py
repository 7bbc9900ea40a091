"""One call from request to result, without I/O: headers, retries, own writes, errors.

`exchange` is a generator that says what to do next (`Send` or `Pause`) and is told what came of it, so the
sync and the async client share every rule and differ only in how they send and wait. A repeat carries the
same Idempotency-Key and body, so it is safe even when the first try was done and only its answer was lost.
"""

from __future__ import annotations

import json
import re
import secrets
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Any, Generic, TypeVar

from horarium.errors import ConnectionFailed, InvalidAnswer, from_problem

T = TypeVar("T")

VERSION = "0.1.0"
KEY_HEADER = "Idempotency-Key"
POSITION_HEADER = "Horarium-Position"
RETRIED = frozenset({429, 502, 503, 504})

_POSITION = re.compile(r"(\d+):(\d+)")


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> Any:
        """The body; InvalidAnswer if it is no JSON."""
        try:
            return json.loads(self.body)
        except ValueError as error:
            raise InvalidAnswer(f"the answer is no JSON: {self.body[:200]!r}") from error

    @property
    def server_time(self) -> datetime | None:
        """The server's clock, cut to the second."""
        try:
            return parsedate_to_datetime(self.headers["date"])
        except (KeyError, ValueError):
            return None


@dataclass(frozen=True, slots=True)
class Lost:
    """No answer came: refused, reset, or timed out."""

    error: Exception


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Generic[T]):
    """One request of the API and how its answer is read.

    `makes`: it makes or sets something, so it gets an Idempotency-Key. `reads`: it waits for own writes.
    `timeout_sec` None: the client's own. `unfinished` says of a good answer after how many seconds the same
    request gets further, None: it is done.
    """

    method: str
    path: str
    parse: Callable[[Answer], T]
    params: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] | None = None
    makes: bool = False
    key: str | None = None
    reads: bool = False
    timeout_sec: float | None = None
    unfinished: Callable[[T], float | None] | None = None


@dataclass(frozen=True, slots=True)
class Send:
    """Send this, then give an Answer or Lost back."""

    method: str
    path: str
    params: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes | None
    timeout_sec: float


@dataclass(frozen=True, slots=True)
class Pause:
    """Wait so long."""

    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryRules:
    """How long and how often a call is repeated. `for_sec` 0: never."""

    for_sec: float = 30.0
    first_sec: float = 0.1
    factor: float = 2.0
    longest_sec: float = 5.0

    def pause_sec(self, tries: int, wished_sec: float | None) -> float:
        """After so many tries: half the backoff, up to as much again by chance, at least Retry-After."""
        # The power is capped before it can overflow.
        backoff = min(self.longest_sec, self.first_sec * self.factor ** min(tries - 1, 30))
        drawn = backoff * (0.5 + secrets.randbelow(1001) / 2000)
        return max(drawn, wished_sec or 0.0)


NO_RETRY = RetryRules(for_sec=0)


@dataclass(slots=True, kw_only=True)
class Session:
    """What all calls of one client share. `position` is carried from changes to reads."""

    key: str
    timeout_sec: float = 30.0
    retry: RetryRules = RetryRules()
    position: str = ""

    def headers(self, call: Call[Any], idempotency_key: str) -> dict[str, str]:
        headers = {
            **call.headers,
            "Authorization": f"Bearer {self.key}",
            "Accept": "application/json",
            "User-Agent": f"horarium-python/{VERSION}",
        }
        if call.body is not None:
            headers["Content-Type"] = "application/json"
        if idempotency_key:
            headers[KEY_HEADER] = idempotency_key
        if call.reads and self.position:
            headers[POSITION_HEADER] = self.position
        return headers

    def learn(self, answer: Answer) -> None:
        if position := answer.headers.get(POSITION_HEADER.lower()):
            self.position = newest_position(self.position, position)


def exchange(
    call: Call[T], session: Session, now: Callable[[], float], retry: RetryRules | None = None
) -> Generator[Send | Pause, Answer | Lost | None, T]:
    """The steps of a call; its value is the parsed answer, its exceptions those of `horarium.errors`."""
    idempotency_key = call.key or (new_key() if call.makes else "")
    body = None if call.body is None else encode(call.body)
    rules = retry or session.retry
    started, tries = now(), 0
    while True:
        tries += 1
        timeout_sec = call.timeout_sec or session.timeout_sec
        headers = session.headers(call, idempotency_key)
        answer = yield Send(call.method, call.path, call.params, headers, body, timeout_sec)
        wished_sec: float | None = None
        failure: Exception
        if isinstance(answer, Answer):
            session.learn(answer)
            if answer.status < 300:
                result = _parsed(call, answer)
                wished_sec = None if call.unfinished is None else call.unfinished(result)
                pause_sec = rules.pause_sec(tries, wished_sec)
                if wished_sec is None or now() - started + pause_sec > rules.for_sec:
                    return result
                yield Pause(pause_sec)
                continue
            # The server makes a key where none was sent; with it the repeat is the same request.
            idempotency_key = idempotency_key or answer.headers.get(KEY_HEADER.lower(), "")
            wished_sec = retry_after_sec(answer.headers.get("retry-after"), answer.server_time)
            failure = _problem(answer, wished_sec, idempotency_key)
            if answer.status not in RETRIED:
                raise failure
        else:
            reason = answer.error if isinstance(answer, Lost) else None
            failure = ConnectionFailed(f"{call.method} {call.path}: {reason!r}", idempotency_key)
            failure.__cause__ = reason
        pause_sec = rules.pause_sec(tries, wished_sec)
        if now() - started + pause_sec > rules.for_sec:
            raise failure
        yield Pause(pause_sec)


def _parsed(call: Call[T], answer: Answer) -> T:
    try:
        return call.parse(answer)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InvalidAnswer(f"{call.method} {call.path}: the answer has another form: {error}") from error


def _problem(answer: Answer, wished_sec: float | None, idempotency_key: str) -> Exception:
    try:
        problem = json.loads(answer.body)
    except ValueError:
        problem = {"detail": answer.body[:200].decode("utf-8", "replace")}
    if not isinstance(problem, Mapping):
        problem = {}
    return from_problem(answer.status, problem, retry_after_sec=wished_sec, idempotency_key=idempotency_key)


def retry_after_sec(value: str | None, server_time: datetime | None = None) -> float | None:
    """Retry-After as seconds: a number, or a date (against the server's own clock)."""
    if value is None:
        return None
    if value.strip().isdigit():
        return float(value)
    try:
        when = parsedate_to_datetime(value)
    except ValueError:
        return None
    # A date without the server's own clock says nothing: this machine's clock may differ.
    return None if server_time is None else max(0.0, (when - server_time).total_seconds())


def newest_position(old: str, new: str) -> str:
    """Both positions as one: `<partition>:<offset>` each, the newest of each partition; else the new one."""
    found: dict[int, int] = {}
    for text in (old, new):
        for part in filter(None, (part.strip() for part in text.split(","))):
            match = _POSITION.fullmatch(part)
            if match is None:
                return new
            partition, offset = int(match[1]), int(match[2])
            found[partition] = max(offset, found.get(partition, 0))
    return ",".join(f"{partition}:{offset}" for partition, offset in sorted(found.items()))


def encode(value: Any) -> bytes:
    """JSON as it is sent; NaN and what JSON does not know are ValueError and TypeError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False).encode()


def new_key() -> str:
    """A fresh Idempotency-Key or claim id."""
    return secrets.token_hex(16)


def utc_seconds(when: datetime) -> float:
    """Seconds since the epoch; a time without a zone counts as UTC."""
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
