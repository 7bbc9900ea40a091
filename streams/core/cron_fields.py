"""Owns the grammar of one cron field: text in, a set of values and its plain text out.

It knows nothing of the other fields; how they combine is `cron.py`, what the day forms mean in a
given month is `cron_days.py`. Every refusal names the field and the part, and says what is accepted.
"""

import hashlib
import re
from dataclasses import dataclass

from streams.core.instants import TimeInputError


class CronError(TimeInputError):
    """The expression is refused; `part` is the offending piece of it as it was written."""

    def __init__(self, field: str, part: str, detail: str) -> None:
        super().__init__(field, detail)
        self.part = part


class Refused(Exception):
    """Part and reason inside the parser, which caches and so does not know the input field's name."""

    def __init__(self, part: str, detail: str) -> None:
        super().__init__(detail)
        self.part = part
        self.detail = detail


@dataclass(frozen=True, slots=True)
class FieldKind:
    """What one position of an expression takes."""

    name: str
    low: int
    high: int  # of `*`; a weekday may also be written 7
    names: tuple[str, ...] = ()  # in order from `low`
    hash_high: int | None = None  # `H` alone picks up to here

    @property
    def max_value(self) -> int:
        return 7 if self is WEEKDAY else self.high

    @property
    def form(self) -> str:
        """The accepted form, for messages."""
        values = f"{self.low}-{self.max_value}"
        if self.names:
            values += f" or {self.names[0]}-{self.names[-1]}"
        extra = {"day of month": ", ?, L, LW, 15W", "weekday": ", ?, 2#3, 5L"}.get(self.name, "")
        return f"*, numbers {values}, a-b, */n, a-b/n, lists of these{extra}, H, H/n, H(a-b), H(a-b)/n"


