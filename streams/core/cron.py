"""stub: being written"""

from streams.core.instants import TimeInputError


class CronError(TimeInputError):
    """.field ('schedule.cron'), .detail, .part"""

    part: str


class Cron:
    """Frozen, compared by identity; parse_cron caches, so equal expressions share one object."""

    text: str
    expanded: str  # H replaced by its values
    follows_elapsed: bool  # hour field starts with * or H/n


def parse_cron(text: object, seed: str = "", field: str = "schedule.cron") -> Cron:
    """seed = f"{tenant}/{job_id}"; only looked at if H occurs; H with an empty seed is a CronError."""
    raise NotImplementedError
