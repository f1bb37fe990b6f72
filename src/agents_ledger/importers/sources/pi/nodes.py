"""pi: the entries of a family by number, in columns: a session may have millions of them."""

from __future__ import annotations

import zlib
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from agents_ledger.importers.port.source import Line, Material
from agents_ledger.importers.transcript.record_offsets import Places
from agents_ledger.importers.transcript.turn_tree import NONE
from agents_ledger.model.imports.interning import Sets

KINDS = (
    "prompt", "branch", "assistant", "result", "bash", "notice", "compaction", "usage", "copy",
)  # fmt: skip
PROMPT, BRANCH, ASSISTANT, RESULT, BASH, NOTICE, COMPACTION, USAGE, COPY = range(9)
DIGEST = 12  # bytes of the hash that tells what an entry says
Config = Mapping[str, str]


class Spawned(NamedTuple):
    """A session, and the call that started it."""

    call_id: str
    key: str


class Nodes:
    """The entries that say something, without their content. What several files have stands here
    as often, until it is merged."""

    def __init__(self, material: Material, source: str) -> None:
        self.places = Places(material)
        self.kinds = bytearray()
        self.parents = array("i")  # the entry above, or NONE
        self.callers = array("i")  # the entry with the call that this is the result of, or NONE
        self.holders = Sets()  # of transcripts
        self.held_by = array("I")
        self.configs: list[Config] = []
        self.config_of = array("I")  # as it was set when an entry was written
        self.kept: dict[int, int] = {}  # the first entry that a compaction kept
        self.spawned: dict[int, Spawned] = {}
        self._source = source
        self._digests = bytearray()
        self._is_timed = bytearray()  # see add()
        self._weights = array("Q")  # see add()
        self._checksums = array("I")
        self._counts = array("I")  # which one an entry is of those in its file that say the same
        self._ranks = bytearray()  # how sure the parents are
        self._firsts = array("I")  # see first(); empty where there are no copies
        self._repeated: dict[int, int] = {}  # what is there again in its file, and where it was
        self._config_numbers: dict[tuple[tuple[str, str], ...], int] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def config(self, said: Config) -> int:
        """The number of some settings."""
        number = self._config_numbers.setdefault(tuple(said.items()), len(self.configs))
        if number == len(self.configs):
            self.configs.append(said)
        return number

    def add(
        self,
        digest: bytes,
        kind: int,
        line: Line,
        data: bytes,
        *,
        weight: int,
        is_timed: bool,
        above: int,
        rank: int,
        config: int,
    ) -> int:
        """The number of one more entry. `digest` is the same for every copy of it; `is_timed`: also
        in one file nothing else has that. `data` is what the line says; of copies that of the
        greatest `weight` is shown. `rank` says how sure `above` is: 0 if the entry names it."""
        self._digests += digest
        self._is_timed.append(is_timed)
        self.places.add(line)
        self._weights.append(weight)
        self._checksums.append(zlib.crc32(data))
        self.kinds.append(kind)
        self.parents.append(above)
        self._ranks.append(rank)
        self.callers.append(NONE)
        self.config_of.append(config)
        return len(self.kinds) - 1

    def end(self) -> range:
        """The entries of a file that has been read: those added since the one before."""
        entries = range(len(self._counts), len(self))
        self._counts.extend(array("I", [1]) * len(entries))
        for alike in self._alike(entries):
            for count, entry in enumerate(alike, 1):
                if self._is_timed[alike[0]]:
                    self._repeat(alike[0], entry)
                else:
                    self._counts[entry] = count
        return entries

    def change(self, first: int, entry: int) -> None:
        """An entry was changed in its place: it is shown as it was last."""
        self._repeated[entry] = first
        self.kinds[entry] = COPY
        self._show(first, entry)

    def _repeat(self, first: int, entry: int) -> None:
        """An entry is written again in its file: it hangs where it did at first."""
        first = self._repeated.get(first, first)
        if entry != first and entry not in self._repeated:
            self._repeated[entry] = first
            self.kinds[entry] = COPY
            self._show_weightier(first, entry)

    def _show_weightier(self, first: int, copy: int) -> None:
        """Copies may say less: results are shortened, and tokens are not counted again."""
        if self._weights[copy] > self._weights[first]:
            self._show(first, copy)

    def _show(self, first: int, copy: int) -> None:
        self.places.take(first, copy)
        self._weights[first] = self._weights[copy]
        self._checksums[first] = self._checksums[copy]

    def digest(self, entry: int) -> bytes:
        """What tells what an entry says."""
        return bytes(self._digests[DIGEST * entry : DIGEST * entry + DIGEST])

    def name(self, entry: int) -> str:
        """What an entry is called in all files: by what it says."""
        digest = self.digest(entry).hex()
        count = self._counts[entry]
        return f"{self._source}:{digest}" if count == 1 else f"{self._source}:{digest}:{count}"

    def print(self, entry: int) -> str:
        """The fingerprint of all that the shown copy of an entry says."""
        return f"{self.name(entry)};{self._weights[entry]};{self._checksums[entry]}"

    def compare(self, some: range, others: range) -> int:
        """Which of as many entries come first by their names and by what they say: less than 0 if
        these do, 0 if they are the same."""
        pairs = zip(map(self.print, some), map(self.print, others), strict=True)
        mine, other = next((pair for pair in pairs if pair[0] != pair[1]), ("", ""))
        return (mine > other) - (mine < other)

    def _alike(self, entries: Iterable[int]) -> Iterator[list[int]]:
        """Those that say the same, together, where there are several; looked for in lots, which
        memory holds one by one."""
        lots: dict[int, array[int]] = {}
        for entry in entries:
            lots.setdefault(self._digests[DIGEST * entry], array("I")).append(entry)
        for lot in lots.values():
            found: dict[bytes, list[int]] = {}
            for entry in lot:
                found.setdefault(self.digest(entry), []).append(entry)
            yield from (alike for alike in found.values() if len(alike) > 1)

    # -- files together -----------------------------------------------------------------------

    def merge(self, transcripts: Sequence[range]) -> Sequence[int]:
        """All entries in order. Of copies the first counts; of several parents the surest.
        Transcripts are given in their order, with the entries of each."""
        self.held_by = array("I", bytes(4 * len(self)))
        for number, entries in enumerate(transcripts):
            own = array("I", [self.holders.of([number])])
            self.held_by[entries.start : entries.stop] = own * len(entries)
        if len(transcripts) == 1 and not self._repeated:
            return range(len(self))
        self._firsts = array("I", range(len(self)))
        order = chain.from_iterable(transcripts)
        for alike in self._alike(entry for entry in order if self.kinds[entry] != COPY):
            firsts: dict[int, int] = {}
            for entry in alike:
                first = firsts.setdefault(self._counts[entry], entry)
                if first != entry:
                    self._meet_again(first, entry)
        for entry, first in self._repeated.items():
            self._firsts[entry] = self._firsts[first]
        for entry, above in enumerate(self.parents):
            self.parents[entry] = self.first(above) if above >= 0 else NONE
        order = chain.from_iterable(transcripts)
        return array("I", (entry for entry in order if self.kinds[entry] != COPY))

    def first(self, entry: int) -> int:
        """The entry itself, or that which it is a copy of."""
        return self._firsts[entry] if self._firsts else entry

    def _meet_again(self, first: int, copy: int) -> None:
        self._firsts[copy] = first
        self.kinds[copy] = COPY
        self.held_by[first] = self.holders.joined((self.held_by[first], self.held_by[copy]))
        if self.callers[copy] >= 0:
            self.callers[first] = self.callers[copy]
        self._show_weightier(first, copy)
        if self._above(copy) < self._above(first):
            self.parents[first], self._ranks[first] = self.parents[copy], self._ranks[copy]

    def _above(self, entry: int) -> tuple[int, str]:
        above = self.parents[entry]
        return self._ranks[entry], self.name(above) if above >= 0 else ""
