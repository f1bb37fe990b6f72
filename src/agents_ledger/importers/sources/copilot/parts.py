"""Copilot CLI: the turns of a family as its files have them, packed: some have a million events."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from msgspec import Struct, field

from agents_ledger.importers.port.source import Line, Material, fingerprint
from agents_ledger.importers.transcript.packed_store import Packed
from agents_ledger.importers.transcript.record_offsets import Places
from agents_ledger.importers.transcript.turn_builder import milliseconds
from agents_ledger.importers.transcript.turn_tree import NONE, Groups, as_dict, as_number, parsed
from agents_ledger.model.imports.interning import Numbering
from agents_ledger.model.turns import Usage

NAME = "copilot"
VERSION = 14
ANSWERS = {"assistant.message", "assistant.reasoning", "tool.execution_start"}
ADDED = "user.message:added"  # by the program, while a prompt is worked on
CARRIED = ANSWERS | {
    ADDED,
    "abort",
    "permission.completed",
    "session.error",
    "session.truncation",
    "subagent.started",
    "system.message",
    "system.notification",
    "tool.execution_complete",
}
KINDS = ("user.message", "compaction", *sorted(CARRIED))
TOKENS = Usage.__struct_fields__
BESIDE = "mcp"  # errors of servers that a prompt may or may not need
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}
PROMPT, COMPACTION = _NUMBERS["user.message"], _NUMBERS["compaction"]
SAID = (TOKENS.index("output_tokens"), TOKENS.index("total_tokens"))  # by a message of its own


def may_fail(kind: str, error_type: object) -> bool:
    """Whether an event ends a turn that waits for an answer."""
    return kind == "abort" or (kind == "session.error" and error_type != BESIDE)


class Piece(NamedTuple):
    """An event of a turn."""

    kind: str
    key: str
    data: bytes


class Part(Struct, array_like=True):
    """A turn as one file has it. Names are numbers."""

    name: int
    above: int  # the name of the turn above, or NONE
    file_id: int
    model: int  # or NONE, as below
    cwd: int
    is_compaction: bool = False
    answered: bool = False
    failed: bool = False  # before any answer
    spent: dict[int, int] = field(default_factory=dict)  # tokens, by the number of their kind
    is_guess: bool = False  # these may hold what was spent before its file begins
    heard: int = 0  # how often its file told of tokens up to here
    spawned: dict[str, str] = field(default_factory=dict)
    subagent: str | None = None  # the call that started it, if it is one's
    asked: int = NONE  # the event of that call: it says what was asked
    first_at: int = 0  # of all turns of a subagent
    last_at: int = 0
    depth: int = 1  # turns from the first to it

    def spend(self, tokens: Mapping[str, int]) -> None:
        """Tokens of one more call of the model."""
        for name, number in tokens.items():
            kind = TOKENS.index(name)
            self.spent[kind] = self.spent.get(kind, 0) + number

    def heed(self, kind: str, error_type: object) -> None:
        """What an event says of how it went."""
        self.answered = self.answered or kind in ANSWERS
        self.failed = self.failed or may_fail(kind, error_type)

    @property
    def ended(self) -> bool:
        """Whether it was answered, or failed before it was."""
        return self.answered or self.failed

    @property
    def tokens(self) -> dict[str, int]:
        """What was spent, by name."""
        return {TOKENS[kind]: number for kind, number in self.spent.items()}


Rank = tuple[bool, int, int, int, bool, int, int, list[bytes], list[str]]


class Parts(Packed[Part]):
    """The turns by number, and the events of each."""

    def __init__(self, material: Material) -> None:
        super().__init__(Part)
        self.names = Numbering()  # of events, turns, models and folders
        self._places = Places(material)
        self._told: dict[int, bytes] = {}  # events that stand in no file
        self._owners = array("i")
        self._kinds = bytearray()
        self._keys = array("I")
        self._events = Groups((), 0)

    def note(self, part: int, kind: str, key: int, line: Line, *, told: bool = False) -> int:
        """One more event of a turn, or of NONE yet. `told`: it stands in no file."""
        number = len(self._owners)
        self._places.add(line)
        self._owners.append(part)
        self._kinds.append(_NUMBERS[kind])
        self._keys.append(key)
        if told:
            self._told[number] = line.data or b""
        return number

    def give(self, event: int, part: int) -> None:
        """Say which turn an event is of."""
        self._owners[event] = part

    def group(self) -> None:
        """All events are noted: put those of each turn beside each other."""
        self._events = Groups(self._owners, len(self))

    def settle(self) -> None:
        """Each event is of its turn for good."""
        del self._owners

    def events(self, number: int) -> Sequence[int]:
        """The events of a turn in order, by number."""
        return self._events[number]

    def key(self, event: int) -> int:
        """The name of an event."""
        return self._keys[event]

    def kind(self, event: int) -> int:
        """What kind of event it is, by number."""
        return self._kinds[event]

    def keep(self, number: int, kept: Set[int], *, with_totals: bool) -> None:
        """Leave a turn only these of its events, from the next grouping on. `with_totals`: it has
        what the totals at the end say of it."""
        part, spent = self[number], Counter[int]()
        part.answered, part.failed = part.is_compaction, False
        for event in self._events[number]:
            kind, data = KINDS[self._kinds[event]], as_dict(parsed(self._bytes(event)))
            said = as_dict(data.get("data"))
            tokens = as_number(said.get("outputTokens")) if kind == "assistant.message" else None
            if event in kept:
                part.heed(kind, said.get("errorType"))
            else:
                self._owners[event] = NONE
            if tokens is not None and (event in kept) != with_totals:
                spent.update(dict.fromkeys(SAID, tokens))
        if with_totals:
            spent = Counter(part.spent) - spent
        part.spent = dict(spent)

    def text(self, name: int) -> str | None:
        """What a number means; None if it is NONE."""
        return self.names.name(name) if name != NONE else None

    def pieces(self, number: int) -> Iterator[Piece]:
        """The events of a turn in order."""
        for event in self._all(number, self.read(number)):
            name = self.names.name(self._keys[event])
            yield Piece(KINDS[self._kinds[event]], name, self._bytes(event))

    def _bytes(self, event: int) -> bytes:
        return self._told.get(event) or self._places.bytes_of(event)

    def keys(self, number: int, part: Part) -> tuple[str, ...]:
        """Their names."""
        return tuple(self.names.name(self._keys[event]) for event in self._all(number, part))

    def _all(self, number: int, part: Part) -> Iterable[int]:
        events = self._events[number]
        return events if part.asked == NONE else chain((part.asked,), events)

    def _prints(self, number: int, part: Part) -> list[bytes]:
        return list(map(self._places.print, self._all(number, part)))

    def fingerprint(self, number: int, part: Part, *, sealed: bool) -> bytes:
        """Of all that the content of a turn comes from."""
        counted, spawned = sorted(part.tokens.items()), sorted(part.spawned.items())
        said = (counted, spawned, self.text(part.model), self.text(part.cwd))
        told = repr((said, sealed)).encode(errors="replace")
        return fingerprint(VERSION, (*self._prints(number, part), told))

    def rank(self, number: int) -> Rank:
        """The copy with the latest event says how it is now; else the one that knows most of what
        came before it, and of those the longest, tells most. Tokens that are sure are before
        others, and then those of the file that told of tokens most often: what another has lost
        stands in its later totals."""
        part, has_events = self.read(number), bool(self._events[number])
        prints, counted = self._prints(number, part), part.tokens.get("total_tokens", 0)
        ended_at, is_sure = self._ended_at(number), not part.is_guess
        said = [self.text(name) or "" for name in (part.cwd, part.model, part.above)]
        sure = (is_sure, part.heard, counted)
        return (has_events, ended_at, part.depth, len(prints), *sure, prints, said)

    def _ended_at(self, number: int) -> int:
        """When the last event was that says so."""
        last_first = map(self._bytes, reversed(self._events[number]))
        times = (milliseconds(as_dict(parsed(data)).get("timestamp")) for data in last_first)
        return next(filter(None, times), 0)
