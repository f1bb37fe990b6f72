"""Sessions that files know under another name, call something from elsewhere, or spawned."""

from __future__ import annotations

from collections.abc import Sequence

from agents_ledger.ledger.projection.tree import Tree
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    SourceFile,
    SourceTitle,
)
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches


def lead_on(tx: Transaction, files: Sequence[SourceFile], derivation: Derivation) -> None:
    """A session that its files now know under another name is archived, and leads to that one:
    unless somebody went on in it, or there are several it could be."""
    told = {session.label for session in derivation.sessions}
    own = {file.id for file in files}
    lost: dict[str, set[int]] = {}  # with the files that told of each
    for file_id in own:
        for label, put_by_us, thread_id in tx.run("sessions_of_file", file_id=file_id):
            if label not in told and put_by_us == thread_id:
                lost.setdefault(label, set()).add(file_id)
    for label, file_ids in sorted(lost.items()):
        heirs = {each.label for each in derivation.sessions if each.file_ids & file_ids}
        known = {row[0] for row in tx.run("files_of_label", label=label)}
        if len(heirs) == 1 and known <= own:
            names.lead(tx, label, heirs.pop(), reason="import_reconciliation")


def note_titles(tx: Transaction, titles: Sequence[SourceTitle], titled: list[SourceTitle]) -> None:
    """Remember what files call sessions of others; those that are new are added to `titled`."""
    titled += [
        each
        for each in titles
        if tx.run(
            "upsert_source_title",
            file_id=each.file_id,
            record_id=each.record_id,
            position=each.position,
            title=each.title,
        )
    ]


def name(tx: Transaction, session: DerivedSession) -> None:
    """Other names that lead to a session: those that nobody else has, and keys, which move."""
    for alias in session.aliases:
        if heads.find(tx, alias) is None:
            names.add(tx, alias, session.label, reason="import_reconciliation")
    for key in session.keys:
        if heads.find(tx, key) is None:
            names.add(tx, key, session.label, reason="import_reconciliation")
        else:
            tx.run("move_key", key=key, label=session.label)


def hang_on_parent(tx: Transaction, session: DerivedSession) -> None:
    """A session answers to the one that its records name now, once that is there."""
    label = session.label
    if session.parent_label not in (None, label):
        tx.run("insert_source_link", child=label, parent=session.parent_label)
    else:
        tx.run("leave_parent", label=label)
        tx.run("delete_source_link", child=label)
    tx.run("follow_source_links", label=label)
    if session.parent_turn_id is not None:
        tx.run("hang_on_turn", label=label, turn_id=session.parent_turn_id)


def hang_subagents(tx: Transaction, derivation: Derivation, tree: Tree) -> None:
    """Sessions that calls of these turns spawned answer to the session that has the call now."""
    for ids in in_batches(tree.names()):
        tx.run("unlink_lost_subagents", ids=ids)
        for child, turn_id, parent in tx.run("spawned_sessions", ids=ids):
            owner = tree.owner(turn_id)
            if owner not in (parent, child):
                tx.run("set_parent_session", label=child, parent=owner)
    for session in derivation.sessions:
        tx.run("break_circle", label=session.label)
