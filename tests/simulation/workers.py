"""Workers: they claim, run for a while, beat and report; some are slow, stuck, die, or speak up late.

Owns how a worker behaves. Its calls go through whichever API node it finds, and may be lost on the way; what
it is not answered it repeats, as the client library does.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from api.work.waiting import Claim
from schemas.commands import (
    Beat,
    Complete,
    Completion,
    ExtendLease,
    Fail,
    Failure,
    Handback,
    LeaseRef,
    Release,
    WorkCommand,
)
from schemas.replies import Grant, WorkDone
from tests.simulation.network import Network
from tests.simulation.nodes import Answered, Node
from tests.simulation.servers import Surroundings

CLAIM_SEC = 12.0
REPORTS_MAX = 6
"""How often an outcome is reported before it is let go: its lease ends then."""
_KINDS: dict[type[LeaseRef], type[ExtendLease | Complete | Fail | Release]] = {
    Beat: ExtendLease,
    Completion: Complete,
    Failure: Fail,
    Handback: Release,
}


@dataclass(slots=True, eq=False)
class Run:
    """An execution in a worker's hands."""

    grant: Grant
    ends_ms: int
    stuck: bool
    """It never beats, and may report long after its lease."""
    over: bool = False
    attempts: int = 0


@dataclass(slots=True, eq=False)
class Worker:
    around: Surroundings
    network: Network
    nodes: list[Node]
    owner: str
    """Of the pool: a tenant, or `shared`."""
    pool: str
    worker_id: str
    places: int
    life: int = 1
    runs: dict[tuple[str, str, int], Run] = field(default_factory=dict)
    healthy: bool = False
    """From the liveness phase on."""
    _claiming: bool = False
    _claim_id: str = ""
    _claims: int = 0

    # -- claims

    def start(self) -> None:
        """Claims again whenever it has room."""
        self._claim(self.life)

    def _node(self) -> Node:
        up = [node for node in self.nodes if node.life] or self.nodes
        return self.around.chance.choice(up)

    def _claim(self, life: int) -> None:
        room = self.places - len(self.runs)
        if life != self.life or self._claiming or room <= 0:
            return
        self._claiming = True
        if not self._claim_id:
            self._claims += 1
            self._claim_id = f"{self.worker_id}-{self._claims}"
        node = self._node()
        token = node.new_token()
        claim = Claim(
            token=token,
            worker_id=self.worker_id,
            max=room,
            until=node.now + CLAIM_SEC,
            claim_id=self._claim_id,
            lease_sec=self.around.chance.choice((0, 0, 2, 5)),
        )

        def answered(grants: list[Grant] | None) -> None:
            if life != self.life:
                return
            self._claiming = False
            if grants is None:  # repeated under the same id: what it holds already is answered again
                self.around.counts["claim repeated"] += 1
                node.abandon(self.owner, self.pool, token)
                self.around.agenda.after(self.around.chance.randint(50, 1_500), lambda: self._claim(life))
                return
            self._claim_id = ""
            for grant in grants:
                self._begin(grant)
            self.around.agenda.after(self.around.chance.randint(1, 40), lambda: self._claim(life))

        self.network.call(
            node,
            lambda respond: node.claim(self.owner, self.pool, claim, respond),
            answered,
            round(CLAIM_SEC * 1000) + 3_000,
        )

    # -- runs

    def _begin(self, grant: Grant) -> None:
        execution = grant.execution
        key = (execution.tenant, execution.execution_id, execution.lease_epoch)
        if key in self.runs:
            self.around.counts["grant heard twice"] += 1
            return
        hazards, chance, counts = self.around.hazards, self.around.chance, self.around.counts
        ms = chance.randint(20, 1_500)
        stuck = chance.random() < hazards.p_run_stuck
        if stuck:
            counts["run stuck"] += 1
            ms = chance.randint(4_000, 40_000)
        elif chance.random() < hazards.p_run_slow:
            counts["run slow"] += 1
            ms = chance.randint(3_000, 30_000)
        if not self.healthy and chance.random() < hazards.p_worker_dies:
            self._die()
            return
        run = self.runs[key] = Run(grant, self.around.agenda.now_ms + ms, stuck)
        life = self.life
        self.around.agenda.after(ms, lambda: self._end(life, run))
        if not stuck:
            self._beat_later(life, run)

    def _beat_later(self, life: int, run: Run) -> None:
        ms = max(200, run.grant.execution.lease_sec * 1000 // 3)
        self.around.agenda.after(ms, lambda: self._beat(life, run))

    def _beat(self, life: int, run: Run) -> None:
        if life != self.life or run.over:
            return
        beat = Beat(**_ref(run), progress=b"half" if self.around.chance.random() < 0.2 else None)

        def answered(done: WorkDone | None) -> None:
            if done is not None and done.results[0].code:
                self._drop(run, f"beat refused: {done.results[0].code}")

        self._report(run, beat, answered)
        self._beat_later(life, run)

    def _end(self, life: int, run: Run) -> None:
        if life != self.life:
            return
        if run.over and self.around.chance.random() >= self.around.hazards.p_run_reported_late:
            return
        if run.over:
            self.around.counts["reported after its lease"] += 1
        self._finish(life, run, self._outcome(run))

    def _outcome(self, run: Run) -> LeaseRef:
        drawn = self.around.chance.random()
        if self.healthy or drawn < 0.7:
            return Completion(**_ref(run), result=b'{"ok":true}')
        if drawn < 0.9:
            retryable = self.around.chance.random() < 0.7
            after = self.around.chance.choice((-1, -1, 0, 3))
            return Failure(**_ref(run), error="boom", retryable=retryable, retry_after_sec=after)
        return Handback(**_ref(run), delay_sec=self.around.chance.choice((0, 0, 2, 10)))

    def _finish(self, life: int, run: Run, outcome: LeaseRef) -> None:
        run.attempts += 1

        def answered(done: WorkDone | None) -> None:
            if life != self.life:
                return
            if done is None and run.attempts < REPORTS_MAX:
                self.around.counts["outcome repeated"] += 1
                again_ms = self.around.chance.randint(100, 2_000)
                self.around.agenda.after(again_ms, lambda: self._finish(life, run, outcome))
                return
            self._drop(run, "reported" if done is not None else "given up")

        self._report(run, outcome, answered)

    def _report(self, run: Run, item: LeaseRef, answered: Answered) -> None:
        node = self._node()
        execution = run.grant.execution
        partition = node.where(execution.tenant, execution.job_id)

        def request(respond: Answered) -> None:
            kind = _KINDS[type(item)]
            envelope, pools = node.envelope(execution.tenant), (execution.pool,)
            command: WorkCommand = kind(**envelope, items=(item,), pools=pools)  # type: ignore[arg-type]
            node.ask(command, partition, respond)

        self.network.call(node, request, answered)

    def _drop(self, run: Run, why: str) -> None:
        run.over = True
        execution = run.grant.execution
        key = (execution.tenant, execution.execution_id, execution.lease_epoch)
        if self.runs.pop(key, None) is not None:
            self._claim(self.life)

    def _die(self) -> None:
        """All it held goes with it; the same worker, or one of another name, comes in its place."""
        self.around.counts["worker died"] += 1
        self.around.tell(self.worker_id, f"dies holding {len(self.runs) + 1}")
        self.life += 1
        for run in self.runs.values():
            run.over = True
        self.runs = {}
        self._claiming, self._claim_id = False, ""
        if self.around.chance.random() < 0.5:
            name, _, number = self.worker_id.rpartition("/")
            self.worker_id = f"{name}/{int(number) + 1}"
        self.around.agenda.after(self.around.chance.randint(100, 9_000), self.start)


def _ref(run: Run) -> dict[str, Any]:
    execution = run.grant.execution
    return {
        "execution_id": execution.execution_id,
        "worker_id": execution.worker_id,
        "lease_epoch": execution.lease_epoch,
    }
