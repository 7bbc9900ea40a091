"""Owns when a cron expression occurs in a zone: wall-clock matches mapped to instants.

The range asked for is cut into *pieces* of wall clock, in the order of time, one or two for each
segment of constant offset. All questions (next, count, n-th newest) are sums and searches over the
pieces, so they agree with each other by construction and cost one step for each offset change.

- **Hour field starting with `*` or `H/n`: elapsed time.** A piece is the wall clock of a segment:
  both passes of a repeated hour occur, and a gap adds nothing.
- **Fixed hour field: every local time once.** A piece begins at the highest wall clock reached
  before, so the second pass of a fold is left out. A gap, its end included, is a piece of its own
  that occurs at most once, at the first instant after it.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

import msgspec

from streams.core.cron import Cron
from streams.core.instants import (
    DAY_S,
    MAX_INSTANT_MS,
    MIN_INSTANT_MS,
    format_local,
    parse_local,
)
from streams.core.zones import Zone

# A day within the years 0001 to 9999, so that the wall clock of every zone stays inside them too.
FIRST_S = MIN_INSTANT_MS // 1000 + DAY_S
LAST_S = MAX_INSTANT_MS // 1000 - DAY_S
CACHED = 16_384  # next occurrences kept, some 400 bytes each: a herd asks for the same one many times


class Note(StrEnum):
    """What the zone did to an occurrence."""

    NORMAL = "normal"
    SKIPPED = "skipped"  # `local` does not exist that day; it occurs at the first instant after the gap
    REPEATED_FIRST = "repeated_first"  # `local` exists twice; this is the first pass
    REPEATED_SECOND = "repeated_second"  # the second pass, which only elapsed time has


class Occurrence(msgspec.Struct, frozen=True, gc=False):
    """One occurrence: the instant, and the nominal wall clock YYYY-MM-DDTHH:MM:SS it stands for."""

    utc_ms: int
    local: str
    note: Note = Note.NORMAL


class _Piece(NamedTuple):
    """Wall clock [first, last] with one offset; `gap_end_s` is the instant a gap collapses to."""

    first_s: int
    last_s: int
    offset_s: int
    segment: int
    gap_end_s: int | None


@lru_cache(maxsize=CACHED)
def next_in_zone(cron: Cron, zone: Zone, first_s: int, after_local: str | None) -> Occurrence | None:
    """The first occurrence at or after `first_s`, whose nominal time is after `after_local` if given."""
    first_s = max(first_s, FIRST_S)
    searched_s = found_s = None
    for piece in _pieces(cron, zone, first_s, LAST_S, _floor(cron, after_local)):
        # One search serves all pieces that begin between its start and its result.
        if searched_s is None or found_s is None or not searched_s <= piece.first_s <= found_s:
            searched_s, found_s = piece.first_s, cron.next_at(piece.first_s)
        if found_s is None:
            return None
        if found_s <= piece.last_s:
            return _occurrence(zone, piece, found_s)
    return None


def count_in_zone(cron: Cron, zone: Zone, first_s: int, last_s: int, after_local: str | None) -> int:
    """How many occurrences lie in [first, last]."""
    first_s, last_s = max(first_s, FIRST_S), min(last_s, LAST_S)
    pieces = _pieces(cron, zone, first_s, last_s, _floor(cron, after_local))
    return sum(_count(cron, piece) for piece in pieces)


def nth_newest_in_zone(
    cron: Cron, zone: Zone, first_s: int, last_s: int, n: int, after_local: str | None
) -> Occurrence | None:
    """The n-th newest occurrence of [first, last]."""
    first_s, last_s = max(first_s, FIRST_S), min(last_s, LAST_S)
    for piece in _pieces_backwards(cron, zone, first_s, last_s, _floor(cron, after_local)):
        count = _count(cron, piece)
        if n > count:
            n -= count
            continue
        in_gap = piece.gap_end_s is not None
        found_s = cron.next_at(piece.first_s) if in_gap else cron.nth_back(piece.last_s, n)
        return None if found_s is None else _occurrence(zone, piece, found_s)
    return None


def _floor(cron: Cron, after_local: str | None) -> int | None:
    """The first nominal time that still counts."""
    if after_local is None or cron.follows_elapsed:
        return None
    return parse_local(after_local, "cursor") // 1000 + 1


def _pieces(cron: Cron, zone: Zone, first_s: int, last_s: int, floor_s: int | None) -> Iterator[_Piece]:
    """The pieces of [first, last] in order."""
    index = zone.segment_at(first_s)
    while (segment := zone.segment(index)) is not None and segment[0] <= last_s:
        yield from _segment_pieces(cron, zone, index, first_s, last_s, floor_s)
        index += 1


def _pieces_backwards(
    cron: Cron, zone: Zone, first_s: int, last_s: int, floor_s: int | None
) -> Iterator[_Piece]:
    """The pieces of [first, last], newest first."""
    if first_s <= last_s:
        for index in range(zone.segment_at(last_s), zone.segment_at(first_s) - 1, -1):
            yield from reversed(_segment_pieces(cron, zone, index, first_s, last_s, floor_s))


def _segment_pieces(
    cron: Cron, zone: Zone, index: int, first_s: int, last_s: int, floor_s: int | None
) -> list[_Piece]:
    """The pieces of one segment, as far as it lies in [first, last]."""
    segment, following = zone.segment(index), zone.segment(index + 1)
    if segment is None:
        return []
    start_s, offset_s, peak_s = segment
    if following is not None:
        last_s = min(last_s, following[0] - 1)
    low_s, high_s = max(first_s, start_s) + offset_s, last_s + offset_s
    pieces: list[_Piece] = []
    if not cron.follows_elapsed:
        edge_s = start_s + offset_s
        if first_s <= start_s and peak_s <= edge_s:
            gap_s = peak_s if floor_s is None else max(peak_s, floor_s)
            pieces.append(_Piece(gap_s, edge_s, offset_s, index, start_s))
            low_s += 1  # the wall clock at the gap's end falls on the same instant
        low_s = max(low_s, peak_s)
        if floor_s is not None:
            low_s = max(low_s, floor_s)
    pieces.append(_Piece(low_s, high_s, offset_s, index, None))
    return [piece for piece in pieces if piece.first_s <= piece.last_s]


def _count(cron: Cron, piece: _Piece) -> int:
    count = cron.count_between(piece.first_s, piece.last_s)
    return count if piece.gap_end_s is None else min(count, 1)


def _occurrence(zone: Zone, piece: _Piece, local_s: int) -> Occurrence:
    utc_s, note = local_s - piece.offset_s, Note.NORMAL
    if piece.gap_end_s is not None:
        if local_s < piece.last_s:
            utc_s, note = piece.gap_end_s, Note.SKIPPED
        return Occurrence(utc_s * 1000, format_local(local_s), note)
    segment, following = zone.segment(piece.segment), zone.segment(piece.segment + 1)
    if segment is not None and local_s < segment[2]:
        note = Note.REPEATED_SECOND
    elif following is not None and local_s >= following[0] + following[1]:
        note = Note.REPEATED_FIRST
    return Occurrence(utc_s * 1000, format_local(local_s), note)
