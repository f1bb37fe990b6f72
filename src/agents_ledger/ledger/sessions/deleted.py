"""Turns that searches and pages do not show: those of sessions that are marked as deleted.

A turn is hidden if only such sessions have or had it on their thread. In a tree that has no other
session, everything is. Subagents are hidden with the session that started them.
"""

from __future__ import annotations

from typing import NamedTuple

from agents_ledger.model.errors import NotFound
from agents_ledger.store.database import Transaction


class Hidden(NamedTuple):
    """By segment: hidden are the turns below the first depth, down to the second."""

    depths: dict[int, tuple[int, int]]

    def has(self, segment_id: int, depth: int) -> bool:
        above, upto = self.depths.get(segment_id, (0, 0))
        return above < depth <= upto


_NONE = Hidden({})
_END = 1 << 62


def hidden(tx: Transaction) -> Hidden:
    """The turns of this ledger that are hidden."""
    return tx.kept(_hidden)


def _hidden(tx: Transaction) -> Hidden:
    if not tx.run("has_deleted_sessions"):
        return _NONE
    rows = tx.run("deleted_segments")
    visible_trees = {root for _, root, _, shown in rows if shown}
    return Hidden(
        {
            segment_id: (shown, gone if root in visible_trees else _END)
            for segment_id, root, gone, shown in rows
            if root not in visible_trees or gone > shown
        }
    )


def check_shown(tx: Transaction, target: str) -> None:
    """NotFound if a target is a session that is marked as deleted, or a hidden turn of one."""
    if not tx.kept(_hidden).depths and not tx.run("has_deleted_sessions"):
        return
    from agents_ledger.ledger.turns import threads

    rows = tx.run("session", key=target)
    if rows:
        is_hidden = bool(tx.run("is_session_deleted", label=rows[0][0]))
    else:
        turn_id = threads.resolve_turn(tx, target)
        is_hidden = not without_hidden(tx, [turn_id])
    if is_hidden:
        raise NotFound(
            f"{target!r} is marked as deleted",
            "Nothing of it was erased: `agents-ledger sessions --status deleted` lists such"
            " sessions, and `agents-ledger archive --undo SESSION` shows one again.",
        )


def without_hidden(tx: Transaction, turn_ids: list[str]) -> list[str]:
    """Those of some turns that are shown."""
    concealed = hidden(tx)
    if not concealed.depths:
        return turn_ids
    return [
        turn_id
        for turn_id in turn_ids
        if not any(concealed.has(*row) for row in tx.run("turn_place", turn_id=turn_id))
    ]
