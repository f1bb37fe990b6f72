"""Imported turns are a projection of the kept records: derived again, they are reconciled in place.

Any order of files, any number of steps and any retry end in the same turns. A turn that one of ours
stands on is frozen; what its source adds later is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Literal, NamedTuple

from msgspec import Struct, field, structs

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection.sessions import (
    hang_on_parent,
    hang_subagents,
    lead_on,
    name,
    note_titles,
)
from agents_ledger.ledger.projection.tree import Repeated, Tree
from agents_ledger.ledger.projection.turns import (
    ROW_BYTES,
    Change,
    Known,
    TurnSource,
    is_due,
    known_now,
    retire,
    write_batch,
)
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads as sessions
from agents_ledger.ledger.sessions import names
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.ids import as_id, is_id, now_ms
from agents_ledger.model.imports.sources import (
    SUPERSEDED,
    Derivation,
    DerivedSession,
    DerivedTurn,
    Part,
    SourceFile,
    SourceTitle,
    Turns,
)
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Row, Transaction, Work
from agents_ledger.store.text import in_batches

Outcome = Literal["imported", "upserted", "skipped"]
BATCH_BYTES = 5 << 20  # of content a transaction: others wait no longer than that takes
BATCH_TURNS = 200
BATCH = 50  # derivations
TURNS_AT_ONCE = 1000
FEW = 10_000  # names of records that are held


class Written(Struct):
    """What a projection did, as far as it is committed: another may be quicker."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by label
    turns: int = 0  # new or rewritten
    gone: int = 0  # turns that are none any more
    titled: list[SourceTitle] = field(default_factory=list)  # of other files, not so called before


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
        tree = Tree(derivation)
        written, stale = Written(), set[str]()
        batch: list[Change] = []
        before = [partial(_ensure_sessions, source=source, derived=derivation.sessions)]
        is_gone = partial(_is_gone, files=files, part=derivation.part, tree=tree)
        again = any(file.derived_bytes >= 0 for file in files)
        for more in _batches(self._changes(derivation.turns, stale, tree, is_gone, again)):
            if batch:  # what is small is one commit with all that is said of it
                self.flush()
                self._commit([_Part(before, batch)])
                before = []
            batch = more
            written.turns += len(batch)
        after: list[Work[None]] = [
            partial(
                _finish,
                source=source,
                version=version,
                files=files,
                derivation=derivation,
                tree=tree,
                fingerprints=tree.fingerprints(),
                written=written,
                stale=stale,
            )
        ]
        if derivation.titles:
            after.append(partial(note_titles, titles=derivation.titles, titled=written.titled))
        part = _Part(before, batch, after)
        self._asked.append(_Asked(part, written, done))
        self._turns += len(batch)
        self._bytes += sum(file.kept_bytes for file in files)
        if self._turns >= BATCH_TURNS or self._bytes > BATCH_BYTES or len(self._asked) >= BATCH:
            self.flush()
        else:
            self._note(names, batch)

    def _changes(
        self,
        derived: Iterable[DerivedTurn],
        stale: set[str],
        tree: Tree,
        is_gone: Callable[[Transaction, str], bool],
        again: bool,
    ) -> Iterator[Change]:
        """The turns that are new or have changed, with their content; frozen ones become stale."""
        more = iter(derived)
        while turns := list(islice(more, TURNS_AT_ONCE)):
            ids = [turn.id for turn in turns]
            known = self._core.db.read(partial(known_now, turn_ids=ids))
            for turn in turns:
                stored = known.get(turn.id)
                if is_due(turn, stored):
                    yield Change(turn, turn.build(), stored, tree.owner(turn.id), is_gone, again)
                elif stored is not None and _has_more(turn, stored):
                    stale.add(turn.id)

    def _note(self, names: Names, batch: Sequence[Change]) -> None:
        self._names.update(names.records(), names.sessions, names.parents)
        for change in batch:
            self._names.update(message.id for message in change.turn.messages)
            for call in change.turn.tool_calls:
                self._names.add(call.spawned_session_label or "")

    def concerns(self, names: Names) -> bool:
        """Whether what waits may be of the trees that have these names, or of their kin: it has to
        be committed before anybody can tell."""
        return bool(self._names) and not self._names.isdisjoint(names.of_trees())

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

    # -- files of the same trees --------------------------------------------------------------

    def files_sharing(self, names: Names) -> set[int]:
        """The files that hold any of these records or sessions: they are of the same trees, or
        copies of one file each of which has lost something else."""
        return self._file_ids("source_files_of_records", names.records()) | self._file_ids(
            "files_of_sessions", names.sessions
        )

    def files_of_kin(self, names: Names) -> set[int]:
        """The files of the parents and children of these sessions."""
        return (
            self._file_ids("files_of_children", names.sessions)
            | self._file_ids("files_of_spawners", names.sessions)
            | self._file_ids("files_of_parents", names.parents)
        )

    def _file_ids(self, statement: str, keys: Iterable[str]) -> set[int]:
        def work(tx: Transaction, ids: str) -> list[Row]:
            return tx.run(statement, ids=ids)

        batches = in_batches(keys)
        return {row[0] for ids in batches for row in self._core.db.read(partial(work, ids=ids))}


