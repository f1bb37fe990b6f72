"""Which session a turn belongs to, and how many others hold it too."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.text import ids_of, in_batches


class Holder(NamedTuple):
    """A turn's session: the oldest whose thread holds it."""

    label: str | None = None
    title: str | None = None
    also_in: int = 0


def holders(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, Holder]:
    """The session of each turn.

    A turn on no thread, because it failed or was rolled back, belongs to the session that wrote it,
    or else to that of its parent.
    """
    by_turn: dict[str, Holder] = {}
    for ids in in_batches(turn_ids):
        by_turn |= _on_threads(tx, ids)
    for turn_id in turn_ids:
        if turn_id not in by_turn:
            by_turn[turn_id] = _off_threads(tx, turn_id)
    return by_turn


def _on_threads(tx: Transaction, ids: str) -> dict[str, Holder]:
    held: dict[str, list[Row]] = {}
    for turn_id, *holder in _held(tx, ids):
        held.setdefault(turn_id, []).append(tuple(holder))
    return {turn_id: _oldest(own) for turn_id, own in held.items()}


def _oldest(held: Sequence[Row]) -> Holder:
    _, label, title = min(held, key=lambda holder: holder[:2])
    return Holder(label, title, len(held) - 1)


def _held(tx: Transaction, ids: str) -> Iterable[Row]:
    """Pairs of turn and session that holds it. They are found from all heads if these are few, else
    from the descendants or all heads, whichever are fewer."""
    heads = tx.kept(_few_heads)
    if heads is not None:
        return (
            (turn_id, *head[1:])
            for turn_id, segment_id, from_depth in tx.run("tails", ids=ids)
            for head in heads.get(segment_id, ())
            if head[0] >= from_depth
        )
    by_turns = tx.run("turns_below", ids=ids)[0][0] <= tx.limits.holder_turns
    return tx.run("holders_by_turns" if by_turns else "holders_by_heads", ids=ids)


def _few_heads(tx: Transaction) -> dict[int, list[Row]] | None:
    """The heads of all sessions by segment; None if there are too many."""
    many = tx.limits.holder_sessions
    if tx.run("session_count", limit=many)[0][0] == many:
        return None
    heads: dict[int, list[Row]] = {}
    for segment_id, *head in tx.run("heads"):
        heads.setdefault(segment_id, []).append(tuple(head))
    return heads


def _off_threads(tx: Transaction, turn_id: str) -> Holder:
    at: str | None = turn_id
    while at is not None:
        held = tx.run("session_that_held", turn_id=at)
        if held:
            return Holder(*held[0])
        at = tx.run("turn_parent", id=at)[0][0]
        above = {} if at is None else _on_threads(tx, ids_of([at]))
        for holder in above.values():
            return holder._replace(also_in=0)
    return Holder()
