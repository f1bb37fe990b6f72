"""pi: the entries of a family, and which of them are copies of each other.

Ids of entries are unique only in their file, and files of version 1 get new ids when the program
rewrites them. So an entry is identified by a digest of its time and content.
"""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.pi.rules import KINDS
from agents_ledger.importers.transcript.columns import Column, Links, SetColumn
from agents_ledger.importers.transcript.entries import Entries

DIGEST = 12  # bytes
# How a parent is known: by its id, as none, as the entry before.
NAMED, ROOT, PREVIOUS = range(3)
Config = Mapping[str, str]


class SpawnedSession(NamedTuple):
    call_id: str
    key: str


class PiEntries(Entries):
    """The entries that turns are made of. Copies are separate entries until they are merged."""

    def __init__(self, material: Material, source: str) -> None:
        super().__init__(material, KINDS)
        self.parents = Links()
        self.callers = Links()  # of a result, the entry with its call
        self.transcripts = SetColumn()  # the transcripts that have an entry
        self.configs: list[Config] = []
        self.config_of = Column("I")  # the settings when an entry was written
        self.first_kept: dict[int, int] = {}  # by compaction, the first entry that it kept
        self.spawned: dict[int, SpawnedSession] = {}
        self._source = source
        self._digests = bytearray()
        self._has_own_time = Column("B")
        self._weights = Column("Q")
        self._checksums = Column("I")
        # Of entries with one digest in a file: which of them.
        self._counts = Column("I")
        self._parent_ranks = Column("B")
        self._firsts = Column("I")  # see first(); empty where there are no copies
        # Entries that are in their file again, and the first.
        self._repeated: dict[int, int] = {}
        self._config_numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def config_number(self, config: Config) -> int:
        number = self._config_numbers.setdefault(tuple(config.items()), len(self.configs))
        if number == len(self.configs):
            self.configs.append(config)
        return number

    def add(
        self,
        digest: bytes,
        kind: str,
        line: SourceLine,
        data: bytes,
        *,
        weight: int,
        has_own_time: bool,
        parent: int | None,
        parent_rank: int,
        config: int,
    ) -> int:
        """The number of one more entry.

        All copies of an entry have the same digest. With a time of its own an entry is unique in
        its file. Of copies that with the greatest weight is shown, and the parent that is known
        best counts.
        """
        self._digests += digest
        self._has_own_time.append(has_own_time)
        self._weights.append(weight)
        self._checksums.append(zlib.crc32(data))
        self.parents.append(parent)
        self._parent_ranks.append(parent_rank)
        self.callers.append(None)
        self.config_of.append(config)
        return self.add_record(line, kind)

    def end_transcript(self) -> range:
        """The entries that were added since the last transcript."""
        entries = range(len(self._counts), len(self))
        self._counts.extend(array("I", [1]) * len(entries))
        for same in self._with_same_digest(entries):
            for count, entry in enumerate(same, 1):
                if self._has_own_time[same[0]]:
                    self._mark_repeat(same[0], entry)
                else:
                    self._counts[entry] = count
        return entries

    def replace_content(self, first: int, entry: int) -> None:
        """An entry was changed in its place: the last state is shown."""
        self._repeated[entry] = first
        self.set_kind(entry, "copy")
        self._show(first, entry)

    def _mark_repeat(self, first: int, entry: int) -> None:
        """An entry is written again in its file: it keeps its first parent."""
        first = self._repeated.get(first, first)
        if entry != first and entry not in self._repeated:
            self._repeated[entry] = first
            self.set_kind(entry, "copy")
            self._show_heavier(first, entry)

    def _show_heavier(self, first: int, copy: int) -> None:
        """Copies may have less: results are shortened, and tokens are not counted again."""
        if self._weights[copy] > self._weights[first]:
            self._show(first, copy)

    def _show(self, first: int, copy: int) -> None:
        self.show_as(first, copy)
        self._weights[first] = self._weights[copy]
        self._checksums[first] = self._checksums[copy]

    def digest(self, entry: int) -> bytes:
        return bytes(self._digests[DIGEST * entry : DIGEST * entry + DIGEST])

    def name(self, entry: int) -> str:
        digest = self.digest(entry).hex()
        count = self._counts[entry]
        return f"{self._source}:{digest}" if count == 1 else f"{self._source}:{digest}:{count}"

    def identity(self, entry: int) -> str:
        """The id of an entry and the checksum of the copy that is shown."""
        return f"{self.name(entry)};{self._weights[entry]};{self._checksums[entry]}"

    def compare(self, some: range, others: range) -> int:
        """The order of as many entries of two transcripts: less than 0 if the first come before the
        others, 0 if they are the same."""
        pairs = zip(map(self.identity, some), map(self.identity, others), strict=True)
        mine, theirs = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        return (mine > theirs) - (mine < theirs)

    def _with_same_digest(self, entries: Iterable[int]) -> Iterator[list[int]]:
        """Groups of several entries with one digest. They are searched in 256 parts, so that memory
        holds the digests of one part only."""
        parts: dict[int, array[int]] = {}
        for entry in entries:
            parts.setdefault(self._digests[DIGEST * entry], array("I")).append(entry)
        for part in parts.values():
            by_digest: dict[bytes, list[int]] = {}
            for entry in part:
                by_digest.setdefault(self.digest(entry), []).append(entry)
            yield from (same for same in by_digest.values() if len(same) > 1)

    # -- copies in several transcripts --------------------------------------------------------

    def merge(self, transcripts: Sequence[range]) -> Sequence[int]:
        """Merge the copies of entries, and return all entries in order. `transcripts` has the
        entries of each, the original before its forks."""
        self.transcripts = SetColumn(len(self))
        for number, entries in enumerate(transcripts):
            self.transcripts.assign(entries, [number])
        # Most families are one transcript without repetitions: nothing has to be compared.
        if len(transcripts) == 1 and not self._repeated:
            return range(len(self))
        self._firsts = Column("I", range(len(self)))
        order = chain.from_iterable(transcripts)
        for same in self._with_same_digest(e for e in order if self.kind(e) != "copy"):
            firsts: dict[int, int] = {}
            for entry in same:
                first = firsts.setdefault(self._counts[entry], entry)
                if first != entry:
                    self._merge_copy(first, entry)
        for entry, first in self._repeated.items():
            self._firsts[entry] = self._firsts[first]
        for entry, parent in enumerate(self.parents):
            self.parents[entry] = None if parent is None else self.first(parent)
        order = chain.from_iterable(transcripts)
        return array("I", (entry for entry in order if self.kind(entry) != "copy"))

    def first(self, entry: int) -> int:
        """The original of an entry that is a copy, else the entry itself."""
        return self._firsts[entry] if self._firsts else entry

    def _merge_copy(self, first: int, copy: int) -> None:
        self._firsts[copy] = first
        self.set_kind(copy, "copy")
        self.transcripts.include(first, self.transcripts[copy])
        if self.callers[copy] is not None:
            self.callers[first] = self.callers[copy]
        self._show_heavier(first, copy)
        # A named parent is better evidence than the entry before; the name breaks ties in any
        # order.
        if self._parent_key(copy) < self._parent_key(first):
            self.parents[first] = self.parents[copy]
            self._parent_ranks[first] = self._parent_ranks[copy]

    def _parent_key(self, entry: int) -> tuple[int, str]:
        parent = self.parents[entry]
        return self._parent_ranks[entry], "" if parent is None else self.name(parent)
