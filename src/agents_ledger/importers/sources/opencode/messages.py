"""opencode: messages and their parts by number, in columns: a database may have a great many."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import as_dict
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.opencode import rules
from agents_ledger.importers.sources.opencode.records import OpencodeTask
from agents_ledger.importers.transcript.columns import Groups
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import SourceFile

HASH_BYTES = 16
PART_BITS = 32  # for the part within a message of an export
# For the flags in a kind; the type of the second format is above them.
FLAG_BITS = 3
TYPE_NAMES = ("", *rules.TYPES)
# The rank of a message that any other one prevails over.
WEAKEST = -1

Standing = tuple[bool, bool, bool, int, int, bytes]


def kind_of_type(type_name: str) -> int:
    return rules.TYPES[type_name] | TYPE_NAMES.index(type_name) << FLAG_BITS


def rank_of(updated: int, *, is_first_format: bool) -> int:
    """The rank of a row: the later one prevails, and of two as late the first format's, which says
    more than what an upgrade made of it."""
    return 2 * updated + is_first_format


class RecordPlace(NamedTuple):
    """Where a record is: a row, a file, or a value within an export."""

    file: SourceFile
    # The offset of a row; of a file see `within_export`.
    at: int
    length: int
    fingerprint: bytes
    # The content of a row, unless it is to be read again.
    cell: Any = None

    def standing(self, rank: int) -> Standing:
        """What decides which of two places prevails: a database, then a file of its own, then the
        rank, then the longer record."""
        is_row = self.file.kind == "rows"
        return rank >= 0, is_row, is_row or not self.at, rank, self.length, self.fingerprint


def within_export(message: int, part: int = -1) -> int:
    """The place of a message in an export, or of a part of it; 0 is a whole file."""
    return 1 + (message << PART_BITS | part + 1)


def _path_within(at: int) -> tuple[str | int, ...]:
    if not at:
        return ()
    message, part = divmod(at - 1, 1 << PART_BITS)
    return ("messages", message, "parts", part - 1) if part else ("messages", message, "info")


class RecordLoader:
    """Reads the content of records. The last file is held: an export has many messages."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.numbers = {file.id: number for number, file in enumerate(material.files)}
        self._last: tuple[int, Any] = (-1, None)

    def row(self, file: SourceFile, offset: int, length: int) -> dict[str, Any]:
        row = SourceRow(file.id, offset, length, "", None, b"", latest=True)
        return as_dict(loose(self.material.values_of(row).get("data")))

    def document(self, file: SourceFile, at: int) -> dict[str, Any]:
        """The content of a file, or of a value within it."""
        if self._last[0] != file.id:
            self._last = (file.id, loose(self.material.document(file)))
        value = self._last[1]
        for step in _path_within(at):
            # A message of the second format has no "info" around it.
            try:
                value = value.get(step, value) if step == "info" else value[step]
            except (LookupError, TypeError, AttributeError):
                return {}
        return as_dict(value)


class RecordStore:
    """Records by number, and where each is."""

    def __init__(self, loader: RecordLoader) -> None:
        self.limits = loader.material.limits
        self.ids = Numbering(held=self.limits.held_names)
        self._loader = loader
        self._files = array("I")
        self._ats = array("Q")
        self._lengths = array("I")  # 0: referred to, but missing
        self._fingerprints = bytearray()
        self._cells: list[Any] | None = [] if loader.material.holds else None

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """The records that are not missing."""
        return (number for number, length in enumerate(self._lengths) if length)

    def __contains__(self, number: int) -> bool:
        return 0 <= number < len(self._lengths) and self._lengths[number] > 0

    def put(self, name: str, place: RecordPlace, rank: int = 0) -> int | None:
        """Add a record and return its number; None if another place of it prevails."""
        number = self.ids.add(name)
        while number >= len(self._lengths):
            self._grow()
        if self._lengths[number]:
            standing = self._place(number).standing(self._rank(number))
            if standing >= place.standing(rank):
                return None
        self._files[number] = self._loader.numbers[place.file.id]
        self._ats[number], self._lengths[number] = place.at, place.length
        self._fingerprints[HASH_BYTES * number : HASH_BYTES * (number + 1)] = place.fingerprint
        if self._cells is not None:
            self._cells[number] = place.cell
        return number

    def _grow(self) -> None:
        self._files.append(0)
        self._ats.append(0)
        self._lengths.append(0)
        self._fingerprints += bytes(HASH_BYTES)
        if self._cells is not None:
            self._cells.append(None)

    def _rank(self, _: int) -> int:
        return 0

    def _place(self, number: int) -> RecordPlace:
        at, length = self._ats[number], self._lengths[number]
        return RecordPlace(self._file(number), at, length, self.fingerprint(number))

    def _file(self, number: int) -> SourceFile:
        return self._loader.material.files[self._files[number]]

    def file_id(self, number: int) -> int:
        return self._file(number).id

    def fingerprint(self, number: int) -> bytes:
        return bytes(self._fingerprints[HASH_BYTES * number : HASH_BYTES * (number + 1)])

    def is_within_export(self, number: int) -> bool:
        return self._ats[number] > 0 and self._file(number).kind != "rows"

    def __getitem__(self, number: int) -> dict[str, Any]:
        file, at = self._file(number), self._ats[number]
        if file.kind != "rows":
            return self._loader.document(file, at)
        if self._cells is not None:
            return as_dict(loose(self._cells[number]))
        return self._loader.row(file, at, self._lengths[number])


