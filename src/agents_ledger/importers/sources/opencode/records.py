"""opencode: messages and their parts by number, in columns: a database may have a great many."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.port.source import Material, Row
from agents_ledger.importers.transcript.turn_tree import NONE, Groups, as_dict, as_text
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.imports.sources import SourceFile

PRINT = 16  # bytes of a hash
PART = 32  # bits before the number of a message in an export
WHEN = 16  # letters of an id
ASKS, ANSWERS, SUMMARY = 1, 2, 4
FLAGS = 3  # bits before the type
WEAKEST = -1  # the rank of a message that any other prevails over

Standing = tuple[bool, bool, bool, int, int, bytes]
Place = tuple[int, int]  # a number of the second format, and a time

# Of the second format; others are no part of a conversation.
TYPES = {
    "user": ASKS,
    "synthetic": ASKS,
    "skill": ASKS,
    "shell": ASKS | ANSWERS,
    "assistant": ANSWERS,
    "system": 0,
    "compaction": ANSWERS | SUMMARY,
}
TYPE_NAMES = ("", *TYPES)


def kind_of(type_: str) -> int:
    """The kind of a message of the second format."""
    return TYPES[type_] | TYPE_NAMES.index(type_) << FLAGS


def rank_of(updated: int, *, is_first: bool) -> int:
    """Which of two rows of a message prevails: the later one. What the second format has from the
    first is as late, and says less."""
    return 2 * updated + is_first


class Said(NamedTuple):
    """Where something is said: in a row, or in a file, perhaps deep inside."""

    file: SourceFile
    at: int  # where the row begins; what it is of a file, see `inside`
    length: int
    print: bytes
    cell: Any = None  # what the row says, unless it is to be read again

    def standing(self, rank: int) -> Standing:
        """Which of two prevails: the database, then a file of its own, then by rank, then the
        longer."""
        is_row = self.file.kind == "rows"
        return rank >= 0, is_row, is_row or not self.at, rank, self.length, self.print


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
            try:  # in the second format a message stands there itself
                value = value.get(step, value) if step == "info" else value[step]
            except (LookupError, TypeError, AttributeError):
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

    def put(self, name: str, said: Said, rank: int = 0) -> int:
        """The number of a record; NONE if it is here, and what is said there prevails."""
        number = self.ids.add(name)
        while number >= len(self._lengths):
            self._grow()
        if self._lengths[number]:
            known = self._said(number).standing(self._rank(number))
            if known >= said.standing(rank):
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

    def _rank(self, _: int) -> int:
        return 0

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


class Task(NamedTuple):
    """A session that a call started, and how that went."""

    session: str
    status: str | None
    description: str | None


def child_of(state: dict[str, Any]) -> str | None:
    """The session that a call started, as its state says."""
    said = as_dict(state.get("metadata"))
    return as_text(said.get("sessionId")) or as_text(said.get("sessionID"))


def task_of(state: dict[str, Any]) -> Task | None:
    """The same, and what is said of it."""
    child, given = child_of(state), as_dict(state.get("input"))
    if child is None:
        return None
    return Task(child, as_text(state.get("status")), as_text(given.get("description")))


class Messages(Records):
    """Messages by number. A part may name one before it is here."""

    def __init__(self, loader: Loader) -> None:
        super().__init__(loader)
        self.sessions = Numbering()
        self.tasks: dict[int, list[Task]] = {}  # of the second format
        self._sessions = array("I")
        self._created = array("Q")
        self._kinds = bytearray()
        self._ranks = array("q")
        self._seqs = array("Q")  # one more than in the second format; 0: it is not there

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
        said: Said,
        *,
        session: str,
        created: int,
        kind: int,
        rank: int = 0,
        seq: int = NONE,
        tasks: list[Task] | None = None,
    ) -> None:
        """A message, unless what is said of it elsewhere prevails."""
        number = self.put(name, said, rank)
        if number != NONE:
            self._sessions[number] = self.sessions.add(session)
            self._created[number] = created
            self._kinds[number] = kind
            self._ranks[number] = rank
            self.tasks.pop(number, None)
            if tasks:
                self.tasks[number] = tasks
        if seq != NONE and (number != NONE or said.file.kind == "rows"):
            self._seqs[self.ids.get(name)] = seq + 1

    def session(self, number: int) -> int:
        """The number of the session it is of."""
        return self._sessions[number]

    def created(self, number: int) -> int:
        """When it was made."""
        return self._created[number]

    def type(self, number: int) -> str:
        """Its type in the second format; empty in the first."""
        return TYPE_NAMES[self._kinds[number] >> FLAGS]

    def asks(self, number: int) -> bool:
        """Whether it is the user's."""
        return bool(self._kinds[number] & ASKS)

    def answers(self, number: int) -> bool:
        """Whether it is more than a question."""
        return bool(self._kinds[number] & ANSWERS)

    def is_summary(self, number: int) -> bool:
        """Whether it sums up what was said before."""
        return bool(self._kinds[number] & SUMMARY)

    def places(self, group: Iterable[int]) -> list[Place]:
        """What copies of an exchange in another session have too: the numbers and times of how it
        begins and of what was answered. What else there is differs if it was upgraded: then the
        first format tells what was added to a prompt in it, and a compaction in two messages, of
        which the second has no number."""
        numbered = [number for number in group if self._seqs[number]]
        told = [each for each in numbered if each == numbered[0] or self.answers(each)]
        return [(self._seqs[each], self._created[each]) for each in told]

    def without_repeated(self, numbers: array[int], *, is_second: bool) -> array[int]:
        """The messages of a session, each told once: in one that was upgraded, what was added to a
        prompt stands in it, and behind it as a message of the second format. In one that was not,
        all of that format only repeat some."""
        if not 0 < sum(map(bool, map(self.type, numbers))) < len(numbers):
            return numbers
        seconds = set(filter(self.type, numbers))
        if is_second:
            added = {self._when(n): n for n in seconds if self.type(n) == "synthetic"}
            firsts = (self._when(each) for each in numbers if each not in seconds)
            seconds = {added[when] for when in firsts if when in added}
        return array("I", (each for each in numbers if each not in seconds))

    def _when(self, number: int) -> str:
        """How its id begins: with when it was made. That of what was added to a prompt begins as
        that of the prompt."""
        return self.ids.name(number)[:WHEN]

    def in_order(self, numbers: array[int]) -> Iterator[int]:
        """The same in the order they were made. In the second format they are numbered: a clock
        that was set back does not count."""
        latest = 0
        for number in sorted(filter(self._seqs.__getitem__, numbers), key=self._seqs.__getitem__):
            latest = self._created[number] = max(latest, self._created[number])
        for _, some in groupby(sorted(numbers, key=self.created), key=self.created):
            named = sorted(some, key=self.ids.name)
            named.sort(key=self._seqs.__getitem__)
            yield from named

    def exchanges(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """What was asked with all that was answered; a summary of the second format by itself: the
        agent may go on behind it without being asked."""
        found: list[int] = []
        answered = False
        for number in numbers:
            is_alone = self.type(number) == "compaction"
            if found and (is_alone or (answered and self.asks(number))):
                yield found
                found, answered = [], False
            found.append(number)
            answered = answered or self.answers(number)
            if is_alone:
                yield found
                found, answered = [], False
        if found:
            yield found


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


def parts_of(messages: Messages, parts: Parts, message: int) -> list[int]:
    """The parts of a message in order. In the second format it has none: what there are, are what
    it was made of."""
    return [] if messages.type(message) else parts.of(message)
