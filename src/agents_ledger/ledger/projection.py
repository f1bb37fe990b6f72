"""Imported turns are a projection of the kept records: derived again, they are reconciled in place.

Any order of files, any number of steps and any retry end in the same turns. A turn that one of ours
stands on is frozen; what its source adds later is kept beside it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import Literal, NamedTuple

from msgspec import structs

from agents_ledger.ledger import names, sessions, threads, waiting
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projected_sessions import lead_on, note_titles
from agents_ledger.ledger.projected_turns import (
    Change,
    Known,
    TurnSource,
    is_due,
    known_now,
    retire,
    write_batch,
)
from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.ids import as_id, is_id, now_ms
from agents_ledger.model.sessions import Session
from agents_ledger.model.sources import (
    SUPERSEDED,
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
    SourceTitle,
)
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Row, Transaction, Work
from agents_ledger.store.text import in_batches

Outcome = Literal["imported", "upserted", "skipped"]
BATCH_BYTES = 5 << 20  # of content a transaction: others wait no longer than that takes
BATCH_TURNS = 200
BATCH = 50  # derivations


class Written(NamedTuple):
    """What a projection did."""

    outcomes: dict[str, Outcome]  # by label
    turns: int  # new or rewritten
    titled: list[SourceTitle]  # what sessions of other files are called, and were not before


class _Part(NamedTuple):
    """What a commit has of one derivation: its sessions are made, then turns are written, then all
    that is said of them."""

    before: Sequence[Work[None]]
    changes: Sequence[Change]
    after: Sequence[Work[None]] = ()


class _Asked(NamedTuple):
    """What is still to be committed of one derivation."""

    part: _Part
    written: Written
    done: Callable[[Written | Exception], None]


class _At(NamedTuple):
    """Where a record stands."""

    file_id: int
    position: int


class Projector:
    """Brings the ledger's rows to what derivations say. Small ones share a commit."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._clear()

    def _clear(self) -> None:
        self._asked: list[_Asked] = []
        self._turns = self._bytes = 0
        self._names: set[str] = set()  # of what waits for the commit: of its records and sessions

    def add(
        self,
        source: str,
        version: int,
        files: Sequence[SourceFile],
        derivation: Derivation,
        *,
        names: Names,
        done: Callable[[Written | Exception], None],
    ) -> None:
        """Write what `derivation` says of `files`, now or with the next. `names` are those it is
        known by; `done` is told what came of it."""
        self._core.recover_once()
        derivation = _with_ids(derivation)
        known = _known(self._core, [turn.id for turn in derivation.turns])
        owners = _owners(derivation)
        written, stale = 0, set[str]()
        outcomes: dict[str, Outcome] = {}  # known when it is committed: another may be quicker
        titled: list[SourceTitle] = []
        batch: list[Change] = []
        before = [partial(_ensure_sessions, source=source, derived=derivation.sessions)]
        for more in _batches(_changes(derivation.turns, known, stale, owners)):
            if batch:  # what is small is one commit with all that is said of it
                self.flush()
                self._commit([_Part(before, batch)])
                before = []
            batch = more
            written += len(batch)
        after: list[Work[None]] = [
            partial(
                _finish,
                source=source,
                version=version,
                files=files,
                derivation=derivation,
                fingerprints=_session_fingerprints(derivation),
                outcomes=outcomes,
                stale=stale,
                owners=owners,
            )
        ]
        if derivation.titles:
            after.append(partial(note_titles, titles=derivation.titles, titled=titled))
        part = _Part(before, batch, after)
        self._asked.append(_Asked(part, Written(outcomes, written, titled), done))
        self._note(names, batch)
        self._turns += len(batch)
        self._bytes += sum(file.kept_bytes for file in files)
        if self._turns >= BATCH_TURNS or self._bytes > BATCH_BYTES or len(self._asked) >= BATCH:
            self.flush()

    def _note(self, names: Names, batch: Sequence[Change]) -> None:
        self._names.update(names.records, names.sessions, names.parents)
        for change in batch:
            self._names.update(message.id for message in change.turn.messages)
            for call in change.turn.tool_calls:
                self._names.add(call.spawned_session_label or "")

    def concerns(self, names: Names) -> bool:
        """Whether what waits may be of the trees that have these names, or of their kin: it has to
        be committed before anybody can tell."""
        return not self._names.isdisjoint(names.of_trees())

    def flush(self) -> None:
        """Commit what waits: all of it together, or, if that fails, each for itself."""
        asked = self._asked
        self._clear()
        if not asked:
            return
        try:
            self._commit([each.part for each in asked])
        except StoreUnavailable:
            raise
        except Exception as error:
            # One that meets a mistake of ours must not take the others with it.
            if len(asked) > 1:
                asked = [each for each in asked if self._is_committed(each)]
            else:
                asked.pop().done(error)
        for each in asked:
            each.done(each.written)

    def _is_committed(self, asked: _Asked) -> bool:
        try:
            self._commit([asked.part])
        except StoreUnavailable:
            raise
        except Exception as error:  # told, not raised: it is one of many
            asked.done(error)
            return False
        return True

    def _commit(self, parts: Sequence[_Part]) -> None:
        self._core.db.write(partial(_together, parts=parts))
        self._core.index()


