"""pi and OpenClaw: how entries become a tree of turns.

A fork is two prompts below one turn, as /tree and edits make in pi, or a session that has copies of
another's entries (entries.py). Any other two entries with one parent are a message that OpenClaw's
gateway writes at the same time: 18 of 24 such places in real files.
"""

from __future__ import annotations

from collections.abc import Sequence

from agents_ledger.importers.sources.pi.entries import PiEntries
from agents_ledger.importers.sources.pi.rules import ASKING
from agents_ledger.importers.transcript.turn_tree import EntryTree


class PiTree(EntryTree):
    """The turns of a family. A turn has the id of the entry that opens it."""

    def __init__(self, entries: PiEntries, order: Sequence[int]) -> None:
        self.entries = entries
        for entry in order:
            # OpenClaw truncates a transcript at its compaction: then the session begins there.
            if entries.kind(entry) == "compaction" and entries.parents[entry] is None:
                entries.set_kind(entry, "branch")
        super().__init__(entries.parents, order)
        for entry in order:
            turn = self.turn_of(entry)
            if turn is not None and entries.kind(entry) == "assistant":
                self.settle(turn)
        for turn in range(len(self)):
            if entries.kind(self.opener(turn)) == "compaction" and self.parent(turn) is not None:
                self.settle(turn)
        self._first_kept = self._kept_turns()

    def opens(self, entry: int) -> bool:
        """A prompt opens a turn, a compaction does, and what continues after a compaction."""
        kind = self.entries.kind(entry)
        if kind in ASKING or kind == "compaction":
            return True
        parent = self.entries.parents[entry]
        return parent is not None and self.entries.kind(parent) == "compaction" and kind != "usage"

    def joins(self, opener: int, above: int, *, waits: bool) -> bool:
        """Prompts without an answer between them are one query."""
        kind, kind_above = self.entries.kind(opener), self.entries.kind(above)
        return waits and kind in ASKING and kind_above != "compaction"

    def ends(self, entry: int) -> bool:
        return self.entries.kind(entry) == "assistant"

    def move_entries(self) -> None:
        """Put a result into the turn of its call, even if another prompt came between."""
        for entry, caller in enumerate(self.entries.callers):
            turn = self.turn_of(entry)
            if caller is not None and turn is not None and self.opener(turn) != entry:
                self.move(entry, self.turn_of(self.entries.first(caller)))

    def name(self, turn: int) -> str:
        return self.entries.name(self.opener(turn))

    def head(self, entry: int | None) -> str | None:
        """The id of the nearest settled turn at or above an entry."""
        return None if entry is None else self.head_name(self.turn_of(self.entries.first(entry)))

    def first_kept(self, turn: int) -> int | None:
        """The first turn that a compaction kept; None if it kept none above it, or if nothing is
        before that turn."""
        return self._first_kept.get(turn)

    def _kept_turns(self) -> dict[int, int]:
        firsts: dict[int, int] = {}
        for compaction, entry in self.entries.first_kept.items():
            turn, first = self.turn_of(compaction), self.turn_of(self.entries.first(entry))
            if turn is not None and first is not None and self.opener(turn) == compaction:
                firsts[turn] = first
        below = self.steps_towards(firsts)
        return {
            t: first for t, first in firsts.items() if t in below and self.parent(first) is not None
        }
