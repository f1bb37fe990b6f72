"""Claude Code: the records of a tree by number, in columns: a session may have millions of them."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from agents_ledger.importers.port.source import Line, Material
from agents_ledger.importers.sources.claude_code import records
from agents_ledger.importers.sources.claude_code.records import Record
from agents_ledger.importers.transcript.record_offsets import Places
from agents_ledger.importers.transcript.turn_tree import NONE, openers, roots_first
from agents_ledger.model.imports.interning import Numbering, Sets

KINDS = (
    "prompt",
    "command",
    "summary",
    "boundary",
    "assistant",
    "result",
    "notice",
    "printed",
    "queued",
    "other",
    "copy",
    "failure",  # that nothing came of what was asked
)
PROMPT, COMMAND, SUMMARY, BOUNDARY, ASSISTANT, RESULT = range(6)
NOTICE, PRINTED, QUEUED, OTHER, COPY, FAILURE = range(6, 12)
MAIN, INLINE, OWN_FILE = range(3)  # whose a record is: a subagent's may be in its parent's file
LOST = -2  # what a record follows is not known yet


class _Lost(NamedTuple):
    parent: str
    previous: int  # the record before it in its file


class Nodes:
    """The records of a tree, without their content."""

    def __init__(self, material: Material) -> None:
        self.material = material
        self.ids = Numbering()
        self.places = Places(material)
        self.files = Sets()
        self.kinds = bytearray()
        self.sides = bytearray()
        self.ats = array("Q")  # when
        self.parents = array("i")  # the record above, or NONE
        self.file_sets = array("I")
        self.spills: dict[int, tuple[str, ...]] = {}  # outputs in files of their own that one names
        self._inserted: Mapping[int, Iterable[int]] = {}
        self._lost: dict[int, _Lost] = {}
        self._before = self._last = ("", NONE)  # most records follow the one before
        self._passing = Numbering()  # records of no turn
        self._passed_to = array("i")  # the record each of them hangs on, NONE, or LOST
        self._passed_lost: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self.kinds)

    def order(self) -> Sequence[int]:
        """The records in the order they were first read, each behind the one it hangs on: that may
        stand in a file which is read later."""
        found = self._as_read()
        if any(above > number for number, above in enumerate(self.parents)):
            found = array("i", roots_first(found, self.parents[:]))
        return found

    def _as_read(self) -> Sequence[int]:
        if not self._inserted:
            return range(len(self))
        found = array("i")
        inserted = {number for numbers in self._inserted.values() for number in numbers}
        for number in range(len(self)):
            if number not in inserted:
                found.append(number)
                found.extend(self._inserted.get(number, ()))
        return found

    def number(self, uuid: str) -> int:
        """The number of a record. If there are no more than that yet, it is to be added."""
        number = self.ids.add(uuid)
        self._before, self._last = self._last, (uuid, number)
        return number

    def add(
        self,
        uuid: str,
        kind: int,
        line: Line,
        *,
        at: int,
        parent: str | None,
        previous: int,
        side: int,
        file_set: int,
    ) -> None:
        """The record that has the next number. `previous` is the one before it in its file."""
        self.parents.append(previous)
        self.hang(len(self.kinds), uuid, parent, previous, side)
        self.places.add(line)
        self.kinds.append(kind)
        self.sides.append(side)
        self.ats.append(at)
        self.file_sets.append(file_set)

    def hang(self, number: int, uuid: str, parent: str | None, previous: int, side: int) -> None:
        """Hang a record on the one that it says it follows, or as long as that is not known on
        nothing. It is the last one whose number was asked for."""
        above = previous
        self._lost.pop(number, None)
        if parent is None:
            above = NONE if side else previous
        elif parent == self._before[0] and side == MAIN:
            above = self._before[1]
        elif parent != uuid:
            above = self._above(parent, previous)
            if above == LOST:
                self._lost[number] = _Lost(parent, previous)
        self.parents[number] = above

    def insert(self, after: Mapping[int, Iterable[int]]) -> None:
        """Say after which records those added last were written."""
        self._inserted = after

    def pass_on(self, uuid: str, parent: str | None) -> None:
        """A record of no turn: what hangs on it hangs on what it hangs on."""
        number = self._passing.add(uuid)
        to = NONE
        if parent is not None:
            to = self._get(parent)
            known = self._passing.get(parent) if to < 0 else NONE
            if to < 0:
                to = self._passed_to[known] if known not in (NONE, number) else LOST
        if number == len(self._passed_to):
            self._passed_to.append(to)
        else:
            self._passed_to[number] = to
            self._passed_lost.pop(number, None)
        if to == LOST:
            self._passed_lost[number] = str(parent)

    # -- what hangs on what -------------------------------------------------------------------

    def _above(self, parent: str, previous: int) -> int:
        """The record above, as it says, as far as that is known yet."""
        found = self._get(parent)
        if found < 0:
            passing = self._passing.get(parent)
            found = self._passed_to[passing] if passing >= 0 else LOST
            if found == NONE:
                return previous
        return found

    def _get(self, uuid: str) -> int:
        """The number of a record; less than 0 if it is not here."""
        for known, number in (self._before, self._last):
            if uuid == known:
                return number
        return self.ids.get(uuid)

    def settle(self) -> None:
        """All records are here: where the one above is lost, it is the one before in its file."""
        for number, (parent, previous) in self._lost.items():
            seen = {self.ids.name(number)}
            at: str | None = parent
            found = LOST
            while at is not None and at not in seen:
                found = self.ids.get(at)
                passing = self._passing.get(at) if found < 0 else NONE
                if passing < 0:
                    break
                seen.add(at)
                found = self._passed_to[passing]
                at = self._passed_lost.get(passing) if found < 0 else None
            if found >= 0:
                self.parents[number] = found
                continue
            self.parents[number] = previous
            if at is not None and at not in seen and self.sides[number] != OWN_FILE:
                what = f"the record it follows is not there: {at}"
                self.material.fault(self.places.line(number), what)
        self._lost.clear()
        if OTHER in self.kinds:
            self._begin_below()

    def let_go(self) -> None:
        """Of all that only the tree was made of: a million turns may still have to be written."""
        self.ids.close()
        self.sides, self.ats = bytearray(), array("Q")
        self.parents, self.file_sets = array("i"), array("I")

    def repeat(self, copies: Iterable[tuple[int, int]]) -> None:
        """Some records repeat others: they belong to those, and what hangs on them hangs there."""
        originals: dict[int, int] = {}
        for copy, original in copies:
            first = _original(original, originals)
            if first != copy:
                originals[copy] = first
        for number, above in enumerate(self.parents) if originals else ():
            first = _original(originals.get(number, above), originals)
            self.parents[number] = first if first != number else NONE
        for copy in originals:
            self.kinds[copy] = COPY

    def set_apart(self) -> dict[int, int]:
        """What a subagent was asked begins a tree of its own. Returns the records that begin one
        below a record of the session, and that."""
        found: dict[int, int] = {}
        if not any(self.sides):
            return found
        for number, side in enumerate(self.sides):  # a copy may be all that is left of a record
            above = self.parents[number] if side == MAIN else NONE
            while above >= 0 and self.sides[above] == OWN_FILE:
                self.sides[above] = MAIN
                above = self.parents[above]
        for number, side in enumerate(self.sides):
            above = self.parents[number]
            begins = side == INLINE or (side == OWN_FILE and self.kinds[number] == PROMPT)
            if begins and above >= 0 and self.sides[above] == MAIN:
                found[number] = above
                self.parents[number] = NONE
        return found

    def _begin_below(self) -> None:
        """What hooks left before anything was said is no part of a thread, which begins below."""
        unsaid = array("i", (n for n, kind in enumerate(self.kinds) if kind == OTHER))
        tops = openers(unsaid, self.parents, lambda number: self.kinds[number] != OTHER)
        before = bytearray(len(self))
        for number in unsaid:
            before[number] = self.kinds[tops[number]] == OTHER
        for number, above in enumerate(self.parents):
            if above >= 0 and before[above]:
                self.parents[number] = NONE


def side_of(record: Record) -> int:
    """Whether a record is a subagent's, and in a file of its own."""
    if not record.is_sidechain:
        return MAIN
    return OWN_FILE if record.agent_id else INLINE


def user_kind(text: str, *, is_side: bool) -> int:
    """What a user's record with these words is. What begins as a command does is typed to the
    agent, unless the program prints something then; a subagent is given no commands."""
    if text.startswith(records.COMMANDS):
        return COMMAND
    if records.is_printed(text):
        return PRINTED
    if text.startswith(records.INTERRUPTED):
        return FAILURE
    if records.is_notice(text):
        return NOTICE
    return COMMAND if records.TYPED.fullmatch(text) and not is_side else PROMPT


def notice_kind(record: Record) -> int:
    """What the program says itself: of commands of its own also what they printed."""
    if record.subtype == "compact_boundary":
        return BOUNDARY
    if records.is_given_up(record.subtype, record.retry_attempt, record.max_retries):
        return FAILURE
    said = record.content
    printed = isinstance(said, str) and records.is_printed(said)
    return PRINTED if printed else NOTICE


def _original(number: int, originals: Mapping[int, int]) -> int:
    while number in originals:  # what is repeated in one file may be a repetition in another
        number = originals[number]
    return number
