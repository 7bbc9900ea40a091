"""Charts as static SVG: lines or bars, linear or logarithmic axes. No library: a plot is a file of text.

May not know what is plotted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 76, 24, 44, 76
COLOURS = ("#1f5fa8", "#c8501e", "#2e8b57", "#7a4fa3", "#8a6d1d", "#555555")
TICKS = 5

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Axis:
    """`labels`: shown at whole numbers from 0 on, instead of numbers."""

    title: str
    log: bool = False
    labels: Sequence[str] = ()

    def scale(self, values: Sequence[float], start: float, end: float) -> Callable[[float], float]:
        """Values to pixels; a linear axis begins at 0 unless something is below."""
        low, high = self.bounds(values)
        first, last = self._of(low), self._of(high)
        return lambda value: start + (self._of(max(value, low)) - first) / (last - first) * (end - start)

    def bounds(self, values: Sequence[float]) -> tuple[float, float]:
        if self.log:
            low = 10 ** math.floor(math.log10(max(min(values), 1e-3)))
            return low, max(10 ** math.ceil(math.log10(max(max(values), 1e-3))), 10 * low)
        low, high = min(0.0, *values), max(values)
        return low, high if high > low else low + 1

    def ticks(self, values: Sequence[float]) -> list[tuple[float, str]]:
        """Where, and what it says."""
        if self.labels:
            return [(float(number), label) for number, label in enumerate(self.labels)]
        low, high = self.bounds(values)
        if self.log:
            powers = range(round(math.log10(low)), round(math.log10(high)) + 1)
            return [(10.0**power, _short(10.0**power)) for power in powers]
        step = _round_step((high - low) / TICKS)
        first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
        return [(step * number, _short(step * number)) for number in range(first, last + 1)]

    def _of(self, value: float) -> float:
        return math.log10(max(value, 1e-3)) if self.log else value


@dataclass(slots=True)
class Chart:
    """`lines` and `bars` by what the legend calls them; bars stand at their x."""

    title: str
    x: Axis
    y: Axis
    lines: Mapping[str, Points] = field(default_factory=dict)
    bars: Points = ()

    def svg(self) -> str:
        """The file."""
        points = [point for line in self.lines.values() for point in line] + list(self.bars)
        xs, ys = [x for x, _ in points], [y for _, y in points]
        if self.bars:
            xs = [min(xs) - 0.6, max(xs) + 0.6]
        x = self.x.scale(xs, LEFT, WIDTH - RIGHT)
        y = self.y.scale(ys, HEIGHT - BOTTOM, TOP)
        parts = [*self._frame(x, y, xs, ys)]
        parts += [self._bar(x(at), y(value), value) for at, value in self.bars]
        for number, (name, line) in enumerate(self.lines.items()):
            parts += self._line(name, [(x(a), y(b)) for a, b in line], number)
        return (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" '
            'font-family="sans-serif" font-size="12">\n'
            f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
        )

    def _frame(
        self,
        x: Callable[[float], float],
        y: Callable[[float], float],
        xs: Sequence[float],
        ys: Sequence[float],
    ) -> list[str]:
        bottom, right = HEIGHT - BOTTOM, WIDTH - RIGHT
        parts = [_text(WIDTH / 2, 20, self.title, size=14)]
        for value, label in self.y.ticks(ys):
            at = y(value)
            parts.append(f'<path d="M{LEFT} {at:.1f}H{right}" stroke="#dddddd"/>')
            parts.append(_text(LEFT - 6, at + 4, label, anchor="end"))
        for value, label in self.x.ticks(xs):
            parts.append(_text(x(value), bottom + 16, label))
        parts.append(f'<path d="M{LEFT} {TOP}V{bottom}H{right}" stroke="#333333" fill="none"/>')
        parts.append(_text((LEFT + right) / 2, bottom + 34, self.x.title))
        middle = (TOP + bottom) / 2
        parts.append(f'<g transform="rotate(-90 14 {middle})">{_text(14, middle, self.y.title)}</g>')
        return parts

    def _bar(self, at: float, top: float, value: float) -> str:
        bottom = HEIGHT - BOTTOM
        place = f'x="{at - 22:.1f}" y="{top:.1f}" width="44" height="{bottom - top:.1f}"'
        return f'<rect {place} fill="{COLOURS[0]}"/>' + _text(at, top - 5, _short(value))

    def _line(self, name: str, line: Points, number: int) -> list[str]:
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in line)
        column, row = number % 3, number // 3
        at, below = LEFT + column * 185, HEIGHT - 24 + row * 16
        return [
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>',
            *(f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in line),
            f'<rect x="{at}" y="{below - 9}" width="12" height="10" fill="{colour}"/>',
            _text(at + 17, below, name, anchor="start"),
        ]


def _text(x: float, y: float, text: str, *, anchor: str = "middle", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _round_step(step: float) -> float:
    """1, 2 or 5 times a power of ten."""
    power = 10 ** math.floor(math.log10(step))
    return float(next(nice * power for nice in (1, 2, 5, 10) if nice * power >= step * 0.999))


def _short(value: float) -> str:
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if abs(value) >= size:
            return f"{value / size:g}"[:5].rstrip(".") + unit
    return f"{value:g}" if abs(value) < 10 else f"{value:.0f}"
