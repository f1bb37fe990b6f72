"""Codex: the copies of turns in a family of rollouts: a fork replays the turns of its parent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from msgspec import field

from agents_ledger.importers.parsing.lenient_json import as_dict, parse_json
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.transcript.merge_copies import TurnCopies, TurnCopy

ROLES = ("item", "prompt_event", "agent_event", "detail", "context")

Totals = dict[str, int]  # tokens of a thread so far, by column
Growth = tuple[Totals, Totals]  # totals before and after


class TurnRecord(NamedTuple):
    """A record of a turn: its role in the turn, and its number among those of that role."""

    role: str
    number: int
    record: dict[str, Any]


class CodexTurnCopy(TurnCopy, array_like=True):
    """A turn as one file has it: forks have copies of it, some of them cut short."""

    task: str  # the source's turn id; without one the same as the id
    file_thread: str
    is_replayed: bool  # it belongs to another thread than its file
    provider: str | None
    # Of its thread; older versions name it nowhere else.
    cwd: str | None
    # When its thread started; the oldest rollouts have no other time.
    thread_time: int
    is_subagent: bool
    context_tokens: int | None = None  # before the compaction
    trigger: str | None = None
    items: int = 0
    # Items alone: versions differ in the events they keep.
    weight: int = 0  # the heavier of two copies is the longer one
    prompt_events: int = 0
    agent_events: int = 0
    has_assistant_items: bool = False
    prompts: set[int] = field(default_factory=set)  # their keys
    answered: bool = False
    # It begins with the summary of a history that is in no file.
    is_first_summary: bool = False
    growth: list[Growth] = field(default_factory=list)  # of the totals; gaps between them
    # By response, its tokens; if its task has any, the totals do not count.
    responses: dict[str, Totals] = field(default_factory=dict)
    has_usage_records: bool = False
    first_at: int = 0
    # Turns of its task up to here: a compaction cuts a task into several.
    task_turns: int = 0
    task_compactions: int = 0
    # It was moved below a compaction, and nothing was added since.
    was_moved: bool = False
    ended: bool = False  # since its last prompt, with or without an answer

    @property
    def is_summary(self) -> bool:
        """Whether it consists only of the summary of a history that is in no file."""
        return self.is_first_summary and not (self.answered or self.prompts)

    @property
    def is_settled(self) -> bool:
        return self.answered or self.ended or self.is_summary

    @property
    def tokens(self) -> dict[str, int]:
        used: dict[str, int] = {}
        # Totals leave out the responses that compact automatically, and fall there (0.151).
        responses: list[Growth] = [({}, usage) for usage in self.responses.values()]
        for before, after in responses if self.has_usage_records else self.growth:
            for name, number in after.items():
                grown = max(0, number - before.get(name, 0))
                # Cache writes were seen in 0.146 only: elsewhere a 0 would claim there were none.
                if grown or name != "cache_write_tokens":
                    used[name] = used.get(name, 0) + grown
        return used

    @property
    def context(self) -> tuple[object, ...]:
        """What its content depends on besides its own records."""
        context = (self.provider, self.cwd, self.thread_time, self.is_subagent)
        return (*context, self.context_tokens, self.trigger) if self.is_compaction else context


Rank = tuple[int, bool, int, int, list[bytes], str]


class CodexCopies(TurnCopies[CodexTurnCopy]):
    def __init__(self, material: Material) -> None:
        super().__init__(CodexTurnCopy, material, ROLES)

    def records(self, number: int) -> Sequence[TurnRecord]:
        return self.entries.records(self.entries.of(number), self._record)

    def _record(self, entry: int) -> TurnRecord:
        record = as_dict(parse_json(self.entries.data(entry)))
        return TurnRecord(self.entries.kind(entry), self.entries.tag(entry), record)

    def merge(self, one: int, other: int) -> None:
        """Give two copies of a turn what both know of its tokens: either may miss a total."""
        first, second = self.read(one), self.read(other)
        growth, responses = _merged(first.growth, second.growth), first.responses | second.responses
        has_records = first.has_usage_records or second.has_usage_records
        for number in (one, other):
            copy = self[number]
            copy.growth, copy.responses, copy.has_usage_records = growth, responses, has_records

    def rank(self, number: int) -> Rank:
        """The longest copy is the best, then the original, then the earliest."""
        copy, records = self.read(number), self.fingerprints(number)
        order = copy.weight, not copy.is_replayed, len(records), -copy.first_at
        return (*order, records, repr(copy.context))


def add_growth(steps: list[Growth], growth: Growth) -> None:
    """Add one more step of the totals; steps without a gap become one."""
    before, after = growth
    if steps and steps[-1][1] == before and all(after.get(n, -1) >= before[n] for n in before):
        before = steps.pop()[0]
    steps.append((before, after))


def _merged(one: list[Growth], other: list[Growth]) -> list[Growth]:
    """A copy without a total starts too early or ends too early. The one with more gaps is right
    about them."""
    if len(one) != len(other):
        return max(one, other, key=len)
    pairs = zip(one, other, strict=True)
    return [(max(a[0], b[0], key=_size), max(a[1], b[1], key=_size)) for a, b in pairs]


def _size(totals: Totals) -> tuple[int, list[tuple[str, int]]]:
    return totals.get("total_tokens", 0), sorted(totals.items())
