"""Circuit breakers, one a tenant and target (`pool:<name>`): when retries are held back, and let go again.

Closed, until half of enough outcomes are failures; then open for a pause that doubles; then a few are tried.
A probe that goes well closes it, one that fails opens it again. Retries that are held back wait in an index
of their own and spend nothing. First attempts pass: a pool has no other way to show that it is well.
"""

from __future__ import annotations

from msgspec.structs import replace

from schemas import ids
from schemas.entities import Breaker, BreakerStatus, Execution, ExecutionStatus, Priority, WaitingFor
from schemas.events import BreakerClosed, BreakerOpened, BreakerProbing
from schemas.ids import target_of
from streams.core import keys
from streams.core.handlers.following import make_ready
from streams.core.limits import FORGET_AFTER_MS, PROBES_MAX
from streams.core.state import due_of_breaker_end
from streams.core.transaction import Transaction

OUTCOMES_MIN = 20
JOBS_MIN = 3  # unless the target has fewer
FAILURES_SHARE = 0.5
PAUSE_MS, PAUSE_MAX_MS = 30_000, 600_000
BEATS_MS = 60_000  # a probe that is still alive after this is well
LET_GO_MAX = 100
"""Held back executions made ready in one pass after the breaker has closed."""
ROUNDS_MAX = 30
"""How often a pass looks for other probes: all that is held back may be of one group, whose slot is taken."""


def note_outcome(tx: Transaction, execution: Execution, *, failed: bool) -> None:
    """An attempt succeeded, or failed in a way that may be repeated. Cancels and expiries say nothing."""
    breaker = tx.state.breaker_of(execution)
    if breaker is not None and breaker.status is not BreakerStatus.CLOSED:
        if breaker.status is BreakerStatus.PROBING and execution.execution_id in breaker.probes:
            if failed:
                _open(tx, breaker, 1, 1)
            else:
                _close(tx, breaker, "a probe went well")
        return
    outcomes, tenant, target = tx.guards.outcomes, execution.tenant, target_of(execution)
    outcomes.add(execution, target, tx.now_ms, failed=failed)
    if not failed:
        return
    totals = outcomes.totals(tenant, target, tx.now_ms)
    jobs_min = min(JOBS_MIN, tx.state.indexes.jobs_in(tenant, execution.pool))
    if (
        totals.outcomes >= OUTCOMES_MIN
        and totals.failures >= totals.outcomes * FAILURES_SHARE
        and totals.jobs >= jobs_min
    ):
        closed = Breaker(tenant=tenant, target=target, status=BreakerStatus.CLOSED, changed_ms=0)
        _open(tx, closed, totals.outcomes, totals.failures)


def note_beat(tx: Transaction, execution: Execution) -> None:
    """A probe that has been alive for long enough is as good as a success."""
    if tx.now_ms - execution.started_ms >= BEATS_MS and tx.state.is_probe(execution):
        breaker = tx.state.breaker_of(execution)
        if breaker is not None:
            _close(tx, breaker, "a probe went well")


def note_grant(tx: Transaction, execution: Execution) -> None:
    """While there is room among the probes, whoever is granted is one, first attempts too."""
    breaker = tx.state.breaker_of(execution)
    if breaker is None or breaker.status is not BreakerStatus.PROBING:
        return
    if len(breaker.probes) < PROBES_MAX and execution.execution_id not in breaker.probes:
        probes = (*breaker.probes, execution.execution_id)
        tx.emit_breaker(BreakerProbing, replace(breaker, probes=probes))


def visit_breaker(tx: Transaction, breaker: Breaker) -> None:
    """Its time has come: to try a few, to let go of some, or to come to its end."""
    if breaker.status is BreakerStatus.OPEN and breaker.until_ms <= tx.now_ms:
        probing = replace(breaker, status=BreakerStatus.PROBING, changed_ms=tx.now_ms, until_ms=0)
        tx.emit_breaker(BreakerProbing, probing)
        _tell(tx, probing, "a few executions are tried")
        replace_probes(tx, breaker.tenant, breaker.target)
    elif breaker.status is BreakerStatus.PROBING:
        replace_probes(tx, breaker.tenant, breaker.target)
        _end_trying(tx, breaker.tenant, breaker.target)
    elif breaker.status is BreakerStatus.CLOSED:
        _let_go(tx, breaker)


