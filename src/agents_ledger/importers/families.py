"""Which files are derived together: those of a family, and families with what they go on from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from agents_ledger.importers.reader import Material, Reader
from agents_ledger.ledger.sources import Sources
from agents_ledger.model.sources import SUPERSEDED, DerivedTurn, SourceFile


def files_of(sources: Sources, reader: Reader, family: str, *, again: bool) -> list[SourceFile]:
    """The files of a family to derive from. `again`: also those that later states say all of."""
    files = sources.files_of_family(family)
    known = {file.derived_version for file in files} <= {reader.version, SUPERSEDED, 0}
    if again or not known:
        return list(files)
    return [file for file in files if file.derived_version != SUPERSEDED]


def in_order(files: Iterable[SourceFile]) -> list[SourceFile]:
    """The order in which a reader is given files."""
    return sorted(files, key=lambda file: (file.path, file.generation))


def material(sources: Sources, files: Sequence[SourceFile], version: int) -> Material:
    """Files for a reader to derive from, with what others call their sessions."""
    return Material(sources, files, version, sources.titles_of)


def groups(families: Iterable[str], copies: Mapping[str, str]) -> dict[str, list[str]]:
    """Families by the one they go back to, in order. `copies` go on from the families they are
    given with, and most likely share turns with them."""
    found: dict[str, list[str]] = {}
    for family in families:
        found.setdefault(first(family, copies), []).append(family)
    return found


def first(family: str, copies: Mapping[str, str]) -> str:
    """The family that one goes back to."""
    met: list[str] = []
    while family in copies:
        if family in met:  # each goes on from another: any of them stands for all
            return min(met[met.index(family) :])
        met.append(family)
        family = copies[family]
    return family


class Apart(Exception):
    """Families that were taken for copies share no turns."""


def check_shared(
    families: Sequence[str], turns: Iterable[DerivedTurn], files: Mapping[int, SourceFile]
) -> None:
    """Raise Apart unless turns that stand in files of several families connect all of these."""
    if len(families) == 1:
        return
    apart = {frozenset(files[file_id].family for file_id in turn.file_ids) for turn in turns}
    connected: set[str] = set()
    more = {families[0]}
    while more > connected:
        connected = more
        more = connected.union(*(each for each in apart if not each.isdisjoint(connected)))
    if not connected.issuperset(families):
        raise Apart(*families)