class Names(NamedTuple):
    """What others would name to be of the same trees as a derivation."""

    records: list[str]
    sessions: list[str]
    parents: list[str]
    with_kin: bool

    def of_trees(self) -> Iterator[str]:
        """Records, sessions, and parents of kin."""
        return chain(self.records, self.sessions, self.parents if self.with_kin else ())


def names_of(derivation: Derivation) -> Names:
    """All that a derivation is known by."""
    derived = derivation.sessions
    return Names(
        [as_id(each) for turn in derivation.turns for each in turn.record_ids],
        [name for session in derived for name in (session.label, *session.aliases)],
        [session.parent_label for session in derived if session.parent_label is not None],
        derivation.with_kin,
    )


def _with_ids(derivation: Derivation) -> Derivation:
    """The same, where what a source calls a turn cannot be an id: under one that can."""
    turns, sessions = derivation.turns, derivation.sessions
    if all(is_id(turn.id) for turn in turns):
        return derivation
    return structs.replace(
        derivation,
        turns=tuple(
            structs.replace(turn, id=as_id(turn.id), parent_id=_as_id(turn.parent_id))
            for turn in turns
        ),
        sessions=tuple(
            structs.replace(
                each, head=_as_id(each.head), parent_turn_id=_as_id(each.parent_turn_id)
            )
            for each in sessions
        ),
    )


def _as_id(name: str | None) -> str | None:
    return as_id(name) if name is not None else None


def _together(tx: Transaction, parts: Sequence[_Part]) -> None:
    """Write parts of derivations that share no turns: the turns of all of them, table by table."""
    tx.run("lock_projection")
    for work in chain.from_iterable(part.before for part in parts):
        work(tx)
    new = write_batch(tx, [change for part in parts for change in part.changes])
    for work in chain.from_iterable(part.after for part in parts):
        work(tx)
    waiting.written(tx, new)


def _outcome(before: str | None, now: str) -> Outcome:
    if before is None:
        return "imported"
    return "skipped" if before == now else "upserted"


# -- what changed -----------------------------------------------------------------------------


def _known(core: Core, turn_ids: Sequence[str]) -> dict[str, Known]:
    return core.db.read(lambda tx: known_now(tx, turn_ids))


def files_sharing(core: Core, names: Names) -> set[int]:
    """The files that already gave rows with any of these records: they are of the same trees."""
    found: set[int] = set()
    for ids in in_batches(names.records):
        found |= {row[0] for row in core.db.read(partial(_run, "source_files_of_messages", ids))}
    return found


def files_of_kin(core: Core, names: Names) -> set[int]:
    """The files of the parents and children of these sessions."""
    found: set[int] = set()
    for statement, labels in (
        ("files_of_children", names.sessions),
        ("files_of_spawners", names.sessions),
        ("files_of_parents", names.parents),
    ):
        for ids in in_batches(labels):
            found |= {row[0] for row in core.db.read(partial(_run, statement, ids))}
    return found


def _run(statement: str, ids: str, tx: Transaction) -> list[Row]:
    return tx.run(statement, ids=ids)


def _changes(
    derived: Iterable[DerivedTurn],
    known: Mapping[str, Known],
    stale: set[str],
    owners: Mapping[str, str],
) -> Iterator[Change]:
    """The turns that are new or have changed, with their content; frozen ones become stale."""
    for turn in derived:
        stored = known.get(turn.id)
        if is_due(turn, stored):
            yield Change(turn, turn.build(), stored, owners.get(turn.id))
        elif stored is not None and stored.frozen and stored.fingerprint != turn.fingerprint:
            stale.add(turn.id)


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    batch: list[Change] = []
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
        if turn.owner is not None:
            owners[turn.id] = turn.owner
            continue
        holders = (s.label for s in first_to_last if s.file_ids & turn.file_ids)
        owners[turn.id] = next(holders, first_to_last[0].label if first_to_last else "")
    return owners


# -- sessions and heads -----------------------------------------------------------------------


