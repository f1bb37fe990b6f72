"""Which files are derived together: those of a family, and families with what they go on from."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from msgspec import structs

from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.source import Material, Reader
from agents_ledger.ledger.projection.reconcile import Names
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import SUPERSEDED, Derivation, DerivedTurn, SourceFile


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


def material(
    sources: Sources, files: Sequence[SourceFile], version: int, limits: ImportLimits = LIMITS
) -> Material:
    """Files for a reader to derive from, with what others call their sessions."""
    return Material(sources, files, version, sources.titles_of, limits)


def derived(reader: Reader, material: Material) -> Derivation:
    """What files mean, and where records stand that mean nothing."""
    return structs.replace(reader.derive(material), firsts=material.firsts)


def groups(families: Iterable[str], copies: Mapping[str, str]) -> dict[str, list[str]]:
    """Families by the one they go back to, in order. `copies` go on from the families they are
    given with, and most likely share turns with them."""
    found: dict[str, list[str]] = {}
    for family in families:
        found.setdefault(first(family, copies), []).append(family)
    return found


def first(family: str, copies: Mapping[str, str]) -> str:
    """The family that one goes back to."""
    met: dict[str, None] = {}
    while family in copies:
        if family in met:  # each goes on from another: any of them stands for all
            way = list(met)
            return min(way[way.index(family) :])
        met[family] = None
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


class Tangle(NamedTuple):
    """Families that share turns, or sessions."""

    reader: Reader
    families: set[str]


class Tangles:
    """Families that turned out to share something with others. Each is found by what it is known
    by: there may be many, and each may have many records."""

    def __init__(self) -> None:
        self._names = Numbering(forgets=True)  # of families, records and sessions
        self._of_name = array("i")  # a number of a tangle
        self._into = array("i")  # by that: the one that took it in, or itself
        self._all: dict[int, Tangle] = {}

    def __iter__(self) -> Iterator[Tangle]:
        return iter(self._all.values())

    def takes(
        self, reader: Reader, families: Iterable[str], others: Iterable[str], names: Names
    ) -> bool:
        """Whether families share something with these others, or with a tangle that is known; if
        so, all of them are one."""
        own = {*families, *others}
        met = self._met(chain(own, names.of_trees())) if self._all else set[int]()
        if not met and not (own - {*families}):
            return False
        mine = min(met, default=len(self._into))
        if not met:
            self._into.append(mine)
            self._all[mine] = Tangle(reader, set())
        for each in met - {mine}:
            self._into[each] = mine
            own |= self._all.pop(each).families
        self._all[mine].families.update(own)
        for name in chain(own, names.of_trees()):
            if self._names.add(name) == len(self._of_name):
                self._of_name.append(mine)
        return True

    def _met(self, names: Iterable[str]) -> set[int]:
        numbers = map(self._names.get, names)
        return {self._top(self._of_name[number]) for number in numbers if number >= 0}

    def _top(self, tangle: int) -> int:
        while self._into[tangle] != tangle:
            self._into[tangle] = tangle = self._into[self._into[tangle]]
        return tangle