class Names:
    """What others would name to be of the same trees as a derivation."""

    def __init__(self, derivation: Derivation) -> None:
        derived = derivation.sessions
        self._turns = derivation.turns
        self.sessions = [name for each in derived for name in (each.label, *each.aliases)]
        self.parents = [each.parent_label for each in derived if each.parent_label is not None]
        self.with_kin = derivation.with_kin
        few = list(islice(self._records(), FEW + 1))
        self._few = few if len(few) <= FEW else None

    def records(self) -> Iterator[str]:
        """Its records; where they are many, made anew whenever they are gone through."""
        return self._records() if self._few is None else iter(self._few)

    def _records(self) -> Iterator[str]:
        return (
            as_id(each)
            for turn in self._turns
            for each in chain(turn.record_ids, turn.repeated_ids)
        )

    def of_trees(self) -> Iterator[str]:
        """Records, sessions, and parents of kin."""
        return chain(self.records(), self.sessions, self.parents if self.with_kin else ())


def _with_ids(derivation: Derivation) -> Derivation:
    """The same, where what a source calls a turn cannot be an id: under one that can."""
    if all(is_id(turn.id) for turn in derivation.turns):
        return derivation
    return structs.replace(
        derivation,
        turns=_Renamed(derivation.turns),
        sessions=tuple(
            structs.replace(
                each, head=_as_id(each.head), parent_turn_id=_as_id(each.parent_turn_id)
            )
            for each in derivation.sessions
        ),
    )


