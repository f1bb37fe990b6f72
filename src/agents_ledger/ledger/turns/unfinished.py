"""The turn that a session waits for: one that is being written, or that its writer never finished.

A live turn is no head yet, and one whose writer died never becomes one. Frameworks that hand an
exchange over in batches read back what they have added all the same, and continue it. So recovery
notes such a turn in the metadata of its session.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store.database import Transaction

INTERRUPTED = "interrupted_turn_id"


def remember(tx: Transaction, label: str, turn_id: str) -> None:
    """Note that the writer of a session's turn died."""
    _set(tx, label, heads.get(tx, label, exact=True).metadata_json, turn_id)


def forget(tx: Transaction, key: str) -> None:
    """Forget the turn whose writer died. It stays as a failed branch."""
    session = heads.get(tx, key)
    if INTERRUPTED in _decoded(session.metadata_json):
        _set(tx, session.label, session.metadata_json, None)


def find(tx: Transaction, key: str) -> Turn | None:
    """The turn on a session's head that is being written, or whose writer died."""
    for head, live_id, metadata_json in tx.run("unfinished_turn", key=key):
        turn_id = live_id or _decoded(metadata_json).get(INTERRUPTED)
        if isinstance(turn_id, str):
            turn = threads.exact_turn(tx, turn_id)
            return turn if turn.parent_turn_id == head else None
    return None


def _decoded(metadata_json: str | None) -> dict[str, Any]:
    metadata = msgspec.json.decode(metadata_json or "{}")
    return metadata if isinstance(metadata, dict) else {}


def _set(tx: Transaction, label: str, metadata_json: str | None, turn_id: str | None) -> None:
    metadata = {**_decoded(metadata_json), INTERRUPTED: turn_id}
    tx.run("set_session_metadata", label=label, metadata_json=to_json(metadata))
