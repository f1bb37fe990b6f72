"""Names of sessions: looked up by label, then by alias. An alias never leads to an alias."""

from __future__ import annotations

from typing import get_args

from agents_ledger.ledger.sessions import heads
from agents_ledger.model.errors import NameTaken, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Alias, AliasReason, Session
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_alias

_REASONS = frozenset(get_args(AliasReason))


def add(tx: Transaction, alias: str, key: str, *, reason: AliasReason) -> Alias:
    """Add an alias of a session. Repeating it changes nothing."""
    _check_reason(reason)
    target = heads.existing(tx, key)
    pointer = heads.find(tx, alias)
    if pointer is not None:
        if pointer.label == target.label and alias != target.label:
            return next(a for a in of(tx, target.label) if a.alias == alias)
        raise NameTaken(f"{alias!r} leads to session {pointer.label!r} already")
    if not alias or len(alias) > heads.LABEL_MAX:
        raise Refused(f"an alias has 1 to {heads.LABEL_MAX} characters")
    heads.check_is_no_turn(tx, alias)
    now = now_ms()
    taken = not tx.change(
        "insert_name", name=alias, session_label=target.label, created_at=now, reason=reason
    )
    if taken:
        raise NameTaken(f"{alias!r} is taken")
    return Alias(alias, target.label, now, reason)


def _check_reason(reason: str) -> None:
    if reason not in _REASONS:
        raise Refused(f"an alias's reason is one of {', '.join(sorted(_REASONS))}, not {reason!r}")


def of(tx: Transaction, key: str | None) -> tuple[Alias, ...]:
    if key is None:
        return tuple(to_alias(row) for row in tx.run("aliases"))
    label = heads.get(tx, key).label
    return tuple(to_alias(row) for row in tx.run("aliases_of", label=label))


def promote(tx: Transaction, channel: str, entity: str) -> Session:
    """Make a channel's key and an entity's lead to one session.

    A session of the channel becomes the entity's through an alias; if both have one, they are
    merged; if the entity alone has one, the channel's key leads there.
    """
    of_channel, of_entity = heads.find(tx, channel), heads.find(tx, entity)
    if of_channel is not None and of_entity is not None:
        return merge(tx, channel, entity, reason="identity_merge")
    if of_channel is not None:
        add(tx, entity, channel, reason="identity_promotion")
        return heads.get(tx, channel)
    if of_entity is None:
        heads.create(tx, Session(entity))
    add(tx, channel, entity, reason="identity_promotion")
    return heads.get(tx, entity)


def merge(tx: Transaction, first: str, second: str, *, reason: AliasReason) -> Session:
    """Merge two sessions of one identity.

    The one with the longer history stays; of equal ones, the one updated later. The other is
    archived, its turns untouched, and all its keys lead to the one that stays.
    """
    _check_reason(reason)
    one, other = heads.existing(tx, first), heads.existing(tx, second)
    if one.label == other.label:
        return heads.get(tx, one.label, exact=True)
    stays, goes = sorted(
        (one.label, other.label),
        # The label decides between equal ones, so that both orders of arguments give the same
        # result.
        key=lambda label: (*_history(tx, label), label),
        reverse=True,
    )
    lead(tx, goes, stays, reason=reason)
    return heads.get(tx, stays, exact=True)


def lead(tx: Transaction, goes: str, stays: str, *, reason: AliasReason) -> None:
    """Archive a session, and let all its keys lead to another."""
    # All its names, so that an alias never leads to an alias.
    tx.run("repoint_names", from_label=goes, to_label=stays)
    tx.run("repoint_label", from_label=goes, to_label=stays, reason=reason)
    tx.run("repoint_queue", from_label=goes, to_label=stays)
    tx.run("set_session_status", label=goes, status="archived")


def come_back(tx: Transaction, label: str) -> None:
    """Reactivate a session that an import archived: its files have it under its label again.
    A session that a person archived stays archived."""
    if tx.run("take_label_back", label=label, reason="import_reconciliation"):
        tx.run("set_session_status", label=label, status="active")


def _history(tx: Transaction, label: str) -> tuple[int, int]:
    moves, updated_at = tx.run("history_length", label=label)[0]
    return moves, updated_at
