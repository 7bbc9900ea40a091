"""What is seen while the demo runs: a live table on a terminal, plain lines elsewhere."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from dev.demo.ledger import Ledger, Row
from dev.demo.mix import Planned
from schemas.entities import ExecutionStatus as E

LINE_EVERY_SEC = 3.0
NEWS = 8  # of the newest events of the play are shown under the table

WAITING, RUNNING = (E.PENDING, E.SCHEDULED), (E.RUNNING,)


class Show(Protocol):
    """How the play shows itself."""

    def say(self, line: str) -> None:
        """Something happened."""
        ...

    def refresh(self, second: float, now_ms: int) -> None:
        """Called every moment."""
        ...

    def close(self) -> None: ...


class Lines:
    """For logs and pipes."""

    def __init__(self, ledger: Ledger, plans: Sequence[Planned]) -> None:
        self._ledger = ledger
        self._next = 0.0

    def say(self, line: str) -> None:
        print(line, flush=True)

    def refresh(self, second: float, now_ms: int) -> None:
        if second < self._next:
            return
        self._next = second + LINE_EVERY_SEC
        with self._ledger.lock:
            whole = _sum(self._ledger.rows.values())
        print(
            f"{second:5.1f} s  waiting {whole.count(*WAITING):3}  running {whole.count(*RUNNING):3}"
            f"  done {whole.count(E.COMPLETED):4}  failed attempts {whole.failed_attempts:2}"
            f"  redelivered {whole.redeliveries:2}  late p50 {_middle(whole.late_ms)} ms,"
            f" most {max(whole.late_ms, default=0)} ms",
            flush=True,
        )

    def close(self) -> None:
        """There is nothing to close."""


class Screen:
    """For terminals."""

    def __init__(self, ledger: Ledger, plans: Sequence[Planned]) -> None:
        self._ledger = ledger
        self._plans = plans
        self._news: list[str] = []
        self._live = Live(console=Console(), refresh_per_second=8, transient=False)
        self._live.start()

    def say(self, line: str) -> None:
        self._news = [*self._news, line][-NEWS:]

    def refresh(self, second: float, now_ms: int) -> None:
        table = Table(title=f"Horarium, {second:.0f} s", title_justify="left", box=None, padding=(0, 1, 0, 0))
        for name in ("job", "schedule", "next"):
            table.add_column(name, no_wrap=True)
        # "again": delivered again after a lease ended; "late" and "most" in milliseconds.
        for name in ("wait", "run", "done", "fail", "again", "late", "most"):
            table.add_column(name, justify="right", no_wrap=True)
        with self._ledger.lock:
            for title, (says, rows) in self._groups().items():
                table.add_row(title, says, *_cells(_sum(rows), now_ms))
        self._live.update(Group(table, *(Text(line) for line in self._news)))

    def _groups(self) -> dict[str, tuple[str, list[Row]]]:
        """The herd is one row."""
        groups: dict[str, tuple[str, list[Row]]] = {}
        for plan in self._plans:
            _, rows = groups.setdefault(plan.title, (plan.says, []))
            if plan.job_id in self._ledger.rows:
                rows.append(self._ledger.rows[plan.job_id])
        return groups

    def close(self) -> None:
        self._live.stop()


def _middle(late_ms: Sequence[int]) -> int:
    return sorted(late_ms)[len(late_ms) // 2] if late_ms else 0


def _sum(rows: Iterable[Row]) -> Row:
    whole = Row(over=True)
    for row in rows:
        coming = [each for each in (whole.next_ms, row.next_ms) if each]
        whole.next_ms = min(coming, default=0)
        whole.executions |= row.executions
        whole.failed_attempts += row.failed_attempts
        whole.redeliveries += row.redeliveries
        whole.late_ms += row.late_ms
        whole.over = whole.over and row.over
    return whole


def _cells(row: Row, now_ms: int) -> list[str]:
    due = f"in {max(0, row.next_ms - now_ms) / 1000:.0f} s" if row.next_ms else "over" if row.over else ""
    numbers = (
        row.count(*WAITING),
        row.count(*RUNNING),
        row.count(E.COMPLETED),
        row.failed_attempts + row.count(E.FAILED),
        row.redeliveries,
    )
    late = [str(row.late_ms[-1]), str(max(row.late_ms))] if row.late_ms else ["", ""]
    return [due, *(str(number) if number else "" for number in numbers), *late]
