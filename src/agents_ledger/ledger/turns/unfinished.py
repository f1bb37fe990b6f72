"""The turn that a session waits for: one that is being written, or that its writer never finished.

A live turn is no head yet, and one whose writer died never becomes one. Frameworks that hand an
exchange over in batches read back what they have added all the same, and continue it. So recovery
notes such a turn in the metadata of its session.

A turn that failed hangs on the head of its session. If there was none yet, nothing would lead from
the session to the turn, so that is noted there too.
"""

from __future__ import annotations

from typing import Any

import msgspec

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store.database import Transaction

INTERRUPTED = "interrupted_turn_id"
FAILED = "failed_turn_ids"  # of a session that had no head, oldest first
FAILED_MAX = 20


def remember(tx: Transaction, label: str, turn_id: str) -> None:
    """Note that the writer of a session's turn died."""
    metadata = _decoded(heads.get(tx, label, exact=True).metadata_json)
    _set(tx, label, {**metadata, INTERRUPTED: turn_id})


def forget(tx: Transaction, key: str) -> None:
    """Forget the turn whose writer died. It stays as a failed branch."""
    session = heads.get(tx, key)
    metadata = _decoded(session.metadata_json)
    if INTERRUPTED in metadata:
        _set(tx, session.label, {**metadata, INTERRUPTED: None})


def find(tx: Transaction, key: str) -> Turn | None:
    """The turn on a session's head that is being written, or whose writer died."""
    for head, live_id, metadata_json in tx.run("unfinished_turn", key=key):
        turn_id = live_id or _decoded(metadata_json).get(INTERRUPTED)
        if isinstance(turn_id, str):
            turn = threads.exact_turn(tx, turn_id)
            return turn if turn.parent_turn_id == head else None
    return None


def failed_first(tx: Transaction, label: str, turn_id: str) -> None:
    """Note the failed turn of a session that has no head."""
    metadata = _decoded(heads.get(tx, label, exact=True).metadata_json)
    turn_ids = [*metadata.get(FAILED, ()), turn_id][-FAILED_MAX:]
    _set(tx, label, {**metadata, FAILED: turn_ids})


def failed(tx: Transaction, key: str) -> tuple[Turn, ...]:
    """The turns that failed where a session stands, latest first."""
    session = heads.get(tx, key)
    if session.thread_id is None:
        turn_ids = _decoded(session.metadata_json).get(FAILED, [])
    else:
        children = threads.children(tx, session.thread_id)
        turn_ids = [turn.id for turn in children if turn.status == "failed"]
    return tuple(threads.exact_turn(tx, turn_id) for turn_id in turn_ids[: -FAILED_MAX - 1 : -1])


def _decoded(metadata_json: str | None) -> dict[str, Any]:
    metadata = msgspec.json.decode(metadata_json or "{}")
    return metadata if isinstance(metadata, dict) else {}


def _set(tx: Transaction, label: str, metadata: dict[str, Any]) -> None:
    tx.run("set_session_metadata", label=label, metadata_json=to_json(metadata))
