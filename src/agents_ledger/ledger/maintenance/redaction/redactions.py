"""Removes values from a ledger for good, and keeps a record that it did."""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from functools import partial
from typing import Any, NamedTuple

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.evidence.forgetting import Forgetting
from agents_ledger.ledger.maintenance.redaction import archived_files, rows
from agents_ledger.ledger.maintenance.redaction import plan as planning
from agents_ledger.ledger.maintenance.redaction.archived_files import Span
from agents_ledger.ledger.maintenance.redaction.known import remember
from agents_ledger.ledger.maintenance.redaction.plan import Records, RedactionPlan, Wanted
from agents_ledger.ledger.projection.archive_reader import ArchiveReader, Edit
from agents_ledger.ledger.search import index, index_queue
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.imports.sources import Renaming
from agents_ledger.model.reports.redaction import Redaction, RedactionPreview, Selection
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Row, Transaction

HASH_BYTES = 32


class _Done(NamedTuple):
    redaction_id: str
    families: tuple[tuple[str, str], ...]  # with their source


class _Request(NamedTuple):
    core: Core
    wanted: Wanted
    described: dict[str, str]
    reason: str
    actor: str

    @property
    def is_match(self) -> bool:
        """Whether values are searched for; otherwise all content goes."""
        return self.wanted.find is not None


class _Prepared(NamedTuple):
    """What was computed before the transaction: it holds as long as the edits are these."""

    edits: dict[int, tuple[Edit, ...]]
    renamings: list[Renaming]
    records: Records | None
    keeps_tree: bool  # the overwritten records give the same turns with the same steps


