"""Imported turns are a projection of the kept records: derived again, they are reconciled in place.

Any order of files, any number of steps and any retry end in the same turns. A turn that one of ours
stands on is frozen; what its source adds later is kept beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, NamedTuple

import msgspec
from msgspec import structs

from agents_ledger.ledger import names, recording, sessions, threads
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.threads import Place
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.sources import Derivation, DerivedSession, DerivedTurn, SourceFile
from agents_ledger.model.turns import ToolCall, Turn, Usage, to_json
from agents_ledger.store import rows
from agents_ledger.store.database import Row, Transaction

Outcome = Literal["imported", "upserted", "skipped"]
BATCH_BYTES = 2 << 20  # of content a transaction: others wait no longer than that takes
BATCH_TURNS = 200
RETIRED = "its records belong to another turn now"
IDS_AT_ONCE = 500


class Known(NamedTuple):
    """What is stored of a turn."""

    fingerprint: bytes
    parent_id: str | None
    projected: bool
    frozen: bool


class Written(NamedTuple):
    """What a projection did."""

    outcomes: dict[str, Outcome]  # by session id
    turns: int  # new or rewritten


class _Change(NamedTuple):
    derived: DerivedTurn
    turn: Turn
    known: Known | None


_NOTHING = DerivedTurn("", None, b"", frozenset(), (), lambda: Turn(""))


def project(
    core: Core, source: str, version: int, files: Sequence[SourceFile], derivation: Derivation
) -> Written:
    """Bring the ledger's rows to what `derivation` says of `files`."""
    core.recover_once()
    known = _known(core, [turn.id for turn in derivation.turns])
    before = {s.session_id: _fingerprint(core, source, s) for s in derivation.sessions}
    core.db.write(partial(_ensure_sessions, source=source, derived=derivation.sessions))
    owners = _owners(derivation)
    written, stale = 0, set[str]()
    for batch in _batches(_changes(derivation.turns, known, stale)):
        core.db.write(partial(_write_batch, changes=batch, owners=owners))
        written += len(batch)
    fingerprints = _session_fingerprints(derivation)
    core.db.write(
        partial(
            _finish,
            source=source,
            version=version,
            files=files,
            derivation=derivation,
            fingerprints=fingerprints,
            stale=stale,
            owners=owners,
        )
    )
    return Written(
        {
            s.session_id: _outcome(before[s.session_id], fingerprints[s.session_id])
            for s in derivation.sessions
        },
        written,
    )


def _outcome(before: str | None, now: str) -> Outcome:
    if before is None:
        return "imported"
    return "skipped" if before == now else "upserted"


# -- what changed -----------------------------------------------------------------------------


def _known(core: Core, turn_ids: Sequence[str]) -> dict[str, Known]:
    return core.db.read(lambda tx: _known_now(tx, turn_ids))


def _known_now(tx: Transaction, turn_ids: Sequence[str]) -> dict[str, Known]:
    known: dict[str, Known] = {}
    for ids in _in_batches(turn_ids):
        found = tx.run("known_turns", ids=ids)
        for turn_id, fingerprint, parent_id, projected, frozen in found:
            known[turn_id] = Known(
                bytes(fingerprint or b""), parent_id, bool(projected), bool(frozen)
            )
    return known


def files_sharing(core: Core, turns: Iterable[DerivedTurn]) -> set[int]:
    """The files that already gave rows with any of these records: they are of the same trees."""
    found: set[int] = set()
    for ids in _in_batches([record_id for turn in turns for record_id in turn.record_ids]):
        found |= {row[0] for row in core.db.read(partial(_run, "source_files_of_messages", ids))}
    return found


def files_of_kin(core: Core, derived: Iterable[DerivedSession]) -> set[int]:
    """The files of the parents and children of these sessions."""
    own: list[str] = []
    parents: list[str] = []
    for session in derived:
        own += (session.label, *session.aliases)
        if session.parent_label is not None:
            parents.append(session.parent_label)
    found: set[int] = set()
    for statement, labels in (
        ("files_of_children", own),
        ("files_of_spawners", own),
        ("files_of_parents", parents),
    ):
        for ids in _in_batches(labels):
            found |= {row[0] for row in core.db.read(partial(_run, statement, ids))}
    return found


def _run(statement: str, ids: str, tx: Transaction) -> list[Row]:
    return tx.run(statement, ids=ids)


