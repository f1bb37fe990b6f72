"""The calls of a turn as bars on a common time axis."""

from __future__ import annotations

from typing import NamedTuple

from agents_ledger.model.turns import ToolCall, Turn

CALLS_MAX = 100
WIDTH = 180  # units of the axis
BAR_MIN = 2


class TimelineBar(NamedTuple):
    call: ToolCall
    start: float  # in units of the axis
    width: float
    after_ms: int  # since the turn began


class Timeline(NamedTuple):
    bars: tuple[TimelineBar, ...]
    span_ms: int
    left_out: int = 0


def timeline_of(turn: Turn) -> Timeline | None:
    """The calls whose times are known, the first ones; None if there is nothing to compare."""
    calls = [call for call in turn.tool_calls if call.started_at]
    if not calls:
        return None
    begin = min(turn.started_at or calls[0].started_at, *(call.started_at for call in calls))
    ends = [call.completed_at or call.started_at for call in calls]
    span = max(turn.completed_at or 0, *ends) - begin
    if span <= 0:
        return None
    bars = []
    for call, end in zip(calls[:CALLS_MAX], ends, strict=False):
        start = (call.started_at - begin) / span * WIDTH
        width = max(BAR_MIN, (end - call.started_at) / span * WIDTH)
        start = min(start, WIDTH - BAR_MIN)
        bars.append(
            TimelineBar(
                call, round(start, 1), round(min(width, WIDTH - start), 1), call.started_at - begin
            )
        )
    return Timeline(tuple(bars), span, len(calls) - len(bars))
