"""opencode: messages and their parts by number, in columns: a database may have a great many."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from itertools import groupby
from typing import Any, NamedTuple

from agents_ledger.importers.cells import loose
from agents_ledger.importers.outlines import NONE, Groups, as_dict
from agents_ledger.importers.reader import Material, Row
from agents_ledger.model.numbering import Numbering
from agents_ledger.model.sources import SourceFile

PRINT = 16  # bytes of a hash
PART = 32  # bits before the number of a message in an export
ASKS, SUMMARY = 1, 2

Standing = tuple[bool, bool, int, bytes]


class Said(NamedTuple):
    """Where something is said: in a row, or in a file, perhaps deep inside."""

    file: SourceFile
    at: int  # where the row begins; what it is of a file, see `inside`
    length: int
    print: bytes
    cell: Any = None  # what the row says, unless it is to be read again

    def standing(self) -> Standing:
        """Which of two prevails: the database, then a file of its own, then the longer."""
        is_row = self.file.kind == "rows"
        return is_row, is_row or not self.at, self.length, self.print


def inside(message: int, part: int = NONE) -> int:
    """A message of an export, or a part of one; 0 is the whole of a file."""
    return 1 + (message << PART | part + 1)


def _way(at: int) -> tuple[str | int, ...]:
    if not at:
        return ()
    message, part = divmod(at - 1, 1 << PART)
    return ("messages", message, "parts", part - 1) if part else ("messages", message, "info")


class Loader:
    """Reads again what was found. The last file is held: an export is read for every message."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.numbers = {file.id: number for number, file in enumerate(material.files)}
        self._last: tuple[int, Any] = (-1, None)

    def row(self, file: SourceFile, offset: int, length: int) -> dict[str, Any]:
        """What the row says that stands there."""
        row = Row(file.id, offset, length, "", None, b"", latest=True)
        return as_dict(loose(self.material.values_of(row).get("data")))

    def document(self, file: SourceFile, at: int) -> dict[str, Any]:
        """What a file says, or something inside of it."""
        if self._last[0] != file.id:
            self._last = (file.id, loose(self.material.document(file)))
        value = self._last[1]
        for step in _way(at):
            try:
                value = value[step]
            except (LookupError, TypeError):
                return {}
        return as_dict(value)


class Records:
    """Records by number, and where each is said."""

    def __init__(self, loader: Loader) -> None:
        self.ids = Numbering()
        self._loader = loader
        self._files = array("I")
        self._ats = array("Q")
        self._lengths = array("I")  # 0: it is named, but not here
        self._prints = bytearray()
        self._cells: list[Any] | None = [] if loader.material.holds else None

    def __len__(self) -> int:
        return len(self.ids)

    def __iter__(self) -> Iterator[int]:
        """Those that are here."""
        return (number for number, length in enumerate(self._lengths) if length)

    def __contains__(self, number: int) -> bool:
        return 0 <= number < len(self._lengths) and self._lengths[number] > 0

    def put(self, name: str, said: Said) -> int:
        """The number of a record; NONE if it is here, and what is said there prevails."""
        number = self.ids.add(name)
        while number >= len(self._lengths):
            self._grow()
        if self._lengths[number] and self._said(number).standing() >= said.standing():
            return NONE
        self._files[number] = self._loader.numbers[said.file.id]
        self._ats[number], self._lengths[number] = said.at, said.length
        self._prints[PRINT * number : PRINT * number + PRINT] = said.print
        if self._cells is not None:
            self._cells[number] = said.cell
        return number

    def _grow(self) -> None:
        self._files.append(0)
        self._ats.append(0)
        self._lengths.append(0)
        self._prints += bytes(PRINT)
        if self._cells is not None:
            self._cells.append(None)

    def _said(self, number: int) -> Said:
        file, print_ = self._file(number), self.print(number)
        return Said(file, self._ats[number], self._lengths[number], print_)

    def _file(self, number: int) -> SourceFile:
        return self._loader.material.files[self._files[number]]

    def file_id(self, number: int) -> int:
        """The file that a record stands in."""
        return self._file(number).id

    def print(self, number: int) -> bytes:
        """The fingerprint of a record."""
        return bytes(self._prints[PRINT * number : PRINT * number + PRINT])

    def is_inside(self, number: int) -> bool:
        """Whether it stands in a file with others."""
        return self._ats[number] > 0 and self._file(number).kind != "rows"

    def __getitem__(self, number: int) -> dict[str, Any]:
        """What a record says."""
        file, at = self._file(number), self._ats[number]
        if file.kind != "rows":
            return self._loader.document(file, at)
        if self._cells is not None:
            return as_dict(loose(self._cells[number]))
        return self._loader.row(file, at, self._lengths[number])


class Messages(Records):
    """Messages by number. A part may name one before it is here."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.sessions = Numbering()
        self._sessions = array("I")
        self._created = array("Q")
        self._kinds = bytearray()

    def _grow(self) -> None:
        super()._grow()
        self._sessions.append(0)
        self._created.append(0)
        self._kinds.append(0)

    def add(self, name: str, said: Said, *, session: str, created: int, kind: int) -> None:
        """A message, unless what is said of it elsewhere prevails."""
        number = self.put(name, said)
        if number != NONE:
            self._sessions[number] = self.sessions.add(session)
            self._created[number] = created
            self._kinds[number] = kind

    def session(self, number: int) -> int:
        """The number of the session it is of."""
        return self._sessions[number]

    def created(self, number: int) -> int:
        """When it was made."""
        return self._created[number]

    def asks(self, number: int) -> bool:
        """Whether it is the user's."""
        return bool(self._kinds[number] & ASKS)

    def is_summary(self, number: int) -> bool:
        """Whether it sums up what was said before."""
        return bool(self._kinds[number] & SUMMARY)

    def in_order(self, numbers: array[int]) -> Iterator[int]:
        """The same in the order they were made."""
        for _, some in groupby(sorted(numbers, key=self.created), key=self.created):
            yield from sorted(some, key=self.ids.name)


class Task(NamedTuple):
    """A session that a part started, and how that went."""

    session: str
    status: str | None
    description: str | None


class Parts(Records):
    """Parts of messages by number."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.tasks: dict[int, Task] = {}
        self._owners = array("i")
        self._groups = Groups((), 0)

    def _grow(self) -> None:
        super()._grow()
        self._owners.append(NONE)

    def add(self, name: str, said: Said, message: int, task: Task | None) -> None:
        """A part, unless what is said of it elsewhere prevails."""
        number = self.put(name, said)
        if number != NONE:
            self._owners[number] = message
            self.tasks.pop(number, None)
            if task is not None:
                self.tasks[number] = task

    def message(self, number: int) -> int:
        """The message it is of."""
        return self._owners[number]

    def group(self, messages: int) -> None:
        """All parts are here: put those of each message, which are so many, beside each other."""
        self._groups = Groups(self._owners, messages)

    def of(self, message: int) -> list[int]:
        """The parts of a message in order."""
        return sorted(self._groups[message], key=self.ids.name)
