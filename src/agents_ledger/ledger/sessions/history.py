"""Where a session's head was, and when.

Moves made here are recorded as they happen. An import records one move for all the turns it brings:
where the head stood before that follows from the times of those turns, and is computed when read.
At any time the head is that of the first line of the history, latest first, that is not later.
"""

from __future__ import annotations

from collections.abc import Iterator

from agents_ledger.ledger.sessions.heads import LATEST, get
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import Move
from agents_ledger.model.turns import check_time
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_move

# Read at once while looking for the turn of a time.
_WINDOW = 1000
_DIGITS_MAX = len(str(LATEST))


def head(tx: Transaction, key: str, *, at: int | None = None, exact: bool = False) -> str | None:
    """The turn a session points to, now or at a time."""
    session = get(tx, key, exact=exact)
    if at is None:
        return session.thread_id
    check_time(at, "at", LATEST)
    rows = tx.run("move_at", label=session.label, at=at)
    move_id, previous = rows[0] if rows else (0, None)
    following = tx.run("move_after", label=session.label, move_id=move_id)
    for row in following:
        move = to_move(row)
        for line in _computed(tx, move, previous, window=_WINDOW):
            if line.changed_at <= at:
                return line.thread_id
    return None if previous is None else str(previous)


def lines(
    tx: Transaction, key: str, *, limit: int, before: str | int | None, exact: bool = False
) -> tuple[Move, ...]:
    """A session's history, latest first; the next page is `before` the cursor of the last line."""
    label = get(tx, key, exact=exact).label
    page: list[Move] = []
    for line in _from(tx, label, before, limit):
        if len(page) == limit:
            break
        page.append(line)
    return tuple(page)


def _from(tx: Transaction, label: str, before: str | int | None, limit: int) -> Iterator[Move]:
    """The lines after a cursor, or of the moves before an id."""
    before_id, turn_id = _position(before)
    if turn_id is not None:
        rows = tx.run("session_moves", label=label, before_id=before_id + 1, limit=2)
        moves = [to_move(row) for row in rows]
        if moves and moves[0].id == before_id:
            previous = moves[1].thread_id if len(moves) > 1 else None
            yield from _computed(tx, moves[0], previous, below=turn_id, window=limit)
    # One more than can be listed: the head before the last one.
    rows = tx.run("session_moves", label=label, before_id=before_id, limit=limit + 1)
    moves = [to_move(row) for row in rows]
    for number, move in enumerate(moves[:limit], start=1):
        yield move
        previous = moves[number].thread_id if number < len(moves) else None
        yield from _computed(tx, move, previous, window=limit)


def _position(before: str | int | None) -> tuple[int, str | None]:
    """The id of a move; and the turn of its last line that was listed, '' for the move itself."""
    if before is None:
        return LATEST, None
    number, colon, turn_id = str(before).partition(":")
    if not number.isdecimal() or len(number) > _DIGITS_MAX or int(number) > LATEST:
        raise Refused(
            f"{before!r:.80} is not a valid page cursor", "Pass the cursor of the last line."
        )
    return int(number), turn_id if colon else None


def _computed(
    tx: Transaction, move: Move, previous: str | None, *, below: str = "", window: int
) -> Iterator[Move]:
    """The turns that an import brought, deepest first, each at the time it ended.

    The deepest is where the import moved the head; it has a line of its own if it ended earlier.
    """
    if move.reason != "import" or move.thread_id is None:
        return
    shared = threads.place_of(tx, threads.shared(tx, previous, move.thread_id)).depth
    head_depth = threads.place_of(tx, move.thread_id).depth
    depth = threads.place_of(tx, below).depth - 1 if below else head_depth
    while depth > shared:
        from_depth = max(shared + 1, depth - window + 1)
        rows = tx.run("turn_ends", turn_id=move.thread_id, from_depth=from_depth, to_depth=depth)
        for turn_depth, turn_id, ended_at in sorted(rows, reverse=True):
            if turn_depth < head_depth or ended_at < move.changed_at:
                yield Move(move.id, move.session_label, turn_id, ended_at, "import", computed=True)
        depth = from_depth - 1