class _Renamed:
    """The same turns, under ids that can be some."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[DerivedTurn]:
        for turn in self._turns:
            yield structs.replace(turn, id=as_id(turn.id), parent_id=_as_id(turn.parent_id))


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
    index_queue.written(tx, new)


def _outcome(before: str | None, now: str) -> Outcome:
    if before is None:
        return "imported"
    return "skipped" if before == now else "upserted"


# -- what changed -----------------------------------------------------------------------------


def _has_more(turn: DerivedTurn, stored: Known) -> bool:
    return stored.frozen and stored.fingerprint != turn.fingerprint


def _batches(changes: Iterable[Change]) -> Iterator[list[Change]]:
    """Changes that are committed together. A turn that has lost its answer, and the turns below it
    that have it now, are in one commit: else somebody could go on from a turn that lacks it."""
    batch: list[Change] = []
    size = 0
    is_whole = True
    for change in changes:
        batch.append(change)
        is_whole = is_whole and change.lost_answer is None
        for steps in (change.turn.messages, change.turn.tool_calls):
            size += sum(ROW_BYTES + step.letters for step in steps)
        if is_whole and (size > BATCH_BYTES or len(batch) >= BATCH_TURNS):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


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


def _finish(
    tx: Transaction,
    source: str,
    version: int,
    files: Sequence[SourceFile],
    *,
    derivation: Derivation,
    tree: Tree,
    fingerprints: dict[str, str],
    written: Written,
    stale: set[str],
) -> None:
    """What is said of the sessions, their heads, and that the files are derived."""
    heads = _settled(tx, derivation, tree)
    for session in derivation.sessions:
        settled = structs.replace(session, head=heads[session.label])
        before = _follow(tx, source, settled, fingerprints[session.label])
        written.outcomes[session.label] = _outcome(before, fingerprints[session.label])
        if stale:
            tx.run("mark_source_has_more", label=session.label)
    hang_subagents(tx, derivation, tree)
    if derivation.part is None:
        lead_on(tx, files, derivation)
    written.gone = _note_sources(tx, files, derivation.part, tree)
    for file in files:
        tx.run(
            "mark_derived",
            id=file.id,
            derived_bytes=file.kept_bytes,
            derived_version=SUPERSEDED if file.id in derivation.superseded else version,
        )
    _note_faults(tx, files, derivation)


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


def _note_sources(
    tx: Transaction, files: Sequence[SourceFile], part: Part | None, tree: Tree
) -> int:
    """Which turns each file is part of, also where it told nothing new of them. Returns how many
    are none any more."""
    gone: set[str] = set()
    told = tree.by_file()
    is_new = bytearray(len(tree))
    for file in files:
        for number in told.get(file.id, ()):
            is_new[number] = 1
        for turn_id in _turns_of(tx, file.id):
            number = tree.ids.get(turn_id)
            if number >= 0:
                is_new[number] = 0
            elif _is_lost(turn_id, file.id, part):
                gone.add(turn_id)
        new = (TurnSource(tree.ids.name(n), file.id) for n in told.get(file.id, ()) if is_new[n])
        while some := list(islice(new, TURNS_AT_ONCE)):
            tx.run_many("insert_turn_source", some)
        for number in told.get(file.id, ()):
            is_new[number] = 0
    _note_repeated(tx, tree)
    return retire(tx, gone)


def _note_repeated(tx: Transaction, tree: Tree) -> None:
    more = tree.repeated()
    while some := dict(islice(more, TURNS_AT_ONCE)):
        known = {row for ids in in_batches(some) for row in tx.run("repeated_records", ids=ids)}
        new = [Repeated(*each) for each in some.items() if each not in known]
        tx.run_many("upsert_repeated_record", new)


def _is_lost(turn_id: str, file_id: int, part: Part | None) -> bool:
    """Whether a turn that is not told any more comes from what was read of a file."""
    if part is None or file_id in part.files:
        return True
    return file_id in part.rows and not part.is_rest(turn_id)


def _is_gone(
    tx: Transaction, turn_id: str, *, files: Sequence[SourceFile], part: Part | None, tree: Tree
) -> bool:
    """Whether a stored turn is told no more by the files it comes from, so that it is retired when
    all is written."""
    if tree.ids.get(turn_id) >= 0:
        return False
    known = known_now(tx, [turn_id])[turn_id]
    told_by = {row[0] for row in tx.run("files_of_turn", turn_id=turn_id)}
    read = [file.id for file in files if file.id in told_by]
    lost = any(_is_lost(turn_id, file_id, part) for file_id in read)
    return lost and known.projected and not known.frozen


def _turns_of(tx: Transaction, file_id: int) -> Iterator[str]:
    """The turns that a file is part of, some at a time."""
    after = ""
    while rows := tx.run("turns_of_file", file_id=file_id, after=after, limit=TURNS_AT_ONCE):
        yield from (row[0] for row in rows)
        if len(rows) < TURNS_AT_ONCE:
            return
        after = rows[-1][0]


def _settled(tx: Transaction, derivation: Derivation, tree: Tree) -> dict[str, str | None]:
    """The head of each session by its label: a turn that was answered, or the nearest above it."""
    heads = {session.label: session.head for session in derivation.sessions}
    asked = {head for head in heads.values() if head is not None}
    while asked:
        pending: set[str] = set()
        for ids in in_batches(sorted(asked)):
            pending |= {row[0] for row in tx.run("pending_turns", ids=ids)}
        for label, head in heads.items():
            if head in pending:
                heads[label] = tree.parent(head)
        asked = {tree.parent(turn_id) or "" for turn_id in pending} - {""}
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
    name(tx, session)
    for file_id in sorted(session.file_ids):
        tx.run("insert_session_source", label=label, file_id=file_id)
    follow(tx, session, put_by_us)
    hang_on_parent(tx, session)
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


def follow(tx: Transaction, session: DerivedSession, put_by_us: str | None) -> None:
    """Move the head where the import put it; one that somebody moved stays, and a session beside
    it follows the source."""
    pointer = sessions.existing(tx, session.label, exact=True)
    if pointer.thread_id == session.head:
        tx.run("session_grew", label=session.label, at=session.updated_at)
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
