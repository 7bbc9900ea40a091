"""`idempotencyKeyTemplate`: literals and a few placeholders, with a parser of its own (semantics §4).

`{jobId}`, `{executionId}`, `{scheduledTime}`, `{scheduledTime:FORMAT}` in the job's zone, and the same as
`scheduledTimeUtc`; FORMAT is literals and `%Y %m %d %H %M %S %j %G %V`. `{{` and `}}` are braces.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache

from streams.core.instants import TimeInputError, format_instant
from streams.core.limits import KEY_CHARS_MAX
from streams.core.zones import Zone, format_zoned, get_zone

FIELD = "idempotencyKeyTemplate"
_DIRECTIVES = frozenset("YmdHMSjGV")
_TOKEN = re.compile(r"\{\{|\}\}|\{([^{}]*)\}|([^{}]+)")
_VISIBLE = re.compile(r"[\x21-\x7e]+")
_LONGEST = {"jobId": 64, "executionId": 120, "scheduledTime": 35, "scheduledTimeUtc": 35}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

Part = tuple[str, str]
"""("", literal), or a placeholder's name and its format."""


@lru_cache(maxsize=10_000)
def parse(template: str) -> tuple[Part, ...]:
    """The parts. Raises TimeInputError naming the field and the part that is wrong."""
    parts: list[Part] = []
    at = longest = 0
    while at < len(template):
        match = _TOKEN.match(template, at)
        if match is None:
            raise TimeInputError(FIELD, f"has a lone brace at character {at + 1}; write {{{{ or }}}}")
        at = match.end()
        part = _part(match)
        parts.append(part)
        longest += _longest(part)
    if longest > KEY_CHARS_MAX:
        raise TimeInputError(FIELD, f"may become longer than {KEY_CHARS_MAX} characters")
    return tuple(parts)


def _part(match: re.Match[str]) -> Part:
    placeholder, literal = match.groups()
    if placeholder is None:
        text = literal if literal is not None else match.group()[0]
        if not _VISIBLE.fullmatch(text):
            raise TimeInputError(FIELD, f"{text!r} has other than visible ASCII characters")
        return "", text
    name, colon, form = placeholder.partition(":")
    if name not in _LONGEST:
        raise TimeInputError(FIELD, f"{{{placeholder}}} is none of {', '.join(_LONGEST)}")
    if colon and not name.startswith("scheduledTime"):
        raise TimeInputError(FIELD, f"{{{name}}} takes no format")
    if colon and (not form or not _VISIBLE.fullmatch(form)):
        raise TimeInputError(FIELD, f"{{{placeholder}}} has an empty or unprintable format")
    directives = re.findall(r"%(.?)", form)
    wrong = [d for d in directives if d not in _DIRECTIVES]
    if wrong:
        raise TimeInputError(FIELD, f"%{wrong[0]} is none of %Y %m %d %H %M %S %j %G %V")
    return name, form


def _longest(part: Part) -> int:
    name, text = part
    if not name:
        return len(text)
    return len(text) + 2 * text.count("%") if text else _LONGEST[name]


def render(template: str, job_id: str, execution_id: str, scheduled_ms: int, time_zone: str) -> str:
    """The key of one execution; empty for an empty template."""
    plain = {"jobId": job_id, "executionId": execution_id}
    out = []
    for name, text in parse(template):
        if not name:
            out.append(text)
        elif name in plain:
            out.append(plain[name])
        else:
            zone = get_zone("UTC" if name.endswith("Utc") else time_zone)
            out.append(_time(zone, scheduled_ms, text))
    return "".join(out)


def _time(zone: Zone, instant_ms: int, form: str) -> str:
    if not form:
        return format_instant(instant_ms) if zone.name == "UTC" else format_zoned(zone, instant_ms)
    local_sec = instant_ms // 1000 + zone.offset_at(instant_ms // 1000)
    # %Y of the C library is not padded to four digits everywhere; years here are 1970 and later.
    return (_EPOCH + timedelta(seconds=local_sec)).strftime(form)
