"""Derives archived files again after some of their bytes were overwritten."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import structs

from agents_ledger.importers.kept_ids import Outline, renaming
from agents_ledger.importers.pipeline import Importer
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.archive_reader import Edit, RecordPlace, TurnRecords
from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.sources import Derivation, Renaming, SourceFile
from agents_ledger.model.turns import Turn


def derive_again(ledger: Ledger, families: Iterable[tuple[str, str]]) -> None:
    """Derive these families with all that share turns with them; each is named with its source."""
    importer = Importer(ledger)
    derived: set[str] = set()
    for family, name in families:
        source = SOURCES.get(name)
        if source is not None and family not in derived:
            derived |= importer.derive_safely(source, family, superseded=True)


def renamings(
    ledger: Ledger,
    families: Iterable[tuple[str, str]],
    edits: Mapping[int, Sequence[Edit]],
    *,
    compares_steps: bool,
) -> list[Renaming | None]:
    """What the ids of these families would stand for if their files were overwritten so; None for
    a family that would give another tree, or other kinds of steps in it if these are compared."""
    found: list[Renaming | None] = []
    outlined: set[str] = set()
    for family, name in families:
        source = SOURCES.get(name)
        if source is None or family in outlined:
            continue
        importer = Importer(ledger)
        files, before = importer.outline(source, family)
        steps = _steps(before) if compares_steps else []
        importer.sources.edits = edits
        _, after = importer.outline(source, family)
        outlined |= {file.family for file in files}
        is_same = not compares_steps or _steps(after) == steps
        found.append(renaming(Outline.of(before), Outline.of(after)) if is_same else None)
    return found


def _steps(derivation: Derivation) -> list[int]:
    """What kinds of messages and calls each turn has, as a hash."""
    return [hash(tuple(_kinds(turn.build()))) for turn in derivation.turns]


def _kinds(turn: Turn) -> Iterator[str]:
    for message in turn.messages:
        yield f"{message.role} of {message.source}"
    for call in turn.tool_calls:  # a status may be what the text of a result says
        yield call.tool_name


def records_of_turns(
    ledger: Ledger, families: Iterable[tuple[str, str]], turn_ids: frozenset[str]
) -> dict[int, TurnRecords]:
    """Which records some turns are made of, by the file they are in."""
    found: dict[int, TurnRecords] = {}
    for family, name in families:
        source = SOURCES.get(name)
        if source is None:
            continue
        # Nothing is held, so that every record is read when its turn is built.
        importer = Importer(ledger, limits=structs.replace(LIMITS, held_bytes=-1))
        files, derivation = importer.outline(source, family)
        own, others = _places_of_turns(importer, derivation, turn_ids)
        for file in files:
            found[file.id] = _of_file(file, own, others)
    return found


def _places_of_turns(
    importer: Importer, derivation: Derivation, turn_ids: frozenset[str]
) -> tuple[set[RecordPlace], set[RecordPlace]]:
    own: set[RecordPlace] = set()
    others: set[RecordPlace] = set()
    for turn in derivation.turns:
        importer.sources.places_read = own if as_id(turn.id) in turn_ids else others
        built = turn.build()
        for _ in (*built.messages, *built.tool_calls):  # those of a large turn are read only now
            pass
    importer.sources.places_read = None
    return own, others


def _of_file(file: SourceFile, own: set[RecordPlace], others: set[RecordPlace]) -> TurnRecords:
    return TurnRecords(
        file.kept_bytes,
        frozenset(place for place in own - others if place.file_id == file.id),
        frozenset(place for place in others if place.file_id == file.id),
    )
