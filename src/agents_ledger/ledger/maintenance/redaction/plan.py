"""What a selection would remove, computed on one snapshot; nothing is written."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import NamedTuple

from agents_ledger.ledger.maintenance.redaction import rows
from agents_ledger.ledger.maintenance.redaction.archived_files import (
    FileContent,
    FileEdits,
    Kept,
    content_edits_of,
    edits_of,
)
from agents_ledger.ledger.maintenance.redaction.finders import any_of, finder_of
from agents_ledger.ledger.maintenance.redaction.record_contents import CONTENT, Part
from agents_ledger.ledger.maintenance.redaction.rows import TextChange
from agents_ledger.ledger.maintenance.redaction.scope import (
    Scope,
    files_of,
    scope_of,
    scope_of_sessions,
)
from agents_ledger.ledger.projection.archive_reader import ArchiveReader, TurnRecords
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.reports.redaction import RedactedPlace, RedactionPreview, Selection
from agents_ledger.model.secrets.detection import masked_secret
from agents_ledger.model.secrets.known_values import of_values
from agents_ledger.model.secrets.nested_json import Find
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Transaction, Work

# Content this long is recognised wherever it stands. Shorter content, such as "yes", is overwritten
# only in files that hold nothing but what is removed.
DISTINCT_MIN = 24
# Content that is as short may be said anywhere: it is kept out of the files it was removed from.
ANYWHERE_MIN = 40
Records = Mapping[int, TurnRecords]


class RedactionPlan(NamedTuple):
    """The texts and files that are about to change."""

    scope: Scope
    changes: tuple[TextChange, ...]
    files: dict[int, FileEdits]
    values: dict[str, str]  # what is removed, with its kind

    @property
    def turn_ids(self) -> set[str]:
        """The turns of the texts."""
        return {change.turn_id for change in self.changes if change.turn_id is not None}

    @property
    def partly(self) -> tuple[str, ...]:
        """The paths of files in which texts that no row has may be left."""
        return tuple(sorted(f.file.path for f in self.files.values() if f.is_partly))

    @property
    def families(self) -> tuple[tuple[str, str], ...]:
        """The families of the files, which are derived again; with their source."""
        return tuple(sorted({(f.file.family, f.file.source) for f in self.files.values()}))


class Wanted(NamedTuple):
    """What is to be removed: what a search finds in a scope, or all its content."""

    scope: Work[Scope]
    find: Find | None = None


def wanted(selection: Selection) -> Wanted:
    """What a selection means."""
    find = finder_of(selection) if selection.matches else None
    return Wanted(partial(scope_of, selection=selection), find)


def wanted_of_sessions(labels: Iterable[str]) -> Wanted:
    """The content of sessions, if others keep what they share with them."""
    return Wanted(partial(scope_of_sessions, labels=tuple(labels)))


class SharedFiles(NamedTuple):
    """The families of files that hold something of a scope and of other turns."""

    families: tuple[tuple[str, str], ...]  # with their source
    turn_ids: frozenset[str]


def shared_files(tx: Transaction, selected: Wanted) -> SharedFiles:
    """The files whose records have to be told apart, to remove what is wanted."""
    if selected.find is not None:
        return SharedFiles((), frozenset())
    scope = selected.scope(tx)
    reader = ArchiveReader(lambda work: work(tx))
    files = [reader.file_by_id(id_) for id_ in files_of(tx, scope) if id_ not in scope.file_ids]
    families = {(file.family, file.source) for file in files}
    return SharedFiles(tuple(sorted(families)), scope.turn_ids or frozenset())


def plan(tx: Transaction, selected: Wanted, records: Records | None) -> RedactionPlan:
    """What would be removed. `records` of the turns in files that others share; None: records are
    not removed with all that they say, only what rows have of them."""
    scope, find = selected.scope(tx), selected.find
    changes = list(rows.changes(tx, scope, find))
    values = _values(changes)
    reader = ArchiveReader(lambda work: work(tx))
    if find is None:
        files = _content_in_files(tx, reader, scope, values, records)
        texts = {value for file in files.values() for value in file.values}
        # What no row has is kept out of copies if it is unmistakable.
        values = dict.fromkeys((v for v in texts if len(v) >= ANYWHERE_MIN), CONTENT) | values
        return RedactionPlan(scope, tuple(changes), files, values)
    files = _matches_in_files(tx, reader, scope, find, values)
    # A name beside it may tell that it is a secret in one place, and not stand in another.
    unseen = {value for file in files.values() for value in file.values} - values.keys()
    if unseen:
        changes = _joined([*changes, *rows.changes(tx, scope, of_values(unseen))])
        values |= dict.fromkeys(unseen, CONTENT)
    return RedactionPlan(scope, tuple(changes), files, values)


def _values(changes: Iterable[TextChange]) -> dict[str, str]:
    return {span.value: span.kind for change in changes for span in change.spans}


def _matches_in_files(
    tx: Transaction, reader: ArchiveReader, scope: Scope, find: Find, values: dict[str, str]
) -> dict[int, FileEdits]:
    known = of_values(values)
    changed = {}
    for file_id in files_of(tx, scope):
        # A file that others share is searched only for what was found in the rows of the scope.
        is_own = scope.turn_ids is None or file_id in scope.file_ids
        searched = any_of(find, known) if is_own else known
        edits = edits_of(reader, reader.file_by_id(file_id), searched)
        if edits.edits:
            changed[file_id] = edits
    return changed


def _content_in_files(
    tx: Transaction,
    reader: ArchiveReader,
    scope: Scope,
    values: dict[str, str],
    records: Records | None,
) -> dict[int, FileEdits]:
    everywhere = of_values(value for value in values if len(value) >= DISTINCT_MIN)
    in_own_files = of_values(values)
    part = _part(tx, scope, values)
    changed = {}
    for file_id in files_of(tx, scope):
        file, kept = reader.file_by_id(file_id), Kept(_ids(tx, file_id))
        is_own = file_id in scope.file_ids
        searched = in_own_files if is_own else everywhere
        if records is None:
            edits = edits_of(reader, file, searched, kept)._replace(is_partly=True)
        else:
            known = records.get(file_id)
            # What was imported meanwhile makes another plan, which is not carried out.
            if known is not None and known.kept_bytes != file.kept_bytes:
                known = None
            content = FileContent(searched, kept, is_own, known, part)
            edits = content_edits_of(reader, file, content)
        if edits.edits:
            changed[file_id] = edits
    return changed


def _part(tx: Transaction, scope: Scope, values: Mapping[str, str]) -> Part | None:
    """The message or call that a scope is about, and what the rest of its turn says."""
    id_ = scope.message_id or scope.call_id
    if id_ is None:
        return None
    turn = rows.changes(tx, Scope(scope.turn_ids), None)
    others = {span.value for change in turn for span in change.spans} - values.keys()
    return Part(id_, frozenset(values), "\0".join(sorted(others)))


def _ids(tx: Transaction, file_id: int) -> frozenset[str]:
    """Ids in a file, and values that are facts about its turns: they are the skeleton."""
    ids = {str(value) for row in tx.run("ids_of_file", file_id=file_id) for value in row if value}
    return frozenset(ids | {value.rpartition(":")[2] for value in ids})


def _joined(changes: Iterable[TextChange]) -> list[TextChange]:
    """The changes of a text as one."""
    by_place: dict[tuple[object, ...], TextChange] = {}
    for change in changes:
        place = change.table.name, change.key, change.column
        other = by_place.get(place)
        spans = change.spans if other is None else tuple({*other.spans, *change.spans})
        by_place[place] = change._replace(spans=spans)
    return list(by_place.values())


def preview(tx: Transaction, selected: Wanted, records: Records | None = None) -> RedactionPreview:
    """What would be removed, for people. No value is shown whole."""
    planned = plan(tx, selected, records)
    holder_of = holders(tx, sorted(planned.turn_ids))
    places = [_place(change, holder_of) for change in planned.changes]
    sessions = {place.session_label for place in places if place.session_label is not None}
    return RedactionPreview(
        tuple(places),
        len(planned.turn_ids),
        tuple(sorted(sessions)),
        tuple(file.file.path for file in planned.files.values()),
        sum(len(file.edits) for file in planned.files.values()),
    )


def _place(change: TextChange, holder_of: object) -> RedactedPlace:
    first = change.spans[0]
    label = change.session_label
    if change.turn_id is not None:
        label = holder_of[change.turn_id].label  # type: ignore[index]
    return RedactedPlace(
        change.table.name,
        change.column,
        to_json(list(change.key)),
        change.turn_id,
        label,
        first.kind,
        masked_secret(first.value, first.kind),
        len(change.spans),
    )
