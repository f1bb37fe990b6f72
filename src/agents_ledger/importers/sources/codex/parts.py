"""Codex: the turns of a family as its files have them, packed: one may have a million records."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.port.source import Line, Material, fingerprint
from agents_ledger.importers.transcript.packed_store import Packed
from agents_ledger.importers.transcript.record_offsets import Places
from agents_ledger.importers.transcript.turn_tree import Groups, as_dict, parsed

VERSION = 16
KINDS = ("item", "asked", "said", "detail", "context")
KIND = 3  # bits before a number of its kind
_NUMBERS = {kind: number for number, kind in enumerate(KINDS)}

Total = dict[str, int]  # tokens of a thread so far, by kind
Grown = tuple[Total, Total]  # from which to which


class Piece(Struct, frozen=True, gc=False):
    """A record of a turn: what it is to the turn, and which of its kind."""

    kind: str
    number: int
    record: dict[str, Any]


class Part(Struct, array_like=True):
    """A turn as one file has it: forks have copies of it, some of them cut short."""

    id: str
    task: str  # the source's turn id, or this one's
    parent: str | None
    file_id: int
    file_thread: str
    replayed: bool  # it is a turn of another thread
    provider: str | None
    cwd: str | None  # of its thread; older versions say it nowhere else
    began: int  # when its thread did: the oldest say no other time
    by_agent: bool  # its prompts come from an agent
    is_compaction: bool = False
    context_tokens: int | None = None  # of the context that was compacted
    trigger: str | None = None
    items: int = 0
    weight: int = 0  # of two copies the heavier is the longer
    events: int = 0
    said: int = 0  # texts of the agent that only events may hold
    has_words: bool = False
    prompts: set[int] = field(default_factory=set)  # their keys
    answered: bool = False
    summarises: bool = False  # what came before it stands in no file
    grown: list[Grown] = field(default_factory=list)  # each without a gap
    first_at: int = 0
    ended: bool = False  # since its last prompt, with or without an answer

    @property
    def is_summary(self) -> bool:
        """Whether nothing but a summary of what stands in no file is known of it."""
        return self.summarises and not (self.answered or self.prompts)

    @property
    def tokens(self) -> dict[str, int]:
        """What was spent in it."""
        spent: dict[str, int] = {}
        for before, after in self.grown:
            for name, number in after.items():
                grown = max(0, number - before.get(name, 0))
                if grown or name != "cache_write_tokens":
                    spent[name] = spent.get(name, 0) + grown
        return spent


Rank = tuple[int, bool, int, int, list[bytes], str]


class Parts(Packed[Part]):
    """The turns by number, and the records of each."""

    def __init__(self, material: Material) -> None:
        super().__init__(Part)
        self._places = Places(material)
        self._owners = array("i")
        self._notes = array("I")  # which of its kind each is, and its kind
        self._records = Groups((), 0)

    # -- their records ------------------------------------------------------------------------

    def note(self, part: int, kind: str, number: int, line: Line) -> None:
        """A record of a turn, and which of its kind it is."""
        self._places.add(line)
        self._owners.append(part)
        self._notes.append(number << KIND | _NUMBERS[kind])

    def group(self) -> None:
        """All records are noted: put those of each turn beside each other."""
        self._records = Groups(self._owners, len(self))
        del self._owners

    def pieces(self, part: int) -> Sequence[Piece]:
        """The records of a turn in order."""
        return self._places.each(self._records[part], self._piece)

    def _piece(self, number: int) -> Piece:
        note = self._notes[number]
        kind = KINDS[note & (1 << KIND) - 1]
        return Piece(kind, note >> KIND, as_dict(parsed(self._places.bytes_of(number))))

    def fingerprint(self, number: int, part: Part, *, sealed: bool) -> bytes:
        """Of all that the content of a turn comes from."""
        said = repr((sorted(part.tokens.items()), *_told(part), sealed))
        prints = map(self._places.print, self._records[number])
        return fingerprint(VERSION, (*prints, said.encode()))

    def share_tokens(self, one: int, other: int) -> None:
        """What two copies of a turn say together of its tokens, as either may have lost a total."""
        self[one].grown = self[other].grown = _together(
            self.read(one).grown, self.read(other).grown
        )

    def rank(self, number: int) -> Rank:
        """The longest copy tells most, then the original, then the earliest."""
        part = self.read(number)
        prints = list(map(self._places.print, self._records[number]))
        told = repr(_told(part))
        return (part.weight, not part.replayed, len(prints), -part.first_at, prints, told)


def go_on(grown: list[Grown], before: Total, after: Total) -> None:
    """One more total of a turn, and the one before it."""
    if grown and grown[-1][1] == before and all(after.get(n, -1) >= before[n] for n in before):
        before = grown.pop()[0]
    grown.append((before, after))


def _together(one: list[Grown], other: list[Grown]) -> list[Grown]:
    """A copy that lost a total begins too early, or ends so. The one with more gaps saw them."""
    if len(one) != len(other):
        return max(one, other, key=len)
    pairs = zip(one, other, strict=True)
    return [(max(a[0], b[0], key=_size), max(a[1], b[1], key=_size)) for a, b in pairs]


def _size(total: Total) -> tuple[int, list[tuple[str, int]]]:
    return total.get("total_tokens", 0), sorted(total.items())


def _told(part: Part) -> tuple[object, ...]:
    """What its content comes from beside its own records."""
    about = (part.provider, part.cwd, part.began, part.by_agent)
    return (*about, part.context_tokens, part.trigger) if part.is_compaction else about