def _in_batches(ids: Sequence[str]) -> Iterator[str]:
    for at in range(0, len(ids), IDS_AT_ONCE):
        yield msgspec.json.encode(ids[at : at + IDS_AT_ONCE]).decode()


def _changes(
    derived: Iterable[DerivedTurn], known: Mapping[str, Known], stale: set[str]
) -> Iterator[_Change]:
    """The turns that are new or have changed, with their content; frozen ones become stale."""
    for turn in derived:
        stored = known.get(turn.id)
        if _is_due(turn, stored):
            yield _Change(turn, turn.build(), stored)
        elif stored is not None and stored.frozen and stored.fingerprint != turn.fingerprint:
            stale.add(turn.id)


def _is_due(turn: DerivedTurn, stored: Known | None) -> bool:
    """Whether a turn is to be written. Turns of ours, and frozen ones, are not."""
    if stored is None:
        return True
    same = stored.fingerprint == turn.fingerprint and stored.parent_id == turn.parent_id
    return stored.projected and not stored.frozen and not same


def _batches(changes: Iterable[_Change]) -> Iterator[list[_Change]]:
    batch: list[_Change] = []
    size = 0
    for change in changes:
        batch.append(change)
        size += sum(len(m.content or "") + len(m.thinking or "") for m in change.turn.messages)
        size += sum(len(c.params_json) + len(c.result_json or "") for c in change.turn.tool_calls)
        if size > BATCH_BYTES or len(batch) >= BATCH_TURNS:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _owners(derivation: Derivation) -> dict[str, str]:
    """For every turn the first session whose thread holds it: the subagents it spawns answer to."""
    parents = {turn.id: turn.parent_id for turn in derivation.turns}
    owners: dict[str, str] = {}
    first_to_last = sorted(derivation.sessions, key=lambda s: (s.created_at, s.label))
    for session in first_to_last:
        turn_id = session.head
        while turn_id is not None and turn_id in parents and turn_id not in owners:
            owners[turn_id] = session.label
            turn_id = parents[turn_id]
    beside = [turn for turn in derivation.turns if turn.id not in owners]
    for turn in beside:
        holders = (s.label for s in first_to_last if s.file_ids & turn.file_ids)
        owners[turn.id] = next(holders, first_to_last[0].label if first_to_last else "")
    return owners


# -- writing turns ----------------------------------------------------------------------------


def _write_batch(tx: Transaction, changes: Sequence[_Change], owners: Mapping[str, str]) -> None:
    """Write the turns that are new or changed now: another import may have written some."""
    tx.run("lock_projection")
    known = _known_now(tx, [change.turn.id for change in changes])
    changes = [
        change._replace(known=known.get(change.turn.id))
        for change in changes
        if _is_due(change.derived, known.get(change.turn.id))
    ]
    tx.defer_references()
    for change in changes:
        if change.known is not None:
            _clear_turn(tx, change.turn.id)
    for change in changes:
        _write_row(tx, change)
    _write_steps(tx, changes, owners)
    _place_all(tx, changes)
    tx.run_many(
        "insert_turn_source",
        [
            {"turn_id": change.turn.id, "file_id": file_id}
            for change in changes
            for file_id in sorted(change.derived.file_ids)
        ],
    )


def _write_row(tx: Transaction, change: _Change) -> None:
    turn = change.turn
    row: dict[str, object] = {
        name: getattr(turn, name) for name in Turn.__struct_fields__ if name in _ROW_FIELDS
    }
    row["tool_call_count"] = len(turn.tool_calls)
    row["request_hash"] = change.derived.fingerprint
    row["parent_turn_id"] = change.derived.parent_id
    if change.known is not None:
        tx.run("rewrite_turn", **row)
    if turn.compaction is not None:  # a new turn after its record, a known one before it
        tx.run("insert_compaction", **rows.compaction_row(turn.compaction, turn.id))
    if change.known is None:
        tx.run("insert_turn", **row, projected=1)
    if change.derived.parent_id is not None:
        tx.run("mark_parent", id=change.derived.parent_id)
    if change.known is not None and change.known.parent_id not in (None, change.derived.parent_id):
        tx.run("unmark_childless", id=change.known.parent_id)


