"""Copilot CLI: events that turns of several files claim, as where one file has lost a prompt.

An event is of one turn. The file that shows more prompts knows better: what another has as the rest
of an earlier turn is of the one that begins last before it.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence

from agents_ledger.importers.sources.copilot.parts import COMPACTION, PROMPT, Part, Parts
from agents_ledger.importers.transcript.turn_tree import NONE

Strength = tuple[bool, bool, bool, int, bool, str]


class Claims:
    """Which turn has each event: what others claim is taken from them."""

    def __init__(self, parts: Parts) -> None:
        self.same: dict[int, int] = {}  # by the name of a turn with nothing of its own: whose it is
        self.ends: dict[int, int] = {}  # by a turn that lost its end, the turn that goes on there
        self._parts = parts
        claimed = self._claimed()
        if claimed:
            self._decide(claimed)
        parts.settle()

    def _claimed(self) -> set[int]:
        """The events that several turns have."""
        parts = self._parts
        holders = array("i", [NONE]) * len(parts.names)
        found: set[int] = set()
        for number, part in enumerate(parts):
            for event in parts.events(number):
                key = parts.key(event)
                if holders[key] not in (NONE, part.name):
                    found.add(key)
                holders[key] = part.name
        return found

    def _decide(self, claimed: set[int]) -> None:
        parts, depths = self._parts, self._depths()
        best: dict[int, tuple[Strength, int]] = {}
        for number, part in enumerate(parts):
            events = parts.events(number)
            if not claimed.isdisjoint(map(parts.key, events)):
                for key, strength in self._strengths(part, events, depths[part.name]):
                    if key in claimed:
                        claim = strength, part.name
                        best[key] = max(best.get(key, claim), claim)
        self._take({key: name for key, (_, name) in best.items()})

    def _strengths(
        self, part: Part, events: Sequence[int], depth: int
    ) -> Iterator[tuple[int, Strength]]:
        """How well a turn's claims to its events are founded."""
        parts = self._parts
        keys = [parts.key(event) for event in events]
        opener = keys.index(part.name) if part.name in keys else NONE
        is_asked = opener != NONE and parts.kind(events[opener]) in (PROMPT, COMPACTION)
        is_subagent, name = part.subagent is not None, parts.names.name(part.name)
        for at, key in enumerate(keys):
            opens = is_asked and at == opener
            yield key, (opens, at >= opener, is_subagent, depth, is_asked, name)

    def _depths(self) -> Sequence[int]:
        """By name, how many turns lead to one. Each file may know some that others do not."""
        depths = array("I", bytes(4 * len(self._parts.names)))
        for _ in {part.file_id for part in self._parts}:
            before = depths[:]
            for part in self._parts:
                above = depths[part.above] if part.above != NONE else 0
                depths[part.name] = max(depths[part.name], above + 1)
            if depths == before:
                break
        return depths

    def _take(self, owners: dict[int, int]) -> None:
        """Leave each turn what is its own, and hang what follows on the turn that goes on there."""
        parts = self._parts
        latest = array("i", [NONE]) * len(parts.names)  # by name, the turn of the file at hand
        subagents = {part.name for part in parts if part.subagent is not None}
        heirs: dict[int, int] = {}
        whole: set[int] = set()  # the names of turns that have something
        for number, part in enumerate(parts):
            if part.above != NONE and latest[part.above] in self.ends:
                parts[number].above = self.ends[latest[part.above]]
            latest[part.name] = number
            events = parts.events(number)
            owned = [owners.get(parts.key(event), part.name) for event in events]
            kept = {event for event, name in zip(events, owned, strict=True) if name == part.name}
            if kept or not events:
                whole.add(part.name)
            if len(kept) == len(events):
                continue
            begins = owned[0] == part.name
            parts.keep(number, kept, with_totals=not begins)
            # What a subagent did is of no turn of who called it, nor the other way round.
            is_subagent = part.name in subagents
            others = [n for n in owned if n != part.name and (n in subagents) == is_subagent]
            if not others:
                whole.add(part.name)
            elif begins:
                self.ends[number] = others[-1]
            else:
                heirs.setdefault(part.name, others[0])
                if kept and part.above == NONE and part.subagent is None:
                    parts[number].above = others[0]
        parts.group()
        self.same = {name: heir for name, heir in heirs.items() if name not in whole}
