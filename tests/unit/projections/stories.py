"""Long stories, their compacted form, and all rows of a read model, to compare."""

from __future__ import annotations

import random  # noqa: TID251 seeded
from collections.abc import Sequence

from sqlalchemy import Table, select

from projections.history_tables import attempts, history, skips, stats
from projections.store import Store
from projections.tables import contents, definitions, executions, jobs, labels, leases, offsets
from schemas.entities import JobStatus, Skip, SkipReason
from schemas.events import JobCancelled, JobPaused
from streams.transport.log import Record
from tests.unit.projections.story import CRON, MINUTE, ONCE, T0, Story, cursor_of, job

CURRENT = (jobs, definitions, labels, executions, leases, contents)
EVERYTHING = (*CURRENT, attempts, history, skips, stats, offsets)


def rows_of(store: Store, tables: Sequence[Table] = EVERYTHING) -> dict[str, list[tuple[object, ...]]]:
    with store.reading() as connection:
        return {
            table.name: sorted(tuple(row) for row in connection.execute(select(table))) for table in tables
        }


def long_story(seed: int, partition: int = 0) -> Story:
    """Anything that may happen to some jobs, in any order that an engine would keep."""
    chance = random.Random(seed)
    story = Story(partition)
    for number in range(6):
        made = story.register(
            job(
                f"p{partition}-{number}",
                labels={"n": str(number % 2)},
                schedule=chance.choice([ONCE, CRON]),
            )
        )
        for occurrence in range(chance.randint(0, 3)):
            scheduled_ms = T0 + (1 + occurrence) * MINUTE
            execution = story.fire(made, scheduled_ms)
            skip = Skip(from_ms=T0, to_ms=T0, count=1, reason=SkipReason.OVERLAP)
            story.move(cursor_of(made, next_ms=scheduled_ms + MINUTE), skips=[skip] * chance.randint(0, 2))
            for _ in range(chance.randint(0, 3)):
                execution = story.claim(execution, f"w{chance.randint(1, 3)}")
                if chance.random() < 0.5:
                    story.beat(execution, story.now_ms + MINUTE, b"%")
                execution = chance.choice([story.expire, story.release, story.fail])(execution)
            execution = story.claim(execution)
            match chance.randint(0, 4):
                case 0:
                    story.complete(execution)
                case 1:
                    story.bury(execution)
                case 2:
                    story.replay(story.bury(execution))
                case 3:
                    story.cancel(story.ask_to_cancel(execution), reported="FAILED")
        if chance.random() < 0.3:
            story.move(cursor_of(made, JobStatus.PAUSED, paused_by="ann"), JobPaused)
        if chance.random() < 0.3:
            story.register(job(made.job_id, version=2, task="updated", labels={"n": "9"}))
        elif chance.random() < 0.3:
            story.move(cursor_of(made, JobStatus.CANCELLED, finished_ms=story.now_ms), JobCancelled)
            story.register(job(made.job_id, incarnation=story.now_ms, task="anew"))
    return story


def compacted(records: Sequence[Record]) -> list[Record]:
    newest = {record.key: record.offset for record in records}
    return [record for record in records if newest[record.key] == record.offset]
