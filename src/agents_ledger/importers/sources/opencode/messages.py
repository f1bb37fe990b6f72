"""opencode: messages and their parts by number, packed: a database may have a great many."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any, TypeVar

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import as_dict
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.importers.port.material import Material, SourceRow
from agents_ledger.importers.sources.opencode import rules
from agents_ledger.importers.sources.opencode.records import OpencodeTask
from agents_ledger.importers.transcript.columns import NONE, Groups
from agents_ledger.importers.transcript.packed_store import PackedDict

PART_BITS = 32  # for the part within a message of an export
# The rank of a message that any other one prevails over.
WEAKEST = -1

R = TypeVar("R", bound="StoredRecord")
Standing = tuple[bool, bool, bool, int, int, bytes]


class RecordPlace(Struct, frozen=True, array_like=True):
    """Where a record is: a row, a file, or a value within an export."""

    file_id: int
    is_row: bool
    # The offset of a row; of a file see `within_export`.
    at: int
    length: int
    fingerprint: bytes
    # The content of a row, unless it is to be read again.
    cell: Any = None

    def standing(self, rank: int) -> Standing:
        """What decides which of two places prevails: a database, then a file of its own, then the
        rank, then the longer record."""
        is_own = self.is_row or not self.at
        return rank >= 0, self.is_row, is_own, rank, self.length, self.fingerprint


def within_export(message: int, part: int = -1) -> int:
    """The place of a message in an export, or of a part of it; 0 is a whole file."""
    return 1 + (message << PART_BITS | part + 1)


def _path_within(at: int) -> tuple[str | int, ...]:
    if not at:
        return ()
    message, part = divmod(at - 1, 1 << PART_BITS)
    return ("messages", message, "parts", part - 1) if part else ("messages", message, "info")


class StoredRecord(Struct, array_like=True):
    """A record without its content."""

    place: RecordPlace | None = None  # None: it is referred to, but missing
    rank: int = 0

    def prevails_over(self, other: StoredRecord) -> bool:
        if self.place is None or other.place is None:
            return self.place is not None
        return self.place.standing(self.rank) > other.place.standing(other.rank)


class StoredPart(StoredRecord, array_like=True):
    message: int = NONE
    task: OpencodeTask | None = None


class StoredMessage(StoredRecord, array_like=True):
    session: str = ""
    created: int = 0
    roles: int = 0  # ASKS, ANSWERS, SUMMARY
    type: str = ""  # of the second format
    seq: int | None = None  # its number in the session, in the second format
    tasks: list[OpencodeTask] = []  # of the second format

    @property
    def asks(self) -> bool:
        return bool(self.roles & rules.ASKS)

    @property
    def answers(self) -> bool:
        return bool(self.roles & rules.ANSWERS)

    @property
    def is_summary(self) -> bool:
        return bool(self.roles & rules.SUMMARY)


class RecordStore(PackedDict[R]):
    """Records by number. One may be referred to before it is added."""

    def __init__(self, kind: type[R], limits: ImportLimits) -> None:
        super().__init__(kind, limits)
        self.record = self.values.read
        self._kind = kind

    def reserve(self, name: str) -> int:
        """The number of a record that may be missing."""
        if name not in self:
            self[name] = self._kind()
        return self.number(name)

    def put(self, name: str, record: R) -> bool:
        """Add a record; False if another place of it prevails."""
        present = self.get(name)
        if present is not None and not record.prevails_over(present):
            return False
        self[name] = record
        return True


class MessageStore(RecordStore[StoredMessage]):
    """Messages by number, and their parts."""

    def __init__(self, material: Material) -> None:
        super().__init__(StoredMessage, material.limits)
        self.parts = RecordStore(StoredPart, material.limits)
        self._material = material
        self._files = {file.id: file for file in material.files}
        self._parts_of = Groups((), 0)
        # The last file is held: an export has many messages.
        self._last: tuple[int, Any] = (-1, None)

    def add(self, name: str, message: StoredMessage) -> None:
        """Add a message, unless another place of it prevails; a row gives its number to it."""
        present, seq = self.get(name), message.seq
        before = present.seq if present is not None else None
        is_row = message.place is not None and message.place.is_row
        if self.put(name, message) or is_row:
            self[name].seq = before if seq is None else seq

    def group_parts(self) -> None:
        """Group the parts by message, once all are added."""
        self._parts_of = Groups(array("i", (part.message for part in self.parts.values)), len(self))

    def parts_of(self, number: int) -> list[int]:
        """The parts of a message in order. A message of the second format has none; those there are
        belong to the message of the first format that it was upgraded from."""
        if self.record(number).type:
            return []
        return sorted(self._parts_of[number], key=self.parts.name)

    def content(self, record: StoredRecord) -> dict[str, Any]:
        """A message or a part, parsed whole."""
        place = record.place
        if place is None or not place.is_row:
            return {} if place is None else self._document(place)
        if place.cell is not None:
            return as_dict(loose(place.cell))
        row = SourceRow(place.file_id, place.at, place.length, "", None, b"", latest=True)
        return as_dict(loose(self._material.values_of(row).get("data")))

    def _document(self, place: RecordPlace) -> dict[str, Any]:
        """The content of a file, or of a value within it."""
        if self._last[0] != place.file_id:
            document = self._material.document(self._files[place.file_id])
            self._last = (place.file_id, loose(document))
        value = self._last[1]
        for step in _path_within(place.at):
            # A message of the second format has no "info" around it.
            try:
                value = value.get(step, value) if step == "info" else value[step]
            except (LookupError, TypeError, AttributeError):
                return {}
        return as_dict(value)

    def without_repeated(self, numbers: array[int], *, is_second: bool) -> array[int]:
        """The messages of a session without those that repeat others.

        In an upgraded session text added to a prompt is part of the prompt in the first format, and
        a message after it in the second. Before version 2 all messages of the second format only
        repeated those of the first.
        """
        types = {number: self.record(number).type for number in numbers}
        seconds = {number for number, type_ in types.items() if type_}
        if not seconds or len(seconds) == len(types):
            return numbers
        if is_second:
            added = {self._time_in_id(n): n for n in seconds if types[n] == "synthetic"}
            firsts = (self._time_in_id(n) for n in numbers if n not in seconds)
            seconds = {added[time] for time in firsts if time in added}
        return array("I", (number for number in numbers if number not in seconds))

    def _time_in_id(self, number: int) -> str:
        return self.name(number)[: rules.TIME_CHARS]

    def in_order(self, numbers: Sequence[int]) -> list[int]:
        """Messages in the order they were created. Those of the second format have numbers, which
        hold even if the clock was set back."""
        numbered = [number for number in numbers if self.record(number).seq is not None]
        latest = 0
        for number in sorted(numbered, key=self._seq):
            latest = self.values[number].created = max(latest, self.record(number).created)
        return sorted(numbers, key=lambda n: (self.record(n).created, self._seq(n), self.name(n)))

    def _seq(self, number: int) -> int:
        seq = self.record(number).seq
        return NONE if seq is None else seq
