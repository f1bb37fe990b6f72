"""Turns recorded on any parent, and a session's head moved to one of them, in one transaction.

For stores of other frameworks, which rewrite the end of a conversation: here the head moves.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.recording import PreparedTurn
from agents_ledger.model.errors import NotFound
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Answer, Query
from agents_ledger.store.database import Transaction

SessionCheck = Callable[[Session | None], None]


class GraftedTurn(NamedTuple):
    """A turn to record on a parent, with the values that Ledger.record() takes."""

    id: str
    parent_id: str | None
    query: Query = ()
    response: Answer = None
    fields: Mapping[str, Any] = {}


def prepare(label: str, turn: GraftedTurn) -> tuple[str | None, PreparedTurn]:
    """The parent's id and the turn ready to be written, before the transaction."""
    fields = {**turn.fields, "id": turn.id, "parent": turn.parent_id}
    return turn.parent_id, recording.recording(label, turn.query, turn.response, fields)


def graft(
    tx: Transaction,
    session: Session,
    turns: Sequence[tuple[str | None, PreparedTurn]],
    *,
    head: str | None,
    check: SessionCheck,
    metadata_json: str | None,
) -> None:
    label = session.label
    pointer = heads.find(tx, label, exact=True)
    check(heads.get(tx, label, exact=True) if pointer else None)
    if pointer is None:
        heads.create(tx, session)
    elif pointer.status != "active":
        heads.set_status(tx, label, "active")
    current = pointer.thread_id if pointer else None
    for parent_id, prepared in turns:
        _move(tx, label, current, parent_id)
        current = recording.record(tx, prepared).id
    _move(tx, label, current, head)
    if metadata_json is not None:
        tx.run("set_session_metadata", label=label, metadata_json=metadata_json)


def _move(tx: Transaction, label: str, current: str | None, to: str | None) -> None:
    if current == to:
        return
    if to is not None and not tx.run("turn_status", id=to):
        raise NotFound(f"there is no turn {to}")
    heads.move_head(tx, label, from_=current, to=to, reason="clear" if to is None else "move")