SECOND = FieldKind("second", 0, 59)
MINUTE = FieldKind("minute", 0, 59)
HOUR = FieldKind("hour", 0, 23)
# H stops at 28, so that a job hashed to a day of the month runs in every month.
DAY = FieldKind("day of month", 1, 31, hash_high=28)
MONTH = FieldKind(
    "month",
    1,
    12,
    ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"),
)
WEEKDAY = FieldKind("weekday", 0, 6, ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"))


@dataclass(frozen=True, slots=True)
class Field:
    """The meaning of one field: plain values as a bitmask, and the forms only the day fields have."""

    text: str  # without `H`
    mask: int
    starts_with_star: bool  # `*…` or `?`: Vixie's rule joins the day fields by AND
    every_step: bool  # `*…` or `H/n` first: an hour field that follows elapsed time
    last_day: bool = False  # L
    last_workday: bool = False  # LW
    near_mask: int = 0  # nW: bit n
    nth: tuple[tuple[int, int], ...] = ()  # d#n: (weekday, n)
    last_mask: int = 0  # dL: bit d


_VALUE = r"[0-9]+|[A-Z]{3}"
_RANGE_RE = re.compile(rf"(?:(?P<star>\*)|(?P<first>{_VALUE})(?:-(?P<last>{_VALUE}))?)(?:/(?P<step>[0-9]+))?")
_HASH_RE = re.compile(rf"H(?:\((?P<first>{_VALUE})-(?P<last>{_VALUE})\))?(?:/(?P<step>[0-9]+))?")
_RANDOM_RE = re.compile(r"R(?:\(.*\))?(?:/.*)?")
_NEAR_RE = re.compile(r"([0-9]+)W")
_NTH_RE = re.compile(rf"({_VALUE})#([0-9]+)")
_LAST_RE = re.compile(rf"({_VALUE})L")


class FieldParser:
    """Parses one field; items add themselves to what becomes the `Field`."""

    def __init__(self, kind: FieldKind, seed: str) -> None:
        self._kind = kind
        self._seed = seed
        self._mask = 0
        self._last_day = self._last_workday = False
        self._near_mask = self._last_mask = 0
        self._nth: list[tuple[int, int]] = []

    def parse(self, text: str) -> Field:
        if text == "?":
            if self._kind not in (DAY, WEEKDAY):
                raise self._refuse(text, "? stands for a day field only, write *")
            return Field("*", self._span(self._kind.low, self._kind.high, 1), True, True)
        items = text.upper().split(",")
        plain = [self._item(item, part) for item, part in zip(items, text.split(","), strict=True)]
        return Field(
            text=",".join(plain),
            mask=self._mask,
            starts_with_star=text.startswith("*"),
            every_step=text.startswith("*") or items[0].startswith("H/"),
            last_day=self._last_day,
            last_workday=self._last_workday,
            near_mask=self._near_mask,
            nth=tuple(sorted(set(self._nth))),
            last_mask=self._last_mask,
        )

    def _item(self, item: str, part: str) -> str:
        """Add one item of the list; returns its plain text."""
        if match := _HASH_RE.fullmatch(item):
            return self._hashed(match, part)
        if match := _RANGE_RE.fullmatch(item):
            self._mask |= self._range(match, part)
            return item
        if self._kind is DAY and self._day_form(item, part):
            return item
        if self._kind is WEEKDAY and self._weekday_form(item, part):
            return item
        if item == "":
            raise self._refuse(part, "an empty part between commas")
        if _RANDOM_RE.fullmatch(item):
            raise self._refuse(part, "R is not deterministic, use H")
        if item == "L" and self._kind is WEEKDAY:
            raise self._refuse(part, "L needs a weekday here, such as 5L or FRIL")
        raise self._refuse(part, f"{part!r} is not understood")

    def _day_form(self, item: str, part: str) -> bool:
        if item == "L":
            self._last_day = True
        elif item == "LW":
            self._last_workday = True
        elif match := _NEAR_RE.fullmatch(item):
            self._near_mask |= 1 << self._value(match[1], part)
        else:
            return False
        return True

    def _weekday_form(self, item: str, part: str) -> bool:
        if match := _NTH_RE.fullmatch(item):
            if not 1 <= int(match[2]) <= 5:
                raise self._refuse(part, f"{part!r}: a month has weekdays #1 to #5")
            self._nth.append((self._value(match[1], part) % 7, int(match[2])))
        elif match := _LAST_RE.fullmatch(item):
            self._last_mask |= 1 << (self._value(match[1], part) % 7)
        else:
            return False
        return True

    def _range(self, match: re.Match[str], part: str) -> int:
        kind = self._kind
        step = self._step(match["step"], part)
        if match["star"]:
            return self._span(kind.low, kind.high, step)
        first = self._value(match["first"], part)
        if match["last"] is not None:
            return self._span(first, self._range_end(first, match["last"], part), step)
        if kind is WEEKDAY:
            first %= 7
        return self._span(first, kind.high if match["step"] else first, step)

    def _hashed(self, match: re.Match[str], part: str) -> str:
        kind = self._kind
        if not self._seed:
            raise self._refuse(part, "H needs the job's id, from which its value is taken")
        low, high = kind.low, kind.high
        top = kind.hash_high or high  # where the first value may lie
        if match["first"] is not None:
            low = self._value(match["first"], part)
            high = top = self._range_end(low, match["last"], part)
        if match["step"] is None:
            value = low + self._draw(top - low + 1)
            self._mask |= self._span(value, value, 1)
            return str(value % 7 if kind is WEEKDAY else value)
        step = self._step(match["step"], part)
        first = low + self._draw(min(step, top - low + 1))
        self._mask |= self._span(first, high, step)
        return f"{first}-{high}/{step}"

    def _draw(self, choices: int) -> int:
        """The job's own value for this field. The field's name is hashed too: no two fields go together."""
        digest = hashlib.blake2b(f"{self._kind.name}\0{self._seed}".encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") % choices

    def _range_end(self, first: int, text: str, part: str) -> int:
        last = self._value(text, part)
        if text == "SUN" and self._kind is WEEKDAY:
            last = 7
        if last < first:
            raise self._refuse(part, f"the range {part!r} runs backwards, split it into two")
        return last

    def _value(self, text: str, part: str) -> int:
        kind = self._kind
        if not text.isdigit():
            if text not in kind.names:
                raise self._refuse(part, f"{text!r} is not a name of a {kind.name}")
            return kind.low + kind.names.index(text)
        value = int(text)
        if not kind.low <= value <= kind.max_value:
            raise self._refuse(part, f"{text} is not within {kind.low}-{kind.max_value}")
        return value

    def _step(self, text: str | None, part: str) -> int:
        if text is None:
            return 1
        step, most = int(text), self._kind.high - self._kind.low
        if not 1 <= step <= most:
            raise self._refuse(part, f"step {text} in {part!r} is not within 1-{most}")
        return step

    def _span(self, first: int, last: int, step: int) -> int:
        """Bits of first, first + step … last; a weekday 7 is the bit of Sunday."""
        mask = 0
        for value in range(first, last + 1, step):
            mask |= 1 << (value % 7 if self._kind is WEEKDAY else value)
        return mask

    def _refuse(self, part: str, detail: str) -> Refused:
        return Refused(part, f"{self._kind.name}: {detail}; accepted: {self._kind.form}")
