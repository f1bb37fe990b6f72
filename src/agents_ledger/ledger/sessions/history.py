"""The log of every move of every head: where it was, and who ever stood on a turn."""

from __future__ import annotations

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.sessions import Move
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_move


def moves(
    tx: Transaction, key: str, *, limit: int, before: int | None, exact: bool = False
) -> tuple[Move, ...]:
    """A session's moves, latest first; a page continues before the last id of the one above."""
    session = heads.get(tx, key, exact=exact)
    rows = tx.run(
        "session_moves", label=session.label, before_id=before or heads.LATEST, limit=limit
    )
    return tuple(to_move(row) for row in rows)


def sessions_including(tx: Transaction, target: str) -> tuple[str, ...]:
    """The labels of all sessions whose head ever stood on a turn or below it."""
    turn_id = threads.resolve_turn(tx, target)
    return tuple(row[0] for row in tx.run("sessions_including", turn_id=turn_id))
