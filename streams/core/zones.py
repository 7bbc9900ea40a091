"""stub: being written"""

from streams.core.instants import TimeInputError


class ZoneError(TimeInputError):
    """No zone of the pinned tzdata package has this name."""


TZ_VERSION: str = "2026f"


class Zone:
    name: str

    def offset_at(self, utc_s: int) -> int:
        raise NotImplementedError

    def to_utc(self, local_s: int) -> int:
        """First instant (s) at which the wall clock reaches `local_s`: first pass, or end of a gap."""
        raise NotImplementedError


def get_zone(name: object, field: str = "schedule.timeZone") -> Zone:
    raise NotImplementedError


def zone_names() -> frozenset[str]:
    raise NotImplementedError


def resolve_local(zone: Zone, local_ms: int) -> int:
    """parse_local(..) ms -> instant ms."""
    raise NotImplementedError


def format_zoned(zone: Zone, utc_ms: int) -> str:
    """RFC 3339 with the zone's offset, e.g. 2026-03-08T03:00:00-04:00."""
    raise NotImplementedError
