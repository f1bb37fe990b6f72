"""Copilot CLI: the copies of turns in the files of a family, and the events of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import chain
from typing import Any

from msgspec import field

from agents_ledger.importers.parsing.lenient_json import as_dict, as_number, parse_json
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.port.material import Material, SourceLine
from agents_ledger.importers.sources.copilot import rules
from agents_ledger.importers.transcript.merge_copies import TurnCopies, TurnCopy
from agents_ledger.model.turns import Usage

KINDS = (rules.PROMPT, rules.COMPACTION, *sorted(rules.CARRIED))
COLUMNS = Usage.__struct_fields__
# A message reports its output alone.
MESSAGE_COLUMNS = (COLUMNS.index("output_tokens"), COLUMNS.index("total_tokens"))


class CopilotTurnCopy(TurnCopy, array_like=True):
    """A turn as one file has it."""

    model: str | None
    cwd: str | None
    answered: bool = False
    failed: bool = False  # before any answer
    # Tokens by number of the column: the names would take half of a packed copy.
    counts: dict[int, int] = field(default_factory=dict)
    # They may include tokens used before its file begins.
    is_estimate: bool = False
    reports: int = 0  # how often its file reported tokens up to here
    spawned: dict[str, str] = field(default_factory=dict)  # labels of subagents, by call
    # The call that started the subagent whose turn this is.
    subagent: str | None = None
    # The entry of that call, which contains the prompt.
    start: int | None = None
    first_at: int = 0  # of all turns of a subagent
    last_at: int = 0
    depth: int = 1  # turns from the root to it

    def add_tokens(self, tokens: Mapping[str, int]) -> None:
        for name, number in tokens.items():
            column = COLUMNS.index(name)
            self.counts[column] = self.counts.get(column, 0) + number

    def add_outcome(self, kind: str, error_type: object) -> None:
        """Note whether an event answers or fails the turn."""
        self.answered = self.answered or kind in rules.ANSWERS
        self.failed = self.failed or rules.ends_turn(kind, error_type)

    @property
    def is_settled(self) -> bool:
        return self.answered or self.failed

    @property
    def tokens(self) -> dict[str, int]:
        return {COLUMNS[column]: number for column, number in self.counts.items()}


Rank = tuple[bool, int, int, int, bool, int, int, list[bytes], list[str]]


class CopilotCopies(TurnCopies[CopilotTurnCopy]):
    """Names are those of events, too."""

    def __init__(self, material: Material) -> None:
        super().__init__(CopilotTurnCopy, material, KINDS)
        # Events made of a document have no bytes in a file that could be read again.
        self._document_events: dict[int, bytes] = {}

    def add_event(
        self, copy: int | None, kind: str, name: int, line: SourceLine, *, in_document: bool
    ) -> int:
        """Add an event to a copy, or to none yet, and return its entry."""
        entry = self.entries.add(line, kind, copy, name)
        if in_document:
            self._document_events[entry] = line.data or b""
        return entry

    def event(self, entry: int) -> dict[str, Any]:
        data = self._document_events.get(entry) or self.entries.data(entry)
        return as_dict(parse_json(data))

    def event_name(self, entry: int) -> str:
        return self.names.name(self.entries.tag(entry))

    def all_entries(self, number: int) -> Iterable[int]:
        """Those of a subagent begin with the call that started it."""
        start, entries = self.read(number).start, self.entries.of(number)
        return entries if start is None else chain((start,), entries)

    def keep(self, number: int, kept: Set[int], *, with_totals: bool) -> None:
        """Leave a copy only some of its entries, from the next grouping on. `with_totals`: it keeps
        what the totals at the end of the run add to the output of its messages."""
        copy, counts = self[number], Counter[int]()
        copy.answered, copy.failed = copy.is_compaction, False
        for entry in self.entries.of(number):
            kind, data = self.entries.kind(entry), as_dict(self.event(entry).get("data"))
            tokens = as_number(data.get("outputTokens")) if kind == "assistant.message" else None
            if entry in kept:
                copy.add_outcome(kind, data.get("errorType"))
            else:
                self.entries.give(entry, None)
            if tokens is not None and (entry in kept) != with_totals:
                counts.update(dict.fromkeys(MESSAGE_COLUMNS, tokens))
        copy.counts = dict(Counter(copy.counts) - counts if with_totals else counts)

    def rank(self, number: int) -> Rank:
        """The copy with the latest event shows the turn as it is now; then the one with the most
        turns before it, and then the longest, is the best. Exact tokens come before estimates, then
        the file that reported tokens most often: what another has lost is in its later totals."""
        copy, fingerprints = self.read(number), self.fingerprints(number)
        entries = self.entries.of(number)
        parent = self.names.name(copy.parent) if copy.parent is not None else ""
        tokens = not copy.is_estimate, copy.reports, copy.tokens.get("total_tokens", 0)
        history = bool(entries), self._last_time(entries), copy.depth, len(fingerprints)
        return (*history, *tokens, fingerprints, [copy.cwd or "", copy.model or "", parent])

    def _last_time(self, entries: Sequence[int]) -> int:
        events = map(self.event, reversed(entries))
        times = (milliseconds(event.get("timestamp")) for event in events)
        return next(filter(None, times), 0)
