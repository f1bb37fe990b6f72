"""Which turns are still to be put into the word index, and when that is done.

On SQLite turns that come a few at a time wait and are put in behind the writer, many at once: one
by one costs more than recording them. Many of one commit are put in with it. A server's index is
filled in the turn's own transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

from msgspec import Struct

from agents_ledger.model.turns import Turn
from agents_ledger.store.database import Database, Transaction

BATCH = 250  # turns put in at once
LOOK_EVERY = BATCH // 2  # writes of a handle, for which it puts in a batch if one is full: its own
# turns, and as many that others left. A backlog is for who has the time: servers, imports, watch.
CLOSE_FROM = 50  # turns that wait are put in when a writer closes
CLOSE_STEPS = 2  # at most so many batches
TOGETHER = 20  # turns written in one commit that are put in with it


class _Waiting(Struct, frozen=True):
    turn_id: str


def recorded(tx: Transaction, turn: Turn) -> None:
    """See to it that a turn that was just written is found."""
    if tx.engine == "sqlite":
        tx.run("await_index", turn_id=turn.id)
    else:
        from agents_ledger.ledger.search import index

        index.put(tx, [turn])


def written(tx: Transaction, turns: Sequence[Turn]) -> None:
    """The same for turns that were written in one commit: many are put in while they are at hand,
    which saves reading them again."""
    if tx.engine == "sqlite" and len(turns) < TOGETHER:
        grown(tx, [turn.id for turn in turns])
    else:
        from agents_ledger.ledger.search import index

        index.put(tx, turns)


def grown(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """Let turns wait that may go on growing: to index all of one at each step would cost the square
    of its length."""
    tx.run_many("await_index", [_Waiting(turn_id) for turn_id in turn_ids])


def changed(tx: Transaction, turn_ids: Sequence[str]) -> None:
    """See to it that turns are found as they are now."""
    if tx.engine == "sqlite":
        grown(tx, turn_ids)
    else:
        from agents_ledger.ledger.search import index

        index.put_again(tx, turn_ids)


def gone(tx: Transaction, turn_id: str) -> None:
    """A turn that is about to be taken away is found no more."""
    from agents_ledger.ledger.search import index

    index.forget(tx, [turn_id])


def put_in(tx: Transaction, least: int = 1) -> bool:
    """Put a batch of waiting turns into the index, if at least so many wait; whether more do."""
    if tx.run("unindexed_count", limit=least)[0][0] < least:
        return False
    due = [row[0] for row in tx.run("due_for_index", limit=BATCH)]
    if not due:
        return False
    from agents_ledger.ledger.search import index

    return index.put_some(tx, due) < len(due) or len(due) == BATCH


def catch_up(db: Database, *, least: int = 1, steps: int | None = None) -> None:
    """Put in what waits, if that is at least so many turns; at most so many batches of it. Each
    is a commit, so that others can write in between."""
    if db.read(lambda tx: tx.run("unindexed_count", limit=least))[0][0] < least:
        return
    for _ in count() if steps is None else range(steps):
        if not db.write(put_in):
            return
