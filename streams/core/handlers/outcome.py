"""What a handler of `commands` returns when it did not refuse."""

from __future__ import annotations

from dataclasses import dataclass

from schemas.entities import Cursor, Execution, Job, Tenant


@dataclass(frozen=True, slots=True)
class Done:
    """`status` is the HTTP status; `replayed`: the stored answer to an earlier, equal request.
    `count`: executions that a backfill covers."""

    status: int
    job: Job | None = None
    cursor: Cursor | None = None
    execution: Execution | None = None
    replayed: bool = False
    count: int = 0
    configured: Tenant | None = None
