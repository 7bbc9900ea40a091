"""`make scenarios`: three classic situations on real processes, each with its expected result checked.

The last line is JSON. Exit code 0: everything was as expected. 1: something was not. 2: a scenario could not
be played.
"""

import argparse
import json
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
# Like the Makefile does: the client library is used from its folder.
sys.path.insert(0, str(ROOT / "clients" / "python"))

from horarium import At, Client, Delay, HorariumError, JobSpec, RetryRules  # noqa: E402

from dev.broker import BrokerError  # noqa: E402
from dev.chaos.stage import POOL, Stage, StageError  # noqa: E402
from dev.server import ServerError  # noqa: E402
from projections.checker.promises import Promise  # noqa: E402
from projections.checker.report import Report  # noqa: E402
from schemas.entities import ExecutionStatus  # noqa: E402
from streams.ambient import new_id, wall_ms  # noqa: E402

ONE_TRY = RetryRules(for_sec=0)
IN_FLIGHT = 24
QUICK_SEC, SLOW_SEC = 8, 20  # the effect comes in the middle
LEASE_SEC = 5
STEADY_JOBS, HOURLY_JOBS = 40, 120  # the top of the hour brings three times as much at once
SLOTS = 8
BATCH = 20
UNKNOWN = 503
PROBE_SEC = 0.2


@dataclass(slots=True)
class Outcome:
    """What came of a scenario: figures, and what was not as expected."""

    name: str
    figures: dict[str, Any] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def expect(self, held: bool, what: str) -> None:
        if not held:
            self.wrong.append(what)

    def judged(self, report: Report, stage: Stage) -> None:
        """The checker's verdict, and that of the ledger of effects."""
        self.wrong += [str(violation) for violation in report.violations[:10]]
        self.wrong += [*stage.effects_agree(), *stage.crashes]
        late = report.lateness
        self.figures |= {
            "jobs": report.jobs,
            "completed": report.completed,
            "redelivered": report.redelivered,
            "unexplained": report.found["unexplained"],
            "early": report.found["early"],
            "latenessMs": {"p50": late.percentile(50), "p99": late.percentile(99), "max": late.most_ms},
            **stage.effects.counts(),
        }


class Probe:
    """Submits one job and reads it back, again and again, each once: how available is the edge meanwhile?"""

    def __init__(self, stage: Stage, *, writes: bool = True) -> None:
        self.promises: list[Promise] = []
        self.asked = self.failed = 0
        self.slowest_sec = 0.0
        self._writes = writes
        self._client = stage.client(retry=ONE_TRY)
        self._known = self._client.create_job(JobSpec(schedule=Delay(0), pool=POOL, task="work")).job_id
        self.promises.append(Promise(job_id=self._known))
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="probe", daemon=True)
        self._thread.start()

    def end(self) -> None:
        self._stopping.set()
        self._thread.join(60)
        self._client.close()

    def _run(self) -> None:
        while not self._stopping.wait(PROBE_SEC):
            begun = time.monotonic()
            if self._writes:
                self._ask(self._submit)
            self._ask(lambda: self._client.get_job(self._known))
            self.slowest_sec = max(self.slowest_sec, time.monotonic() - begun)

    def _submit(self) -> None:
        made = self._client.create_job(JobSpec(schedule=Delay(1), pool=POOL, task="work"))
        self.promises.append(Promise(job_id=made.job_id, schedule={"delay_ms": 1_000}))

    def _ask(self, call: Callable[[], object]) -> None:
        self.asked += 1
        try:
            call()
        except HorariumError:
            self.failed += 1


def submit(client: Client, count: int, due_ms: int, sec: float) -> list[Promise]:
    """One-offs due at one instant. What is answered "unknown" is repeated under its key, as it says."""
    when = datetime.fromtimestamp(due_ms / 1000, UTC)
    spec = JobSpec(schedule=At(when), pool=POOL, task="work", payload={"sec": sec}, lease_sec=LEASE_SEC)
    promises = []
    for first in range(0, count, BATCH):
        key, specs = new_id(), [spec] * min(BATCH, count - first)
        answers = client.create_jobs(specs, idempotency_key=key)
        while any(answer.status == UNKNOWN for answer in answers):
            answers = client.create_jobs(specs, idempotency_key=key)
        for answer in answers:
            if answer.job is None:
                raise StageError(f"a submission was dropped: {answer.error}")
            promises.append(Promise(job_id=answer.job.job_id, schedule={"run_at_ms": due_ms}))
    return promises


def running(stage: Stage) -> list[str]:
    """Jobs of which a worker holds an execution, by the log; each of them has one."""
    with stage.ledger.lock:
        rows = stage.ledger.rows.items()
        return [job_id for job_id, row in rows if row.count(ExecutionStatus.RUNNING)]


def over(stage: Stage, promises: list[Promise]) -> float:
    return stage.until_over([promise.job_id for promise in promises])


