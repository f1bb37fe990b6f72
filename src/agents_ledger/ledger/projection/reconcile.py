"""Imported turns are a projection of source records: derived again, they are updated in place.

Any order of files, any number of steps and any retry end in the same turns. A turn that one of ours
continues is frozen; what its source adds later goes into turns and sessions next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from typing import Literal, NamedTuple

from msgspec import Struct, field, structs

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection.sessions import (
    archive_renamed,
    follow_source,
    import_key,
    link_subagents,
    note_titles,
)
from agents_ledger.ledger.projection.tree import DerivedTree, RepeatedRecord
from agents_ledger.ledger.projection.turns import (
    ROW_BYTES,
    Change,
    TurnSource,
    is_due,
    retire,
    stored_turns,
    write_batch,
)
from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.sessions import heads, names
from agents_ledger.model.errors import StoreUnavailable
from agents_ledger.model.ids import as_id, is_id
from agents_ledger.model.imports.sources import (
    SUPERSEDED,
    Derivation,
    DerivedTurn,
    Part,
    SourceFile,
    SourceTitle,
    Turns,
)
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.model.sessions import Session
from agents_ledger.store.database import Database, Row, Transaction
from agents_ledger.store.text import in_batches

Outcome = Literal["imported", "upserted", "skipped"]


class _CommitPart(NamedTuple):
    plan: ProjectionPlan
    changes: Sequence[Change]
    is_first: bool = True  # its sessions are created before its turns
    is_last: bool = True


class _PendingDerivation(NamedTuple):
    part: _CommitPart
    done: Callable[[ProjectionResult | Exception], None]


class Projector:
    """Brings the rows of the ledger to what derivations say. Small derivations share a commit."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._clear()

    def _clear(self) -> None:
        self._pending: list[_PendingDerivation] = []
        self._turns = self._bytes = 0
        # Records and sessions of the pending derivations.
        self._names: set[str] = set()

    def add(
        self,
        source: str,
        version: int,
        files: Sequence[SourceFile],
        derivation: Derivation,
        *,
        names: Names,
        done: Callable[[ProjectionResult | Exception], None],
    ) -> None:
        """Write what was derived from `files`, now or together with later derivations.

        `names` are those of the derivation; `done` is called with the result once it is committed.
        """
        self._core.recover_if_due()
        plan = ProjectionPlan(source, version, files, derivation, self._core.db.limits)
        batch: list[Change] = []
        is_first = True
        limits = self._core.db.limits
        for more in _batches(plan.changes(self._core.db), limits):
            # The last batch is committed together with the heads and notes, so each batch waits for
            # the next.
            if batch:
                self.flush()
                self._commit([_CommitPart(plan, batch, is_first, is_last=False)])
                is_first = False
            batch = more
            plan.result.turns += len(batch)
        self._pending.append(_PendingDerivation(_CommitPart(plan, batch, is_first), done))
        self._turns += len(batch)
        self._bytes += sum(file.kept_bytes for file in files)
        if (
            self._turns >= limits.batch_turns
            or self._bytes > limits.batch_bytes
            or len(self._pending) >= limits.batch_derivations
        ):
            self.flush()
        else:
            self._note(names, batch)

    def names_of(self, derivation: Derivation) -> Names:
        derived = Names(derivation, self._core.db.limits)
        labels = [*derived.sessions, *derived.parents]
        renamed = self._core.db.read(partial(names.current_labels, labels=labels))
        derived.sessions += [renamed[label] for label in derived.sessions if label in renamed]
        derived.parents += [renamed[label] for label in derived.parents if label in renamed]
        return derived

    def _note(self, names: Names, batch: Sequence[Change]) -> None:
        self._names.update(names.records(), names.sessions, names.parents)
        for change in batch:
            self._names.update(message.id for message in change.turn.messages)
            for call in change.turn.tool_calls:
                self._names.add(call.spawned_session_label or "")

    def concerns(self, names: Names) -> bool:
        """Whether pending derivations may belong to the trees that have these names, or to their
        kin: then they have to be committed before that can be decided."""
        return bool(self._names) and not self._names.isdisjoint(names.of_trees())

    def flush(self) -> None:
        """Commit the pending derivations: all together or, if that fails, one by one."""
        pending = self._pending
        self._clear()
        if not pending:
            return
        try:
            self._commit([derivation.part for derivation in pending])
        except StoreUnavailable:
            raise
        except Exception as error:
            # A derivation that runs into a bug must not take the others with it.
            if len(pending) > 1:
                pending = [derivation for derivation in pending if self._is_committed(derivation)]
            else:
                pending.pop().done(error)
        for derivation in pending:
            derivation.done(derivation.part.plan.result)

    def _is_committed(self, derivation: _PendingDerivation) -> bool:
        try:
            self._commit([derivation.part])
        except StoreUnavailable:
            raise
        except Exception as error:  # reported, not raised: it is one of many
            derivation.done(error)
            return False
        return True

    def _commit(self, parts: Sequence[_CommitPart]) -> None:
        self._core.db.write(partial(_write_parts, parts=parts))
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
    """The records and sessions that relate a derivation to others of the same trees."""

    def __init__(self, derivation: Derivation, limits: LedgerLimits = LIMITS) -> None:
        sessions = derivation.sessions
        self._turns = derivation.turns
        self.sessions = [name for session in sessions for name in (session.label, *session.aliases)]
        self.parents = [s.parent_label for s in sessions if s.parent_label is not None]
        self.with_kin = derivation.with_kin
        few = list(islice(self._records(), limits.held_record_ids + 1))
        self._few = few if len(few) <= limits.held_record_ids else None

    def records(self) -> Iterator[str]:
        """Its records; if they are many, derived anew for each iteration."""
        return self._records() if self._few is None else iter(self._few)

    def _records(self) -> Iterator[str]:
        return (
            as_id(record_id)
            for turn in self._turns
            for record_id in chain(turn.record_ids, turn.repeated_ids)
        )

    def of_trees(self) -> Iterator[str]:
        return chain(self.records(), self.sessions, self.parents if self.with_kin else ())