_ROW_FIELDS = frozenset(Turn.__struct_fields__) - {
    "parent_turn_id",
    "has_children",
    "tool_call_count",
    "projected",
    "depth",
    "messages",
    "tool_calls",
    "compaction",
}


def _clear_turn(tx: Transaction, turn_id: str) -> None:
    for statement in (
        "delete_turn_files",
        "delete_turn_lints",
        "delete_turn_codeblocks",
        "delete_turn_calls",
        "delete_turn_messages",
        "delete_turn_compaction",
    ):
        tx.run(statement, turn_id=turn_id)


def _write_steps(tx: Transaction, changes: Sequence[_Change], owners: Mapping[str, str]) -> None:
    messages = [m for change in changes for m in change.turn.messages]
    recording.write_messages(tx, messages, statement="project_message")
    calls: list[ToolCall] = []
    for change in changes:
        owner = owners.get(change.turn.id)
        for call in change.turn.tool_calls:
            if call.spawned_session_label is None:
                calls.append(call)
            else:
                calls.append(_linked(tx, call, owner))
    if calls:
        tx.run_many("insert_tool_call", [rows.tool_call_row(call) for call in calls])


def _linked(tx: Transaction, call: ToolCall, owner: str | None) -> ToolCall:
    """The call with its subagent's session, made or linked. A session has one spawning call: a
    second that names it, in a turn branched off half way, does not link."""
    child = str(call.spawned_session_label)
    named = sessions.find(tx, child, exact=True) or sessions.find(tx, child)
    if named is not None:  # it may be known under another label
        child = named.label
        call = structs.replace(call, spawned_session_label=child)
    if owner is None or child == owner:
        return structs.replace(call, spawned_session_label=None)
    if named is not None:
        known = sessions.get(tx, child, exact=True)
        if known.parent_turn_id is not None:
            if tx.run("spawning_call", turn_id=known.parent_turn_id, label=child):
                return structs.replace(call, spawned_session_label=None)
            tx.run("unlink_subagent", label=child)  # by a call that is in another turn now
    parent = sessions.existing(tx, owner, exact=True)
    made = Session(child, created_at=call.started_at)
    sessions.spawn(tx, made, parent, call.turn_id, call.id)
    return call


def _place_all(tx: Transaction, changes: Sequence[_Change]) -> None:
    """Put new turns, and put changed ones again with all that stands below them.

    A turn below a changed one may have got a new parent too, one that is put only now: so all are
    taken away first, and put from the top down.
    """
    waiting = {change.turn.id: change.turn for change in changes if change.known is None}
    for change in changes:
        if change.known is not None:
            below = [turn_id for turn_id, *_ in tx.run("subtree_ids", turn_id=change.turn.id)]
            for turn_id in reversed(below):
                _take_away(tx, turn_id)
            waiting |= {turn_id: _metrics(tx, turn_id) for turn_id in below}
    places: dict[str, Place] = {}
    while waiting:
        path = [next(iter(waiting))]
        while waiting[path[-1]].parent_turn_id in waiting:
            path.append(str(waiting[path[-1]].parent_turn_id))
        for turn_id in reversed(path):
            _put(tx, waiting.pop(turn_id), places)


def _take_away(tx: Transaction, turn_id: str) -> None:
    segment_id = tx.run("delete_place", turn_id=turn_id)[0][0]
    tx.run("delete_empty_segment", id=segment_id)


def _put(tx: Transaction, turn: Turn, places: dict[str, Place]) -> None:
    usage = Usage(
        turn.input_tokens,
        turn.output_tokens,
        turn.cached_input_tokens,
        turn.cache_write_tokens,
        turn.reasoning_tokens,
        turn.total_tokens or 0,
    )
    place = threads.below(
        _place_of(tx, turn.parent_turn_id, places),
        usage=usage,
        model=turn.model,
        provider=turn.provider,
        persona_id="main",
        system_prompt_hash=None,
        thread_key=None,
        compaction_turn_id=turn.id if turn.turn_type == "compaction" else None,
    )
    places[turn.id] = threads.put(tx, turn.id, place, join=turn.status == "completed")


def _metrics(tx: Transaction, turn_id: str) -> Turn:
    """What a stored turn adds to its thread."""
    parent_id, status, turn_type, model, provider, *tokens = tx.run("turn_metrics", id=turn_id)[0]
    turn = Turn(turn_id, parent_id, turn_type, status, model=model, provider=provider)
    return structs.replace(turn, **dict(zip(Usage.__struct_fields__, tokens, strict=True)))


