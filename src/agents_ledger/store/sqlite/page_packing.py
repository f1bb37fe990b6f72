"""An order of new rows in which they fill SQLite's pages.

SQLite puts a new row behind the last one, or on a new page if it does not fit. Of a row that is
longer than a page, what does not fill whole pages of its own stands among the others: pieces of any
length up to a page, so that in the order they come a third of those pages stays empty. Neighbours
are put in an order that wastes less; none goes far, because rows that belong together are read
together.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Sequence

from agents_ledger.store.database import Row

PAGE = 4096
ROOM = PAGE - 8  # beside a page's own header
WHOLE = PAGE - 35  # the longest row that stands on one page
LEAST = (PAGE - 12) * 32 // 255 - 23  # that stays of a longer one
ROW = 12  # what a row costs beside its values: lengths, number, and where it stands
NEIGHBOURS = 100


def filling(rows: Sequence[Row]) -> list[Row]:
    """The rows in an order that fills pages."""
    ordered: list[Row] = []
    for at in range(0, len(rows), NEIGHBOURS):
        window = rows[at : at + NEIGHBOURS]
        ordered += [window[number] for number in _best_fit([_standing(row) for row in window])]
    return ordered


def _standing(row: Row) -> int:
    """How many bytes of a row stand among others."""
    length = 0
    for value in row:  # with the byte or two that say how long each is
        if value.__class__ is str:
            length += len(value) if value.isascii() else len(value.encode())
            length += 2
        elif value.__class__ is bytes:
            length += len(value) + 2
        else:
            length += 1 if value is None else 7
    if length <= WHOLE:
        return length + ROW
    left = LEAST + (length - LEAST) % (PAGE - 4)
    return (left if left <= WHOLE else LEAST) + ROW


def _best_fit(lengths: Sequence[int]) -> list[int]:
    """The longest first, each to the page it fills best; the fullest pages first, so that whatever
    comes next is added where there is room."""
    pages: list[list[int]] = []
    rooms: list[tuple[int, int]] = []  # what is left, of which page
    for number in sorted(range(len(lengths)), key=lambda n: -lengths[n]):
        at = bisect_left(rooms, (lengths[number], 0))
        if at == len(rooms):
            room, page = ROOM, len(pages)
            pages.append([])
        else:
            room, page = rooms.pop(at)
        pages[page].append(number)
        insort(rooms, (room - lengths[number], page))
    return [number for _, page in rooms for number in pages[page]]