def _write_parts(tx: Transaction, parts: Sequence[_CommitPart]) -> None:
    """Write parts of derivations that share no turns: the turns of all of them, table by table."""
    # On a server two imports may derive the same tree: one at a time decides where its turns go.
    tx.run("lock_projection")
    for part in parts:
        if part.is_first:
            # All sessions before any turn: a call may name a session of a later part.
            part.plan.ensure_sessions(tx)
    new = write_batch(tx, [change for part in parts for change in part.changes])
    for part in parts:
        if part.is_last:
            part.plan.finish(tx)
    index_queue.written(tx, new)


def _batches(changes: Iterable[Change], limits: LedgerLimits) -> Iterator[list[Change]]:
    """Changes that are committed together.

    A turn that lost its answer and the descendants that have it now are in one commit: otherwise
    somebody could continue from a turn that lacks it.
    """
    batch: list[Change] = []
    size = 0
    is_whole = True
    for change in changes:
        batch.append(change)
        is_whole = is_whole and change.lost_answer is None
        for steps in (change.turn.messages, change.turn.tool_calls):
            size += sum(ROW_BYTES + step.letters for step in steps)
        if is_whole and (size > limits.batch_bytes or len(batch) >= limits.batch_turns):
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


# -- one derivation ---------------------------------------------------------------------------


class ProjectionResult(Struct):
    """What was committed of a derivation; another import may have committed the rest before."""

    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by label
    turns: int = 0  # new or rewritten
    gone: int = 0  # retired: their records belong to other turns now
    titled: list[SourceTitle] = field(default_factory=list)  # new titles for other files' sessions


class _RecordPosition(NamedTuple):
    file_id: int
    position: int


