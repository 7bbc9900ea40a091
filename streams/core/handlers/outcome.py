"""What a handler of `commands` returns when it did not refuse."""

from __future__ import annotations

import msgspec

from schemas.entities import Cursor, Execution, Job, Tenant


class Done(msgspec.Struct, frozen=True, gc=False):
    """`status` is the HTTP status; `replayed`: the stored answer to an earlier, equal request.
    `count`: executions that a backfill covers."""

    status: int
    job: Job | None = None
    cursor: Cursor | None = None
    execution: Execution | None = None
    replayed: bool = False
    count: int = 0
    configured: Tenant | None = None