def _place_of(tx: Transaction, turn_id: str | None, places: dict[str, Place]) -> Place:
    if turn_id is None:
        return threads.ABOVE_ROOT
    if turn_id not in places:
        places[turn_id] = threads.place_of(tx, turn_id)
    return places[turn_id]


# -- sessions and heads -----------------------------------------------------------------------


def _ensure_sessions(tx: Transaction, source: str, derived: Sequence[DerivedSession]) -> None:
    """Make the sessions, still empty, so that calls can name them."""
    tx.run("lock_projection")
    for session in derived:
        if sessions.find(tx, session.label, exact=True) is None:
            made = Session(
                session.label,
                persona_id=session.persona_id,
                created_as="subagent" if session.is_subagent else "import",
                is_subagent=session.is_subagent,
                origin=session.origin or session.source or source,
                origin_session_id=session.session_id,
                created_at=session.created_at,
            )
            sessions.create(tx, made)


def _fingerprint(core: Core, source: str, session: DerivedSession) -> str | None:
    found = core.db.read(
        lambda tx: tx.run(
            "session_import",
            source=session.source or source,
            provider=session.provider,
            session_id=session.session_id,
        )
    )
    return found[0][0] if found else None


def _session_fingerprints(derivation: Derivation) -> dict[str, str]:
    """Of everything a session shows: its thread's turns and what is said of it."""
    turns = {turn.id: turn for turn in derivation.turns}
    done: dict[str, bytes] = {}
    roots: dict[str, str] = {}
    trees: dict[str, list[bytes]] = {}
    for turn in derivation.turns:  # parents first: each hash covers its ancestors'
        above = done.get(turn.parent_id or "", b"")
        done[turn.id] = hashlib.blake2b(above + turn.fingerprint, digest_size=16).digest()
        roots[turn.id] = roots.get(turn.parent_id or "", turn.id)
        trees.setdefault(roots[turn.id], []).append(done[turn.id])
    prints = {}
    for session in derivation.sessions:
        if session.fingerprint is not None:
            prints[session.session_id] = session.fingerprint
            continue
        said = msgspec.json.encode(
            {name: getattr(session, name) for name in _SAID} | {"head": session.head}
        )
        own = done.get(session.head or "", b"")
        tips = trees.get(roots.get(session.head or "", ""))  # a database holds many trees
        if tips is None:
            tips = [done[t.id] for t in turns.values() if t.file_ids & session.file_ids]
        prints[session.session_id] = hashlib.sha256(own + b"".join(sorted(tips)) + said).hexdigest()
    return prints


_SAID = (
    "title",
    "updated_at",
    "is_subagent",
    "parent_label",
    "task_description",
    "task_status",
    "metadata",
)


def _finish(
    tx: Transaction,
    source: str,
    version: int,
    files: Sequence[SourceFile],
    *,
    derivation: Derivation,
    fingerprints: Mapping[str, str],
    stale: set[str],
    owners: Mapping[str, str],
) -> None:
    """What is said of the sessions, their heads, and that the files are derived."""
    tx.run("lock_projection")
    for session in derivation.sessions:
        _follow(tx, source, session, fingerprints[session.session_id])
        if stale:
            tx.run("mark_source_has_more", label=session.label)
    for ids in _in_batches([turn.id for turn in derivation.turns]):
        for child, turn_id, parent in tx.run("spawned_sessions", ids=ids):
            if parent != owners[turn_id] and child != owners[turn_id]:
                tx.run("set_parent_session", label=child, parent=owners[turn_id])
    _note_sources(tx, files, derivation)
    by_path = {file.path: file.id for file in files}
    for file in files:
        tx.run("delete_faults", file_id=file.id)
        tx.run("mark_derived", id=file.id, derived_bytes=file.kept_bytes, derived_version=version)
    tx.run_many(
        "insert_fault",
        [
            {
                "file_id": by_path[fault.path],
                "position": fault.offset,
                "line": fault.line,
                "what": fault.what,
            }
            for fault in derivation.faults
            if fault.path in by_path
        ],
    )