class ProjectionPlan:
    """What one derivation changes: its sessions, its turns, their heads, and notes on its files."""

    def __init__(
        self,
        source: str,
        version: int,
        files: Sequence[SourceFile],
        derivation: Derivation,
        limits: LedgerLimits,
    ) -> None:
        self.files = files
        self.result = ProjectionResult()
        self._source = source
        self._version = version
        self._derivation = _with_valid_ids(derivation)
        self._part = derivation.part
        self._tree = DerivedTree(self._derivation, limits.held_names)
        self._fingerprints = self._tree.fingerprints()
        self._has_stale_turns = False
        self._rederives = any(file.derived_bytes >= 0 for file in files)

    def changes(self, db: Database) -> Iterator[Change]:
        """The turns that are new or have changed, with their content."""
        derived = iter(self._derivation.turns)
        while turns := list(islice(derived, db.limits.derived_turns)):
            ids = [turn.id for turn in turns]
            stored = db.read(partial(stored_turns, turn_ids=ids))
            for turn in turns:
                before = stored.get(turn.id)
                if is_due(turn, before):
                    yield Change(
                        turn,
                        turn.build(),
                        before,
                        self._tree.owner(turn.id),
                        self._is_gone,
                        self._rederives,
                    )
                elif before is not None and before.frozen:
                    self._has_stale_turns |= before.fingerprint != turn.fingerprint

    def ensure_sessions(self, tx: Transaction) -> None:
        """Create the sessions, still empty, so that calls can name them."""
        renamed = self._renamed(tx)
        for session in self._derivation.sessions:
            if session.label in renamed:
                continue
            pointer = heads.find(tx, session.label, exact=True)
            if pointer is not None and pointer.status == "archived":
                names.come_back(tx, session.label)
            elif pointer is None:
                new = Session(
                    session.label,
                    persona_id=session.persona_id,
                    created_as="subagent" if session.is_subagent else "import",
                    is_subagent=session.is_subagent,
                    origin=session.origin or session.source or self._source,
                    origin_session_id=session.session_id,
                    created_at=session.created_at,
                )
                heads.create(tx, new)

    def _renamed(self, tx: Transaction) -> dict[str, str]:
        """Labels of these sessions and their parents that were renamed, with those of today."""
        sessions = self._derivation.sessions
        labels = [label for s in sessions for label in (s.label, s.parent_label) if label]
        renamed = names.current_labels(tx, labels)
        for session in sessions:
            if session.label in renamed:
                # Not where its name leads: it may have been merged since.
                imported = tx.run("session_import", **import_key(self._source, session))
                renamed[session.label] = imported[0][1] if imported else session.label
        return renamed

    def finish(self, tx: Transaction) -> None:
        """Move the heads, and note what the files held and that they are derived."""
        head_of = self._answered_heads(tx)
        renamed = self._renamed(tx)
        settled = []
        for session in self._derivation.sessions:
            fingerprint = self._fingerprints[session.label]
            label = renamed.get(session.label, session.label)
            parent = renamed.get(session.parent_label or "", session.parent_label)
            head = head_of[session.label]
            settled.append(structs.replace(session, label=label, parent_label=parent, head=head))
            before = follow_source(tx, self._source, settled[-1], fingerprint)
            self.result.outcomes[label] = _outcome(before, fingerprint)
            if self._has_stale_turns:
                tx.run("mark_source_has_more", label=label)
        derivation = structs.replace(self._derivation, sessions=tuple(settled))
        link_subagents(tx, derivation, self._tree, renamed)
        if self._part is None:
            archive_renamed(tx, self.files, derivation)
        gone = self._note_turn_sources(tx)
        self._note_repeated_records(tx)
        # Last: a retired turn is replaced by the turn that now repeats its records.
        self.result.gone = retire(tx, gone)
        for file in self.files:
            superseded = file.id in self._derivation.superseded
            tx.run(
                "mark_derived",
                id=file.id,
                derived_bytes=file.kept_bytes,
                derived_version=SUPERSEDED if superseded else self._version,
            )
        self._note_faults(tx)
        if self._derivation.titles:
            note_titles(tx, self._derivation.titles, self.result.titled)

    def _answered_heads(self, tx: Transaction) -> dict[str, str | None]:
        """The head of each session by its label: an answered turn, or its nearest answered
        ancestor."""
        head_of = {session.label: session.head for session in self._derivation.sessions}
        unchecked = {head for head in head_of.values() if head is not None}
        while unchecked:
            pending: set[str] = set()
            for ids in in_batches(sorted(unchecked)):
                pending |= {row[0] for row in tx.run("pending_turns", ids=ids)}
            for label, head in head_of.items():
                if head in pending:
                    head_of[label] = self._tree.parent(head)
            unchecked = {self._tree.parent(turn_id) or "" for turn_id in pending} - {""}
        return head_of

    # -- which turns each file is part of ------------------------------------------------------

    def _note_turn_sources(self, tx: Transaction) -> set[str]:
        """Note the turns of each file, also those it adds nothing to. Returns the turns that these
        files no longer contain."""
        tree = self._tree
        gone: set[str] = set()
        turns_of = tree.by_file()
        is_new = bytearray(len(tree))
        for file in self.files:
            own = turns_of.get(file.id, ())
            for number in own:
                is_new[number] = 1
            for turn_id in _noted_turns(tx, file.id):
                number = tree.ids.get(turn_id)
                if number >= 0:
                    is_new[number] = 0
                elif _is_lost(turn_id, file.id, self._part):
                    gone.add(turn_id)
            new = (TurnSource(tree.ids.name(number), file.id) for number in own if is_new[number])
            while batch := list(islice(new, tx.limits.derived_turns)):
                tx.run_many("insert_turn_source", batch)
            for number in own:
                is_new[number] = 0
        return gone

    def _note_repeated_records(self, tx: Transaction) -> None:
        repeated = self._tree.repeated()
        while batch := dict(islice(repeated, tx.limits.derived_turns)):
            noted = {
                row for ids in in_batches(batch) for row in tx.run("repeated_records", ids=ids)
            }
            new = [RepeatedRecord(*pair) for pair in batch.items() if pair not in noted]
            tx.run_many("upsert_repeated_record", new)

    def _note_faults(self, tx: Transaction) -> None:
        by_path = {file.path: file.id for file in self.files}
        for file_id in by_path.values():
            if self._part is None or file_id in self._part.files:
                tx.run("delete_faults", file_id=file_id)
            else:
                offsets = self._part.rows.get(file_id, ())
                positions = [_RecordPosition(file_id, offset) for offset in offsets]
                tx.run_many("delete_faults_at", positions)
        for fault in self._derivation.faults:
            if fault.path in by_path:
                tx.run(
                    "insert_fault",
                    file_id=by_path[fault.path],
                    position=fault.offset,
                    line=fault.line,
                    what=fault.what,
                )

    def _is_gone(self, tx: Transaction, turn_id: str) -> bool:
        """Whether finish() will retire a stored turn: the files it comes from hold it no more."""
        if self._tree.ids.get(turn_id) >= 0:
            return False
        stored = stored_turns(tx, [turn_id])[turn_id]
        file_ids = {row[0] for row in tx.run("files_of_turn", turn_id=turn_id)}
        read = [file.id for file in self.files if file.id in file_ids]
        is_lost = any(_is_lost(turn_id, file_id, self._part) for file_id in read)
        return is_lost and stored.projected and not stored.frozen


