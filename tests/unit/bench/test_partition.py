"""Jobs that benchmarks write to the log themselves are due as if they had been registered."""

from __future__ import annotations

from bench.partition import Partition, registered, registrations
from schemas import codec
from schemas.entities import Job
from schemas.events import JobRegistered
from streams.core import keys
from streams.core.state import first_due_ms
from streams.store.memory import MemoryStore

NOW_MS, RUN_AT_MS, SPACING_MS = 1_796_000_000_000, 1_796_003_600_000, 259


def _when(job: Job) -> tuple[object, ...]:
    return job.job_id, job.schedule, job.first_next_ms, first_due_ms(job)


def test_written_jobs_are_due_when_registered_ones_are() -> None:
    store = MemoryStore()
    Partition(store, NOW_MS).turn(registrations(7, 3, RUN_AT_MS, SPACING_MS))
    for number, (key, written) in enumerate(registered(7, 3, NOW_MS, RUN_AT_MS, SPACING_MS)):
        stored = codec.decode(store.get(keys.entity(key)) or b"")
        assert isinstance(stored, JobRegistered)
        assert _when(written.job) == _when(stored.job)
        assert first_due_ms(written.job) == RUN_AT_MS + number * SPACING_MS