def fleet_crash(stage: Stage) -> Outcome:
    """All workers die with executions in flight, after the effects of some and before those of others."""
    outcome = Outcome("worker fleet crash")
    fleet = [stage.start_worker(IN_FLIGHT // 2) for _ in range(2)]
    with stage.client() as client:
        promises = submit(client, IN_FLIGHT // 2, wall_ms() + 1_000, QUICK_SEC)
        promises += submit(client, IN_FLIGHT // 2, wall_ms() + 1_000, SLOW_SEC)
        # The quick half has had its effect and is not done, the slow half has not had it yet.
        stage.until(lambda: stage.effects.counts()["effects"] >= IN_FLIGHT // 2, "effects of the quick half")
        for name in fleet:
            stage.kill_worker(name)
        stage.follower.reached_the_end()
        held = running(stage)
        probe = Probe(stage)
        stage.until(lambda: probe.asked >= 20, "probes while no worker lives")
        # Some may have ended by a word that was on its way when their worker died.
        in_flight = len(stage.ledger.unfinished(held))
        stage.start_worker(IN_FLIGHT)
        over(stage, promises)
        probe.end()
    promises += probe.promises
    over(stage, promises)
    outcome.judged(stage.verdict(promises), stage)
    outcome.figures |= {"inFlight": in_flight, "asked": probe.asked, "failed": probe.failed}
    figures = outcome.figures
    outcome.expect(probe.failed == 0, f"{probe.failed} of {probe.asked} submissions and reads failed")
    outcome.expect(in_flight >= IN_FLIGHT // 2, f"only {in_flight} were in flight when the fleet crashed")
    outcome.expect(figures["redelivered"] >= in_flight, f"{in_flight} were in flight, to be delivered again")
    outcome.expect(figures["duplicatesFenced"] == 0, "no duplicate effect where the token is honoured")
    outcome.expect(figures["duplicatesPlain"] > 0, "duplicate effects are shown where it is ignored")
    return outcome


def top_of_the_hour(stage: Stage) -> Outcome:
    """Three times the traffic in one instant, and workers that are at their limit."""
    outcome = Outcome("traffic tripling at the top of the hour")
    stage.start_worker(SLOTS)
    most = 0

    def busiest() -> int:
        nonlocal most
        now = len(running(stage))
        most = max(most, now)
        return now

    with stage.client() as client:
        promises = submit(client, STEADY_JOBS, wall_ms() + 2_000, 0.2)
        promises += submit(client, HOURLY_JOBS, wall_ms() + 4_000, 0.4)
        submitted = len(promises)
        stage.until(lambda: busiest() >= SLOTS, "workers at their limit")
        promises += submit(client, STEADY_JOBS, wall_ms() + 500, 0.1)
        begun = time.monotonic()
        stage.until(
            lambda: bool(busiest() >= 0 and not stage.ledger.unfinished([one.job_id for one in promises])),
            "the backlog drains",
        )
        outcome.figures["drainedSec"] = round(time.monotonic() - begun, 1)
    outcome.judged(stage.verdict(promises), stage)
    outcome.figures |= {"submitted": submitted + STEADY_JOBS, "mostRunning": most, "slots": SLOTS}
    outcome.expect(outcome.figures["completed"] == len(promises), "every submission was executed")
    outcome.expect(most <= SLOTS, f"{most} ran where {SLOTS} places are")
    outcome.expect(outcome.figures["redelivered"] == 0, "no lease was lost in the crowd")
    return outcome


def log_failover(stage: Stage) -> Outcome:
    """A broker dies that leads a third of the log: reads go on, nothing is lost."""
    outcome = Outcome("leader failover of the log")
    stage.start_worker(SLOTS)
    with stage.client() as client:
        promises = submit(client, STEADY_JOBS, wall_ms() + 1_000, 0.2)
        probe = Probe(stage, writes=False)
        stage.until(lambda: stage.completed() >= SLOTS, "work before the failover")
        node = stage.brokers.nodes[0]
        begun = time.monotonic()
        node.kill()
        promises += submit(client, STEADY_JOBS, wall_ms() + 2_000, 0.2)
        outcome.figures["writesAgainSec"] = round(time.monotonic() - begun, 1)
        over(stage, promises)
        node.start()
        probe.end()
    promises += probe.promises
    over(stage, promises)
    outcome.judged(stage.verdict(promises), stage)
    outcome.figures |= {"reads": probe.asked, "failedReads": probe.failed}
    outcome.expect(probe.failed == 0, f"{probe.failed} of {probe.asked} reads failed")
    outcome.expect(outcome.figures["completed"] == len(promises), "every submission was executed")
    return outcome


SCENARIOS: dict[str, Callable[[Stage], Outcome]] = {
    "fleet-crash": fleet_crash,
    "top-of-the-hour": top_of_the_hour,
    "log-failover": log_failover,
}


def play(name: str, folder: Path) -> Outcome:
    """One scenario on a stage of its own. StageError if it did not come to its end."""
    with Stage(folder) as stage:
        return SCENARIOS[name](stage)


def main() -> int:
    """All scenarios, or those that are named; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m dev.chaos.scenarios", description=__doc__)
    parser.add_argument("names", nargs="*", choices=[*SCENARIOS, []], default=[])
    names = parser.parse_args().names or list(SCENARIOS)
    outcomes = []
    for name in names:
        try:
            with tempfile.TemporaryDirectory(prefix="horarium-scenario-") as folder:
                outcome = play(name, Path(folder))
        except (BrokerError, ServerError, StageError, HorariumError) as error:
            print(f"{name} could not be played to its end: {error}", file=sys.stderr)
            return 2
        outcomes.append(outcome)
        print(f"{outcome.name}: {'as expected' if not outcome.wrong else 'NOT AS EXPECTED'}", flush=True)
        print(f"    {json.dumps(outcome.figures)}", flush=True)
        for line in outcome.wrong:
            print(f"    WRONG: {line}", flush=True)
    good = not any(outcome.wrong for outcome in outcomes)
    print(json.dumps({"good": good, "scenarios": {one.name: one.figures for one in outcomes}}))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
