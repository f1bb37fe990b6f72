"""Which files are derived together: those of a family, and families that share turns."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agents_ledger.importers.port.source import Source
from agents_ledger.ledger.projection.reconcile import Names
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import SUPERSEDED, DerivedTurn, SourceFile


def family_files(
    sources: Sources, source: Source, family: str, *, superseded: bool
) -> list[SourceFile]:
    """The files of a family to derive from. `superseded` includes states of documents that later
    states contain; so does a new version of the source."""
    files = sources.files_of_family(family)
    # A new version of a source may take more from states that a later one contained so far.
    is_current = {file.derived_version for file in files} <= {source.version, SUPERSEDED, 0}
    if superseded or not is_current:
        return list(files)
    return [file for file in files if file.derived_version != SUPERSEDED]


def in_derivation_order(files: Iterable[SourceFile]) -> list[SourceFile]:
    return sorted(files, key=lambda file: (file.path, file.generation))


def group_copies(families: Iterable[str], copies: Mapping[str, str]) -> list[list[str]]:
    """Families grouped by the original they go back to. `copies` maps a family to the one it
    continues; the two most likely share turns."""
    group_copies: dict[str, list[str]] = {}
    for family in families:
        group_copies.setdefault(original_family(family, copies), []).append(family)
    return list(group_copies.values())


def original_family(family: str, copies: Mapping[str, str]) -> str:
    """The family at the beginning of a chain of copies."""
    visited: dict[str, None] = {}
    while family in copies:
        if family in visited:  # a cycle: any fixed member represents it
            path = list(visited)
            return min(path[path.index(family) :])
        visited[family] = None
        family = copies[family]
    return family


class Unrelated(Exception):
    """Families that were merged as copies share no turns."""


def check_related(
    families: Sequence[str], turns: Iterable[DerivedTurn], files: Mapping[int, SourceFile]
) -> None:
    """Raise Unrelated unless turns with records in several families connect all of these."""
    if len(families) == 1:
        return
    shared = {frozenset(files[file_id].family for file_id in turn.file_ids) for turn in turns}
    connected: set[str] = set()
    reached = {families[0]}
    while reached > connected:
        connected = reached
        reached = connected.union(*(group for group in shared if not group.isdisjoint(connected)))
    if not connected.issuperset(families):
        raise Unrelated(*families)


class MergeGroup(NamedTuple):
    """Families that share turns or sessions."""

    source: Source
    families: set[str]


class MergeGroups:
    """Families that turned out to share something with others: a union-find, where families,
    records and sessions are the elements. There may be millions of records, so elements are
    numbers in arrays."""

    def __init__(self) -> None:
        self._names = Numbering(forgets=True)
        self._group_of_name = array("i")
        self._merged_into = array("i")  # by group: itself, or the group that took it over
        self._groups: dict[int, MergeGroup] = {}

    def __iter__(self) -> Iterator[MergeGroup]:
        return iter(self._groups.values())

    def merge(
        self, source: Source, families: Iterable[str], others: Iterable[str], names: Names
    ) -> bool:
        """Put families in one group with these others and with all groups they share a name with;
        False if there are neither."""
        members = {*families, *others}
        group_ids = (
            self._groups_of(chain(members, names.of_trees())) if self._groups else set[int]()
        )
        if not group_ids and not (members - {*families}):
            return False
        group = min(group_ids, default=len(self._merged_into))
        if not group_ids:
            self._merged_into.append(group)
            self._groups[group] = MergeGroup(source, set())
        for other in group_ids - {group}:
            self._merged_into[other] = group
            members |= self._groups.pop(other).families
        self._groups[group].families.update(members)
        for name in chain(members, names.of_trees()):
            if self._names.add(name) == len(self._group_of_name):
                self._group_of_name.append(group)
        return True

    def _groups_of(self, names: Iterable[str]) -> set[int]:
        numbers = map(self._names.get, names)
        return {self._root(self._group_of_name[number]) for number in numbers if number >= 0}

    def _root(self, group: int) -> int:
        while self._merged_into[group] != group:
            self._merged_into[group] = group = self._merged_into[self._merged_into[group]]
        return group
