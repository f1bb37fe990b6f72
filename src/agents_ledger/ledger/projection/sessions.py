"""Imported sessions: their heads follow the source, and they get names, titles and parents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from agents_ledger.ledger.projection.tree import DerivedTree
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.ledger.turns import threads
from agents_ledger.model.ids import now_ms
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    SourceFile,
    SourceTitle,
)
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches


def archive_renamed(tx: Transaction, files: Sequence[SourceFile], derivation: Derivation) -> None:
    """Archive a session that its files now hold under another label, as an alias of that one.

    Not if somebody continued it, or if several sessions could be its successor.
    """
    derived = {session.label for session in derivation.sessions}
    own = {file.id for file in files}
    lost: dict[str, set[int]] = {}  # labels with the files that held each
    for file_id in own:
        for label, imported_head, thread_id in tx.run("sessions_of_file", file_id=file_id):
            # A head that has moved since the import was continued by somebody.
            if label not in derived and imported_head == thread_id:
                lost.setdefault(label, set()).add(file_id)
    for label, file_ids in sorted(lost.items()):
        successors = {s.label for s in derivation.sessions if s.file_ids & file_ids}
        all_files = {row[0] for row in tx.run("files_of_label", label=label)}
        if len(successors) == 1 and all_files <= own:
            names.lead(tx, label, successors.pop(), reason="import_reconciliation")


def note_titles(tx: Transaction, titles: Sequence[SourceTitle], titled: list[SourceTitle]) -> None:
    """Store the titles that files have for other files' sessions; new ones go to `titled`."""
    titled += [
        title
        for title in titles
        if tx.run(
            "upsert_source_title",
            file_id=title.file_id,
            record_id=title.record_id,
            position=title.position,
            title=title.title,
        )
    ]


def _add_names(tx: Transaction, session: DerivedSession) -> None:
    """Add the aliases that are free, and the keys, which move from other sessions."""
    for alias in session.aliases:
        if heads.find(tx, alias) is None:
            names.add(tx, alias, session.label, reason="import_reconciliation")
    for key in session.keys:
        if heads.find(tx, key) is None:
            names.add(tx, key, session.label, reason="import_reconciliation")
        else:
            tx.run("move_key", key=key, label=session.label)


def _link_parent(tx: Transaction, session: DerivedSession) -> None:
    """Link a session to the parent that its records name, once that exists."""
    label = session.label
    if session.parent_label not in (None, label):
        tx.run("insert_source_link", child=label, parent=session.parent_label)
    else:
        tx.run("leave_parent", label=label)
        tx.run("delete_source_link", child=label)
    tx.run("follow_source_links", label=label)
    if session.parent_turn_id is not None:
        tx.run("hang_on_turn", label=label, turn_id=session.parent_turn_id)


def link_subagents(
    tx: Transaction, derivation: Derivation, tree: DerivedTree, renamed: Mapping[str, str]
) -> None:
    """Link the sessions that calls of these turns spawned to the session that has the call now."""
    for ids in in_batches(tree.names()):
        tx.run("unlink_lost_subagents", ids=ids)
        for child, turn_id, parent in tx.run("spawned_sessions", ids=ids):
            owner = tree.owner(turn_id)
            owner = renamed.get(owner or "", owner)
            if owner not in (parent, child):
                tx.run("set_parent_session", label=child, parent=owner)
    for session in derivation.sessions:
        # Logs may name each other's sessions as parents, and every walk to the root must end.
        tx.run("break_circle", label=session.label)


def import_key(source: str, session: DerivedSession) -> dict[str, str]:
    """What identifies an imported session, whatever its label."""
    return {
        "source": session.source or source,
        "provider": session.provider,
        "session_id": session.session_id,
    }


def follow_source(
    tx: Transaction, source: str, session: DerivedSession, fingerprint: str
) -> str | None:
    """Bring a session to what its source holds; returns the fingerprint it had, None if new."""
    label = session.label
    key = import_key(source, session)
    rows = tx.run("session_import", **key)
    imported_head = rows[0][2] if rows else None
    if not session.adopted:
        _describe(tx, session, session.origin or key["source"])
    _add_names(tx, session)
    for file_id in sorted(session.file_ids):
        tx.run("insert_session_source", label=label, file_id=file_id)
    follow(tx, session, imported_head)
    _link_parent(tx, session)
    tx.run(
        "upsert_session_import",
        **key,
        fingerprint=fingerprint,
        label=label,
        head_turn_id=session.head,
        now=now_ms(),
        run_id="",
    )
    return rows[0][0] if rows else None


def _describe(tx: Transaction, session: DerivedSession, origin: str) -> None:
    tx.run(
        "import_session",
        label=session.label,
        persona_id=session.persona_id,
        agent_id=session.agent_id,
        is_subagent=int(session.is_subagent),
        task_description=session.task_description,
        task_status=session.task_status,
        routing_key=session.routing_key,
        origin=origin,
        origin_session_id=session.session_id,
        source_title=session.title,
        metadata_json=to_json(dict(session.metadata)) if session.metadata else None,
        created_at=session.created_at,
    )


def follow(tx: Transaction, session: DerivedSession, imported_head: str | None) -> None:
    """Move the head to that of the source, if it is where the last import left it.

    A head that somebody moved stays, and the session `<label>~source` follows the source instead.
    """
    pointer = heads.existing(tx, session.label, exact=True)
    if pointer.thread_id == session.head:
        tx.run("session_grew", label=session.label, at=session.updated_at)
        return
    at = session.updated_at or None
    if pointer.thread_id == imported_head:
        heads.move_head(
            tx, session.label, from_=pointer.thread_id, to=session.head, reason="import", at=at
        )
        return
    if session.head is None:
        return
    # Somebody continued from the head of the source: nothing new is to be shown.
    if pointer.thread_id and threads.on_thread(tx, session.head, pointer.thread_id):
        return
    follower_label = names.follower_of(session.label)
    follower = heads.find(tx, follower_label, exact=True)
    if follower is None:
        heads.create(
            tx,
            Session(
                follower_label,
                created_as="import",
                origin=heads.get(tx, session.label, exact=True).origin,
                created_at=session.created_at,
            ),
        )
        follower = heads.existing(tx, follower_label, exact=True)
    if follower.thread_id != session.head:
        heads.move_head(
            tx, follower_label, from_=follower.thread_id, to=session.head, reason="import", at=at
        )
    tx.run("mark_source_has_more", label=session.label)
