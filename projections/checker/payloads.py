"""Owns payloads: an execution keeps what it was fired with through updates, retries and the dead letters
(semantics, section 4). Contents are held as hashes of this process."""

from __future__ import annotations

from collections.abc import Iterable

from projections.checker.report import Kind, Report
from schemas import ids
from schemas.entities import Content, Execution, ExecutionStatus, Job, KeptContent
from schemas.events import DeadLetterReplayed, ExecutionClaimed, ExecutionDeadLettered, ExecutionEvent

VERSIONS_MAX = 2
"""Newest versions of a job that are told apart: a superseded one is kept as soon as it is superseded."""


class Payloads:
    """What jobs gave their executions, and what is kept of it, by `<tenant>/<id>`."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._made: dict[str, dict[int, int]] = {}
        self._kept: dict[str, int] = {}

    def defined(self, job: Job) -> None:
        """A job was registered or updated."""
        versions = self._made.setdefault(f"{job.tenant}/{job.job_id}", {})
        versions.pop(job.version, None)
        versions[job.version] = _digest(job.content)
        while len(versions) > VERSIONS_MAX:
            del versions[next(iter(versions))]

    def undefined(self, name: str) -> None:
        """The engine forgot a job."""
        self._made.pop(name, None)

    def kept(self, kept: KeptContent, execution: Execution | None, *, judged: bool) -> None:
        """A copy was put aside: of a superseded version, or for an execution, which is given if known."""
        name, digest = f"{kept.tenant}/{kept.execution_id}", _digest(kept.content)
        expected = self._expected(kept, execution)
        if judged and expected is not None and digest != expected:
            self._report.add(Kind.PAYLOAD, name, "what is kept is not what it was fired with")
        self._kept[name] = digest

    def forgotten(self, name: str) -> None:
        """The engine forgot a copy."""
        self._kept.pop(name, None)

    def executed(self, event: ExecutionEvent, job: Job | None) -> None:
        """What an execution needs now must be there. `job`: its job, None if that is gone."""
        execution = event.execution
        name = f"{execution.tenant}/{execution.execution_id}"
        match event:
            case ExecutionDeadLettered() | DeadLetterReplayed():
                if name not in self._kept:
                    self._report.add(Kind.PAYLOAD, name, f"{type(event).__name__} without a payload")
            case ExecutionClaimed():
                superseded = ids.version_id(f"{execution.tenant}/{execution.job_id}", execution.job_version)
                current = job is not None and job.version == execution.job_version
                if not current and name not in self._kept and superseded not in self._kept:
                    self._report.add(Kind.PAYLOAD, name, "granted, and its payload is gone")
            case _:
                pass

    def finish(self, executions: Iterable[Execution]) -> None:
        """Nothing more is read; `executions`: all that the engine remembers."""
        for execution in executions:
            name = f"{execution.tenant}/{execution.execution_id}"
            dead = execution.status is ExecutionStatus.FAILED and execution.reason != "discarded"
            if dead and name not in self._kept:
                self._report.add(Kind.PAYLOAD, name, "a dead letter, and its payload is gone")

    def _expected(self, kept: KeptContent, execution: Execution | None) -> int | None:
        """What a copy must be; None: a request may have brought it, or it is not known."""
        job_id, _, version = kept.execution_id.partition("@")
        if version:
            return self._made.get(f"{kept.tenant}/{job_id}", {}).get(int(version))
        if execution is None or execution.status is not ExecutionStatus.RUNNING:
            return None
        job_name = f"{execution.tenant}/{execution.job_id}"
        superseded = self._kept.get(ids.version_id(job_name, execution.job_version))
        return superseded or self._made.get(job_name, {}).get(execution.job_version)


def _digest(content: Content) -> int:
    labels = tuple(sorted(content.labels.items()))
    return hash((content.name, content.task, content.payload, content.content_type, labels))