def replace_probes(tx: Transaction, tenant: str, target: str) -> None:
    """Probes that neither run nor can be granted (cancelled, expired, handed back, waiting for their group)
    make room for others that are held back. What is too much for one pass goes on in the next."""
    for _ in range(ROUNDS_MAX):
        breaker = tx.state.breaker(tenant, target)
        if breaker is None or breaker.status is not BreakerStatus.PROBING:
            return
        alive = tuple(one for one in breaker.probes if _is_tried(tx, tenant, one))
        more = tx.state.indexes.held_back(tenant, target, PROBES_MAX - len(alive))
        if alive == breaker.probes and not more:
            return
        tx.emit_breaker(BreakerProbing, replace(breaker, probes=(*alive, *more)))
        _make_ready(tx, tenant, more)
    _come_back(tx, tenant, target)


def _end_trying(tx: Transaction, tenant: str, target: str) -> None:
    """For a day nothing came that could be tried: nobody uses the target, so nothing is held back."""
    breaker = tx.state.breaker(tenant, target)
    if (
        breaker is None
        or breaker.status is not BreakerStatus.PROBING
        or tx.now_ms < due_of_breaker_end(breaker)
    ):
        return
    if breaker.probes:  # they run, or wait for a worker
        _come_back(tx, tenant, target, FORGET_AFTER_MS)
    else:
        _close(tx, breaker, "nothing came to be tried for a day")


def _come_back(tx: Transaction, tenant: str, target: str, in_ms: int = 0) -> None:
    """Its timer is due again. Of a store that is made from the log, the entity says the same."""
    lane = keys.lane(Priority.NORMAL, tenant)
    tx.state.timers.add(tx.now_ms + in_ms, lane, ids.breaker_key(tenant, target))


def _is_tried(tx: Transaction, tenant: str, execution_id: str) -> bool:
    execution = tx.state.execution(tenant, execution_id)
    if execution is None:
        return False
    return execution.status is ExecutionStatus.RUNNING or execution.waiting_for is WaitingFor.WORKER


def _make_ready(tx: Transaction, tenant: str, execution_ids: list[str]) -> None:
    for execution_id in execution_ids:
        execution = tx.state.execution(tenant, execution_id)
        if execution is not None:
            make_ready(tx, execution)


def _open(tx: Transaction, breaker: Breaker, outcomes: int, failures: int) -> None:
    pause_ms = min(PAUSE_MAX_MS, PAUSE_MS << min(breaker.openings, 10))
    opened = replace(
        breaker,
        status=BreakerStatus.OPEN,
        changed_ms=tx.now_ms,
        until_ms=tx.now_ms + pause_ms,
        openings=breaker.openings + 1,
        probes=(),
        outcomes=outcomes,
        failures=failures,
    )
    tx.emit_breaker(BreakerOpened, opened)
    tx.guards.outcomes.clear(breaker.tenant, breaker.target)
    _tell(tx, opened, f"open for {pause_ms // 1_000} s, {failures} of {outcomes} attempts failed")


def _close(tx: Transaction, breaker: Breaker, why: str) -> None:
    closed = replace(
        breaker, status=BreakerStatus.CLOSED, changed_ms=tx.now_ms, until_ms=0, openings=0, probes=()
    )
    tx.emit_breaker(BreakerClosed, closed)
    _tell(tx, closed, f"closed, {why}")


def _let_go(tx: Transaction, breaker: Breaker) -> None:
    """A part of what was held back; the rest follows in further passes."""
    held = tx.state.indexes.held_back(breaker.tenant, breaker.target, LET_GO_MAX)
    _make_ready(tx, breaker.tenant, held)
    if len(held) == LET_GO_MAX:
        _come_back(tx, breaker.tenant, breaker.target)
    elif tx.now_ms >= due_of_breaker_end(breaker):
        tx.forget(ids.breaker_key(breaker.tenant, breaker.target))


def _tell(tx: Transaction, breaker: Breaker, what: str) -> None:
    tx.alert("breaker", breaker.tenant, f"breaker of {breaker.target}: {what}", target=breaker.target)