class Redactions:
    """What was removed from a ledger, and the verb that removes."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def preview(self, selection: Selection) -> RedactionPreview:
        """What a selection would remove. No value is in it whole."""
        selection.check()
        wanted = planning.wanted(selection)
        prepared = self._prepared(wanted)
        return self._core.db.read(lambda tx: planning.preview(tx, wanted, prepared.records))

    def redact(self, selection: Selection, *, reason: str, actor: str) -> Redaction:
        """Remove what is selected, in one transaction, then from free pages and the log.

        NotFound if nothing matches. Backups and copies made before still have it.
        """
        selection.check()
        wanted = planning.wanted(selection)
        return self._remove(wanted, selection.described(), reason, actor)

    def redact_sessions(self, labels: Iterable[str], *, reason: str, actor: str) -> Redaction:
        """Remove the content of sessions; what others share with them stays."""
        among = sorted(labels)
        described = {"sessions": ", ".join(among)}
        return self._remove(planning.wanted_of_sessions(among), described, reason, actor)

    def _remove(
        self, wanted: Wanted, described: dict[str, str], reason: str, actor: str
    ) -> Redaction:
        if not reason.strip():
            raise Refused("a redaction needs a reason", "Say why, without the value itself.")
        self._core.recover_if_due()
        request = _Request(self._core, wanted, described, reason, actor)
        done = None
        while done is None:  # until no import changed the files in between
            done = self._core.db.write(
                partial(_redact, request=request, prepared=self._prepared(wanted))
            )
        self._core.forget_read()
        self._core.derive_again(done.families)
        self.finish()
        return self.find(done.redaction_id)

    def _prepared(self, wanted: Wanted) -> _Prepared:
        shared = self._core.db.read(partial(planning.shared_files, selected=wanted))
        records = self._core.records_of_turns(shared.families, shared.turn_ids)
        prepared = self._prepared_with(wanted, records)
        if wanted.find is not None or prepared.keeps_tree:
            return prepared
        # Something that the source reads structure from would go. If that stays where only what
        # rows have is removed, the records keep the rest.
        cautious = self._prepared_with(wanted, None)
        return cautious if cautious.keeps_tree else prepared

    def _prepared_with(self, wanted: Wanted, records: Records | None) -> _Prepared:
        planned = self._core.db.read(partial(planning.plan, selected=wanted, records=records))
        edits = {file_id: file.edits for file_id, file in planned.files.items()}
        renamings = self._core.renamings(
            planned.families, edits, compares_steps=wanted.find is None
        )
        known = [renaming for renaming in renamings if renaming is not None]
        return _Prepared(edits, known, records, keeps_tree=None not in renamings)

    def finish(self) -> bool:
        """Bring the index up to date, and clear free pages and the log of what was removed; False
        if another program reads what was there before."""
        due = [row[0] for row in self._core.db.read(lambda tx: tx.run("unscrubbed_redactions"))]
        if not due:
            return True
        index_queue.catch_up(self._core.db)
        if not self._core.db.scrub():
            return False
        self._core.db.write(lambda tx: tx.run("note_scrubbed", now=now_ms(), latest=max(due)))
        return True

    def find(self, redaction_id: str) -> Redaction:
        """One redaction, or NotFound."""
        for redaction in self.latest(limit=1 << 62):
            if redaction.id == redaction_id:
                return redaction
        raise NotFound(f"there is no redaction {redaction_id!r}")

    def latest(self, limit: int = 50) -> tuple[Redaction, ...]:
        """The latest redactions, the last first."""
        return self._core.db.read(
            lambda tx: tuple(_redaction(row) for row in tx.run("redactions", limit=limit))
        )

    def of_turn(self, turn_id: str) -> tuple[Redaction, ...]:
        """The redactions that removed something of a turn."""
        return self._core.db.read(
            lambda tx: tuple(
                _redaction(row) for row in tx.run("redactions_of_turn", turn_id=turn_id)
            )
        )


def _redaction(row: Row) -> Redaction:
    id, reason, actor, selection, started, finished, scrubbed, purges, *counts = row
    described = msgspec.json.decode(selection, type=dict[str, str])
    return Redaction(
        id, reason, actor, described, started, finished, scrubbed, bool(purges), *counts
    )


def _redact(tx: Transaction, request: _Request, prepared: _Prepared) -> _Done | None:
    tx.run("lock_projection")
    planned = planning.plan(tx, request.wanted, prepared.records)
    if {file_id: file.edits for file_id, file in planned.files.items()} != prepared.edits:
        return None
    if not planned.changes and not planned.files:
        raise NotFound("nothing in the ledger matches", "Check it with --dry-run.")
    described = request.described
    if planned.partly:
        described = described | {"partly": ", ".join(planned.partly)}
    if not prepared.keeps_tree and not request.is_match:
        described = described | {"changed": "steps of imported turns"}
    redaction_id = begin(tx, described, request.reason, request.actor)
    _apply(tx, planned, redaction_id, request)
    for renaming in prepared.renamings:
        _keep_ids(tx, renaming)
    finish(tx, redaction_id, planned)
    return _Done(redaction_id, planned.families)


def _keep_ids(tx: Transaction, renaming: Renaming) -> None:
    for derived_id, kept_id in sorted(renaming.ids.items()):
        tx.run("insert_redacted_id", derived_id=derived_id, id=kept_id)
    for turn_id, (before, after) in renaming.fingerprints.items():
        tx.run("follow_fingerprint", id=turn_id, before=before, after=after)


def begin(
    tx: Transaction, described: dict[str, Any], reason: str, actor: str, *, purges: bool = False
) -> str:
    """Open the door of the guards until finish(), in the same transaction."""
    redaction_id = new_id()
    tx.run(
        "insert_redaction",
        id=redaction_id,
        reason=reason,
        actor=actor,
        selection_json=to_json(described),
        now=now_ms(),
        purges=int(purges),
    )
    return redaction_id


def finish(tx: Transaction, redaction_id: str, planned: RedactionPlan) -> None:
    """Close the door again."""
    tx.run(
        "finish_redaction",
        id=redaction_id,
        now=now_ms(),
        places=sum(len(change.spans) for change in planned.changes),
        spans=sum(len(file.edits) for file in planned.files.values()),
        turns=len(planned.turn_ids),
    )


class _RedactedPlace(msgspec.Struct, frozen=True):
    redaction_id: str
    table_name: str
    row_key: str
    column_name: str
    turn_id: str | None


def _apply(tx: Transaction, planned: RedactionPlan, redaction_id: str, request: _Request) -> None:
    """Write what is planned."""
    sealed = [
        Forgetting(tx, "turn", turn_id)
        for turn_id in sorted(planned.turn_ids)
        if tx.run("is_native", id=turn_id)
    ]
    for change in planned.changes:
        rows.write(tx, change)
        if change.table.name == "queue":
            tx.run(
                "forget_queue_hash", position=change.key[0], hash=secrets.token_bytes(HASH_BYTES)
            )
    tx.run_many(
        "insert_redacted_place",
        [
            _RedactedPlace(
                redaction_id,
                change.table.name,
                to_json(list(change.key)),
                change.column,
                change.turn_id,
            )
            for change in planned.changes
        ],
    )
    for forgetting in sealed:
        forgetting.finish(reason=request.reason, at=now_ms())
    for turn_id in sorted(planned.turn_ids):
        tx.run("forget_request_hash", id=turn_id, hash=secrets.token_bytes(HASH_BYTES))
    _overwrite_files(tx, planned, redaction_id, request)
    remember(tx, planned, redaction_id, content=not request.is_match)
    _forget_what_was_made_of_it(tx, planned)


def _overwrite_files(
    tx: Transaction, planned: RedactionPlan, redaction_id: str, request: _Request
) -> None:
    reader = ArchiveReader(lambda work: work(tx))
    tails = {id_: archived_files.new_tail(reader, file) for id_, file in planned.files.items()}
    for new in archived_files.overwritten(tx, reader, planned.files):
        block = new.block
        subject, changes = f"{block.file_id}/{block.start}", new.before != new.after
        forgetting = Forgetting(tx, "source", subject, core=request.core) if changes else None
        tx.run("overwrite_block", file_id=block.file_id, start=block.start, data=block.data)
        if forgetting is not None:
            forgetting.finish(reason=request.reason, at=now_ms(), records=new.records)
    for file_id, file in planned.files.items():
        tx.run("note_overwritten", id=file_id, tail_hash=tails[file_id])
        tx.run_many(
            "insert_redacted_span",
            [Span(file_id, edit.start, len(edit.data), redaction_id) for edit in file.edits],
        )


def _forget_what_was_made_of_it(tx: Transaction, planned: RedactionPlan) -> None:
    """The word index and the vectors, and what sums up days."""
    if tx.engine == "sqlite":
        # The index has no text from which a word could be taken out: it is filled again.
        index.forget_all(tx)
    else:
        index.forget(tx, sorted(planned.turn_ids))
        index_queue.grown(tx, sorted(planned.turn_ids))
    for statement in ("forget_all_sums", "forget_all_usage_sums", "forget_all_tool_sums"):
        tx.run(statement)
