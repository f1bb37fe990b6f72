"""Curves as SVG: turns across, CPU time up, both in powers of ten."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape

from benchmarks.measure import Curve, duration

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 230, 30, 50
COLOURS = (
    "#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e",
    "#17becf", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22",
)  # fmt: skip


class _Axis:
    """Powers of ten along a line."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self.low = math.floor(math.log10(min(values)))
        self.high = max(self.low + 1, math.ceil(math.log10(max(values))))
        self._start = start
        self._end = end

    def at(self, value: float) -> float:
        part = (math.log10(value) - self.low) / (self.high - self.low)
        return round(self._start + part * (self._end - self._start), 1)

    @property
    def powers(self) -> list[float]:
        return [10.0**power for power in range(self.low, self.high + 1)]


def chart(title: str, curves: Sequence[Curve]) -> str:
    """One picture of several curves, with their names beside it."""
    across = _Axis([x for c in curves for x, _ in c.points], LEFT, WIDTH - RIGHT)
    up = _Axis([y for c in curves for _, y in c.points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img"'
        f' font-family="sans-serif" font-size="12"><title>{escape(title)}</title>',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="18" font-weight="bold">{escape(title)}</text>',
    ]
    for turns in across.powers:
        x = across.at(turns)
        parts.append(f'<path d="M{x} {TOP}V{HEIGHT - BOTTOM}" stroke="#e0e0e0"/>')
        parts.append(f'<text x="{x}" y="{HEIGHT - 30}" text-anchor="middle">{turns:,.0f}</text>')
    for seconds in up.powers:
        y = up.at(seconds)
        parts.append(f'<path d="M{LEFT} {y}H{WIDTH - RIGHT}" stroke="#e0e0e0"/>')
        said = duration(seconds)
        parts.append(f'<text x="{LEFT - 8}" y="{y + 4}" text-anchor="end">{said}</text>')
    parts.append(f'<text x="{LEFT}" y="{HEIGHT - 10}">turns in the ledger</text>')
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        line = " ".join(f"{across.at(x)},{up.at(y)}" for x, y in curve.points)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [
            f'<circle cx="{across.at(x)}" cy="{up.at(y)}" r="3" fill="{colour}"/>'
            for x, y in curve.points
        ]
        y = TOP + 10 + number * 20
        x = WIDTH - RIGHT + 16
        parts.append(f'<path d="M{x} {y}h20" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{x + 26}" y="{y + 4}">{escape(curve.name)}</text>')
    return "\n".join([*parts, "</svg>", ""])
