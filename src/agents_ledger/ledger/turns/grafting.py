"""Turns recorded where a session did not stand, and its pointer put there: all of it, or nothing.

For stores of other frameworks, which rewrite the end of a conversation: here its pointer moves.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import recording
from agents_ledger.ledger.turns.recording import Prepared
from agents_ledger.model.errors import NotFound
from agents_ledger.model.sessions import Session
from agents_ledger.store.database import Transaction

Check = Callable[[Session | None], None]
"""Is given the session as it is, None if there is none, and raises to refuse."""


def graft(
    core: Core,
    session: Session,
    *,
    turns: Sequence[tuple[str | None, Prepared]],
    head: str | None,
    check: Check,
    metadata_json: str | None = None,
) -> None:
    """Record turns, each on the parent named with it, then point the session to `head`."""
    core.recover_once()
    core.db.write(
        partial(
            _graft,
            session=session,
            turns=turns,
            head=head,
            check=check,
            metadata_json=metadata_json,
        )
    )


def _graft(
    tx: Transaction,
    session: Session,
    turns: Sequence[tuple[str | None, Prepared]],
    *,
    head: str | None,
    check: Check,
    metadata_json: str | None,
) -> None:
    label = session.label
    found = heads.find(tx, label, exact=True)
    check(heads.get(tx, label, exact=True) if found else None)
    if found is None:
        heads.create(tx, session)
    elif found.status != "active":
        heads.set_status(tx, label, "active")
    at = found.thread_id if found else None
    for parent_id, prepared in turns:
        _move(tx, label, at, parent_id)
        at = recording.record(tx, prepared).id
    _move(tx, label, at, head)
    if metadata_json is not None:
        tx.run("set_session_metadata", label=label, metadata_json=metadata_json)


def _move(tx: Transaction, label: str, at: str | None, to: str | None) -> None:
    if at == to:
        return
    if to is not None and not tx.run("turn_status", id=to):
        raise NotFound(f"there is no turn {to}")
    heads.move_head(tx, label, from_=at, to=to, reason="clear" if to is None else "move")
