"""Names of sessions: looked up by label, then by alias. An alias never leads to an alias."""

from __future__ import annotations

from typing import Any, get_args

import msgspec

from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.sessions import heads
from agents_ledger.model.errors import NameTaken, NotFound, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Alias, AliasReason, Session
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_alias
from agents_ledger.store.text import in_batches

_REASONS = frozenset(get_args(AliasReason))
_FOLLOWER = "~source"  # ends the label of a session that follows the source of another
_MERGED = "before_merge"  # in the metadata of a merged session: what unmerge() restores
# Everything that refers to a session by its label; the calls and tasks that do are never rewritten.
_RENAMED = (
    "rename_annotation",
    "rename_history",
    "rename_live_turns",
    "rename_queue",
    "rename_sources",
    "rename_imports",
    "rename_parent",
    "rename_source_child",
    "rename_source_parent",
    "delete_renamed",
)


def add(tx: Transaction, alias: str, key: str, *, reason: AliasReason) -> Alias:
    """Add an alias of a session. Repeating it changes nothing."""
    _check_reason(reason)
    target = heads.existing(tx, key)
    pointer = heads.find(tx, alias)
    if pointer is not None:
        if pointer.label == target.label and alias != target.label:
            return next(a for a in of(tx, target.label) if a.alias == alias)
        raise NameTaken(f"{alias!r} leads to session {pointer.label!r} already")
    heads.check_label(tx, alias)
    now = now_ms()
    taken = not tx.change(
        "insert_name", name=alias, session_label=target.label, created_at=now, reason=reason
    )
    if taken:
        raise NameTaken(f"{alias!r} is taken")
    return Alias(alias, target.label, now, reason)


def remove(tx: Transaction, alias: str) -> Alias:
    """Remove an alias. What is the label of a session stays, also if it was merged."""
    rows = tx.run("name", name=alias)
    if not rows:
        raise NotFound(f"there is no alias {alias!r}", "List them with `agents-ledger alias`.")
    label, reason = rows[0]
    if label == alias:
        raise Refused(f"{alias!r} is the label of a session, not an alias", "Rename the session.")
    if tx.run("session_exactly", key=alias):
        raise Refused(
            f"{alias!r} is the label of a session that was merged into {label!r}", "Unmerge it."
        )
    if reason == "import_reconciliation" or (
        reason == "rename" and tx.run("imported_under", label=label)
    ):
        raise Refused(
            f"{alias!r} is the name of session {label!r} in the files it is imported from",
            "The next import would add it again.",
        )
    removed = next(name for name in of(tx, label) if name.alias == alias)
    tx.run("delete_name", name=alias)
    return removed


def follower_of(label: str) -> str:
    """The label of the session that follows the source of one whose head somebody moved."""
    return f"{label}{_FOLLOWER}"


def rename(tx: Transaction, key: str, label: str) -> Session:
    """Give a session another label. The former one becomes an alias."""
    session = heads.get(tx, heads.existing(tx, key).label, exact=True)
    if session.label == label:
        return session
    _check_renamable(tx, session)
    _rename(tx, session.label, label)
    follower = heads.find(tx, follower_of(session.label))
    if follower is not None and _follows(heads.get(tx, follower.label, exact=True), session.label):
        _rename(tx, follower.label, follower_of(label))
    return heads.get(tx, label, exact=True)


def _follows(session: Session, followed: str) -> bool:
    return session.created_as == "import" and session.label == follower_of(followed)


def _rename(tx: Transaction, former: str, label: str) -> None:
    pointer = heads.find(tx, label)
    if pointer is None:
        heads.check_label(tx, label)
    elif pointer.label != former or tx.run("session_exactly", key=label):
        raise NameTaken(f"{label!r} leads to session {pointer.label!r} already")
    else:
        tx.run("delete_name", name=label)  # its alias becomes its label
    now = now_ms()
    tx.run("copy_session", from_label=former, to_label=label)
    tx.run("insert_name", name=label, session_label=label, created_at=now, reason=None)
    # Aliases first, the label itself after them: at no moment is there a chain.
    tx.run("repoint_names", from_label=former, to_label=label)
    tx.run("rename_label", from_label=former, to_label=label, now=now)
    for statement in _RENAMED:
        tx.run(statement, from_label=former, to_label=label)
    # The session was not updated: it keeps its place in the list.
    tx.run("log_rename", label=label, now=now)
    leaves.cover_move(tx, label, former=former)


def _check_renamable(tx: Transaction, session: Session) -> None:
    followed = session.label.removesuffix(_FOLLOWER)
    if _follows(session, followed):
        raise Refused(
            f"session {session.label!r} follows the source of {followed!r} and is named after it",
            f"Rename {followed!r}, or add an alias or a title.",
        )
    # A sealed call names the session it spawned, and a task its session.
    if session.is_subagent:
        raise Refused(
            f"session {session.label!r} is a subagent's, named by the call that started it",
            "Add an alias or a title instead.",
        )
    if tx.run("task_of_session", label=session.label):
        raise Refused(
            f"session {session.label!r} is a task's, named by the task",
            "Add an alias or a title instead.",
        )


def current_labels(tx: Transaction, labels: list[str]) -> dict[str, str]:
    """Those of these labels that were renamed, with the labels of today."""
    return {
        former: label
        for ids in in_batches(labels)
        for former, label in tx.run("renamed_labels", ids=ids)
    }


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
    before = heads.get(tx, goes, exact=True)
    aliases = [alias.alias for alias in of(tx, goes)]
    metadata = {**_metadata(before), _MERGED: {"aliases": aliases, "status": before.status}}
    tx.run("set_session_metadata", label=goes, metadata_json=to_json(metadata))
    lead(tx, goes, stays, reason=reason)
    heads.note(tx, goes, "merge")
    return heads.get(tx, stays, exact=True)


def unmerge(tx: Transaction, label: str) -> Session:
    """Reverse the merge of a session: its label and the aliases it had lead to it again.

    What was recorded through them meanwhile stays where it is.
    """
    session = heads.get(tx, heads.existing(tx, label, exact=True).label, exact=True)
    stays, reason = tx.run("name", name=label)[0]
    if stays == label:
        raise Refused(f"session {label!r} is not merged", "Pass the label of the merged session.")
    if reason == "import_reconciliation":
        raise Refused(f"session {label!r} is {stays!r} in the files it is imported from")
    heads.existing(tx, stays, exact=True)  # locked: nothing is recorded there meanwhile
    tx.run("take_label_back", label=label, reason=reason)
    metadata = _metadata(session)
    # A merge by an earlier version stored nothing: its aliases stay with the other session.
    before = metadata.pop(_MERGED, {"aliases": (), "status": "active"})
    for alias in before["aliases"]:
        tx.run("take_alias_back", alias=alias, from_label=stays, to_label=label)
    metadata_json = to_json(metadata) if metadata else None
    tx.run("set_session_metadata", label=label, metadata_json=metadata_json)
    tx.run("set_session_status", label=label, status=before["status"])
    heads.note(tx, label, "unmerge")
    return heads.get(tx, label, exact=True)


def _metadata(session: Session) -> dict[str, Any]:
    return msgspec.json.decode(session.metadata_json or "{}", type=dict[str, Any])


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
