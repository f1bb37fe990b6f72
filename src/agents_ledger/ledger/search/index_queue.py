"""Which turns wait for the word index, and when they are indexed.

Turns of small commits wait and are indexed in batches later: indexing one by one costs more than
recording. The turns of a large commit are indexed with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from msgspec import Struct

from agents_ledger.model.turns import Turn
from agents_ledger.store.database import Database, Transaction

# Waiting turns from which on a closing writer indexes them. Fewer are left to the next one, so that
# a short command ends quickly.
CLOSE_FROM = 50
CLOSE_STEPS = 2  # batches that it indexes at most


class _Waiting(Struct, frozen=True):
    turn_id: str


def recorded(tx: Transaction, turn: Turn) -> None:
    tx.run("await_index", turn_id=turn.id)


def written(tx: Transaction, turns: Sequence[Turn]) -> None:
    """recorded() for the turns of one commit; many are indexed while they are in memory."""
    if len(turns) < tx.limits.index_commit_turns:
        grown(tx, [turn.id for turn in turns])
    else:
        from agents_ledger.ledger.search import index

        index.put(tx, turns)


def grown(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """Let turns wait that changed or may still grow: indexing one at each step takes quadratic
    time."""
    tx.run_many("await_index", [_Waiting(turn_id) for turn_id in turn_ids])


def gone(tx: Transaction, turn_id: str) -> None:
    """Remove a turn that is about to be deleted."""
    from agents_ledger.ledger.search import index

    index.forget(tx, [turn_id])


def put_in(tx: Transaction, least: int = 1) -> bool:
    """Index a batch of waiting turns, if at least `least` wait; returns whether more do."""
    if tx.run("unindexed_count", limit=least)[0][0] < least:
        return False
    most = tx.limits.index_turns
    due = [row[0] for row in tx.run("due_for_index", limit=most)]
    if not due:
        return False
    from agents_ledger.ledger.search import index

    return index.put_some(tx, due) < len(due) or len(due) == most


def catch_up(db: Database, *, least: int = 1, steps: int | None = None) -> None:
    """Index at most `steps` batches, if at least `least` turns wait. Each batch is a commit, so
    that others can write in between."""
    if db.read(lambda tx: tx.run("unindexed_count", limit=least))[0][0] < least:
        return
    for _ in count() if steps is None else range(steps):
        if not db.write(put_in):
            return
