"""Cursor: when the bubbles of a chat were made, of which some do not say so."""

from __future__ import annotations

from array import array
from collections.abc import Iterable

from agents_ledger.importers.transcript.turn_tree import NONE

ASKS = b"\1"


def filled(bubbles: Iterable[tuple[int, bool]], first: int, last: int) -> array[int]:
    """The times of bubbles in order, each given with its own, or 0, and whether it asks. Those that
    say none lie between the nearest that do, or else the first and last time of the chat."""
    times, asks = array("q"), bytearray()
    for at, is_asked in bubbles:
        times.append(at)
        asks.append(is_asked)
    if not any(times):
        return _spread(len(times), first or last, last)
    start, before = 0, first
    for place, at in enumerate(times):
        if at:
            _fill(times, asks, start, place, before)
            start, before = place + 1, at
    times[start:] = _between(len(times) - start, before, max(before, last))
    return times


def _fill(times: array[int], asks: bytearray, start: int, known: int, before: int) -> None:
    """The times of bubbles before a known one. What it answers was asked when it was begun."""
    at = times[known]
    asked = NONE if asks[known] else asks.rfind(ASKS, start, known)
    near = known if asked == NONE else asked
    times[start:near] = _between(near - start, min(before or at, at), at)
    times[near:known] = array("q", [at]) * (known - near)


def _between(number: int, first: int, last: int) -> array[int]:
    """So many moments between two."""
    return array("q", (first + (last - first) * n // (number + 1) for n in range(1, number + 1)))


def _spread(number: int, first: int, last: int) -> array[int]:
    """So many moments from the first towards the last."""
    step = max(0, last - first) / max(1, number)
    return array("q", (int(first + at * step) for at in range(number)))