class PartStore(RecordStore):
    def __init__(self, loader: RecordLoader) -> None:
        super().__init__(loader)
        self.tasks: dict[int, OpencodeTask] = {}
        self._owners = array("i")
        self._groups = Groups((), 0)

    def _grow(self) -> None:
        super()._grow()
        self._owners.append(-1)

    def add(self, name: str, place: RecordPlace, message: int, task: OpencodeTask | None) -> None:
        """Add a part, unless another place of it prevails."""
        number = self.put(name, place)
        if number is not None:
            self._owners[number] = message
            self.tasks.pop(number, None)
            if task is not None:
                self.tasks[number] = task

    def message(self, number: int) -> int:
        return self._owners[number]

    def group(self, messages: int) -> None:
        """Group the parts by message, once all are added."""
        self._groups = Groups(self._owners, messages)

    def of(self, message: int) -> list[int]:
        return sorted(self._groups[message], key=self.ids.name)


class MessageStore(RecordStore):
    """Messages by number. A part may refer to one before it is added."""

    def __init__(self, loader: RecordLoader) -> None:
        super().__init__(loader)
        self.parts = PartStore(loader)
        self.sessions = Numbering()
        self.tasks: dict[int, list[OpencodeTask]] = {}  # of the second format
        self._sessions = array("I")
        self._created = array("Q")
        self._kinds = bytearray()
        self._ranks = array("q")
        self._seqs = array("Q")  # the number in the second format plus 1; 0: none

    def _grow(self) -> None:
        super()._grow()
        self._sessions.append(0)
        self._created.append(0)
        self._kinds.append(0)
        self._ranks.append(0)
        self._seqs.append(0)

    def _rank(self, number: int) -> int:
        return self._ranks[number]

    def add(
        self,
        name: str,
        place: RecordPlace,
        *,
        session: str,
        created: int,
        kind: int,
        rank: int = 0,
        seq: int | None = None,
        tasks: list[OpencodeTask] | None = None,
    ) -> None:
        """Add a message, unless another place of it prevails."""
        number = self.put(name, place, rank)
        if number is not None:
            self._sessions[number] = self.sessions.add(session)
            self._created[number] = created
            self._kinds[number] = kind
            self._ranks[number] = rank
            self.tasks.pop(number, None)
            if tasks:
                self.tasks[number] = tasks
        if seq is not None and (number is not None or place.file.kind == "rows"):
            self._seqs[self.ids.get(name)] = seq + 1

    def session(self, number: int) -> int:
        return self._sessions[number]

    def created(self, number: int) -> int:
        return self._created[number]

    def seq(self, number: int) -> int | None:
        """The number of a message in its session, in the second format."""
        return self._seqs[number] - 1 if self._seqs[number] else None

    def type(self, number: int) -> str:
        """The type of a message of the second format; empty in the first."""
        return TYPE_NAMES[self._kinds[number] >> FLAG_BITS]

    def asks(self, number: int) -> bool:
        return bool(self._kinds[number] & rules.ASKS)

    def answers(self, number: int) -> bool:
        return bool(self._kinds[number] & rules.ANSWERS)

    def is_summary(self, number: int) -> bool:
        return bool(self._kinds[number] & rules.SUMMARY)

    def parts_of(self, number: int) -> list[int]:
        """The parts of a message in order. A message of the second format has none; those there are
        belong to the message of the first format that it was upgraded from."""
        return [] if self.type(number) else self.parts.of(number)

    def without_repeated(self, numbers: array[int], *, is_second: bool) -> array[int]:
        """The messages of a session without those that repeat others.

        In an upgraded session text added to a prompt is part of the prompt in the first format, and
        a message after it in the second. Before version 2 all messages of the second format only
        repeated those of the first.
        """
        if not 0 < sum(1 for number in numbers if self.type(number)) < len(numbers):
            return numbers
        seconds = set(filter(self.type, numbers))
        if is_second:
            added = {self._time_in_id(n): n for n in seconds if self.type(n) == "synthetic"}
            firsts = (self._time_in_id(n) for n in numbers if n not in seconds)
            seconds = {added[time] for time in firsts if time in added}
        return array("I", (number for number in numbers if number not in seconds))

    def _time_in_id(self, number: int) -> str:
        return self.ids.name(number)[: rules.TIME_CHARS]

    def in_order(self, numbers: Sequence[int]) -> Iterator[int]:
        """Messages in the order they were created. Those of the second format have numbers, which
        hold even if the clock was set back."""
        latest = 0
        for number in sorted(filter(self._seqs.__getitem__, numbers), key=self._seqs.__getitem__):
            latest = self._created[number] = max(latest, self._created[number])
        for _, same_time in groupby(sorted(numbers, key=self.created), key=self.created):
            named = sorted(same_time, key=self.ids.name)
            named.sort(key=self._seqs.__getitem__)
            yield from named