def _outcome(before: str | None, now: str) -> Outcome:
    if before is None:
        return "imported"
    return "skipped" if before == now else "upserted"


def _is_lost(turn_id: str, file_id: int, part: Part | None) -> bool:
    """Whether a turn that is no longer derived came from what was read of a file."""
    if part is None or file_id in part.files:
        return True
    return file_id in part.rows and not part.is_rest(turn_id)


def _noted_turns(tx: Transaction, file_id: int) -> Iterator[str]:
    """The ids of the turns noted for a file, a page at a time."""
    after, limit = "", tx.limits.derived_turns
    while rows := tx.run("turns_of_file", file_id=file_id, after=after, limit=limit):
        yield from (row[0] for row in rows)
        if len(rows) < limit:
            return
        after = rows[-1][0]


# -- ids --------------------------------------------------------------------------------------


def _with_valid_ids(derivation: Derivation) -> Derivation:
    """The derivation with ids that the ledger accepts, where a source's are not valid."""
    if all(is_id(turn.id) for turn in derivation.turns):
        return derivation
    return structs.replace(
        derivation,
        turns=_ValidIdTurns(derivation.turns),
        sessions=tuple(
            structs.replace(
                session,
                head=_valid_id(session.head),
                parent_turn_id=_valid_id(session.parent_turn_id),
            )
            for session in derivation.sessions
        ),
    )


class _ValidIdTurns:
    """Turns whose ids are made valid while they are iterated: there may be a million."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns

    def __len__(self) -> int:
        return len(self._turns)

    def __iter__(self) -> Iterator[DerivedTurn]:
        for turn in self._turns:
            yield structs.replace(turn, id=as_id(turn.id), parent_id=_valid_id(turn.parent_id))


def _valid_id(turn_id: str | None) -> str | None:
    return as_id(turn_id) if turn_id is not None else None
