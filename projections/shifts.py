"""Owns what new time zone data moved: the answer to "which jobs, from when to when"."""

from __future__ import annotations

import msgspec
from sqlalchemy import Connection, func, select

from projections.history_tables import tz_shifts
from projections.rows import JOB_DEFINITION
from projections.tables import definitions, jobs
from projections.views import TzShift, TzShifts
from schemas.entities import Schedule

MAX_SHIFTS = 1_000


def list_tz_shifts(connection: Connection, version: str = "") -> TzShifts:
    """The newest shifts by one version of the data ("": by the newest that moved anything), and their number.
    Of all tenants: for operators."""
    if not version:
        newest = (
            select(tz_shifts.c.tz_version)
            .where(tz_shifts.c.at_ms > 0)
            .order_by(tz_shifts.c.at_ms.desc())
            .limit(1)
        )
        version = connection.execute(newest).scalar_one_or_none() or ""
    wanted = tz_shifts.c.tz_version == version
    count = connection.execute(select(func.count()).select_from(tz_shifts).where(wanted)).scalar_one()
    of_job = (jobs.c.tenant == tz_shifts.c.tenant) & (jobs.c.job_id == tz_shifts.c.job_id)
    found = connection.execute(
        select(tz_shifts, definitions.c.schedule)
        .select_from(tz_shifts.outerjoin(jobs, of_job).outerjoin(definitions, JOB_DEFINITION))
        .where(wanted)
        .order_by(tz_shifts.c.at_ms.desc(), tz_shifts.c.tenant.desc(), tz_shifts.c.job_id.desc())
        .limit(MAX_SHIFTS)
    )
    shifts = tuple(
        TzShift(
            tenant=row.tenant,
            job_id=row.job_id,
            time_zone=msgspec.json.decode(row.schedule, type=Schedule).time_zone if row.schedule else "",
            at_ms=row.at_ms,
            before_ms=row.before_ms,
            after_ms=row.after_ms,
        )
        for row in found
    )
    return TzShifts(version=version, count=count, shifts=shifts)
