"""Deletes whole trees of turns, with their sessions and the files they were derived from.

Only what nothing else needs is deleted: no session that stays points into the tree, no other turn
was derived from its files, no call that stays started one of its sessions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from agents_ledger.ledger.evidence.forgetting import purged
from agents_ledger.ledger.maintenance.redaction.redactions import begin
from agents_ledger.ledger.maintenance.redaction.scope import rows_of
from agents_ledger.ledger.search import index
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches

_OF_TURNS = (
    "purge_files_of_messages",
    "purge_lints",
    "purge_codeblocks",
    "purge_tool_calls",
    "purge_messages",
    "purge_compactions",
    "purge_turn_sources",
    "purge_repeated_records",
    "purge_bus_turns",
    "purge_waiting",
)
_OF_SESSIONS = (
    "purge_bus_calls",
    "purge_bus_messages",
    "purge_bus_tasks",
    "purge_history",
    "purge_imports",
    "purge_session_sources",
    "purge_links",
    "purge_annotations",
    "purge_queue",
    "purge_names",
)


class Tree(NamedTuple):
    """What goes together: turns, sessions and archived files."""

    turn_ids: frozenset[str]
    labels: frozenset[str]
    file_ids: frozenset[int]


def purgeable(tx: Transaction, labels: frozenset[str]) -> set[str]:
    """Those of some sessions that can go with all their turns and files."""
    return {label for label in trees(tx, labels).labels}


def trees(tx: Transaction, labels: frozenset[str]) -> Tree:
    """The trees that nobody needs but these sessions. What is shared takes out all that it holds
    on to, until what is left stands alone."""
    left = set(labels)
    while True:
        turn_ids = set(rows_of(tx, "turns_of_scope_sessions", left))
        turn_ids |= set(rows_of(tx, "turns_below_all", turn_ids))
        file_ids = set(rows_of(tx, "files_of_turns", turn_ids))
        file_ids |= set(rows_of(tx, "files_of_sessions", left))
        needed = set(_needed(tx, left, turn_ids, file_ids))
        if not needed & left:
            return Tree(frozenset(turn_ids), frozenset(left), frozenset(file_ids))
        left -= needed


def _needed(
    tx: Transaction, labels: set[str], turn_ids: set[str], file_ids: set[int]
) -> Iterable[str]:
    """The sessions that something outside needs."""
    for turn_id, label in _pairs(tx, "sessions_pointing_at", turn_ids):
        if label not in labels:
            yield from rows_of(tx, "labels_above_turn", [turn_id])
    for label, turn_id in _pairs(tx, "spawners_of_sessions", labels):
        if turn_id not in turn_ids:
            yield label
    for child, label in _pairs(tx, "children_of_sessions", labels):
        if child not in labels:
            yield label
    for file_id in file_ids:
        yield from _sharing(tx, file_id, labels, turn_ids, file_ids)


def _sharing(
    tx: Transaction, file_id: int, labels: set[str], turn_ids: set[str], file_ids: set[int]
) -> Iterable[str]:
    """The sessions of a file, if something else was derived from it or is compressed against it."""
    own = [row[0] for row in tx.run("labels_of_file", file_id=file_id)]
    turns = [row[0] for row in tx.run("turns_of_archived_file", file_id=file_id)]
    copies = [row[0] for row in tx.run("blocks_based_on", file_id=file_id)]
    stands_alone = (
        labels.issuperset(own) and turn_ids.issuperset(turns) and file_ids.issuperset(copies)
    )
    return () if stands_alone else own


def _pairs(tx: Transaction, statement: str, ids: Iterable[str]) -> list[tuple[str, str]]:
    return [(row[0], row[1]) for batch in in_batches(ids) for row in tx.run(statement, ids=batch)]


def purge(tx: Transaction, labels: frozenset[str], reason: str, actor: str) -> str | None:
    """Delete the trees of sessions; returns the id of the redaction, None if none can go."""
    tx.run("lock_projection")
    tree = trees(tx, labels)
    if not tree.labels:
        return None
    described = {"purged": ", ".join(sorted(tree.labels))}
    redaction_id = begin(tx, described, reason, actor, purges=True)
    tx.defer_references()
    purged(tx, list(_subjects(tx, tree)), reason=reason, at=now_ms())
    if tx.engine == "sqlite":
        index.forget_all(tx)
    else:
        index.forget(tx, sorted(tree.turn_ids))
    prompts = set(rows_of(tx, "prompts_of_turns_only", tree.turn_ids))
    _run_each(tx, _OF_SESSIONS, tree.labels)
    _run_each(tx, _OF_TURNS, tree.turn_ids)
    segments = {row for row in rows_of(tx, "segments_of_turns", tree.turn_ids)}
    _run_each(tx, ("purge_places",), tree.turn_ids)
    for segment_id in segments:
        tx.run("purge_segment", id=segment_id)
    _run_each(tx, ("purge_sessions",), tree.labels)
    _run_each(tx, ("purge_turns",), tree.turn_ids)
    for file_id in sorted(tree.file_ids):
        for statement in ("purge_faults", "purge_titles", "purge_spans", "purge_blocks"):
            tx.run(statement, file_id=file_id)
        tx.run("empty_source_file", id=file_id)
    for prompt in sorted(prompts):
        tx.run("purge_prompt", hash=prompt)
    for statement in ("forget_all_sums", "forget_all_usage_sums", "forget_all_tool_sums"):
        tx.run(statement)
    tx.run(
        "finish_redaction",
        id=redaction_id,
        now=now_ms(),
        places=0,
        spans=0,
        turns=len(tree.turn_ids),
    )
    return redaction_id


def _subjects(tx: Transaction, tree: Tree) -> Iterator[tuple[str, str]]:
    """What evidence covers of a tree."""
    for turn_id in sorted(tree.turn_ids):
        if tx.run("is_native", id=turn_id):
            yield "turn", turn_id
    for file_id in sorted(tree.file_ids):
        for start, _ in tx.run("block_lengths", file_id=file_id):
            yield "source", f"{file_id}/{start}"
    for label in sorted(tree.labels):
        yield "session", label


def _run_each(tx: Transaction, statements: Iterable[str], ids: Iterable[str]) -> None:
    among = sorted(ids)
    for statement in statements:
        for batch in in_batches(among):
            tx.run(statement, ids=batch)
