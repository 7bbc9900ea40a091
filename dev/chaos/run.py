"""One chaos: load, faults one after the other, then calm until everything is over, then the verdict."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dev.chaos.faults import SLOTS, Fault
from dev.chaos.load import Load
from dev.chaos.stage import Stage
from projections.checker.report import Report
from streams.ambient import Chance

WORKERS = 2
# After a fault so many executions must succeed before the next one comes: that is what recovery means.
RECOVERED = 20
DRAIN_SEC = 180.0


@dataclass(slots=True)
class Result:
    """What came of a chaos."""

    seed: int
    report: Report
    faults: Counter[str] = field(default_factory=Counter)
    recovery_sec: list[float] = field(default_factory=list)
    effects: dict[str, int] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    @property
    def good(self) -> bool:
        return self.report.good and not self.wrong

    def summary(self) -> dict[str, Any]:
        """One JSON object."""
        return {
            "seed": self.seed,
            "good": self.good,
            "faults": dict(self.faults),
            "slowestRecoverySec": round(max(self.recovery_sec, default=0.0), 1),
            "effects": self.effects,
            "wrong": self.wrong,
            **self.report.summary(),
        }


def play(
    folder: Path, *, seed: int, faults: Sequence[Fault], seconds: float, say: Callable[[str], None]
) -> Result:
    """Every fault once, in an order of the seed, and then more of them until `seconds` have passed."""
    chance = Chance(seed)
    with Stage(folder, say=lambda line: say(f"         {line}")) as stage:
        for _ in range(WORKERS):
            stage.start_worker(SLOTS)
        load = Load(stage, seed)
        load.start()
        result = Result(seed, Report())
        begun = time.monotonic()

        def tell(line: str) -> None:
            say(f"{time.monotonic() - begun:6.1f} s {line}")

        _recovered(stage, "the start")
        tell(f"load runs: {stage.completed()} executions done")
        coming = chance.sample(faults, len(faults))
        while coming or time.monotonic() - begun < seconds:
            fault = coming.pop() if coming else chance.choice(faults)
            told = fault(stage, chance)
            sec = _recovered(stage, told)
            result.faults[fault.__name__] += 1
            result.recovery_sec.append(sec)
            tell(f"{told}; {RECOVERED} more done {sec:.1f} s later")
        load.end()
        sec = stage.until_over(load.job_ids, DRAIN_SEC)
        tell(f"calm: everything was over after {sec:.1f} s; {len(load.promises)} jobs were acknowledged")
        result.report = stage.verdict(load.promises)
        result.effects = stage.effects.counts()
        result.wrong = [*stage.effects_agree(), *stage.crashes]
        return result


def _recovered(stage: Stage, after: str) -> float:
    """Seconds until the load went on."""
    before = stage.completed()
    return stage.until(lambda: stage.completed() >= before + RECOVERED, f"executions succeed after {after}")
