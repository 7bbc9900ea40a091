"""What goes wrong in a run, and how often: drawn from its seed, counted when it really happens.

Every kind is on in some seeds only: a run where everything fails at once seldom gets far enough to be wrong
in an interesting way.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, fields

from streams.ambient import Chance

ON = 0.55
"""The share of seeds in which a kind of fault happens at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hazards:
    """Probabilities (`p_…` of each chance to happen) and mean times between happenings (`every_…_sec`;
    0: never)."""

    p_message_lost: float = 0.0
    p_message_twice: float = 0.0
    p_message_late: float = 0.0
    p_call_lost: float = 0.0
    """Between client and API: the request or its answer."""
    p_commit_aborted: float = 0.0
    p_commit_unknown: float = 0.0
    p_crash_at_step: float = 0.0
    p_freeze_at_step: float = 0.0
    p_fetch_late: float = 0.0
    """Of each poll of `work`: what is in the log comes to the process later."""
    every_crash_sec: float = 0.0
    every_freeze_sec: float = 0.0
    every_rebalance_sec: float = 0.0
    every_eviction_sec: float = 0.0
    every_deploy_sec: float = 0.0
    every_clock_step_sec: float = 0.0
    drift_ppm: int = 0
    p_wrong_clock_at_start: float = 0.0
    p_disk_lost: float = 0.0
    p_disk_old: float = 0.0
    every_outage_sec: float = 0.0
    every_compaction_sec: float = 0.0
    every_late_markers_sec: float = 0.0
    every_node_crash_sec: float = 0.0
    every_settings_sec: float = 0.0
    every_herd_sec: float = 0.0
    every_rush_sec: float = 0.0
    p_worker_dies: float = 0.0
    """Of each run; the others too."""
    p_run_stuck: float = 0.0
    p_run_slow: float = 0.0
    p_run_reported_late: float = 0.0
    p_bucket_fails: float = 0.0
    """Of each call to where snapshots are kept."""
    every_bucket_damage_sec: float = 0.0
    newer_zone_data_sec: int = 0
    """After so long processes start with newer ones; 0: never."""

    @property
    def clock_slack_ms(self) -> int:
        """How far apart the clocks of this run can be taken to be."""
        return 1_000 if not (self.every_clock_step_sec or self.p_wrong_clock_at_start) else 7_000


NONE = Hazards()

_MOST = Hazards(
    p_message_lost=0.03,
    p_message_twice=0.04,
    p_message_late=0.08,
    p_call_lost=0.05,
    p_commit_aborted=0.03,
    p_commit_unknown=0.01,
    p_crash_at_step=0.003,
    p_freeze_at_step=0.002,
    p_fetch_late=0.01,
    every_crash_sec=45.0,
    every_freeze_sec=50.0,
    every_rebalance_sec=25.0,
    every_eviction_sec=50.0,
    every_deploy_sec=90.0,
    every_clock_step_sec=30.0,
    drift_ppm=300,
    p_wrong_clock_at_start=0.2,
    p_disk_lost=0.4,
    p_disk_old=0.4,
    every_outage_sec=120.0,
    every_compaction_sec=20.0,
    every_late_markers_sec=40.0,
    every_node_crash_sec=60.0,
    every_settings_sec=30.0,
    every_herd_sec=100.0,
    every_rush_sec=60.0,
    p_worker_dies=0.03,
    p_run_stuck=0.04,
    p_run_slow=0.1,
    p_run_reported_late=0.8,
    p_bucket_fails=0.05,
    every_bucket_damage_sec=4.0,
    newer_zone_data_sec=120,
)
"""Each at its worst; a seed draws how near it comes."""


def draw(chance: Chance) -> Hazards:
    """The hazards of one seed. Times between happenings are at least those of `_MOST`."""
    drawn: dict[str, float | int] = {}
    for field in fields(Hazards):
        most = getattr(_MOST, field.name)
        if chance.random() >= ON:
            continue
        share = chance.uniform(0.3, 1.0)
        value = most / share if field.name.startswith("every_") else most * share
        drawn[field.name] = round(value) if isinstance(most, int) else value
    return Hazards(**drawn)  # type: ignore[arg-type]  # by the fields' own types


class Counts(Counter[str]):
    """How often each fault and each noteworthy thing happened."""
