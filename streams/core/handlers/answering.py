"""Commands on a job, or on settings, that carry a key are answered alike when repeated (semantics §7)."""

from __future__ import annotations

import hashlib

import msgspec
from msgspec.structs import replace

from schemas.commands import Command
from schemas.entities import Answered, Cursor, Job
from schemas.events import CursorMoved
from streams.core.handlers.outcome import Done
from streams.core.limits import ANSWERS_KEPT_MAX
from streams.core.refusals import KEY_REUSED, Refusal
from streams.core.transaction import Transaction


def meaning_of(command: Command) -> str:
    """Hash of what a command asks for, its envelope and the version that its caller saw left aside."""
    fields = msgspec.structs.asdict(command)
    for name in ("command_id", "actor", "reply_partition", "session", "request_key", "version"):
        fields.pop(name, None)
    kind = type(command).__name__
    return hashlib.sha256(msgspec.msgpack.encode((kind, fields), order="deterministic")).hexdigest()[:32]


def repeated(job: Job, cursor: Cursor, command: Command, body_hash: str) -> Done | Refusal | None:
    """The stored answer to a command with the same key; None: it is new."""
    if command.request_key:
        for answered in cursor.answered:
            if answered.request_key == command.request_key:
                if answered.body_hash != body_hash:
                    return KEY_REUSED
                return Done(answered.status, job, cursor, replayed=True)
    return None


def remember(tx: Transaction, job: Job, cursor: Cursor, command: Command, body_hash: str) -> Cursor:
    """A PUT that changes nothing makes no version, but its repeat must not be done over what came later."""
    if not command.request_key:
        return cursor
    known = with_answer(replace(cursor, skips=()), command, body_hash, 200, job.version)
    return tx.emit_cursor(CursorMoved, cursor, known)


def answers_of(job: Job, cursor: Cursor) -> tuple[Answered, ...]:
    """What a job that is made anew knows of its former making: its registration and the commands on it,
    oldest first."""
    registered = Answered(
        request_key=job.request_key, body_hash=job.body_hash, status=200, version=job.first_version
    )
    known = (registered, *cursor.answered) if job.request_key else cursor.answered
    return tuple(sorted(known, key=lambda answered: answered.version))[-ANSWERS_KEPT_MAX:]


def with_answer(cursor: Cursor, command: Command, body_hash: str, status: int, version: int) -> Cursor:
    """The cursor that remembers this command, if it carries a key."""
    if not command.request_key:
        return cursor
    newest = Answered(request_key=command.request_key, body_hash=body_hash, status=status, version=version)
    return replace(cursor, answered=(*cursor.answered, newest)[-ANSWERS_KEPT_MAX:])