def _ensure_sessions(tx: Transaction, source: str, derived: Sequence[DerivedSession]) -> None:
    """Make the sessions, still empty, so that calls can name them."""
    for session in derived:
        known = sessions.find(tx, session.label, exact=True)
        if known is not None and known.status == "archived":
            names.come_back(tx, session.label)
        elif known is None:
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
            prints[session.label] = session.fingerprint
            continue
        shown = {name: getattr(session, name) for name in _SAID} | {"head": session.head}
        said = to_json(shown).encode()
        own = done.get(session.head or "", b"")
        tips = trees.get(roots.get(session.head or "", ""))  # a database holds many trees
        if tips is None:
            tips = [done[t.id] for t in turns.values() if t.file_ids & session.file_ids]
        prints[session.label] = hashlib.sha256(own + b"".join(sorted(tips)) + said).hexdigest()
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
    outcomes: dict[str, Outcome],
    stale: set[str],
    owners: Mapping[str, str],
) -> None:
    """What is said of the sessions, their heads, and that the files are derived."""
    heads = _settled(tx, derivation)
    for session in derivation.sessions:
        settled = structs.replace(session, head=heads[session.label])
        before = _follow(tx, source, settled, fingerprints[session.label])
        outcomes[session.label] = _outcome(before, fingerprints[session.label])
        if stale:
            tx.run("mark_source_has_more", label=session.label)
    _hang_subagents(tx, derivation, owners)
    if derivation.part is None:
        lead_on(tx, files, derivation)
    _note_sources(tx, files, derivation)
    for file in files:
        tx.run(
            "mark_derived",
            id=file.id,
            derived_bytes=file.kept_bytes,
            derived_version=SUPERSEDED if file.id in derivation.superseded else version,
        )
    _note_faults(tx, files, derivation)


def _hang_subagents(tx: Transaction, derivation: Derivation, owners: Mapping[str, str]) -> None:
    for ids in in_batches([turn.id for turn in derivation.turns]):
        tx.run("unlink_lost_subagents", ids=ids)
        for child, turn_id, parent in tx.run("spawned_sessions", ids=ids):
            if parent != owners[turn_id] and child != owners[turn_id]:
                tx.run("set_parent_session", label=child, parent=owners[turn_id])
    for session in derivation.sessions:
        tx.run("break_circle", label=session.label)


def _note_faults(tx: Transaction, files: Sequence[SourceFile], derivation: Derivation) -> None:
    by_path = {file.path: file.id for file in files}
    part = derivation.part
    for file_id in by_path.values():
        if part is None or file_id in part.files:
            tx.run("delete_faults", file_id=file_id)
        else:
            read = [_At(file_id, offset) for offset in part.rows.get(file_id, ())]
            tx.run_many("delete_faults_at", read)
    for fault in derivation.faults:
        if fault.path in by_path:
            tx.run(
                "insert_fault",
                file_id=by_path[fault.path],
                position=fault.offset,
                line=fault.line,
                what=fault.what,
            )


def _note_sources(tx: Transaction, files: Sequence[SourceFile], derivation: Derivation) -> None:
    """Which turns each file is part of, also where it told nothing new of them."""
    wanted: dict[int, set[str]] = {file.id: set() for file in files}
    for turn in derivation.turns:
        for file_id in turn.file_ids:
            wanted[file_id].add(turn.id)
    part, gone = derivation.part, set[str]()
    for file_id, turn_ids in wanted.items():
        known = {row[0] for row in tx.run("turns_of_file", file_id=file_id)}
        missing = [TurnSource(turn_id, file_id) for turn_id in turn_ids - known]
        if missing:
            tx.run_many("insert_turn_source", missing)
        lost = known - turn_ids
        if part is not None and file_id not in part.files:
            is_read = file_id in part.rows
            lost = {turn_id for turn_id in lost if is_read and not part.is_rest(turn_id)}
        gone |= lost
    retire(tx, gone - {turn.id for turn in derivation.turns})


def _settled(tx: Transaction, derivation: Derivation) -> dict[str, str | None]:
    """The head of each session by its label: a turn that was answered, or the nearest above it."""
    parents = {turn.id: turn.parent_id for turn in derivation.turns}
    heads = {session.label: session.head for session in derivation.sessions}
    asked = {head for head in heads.values() if head is not None}
    while asked:
        pending: set[str] = set()
        for ids in in_batches(sorted(asked)):
            pending |= {row[0] for row in tx.run("pending_turns", ids=ids)}
        for label, head in heads.items():
            if head in pending:
                heads[label] = parents.get(head)
        asked = {parents.get(turn_id) or "" for turn_id in pending} - {""}
    return heads


def _follow(tx: Transaction, source: str, session: DerivedSession, fingerprint: str) -> str | None:
    """What a session shows now; the fingerprint of what it showed, None for a new one."""
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
    follow(tx, session, put_by_us)
    if session.parent_label not in (None, label):
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
    return known[0][0] if known else None


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


def follow(tx: Transaction, session: DerivedSession, put_by_us: str | None) -> None:
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