def _note_sources(tx: Transaction, files: Sequence[SourceFile], derivation: Derivation) -> None:
    """Which turns each file is part of, also where it told nothing new of them."""
    wanted: dict[int, set[str]] = {file.id: set() for file in files}
    for turn in derivation.turns:
        for file_id in turn.file_ids:
            wanted[file_id].add(turn.id)
    gone: set[str] = set()
    for file_id, turn_ids in wanted.items():
        known = {row[0] for row in tx.run("turns_of_file", file_id=file_id)}
        missing = [{"turn_id": turn_id, "file_id": file_id} for turn_id in turn_ids - known]
        if missing:
            tx.run_many("insert_turn_source", missing)
        gone |= known - turn_ids
    _retire(tx, gone - {turn.id for turn in derivation.turns})


def _retire(tx: Transaction, gone: set[str]) -> None:
    """Take away turns whose records are now understood to belong to other turns.

    One that the history names stays, empty, and says so. What is frozen stays as it is.
    """
    known = _known_now(tx, sorted(gone))
    due = [turn_id for turn_id in gone if known[turn_id].projected and not known[turn_id].frozen]
    tx.defer_references()
    for turn_id in sorted(due, key=lambda each: -threads.place_of(tx, each).depth):
        _clear_turn(tx, turn_id)
        if tx.run("turn_is_named", turn_id=turn_id)[0][0]:
            tx.run("empty_turn", id=turn_id, error=RETIRED)
            _place_all(tx, [_Change(_NOTHING, Turn(turn_id), known[turn_id])])
            continue
        _take_away(tx, turn_id)
        tx.run("delete_turn_sources", turn_id=turn_id)
        tx.run("delete_turn", id=turn_id)
        if known[turn_id].parent_id is not None:
            tx.run("unmark_childless", id=known[turn_id].parent_id)


def _follow(tx: Transaction, source: str, session: DerivedSession, fingerprint: str) -> None:
    label = session.label
    source = session.source or source
    known = tx.run(
        "session_import", source=source, provider=session.provider, session_id=session.session_id
    )
    put_by_us = known[0][2] if known else None
    if not session.adopted:
        _describe(tx, session, session.origin or source)
    _name(tx, session)
    for key in session.keys:
        if sessions.find(tx, key) is None:
            names.add(tx, key, label, reason="import_reconciliation")
        else:
            tx.run("move_key", key=key, label=label)
    for file_id in sorted(session.file_ids):
        tx.run("insert_session_source", label=label, file_id=file_id)
    _move(tx, session, put_by_us)
    if session.parent_label is not None:
        tx.run("insert_source_link", child=label, parent=session.parent_label)
    tx.run("follow_source_links", label=label)
    if session.parent_turn_id is not None:
        tx.run("hang_on_turn", label=label, turn_id=session.parent_turn_id)
    tx.run(
        "upsert_session_import",
        source=source,
        provider=session.provider,
        session_id=session.session_id,
        fingerprint=fingerprint,
        label=label,
        head_turn_id=session.head,
        now=now_ms(),
        run_id="",
    )


def _name(tx: Transaction, session: DerivedSession) -> None:
    for alias in session.aliases:
        if sessions.find(tx, alias) is None:
            names.add(tx, alias, session.label, reason="import_reconciliation")


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
    )


def _move(tx: Transaction, session: DerivedSession, put_by_us: str | None) -> None:
    """Move the head where the import put it; one that somebody moved stays, and a session beside
    it follows the source."""
    pointer = sessions.existing(tx, session.label, exact=True)
    if pointer.thread_id == session.head:
        return
    at = session.updated_at or None
    if pointer.thread_id == put_by_us:
        sessions.move_head(
            tx,
            session.label,
            from_=pointer.thread_id,
            to=session.head,
            reason="import",
            at=at,
        )
        return
    if session.head is None:
        return
    if pointer.thread_id and threads.on_thread(tx, session.head, pointer.thread_id):
        return
    beside = f"{session.label}~source"
    follower = sessions.find(tx, beside, exact=True)
    if follower is None:
        sessions.create(tx, Session(beside, created_as="import", created_at=session.created_at))
        follower = sessions.existing(tx, beside, exact=True)
    if follower.thread_id != session.head:
        sessions.move_head(
            tx, beside, from_=follower.thread_id, to=session.head, reason="import", at=at
        )
    tx.run("mark_source_has_more", label=session.label)
