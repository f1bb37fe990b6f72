"""What makes a compaction record true: its ranges lie on the thread it compacts."""

from __future__ import annotations

from agents_ledger.ledger.turns import threads
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.store.database import Transaction


def check(tx: Transaction, compaction: Compaction, parent_id: str | None) -> None:
    """Refuse a compaction whose turns are not those of the thread, or not in order."""
    if parent_id is None:
        raise Refused("an empty session has nothing to compact")
    through = _depth(
        tx, compaction.summarized_through_turn_id, parent_id, "summarized_through_turn_id"
    )
    if compaction.first_kept_turn_id is None:
        return
    kept = _depth(tx, compaction.first_kept_turn_id, parent_id, "first_kept_turn_id")
    if kept <= through:
        raise Refused(
            f"the first kept turn (depth {kept}) must come after the last summarised ({through})"
        )


def _depth(tx: Transaction, turn_id: str, head: str, what: str) -> int:
    try:
        depth = threads.place_of(tx, turn_id).depth
    except NotFound as error:
        raise Refused(f"{what}: {error}") from error
    if not threads.on_thread(tx, turn_id, head):
        raise Refused(f"{what}: turn {turn_id} is not on the thread of {head}")
    return depth
