"""Claude Code: how records become a tree of turns, and how a fork is recognised.

A fork is one of these, and nothing else:

- Two prompts below the same turn. Any other two records with one parent are parallel calls and
  their results, progress and attachments: of 3,036 such places in real logs 5 or 6 were forks. See
  `ClaudeTree.opens`.
- A session that has copies of another's records: `claude --resume` up to 1.0 and `--fork-session`
  copy them into a new file with their uuids, so that both sessions share turns. See
  `register` in entries.py.
- A prompt below a record in the middle of a turn, from which the agent continued elsewhere. It
  follows the whole turn, and its session notes the record (docs/decisions/0018). See
  `ClaudeTree.forks_within`.
- A background fork of 2.1, whose `fork-context-ref` names the last record that it knows
  (sessions.py, `forked_at`).

Not forks: history that is written again under new ids, or behind a compaction (entries.py,
`find_repeats` and `PreservedRecords`); a command that the program itself answered
(`ClaudeTree.fold`); a prompt that a late hook hangs on a compaction (`_gather_continuations`).

A prompt that sets off a compaction is answered behind it: both are one turn, below the compaction
(`CompactedPrompts`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence, Set
from itertools import takewhile
from typing import NamedTuple

from agents_ledger.importers.sources.claude_code.entries import ClaudeEntries
from agents_ledger.importers.sources.claude_code.rules import ASKING, COMPACTION, ENDING, PASSIVE
from agents_ledger.importers.transcript.columns import Links, nearest_above
from agents_ledger.importers.transcript.turn_tree import EntryTree, Grouping, OpenerChildren


class PreservedTurns(NamedTuple):
    """The turns that a compaction left whole in the context."""

    first: str
    summarized_through: str  # the last turn before them


class ClaudeTree(EntryTree):
    """The turns of a family. A turn has the uuid of the record that opens it."""

    def __init__(self, entries: ClaudeEntries, automatic: Set[int] = frozenset()) -> None:
        """`automatic`: the boundaries of compactions that nobody asked for."""
        self.entries = entries
        self._compacted_prompts = CompactedPrompts(entries, automatic).hang() if automatic else {}
        order = entries.order()
        self._compaction_above = _compactions_above(entries)
        self._moved = self._gather_continuations(order)
        super().__init__(entries.parents, order)
        self._settle_turns()

    def _settle_turns(self) -> None:
        """A turn is settled if it was answered, or if it failed after something was asked."""
        all_kinds = self.entries.kinds_by(self._turn_of, len(self))
        for turn in range(len(self)):
            kinds = all_kinds[turn]
            failed = "failure" in kinds and not kinds.isdisjoint(("queued", *ASKING))
            if failed or not kinds.isdisjoint(("assistant", *COMPACTION)):
                self.settle(turn)

    # -- which records are a turn -------------------------------------------------------------

    def opens(self, entry: int) -> bool:
        """A prompt opens a turn, a compaction does, and work that continues after one."""
        kind = self.entries.kind(entry)
        if kind in ASKING or kind in COMPACTION:
            return True
        if self._compaction_above is None or kind in PASSIVE:
            return False
        return self._compaction_above[entry] is not None

    def joins(self, opener: int, above: int, *, waits: bool) -> bool:
        """Prompts without an answer between them are one query. A summary belongs to the boundary
        above it."""
        # 1.0 has summaries without a boundary: these open a turn themselves.
        kind, kind_above = self.entries.kind(opener), self.entries.kind(above)
        if kind == "summary" and kind_above == "boundary":
            return True
        return waits and kind in ASKING and kind_above in ASKING

    def ends(self, entry: int) -> bool:
        """An answer or a failure ends the waiting."""
        return self.entries.kind(entry) in ENDING

    def _gather_continuations(self, order: Sequence[int]) -> Set[int]:
        """Put what follows a compaction in one file into one turn, and the next prompt below that.

        Hooks that are reported late may hang both on the compaction itself (2.1). Returns the
        records that were moved.
        """
        entries, compaction_above = self.entries, self._compaction_above
        if compaction_above is None:
            return frozenset()
        # By compaction and file, where the agent continued.
        starts: dict[tuple[int, int], int] = {}
        queued: dict[tuple[int, int], list[int]] = {}  # typed before it did
        moved: dict[int, int] = {}
        for entry, places in self._after_compactions(order, compaction_above):
            continued = [starts[place] for place in places if place in starts]
            if continued:
                moved[entry] = continued[0]
            elif entries.kind(entry) == "queued":
                for place in places:
                    queued.setdefault(place, []).append(entry)
            elif entries.kind(entry) in ("assistant", "result"):
                start = self._compacted_prompts.get(places[0][0], entry)
                starts |= dict.fromkeys(places, start)
                moved |= {e: start for place in places for e in queued.pop(place, ())}
                moved |= {} if start == entry else {entry: start}
        for entry, start in moved.items():
            entries.parents[entry], compaction_above[entry] = start, None
        return moved.keys()

    def _after_compactions(
        self, order: Sequence[int], compaction_above: Links
    ) -> Iterator[tuple[int, list[tuple[int, int]]]]:
        """The active entries that follow a compaction, each with its compaction and files."""
        entries = self.entries
        for entry in order:
            above = compaction_above[entry]
            is_active = entries.kind(entry) not in (*PASSIVE, *COMPACTION)
            if above is not None and is_active and entry not in self._compacted_prompts.values():
                up = entries.parents[above]
                is_summary = up is not None and entries.kind(up) == "boundary"
                compaction = up if up is not None and is_summary else above
                yield entry, [(compaction, file_id) for file_id in entries.files[entry]]

    def fold(self, groups: Grouping) -> Mapping[int, int | None]:
        """Turns in which no agent was asked anything. Notices before the first prompt belong to
        that prompt. A command that the program itself answered (`/exit`, `/model`) belongs to the
        turn before: coming back after it is no fork."""
        parents, children = groups.parents, OpenerChildren(groups)
        kinds = self.entries.kinds_by(groups.opener_of, len(groups.opener_of))
        folded: dict[int, int | None] = {}
        for opener in groups.openers:
            if parents[opener] is not None:
                continue
            child = children.only(opener)
            told_before = child is not None and kinds[opener].issubset(PASSIVE)
            if told_before or kinds[opener] == {"other"}:
                folded[opener] = child
        for child in folded.values():
            if child is not None:
                parents[child] = None
        local = [
            opener
            for opener in groups.openers
            if "printed" in kinds[opener] and kinds[opener].issubset((*PASSIVE, "command"))
        ]
        _fold_before_forks(groups, {opener for opener in local if children.several(opener)}, folded)
        for opener in local:
            if parents[opener] is not None and children.none(opener):
                folded[opener] = parents[opener]
        return folded

    # -- what sessions and turns need to know -------------------------------------------------

    def name(self, turn: int) -> str:
        return self.entries.name(self.opener(turn))

    def forks_within(self) -> dict[int, int]:
        """Prompts below a record from which the agent continued: by turn, that record."""
        prompted, continued = 1, 2
        entries, parents = self.entries, self.entries.parents
        state = bytearray(len(entries))
        for _, above in self._prompts_below_entries():
            state[above] = prompted
        for entry, parent in enumerate(parents):
            if parent is None or state[parent] != prompted:
                continue
            # Progress and attachments below the record do not show that the agent continued from
            # it.
            is_work = entries.kind(entry) in ("assistant", "result")
            if is_work and self.turn_of(parent) == self.turn_of(entry):
                state[parent] = continued
        return {
            turn: above
            for turn, above in self._prompts_below_entries()
            if state[above] == continued and self.opener(turn) not in self._moved
        }

    def _prompts_below_entries(self) -> Iterator[tuple[int, int]]:
        """The turns that a prompt opens below an entry, and that entry."""
        for turn in range(len(self)):
            above = self.entries.parents[self.opener(turn)]
            if above is not None and self.entries.kind(self.opener(turn)) in ASKING:
                yield turn, above

    def preserved_turns(self, preserved: Mapping[int, str]) -> dict[int, PreservedTurns]:
        """The turns that compactions left whole, by the compaction's turn. `preserved` gives the
        first record that each compaction left; of the turn that it is in the middle of, nothing
        is left whole."""
        first_entries: dict[int, int | None] = {}
        first_turns: dict[int, int] = {}
        for boundary, uuid in preserved.items():
            turn, first = self.turn_of(boundary), self.entries.find(uuid)
            if turn is None or turn in first_entries:
                continue
            first_entries[turn] = first
            first_turn = None if first is None else self.turn_of(first)
            if first_turn is not None:
                first_turns[turn] = first_turn
        whole_turns: dict[int, PreservedTurns] = {}
        for turn, step in self.steps_towards(first_turns).items():
            above = first_turns[turn]
            # Members may precede the opener: notices before the first prompt belong to its turn.
            is_whole = first_entries[turn] in (self.opener(above), self.members(above)[0])
            first, through = (above, self.parent(above)) if is_whole else (step, above)
            if first != turn and through is not None:
                whole_turns[turn] = PreservedTurns(self.name(first), self.name(through))
        return whole_turns

    def free(self) -> None:
        """Free all but what turns need."""
        self.free_entries()
        self._compaction_above, self._moved = None, frozenset()
        self.entries.free()


class CompactedPrompts:
    """Prompts that set off a compaction before they were answered (2.1.45).

    The boundary follows the prompt, and the answer the summary. What was summarised ends before the
    prompt: so the compaction goes there, and the prompt below the summary.
    """

    def __init__(self, entries: ClaudeEntries, boundaries: Set[int]) -> None:
        self._entries = entries
        self._nearest = _nearest_active(entries)
        self._queries = {boundary: list(self._prompts_above(boundary)) for boundary in boundaries}
        looked_at = {prompt for query in self._queries.values() for prompt in query} | boundaries
        self._children: dict[int, list[int]] = {}  # active entries and failures, of few entries
        for entry, parent in enumerate(entries.parents):
            above = None if parent is None else self._nearest[parent]
            is_passive = entries.kind(entry) in PASSIVE and entries.kind(entry) != "failure"
            if above is None or is_passive:
                continue
            if above in looked_at or entries.kind(above) == "summary":
                self._children.setdefault(above, []).append(entry)

    def hang(self) -> dict[int, int]:
        """Move the prompts below their compactions: by boundary, the last prompt."""
        parents, prompts = self._entries.parents, dict[int, int]()
        for boundary, query in sorted(self._queries.items()):
            summary = self._summary(boundary)
            waiting = list(takewhile(self._waits, query))
            # Without a turn before them nothing was summarised.
            if waiting and self._above(waiting[-1]) is not None and self._continues(boundary):
                parents[boundary], parents[waiting[-1]] = parents[waiting[-1]], summary
                prompts[boundary] = waiting[0]
        return prompts

    def _above(self, entry: int) -> int | None:
        """The nearest active entry above one."""
        parent = self._entries.parents[entry]
        above = None if parent is None else self._nearest[parent]
        return None if above is None or self._entries.kind(above) in PASSIVE else above

    def _prompts_above(self, boundary: int) -> Iterator[int]:
        """The prompts above a boundary, the last one first."""
        above, seen = self._above(boundary), set[int]()
        while above is not None and above not in seen and self._entries.kind(above) in ASKING:
            yield above
            seen.add(above)
            above = self._above(above)

    def _waits(self, prompt: int) -> bool:
        """Whether only one thing follows a prompt: the next prompt, or the compaction."""
        below = (e for e in self._children[prompt] if self._entries.kind(e) != "queued")
        return len(list(below)) == 1

    def _summary(self, boundary: int) -> int:
        children = self._children.get(boundary, ())
        return next((e for e in children if self._entries.kind(e) == "summary"), boundary)

    def _continues(self, boundary: int) -> bool:
        """Whether the agent continued from a compaction before another prompt."""
        places, kind = {boundary, self._summary(boundary)}, self._entries.kind
        following = (entry for place in places for entry in self._children.get(place, ()))
        following = (entry for entry in following if kind(entry) not in ("queued", "summary"))
        first = min(following, default=None)
        return first is not None and kind(first) in ("assistant", "result")


def _nearest_active(entries: ClaudeEntries) -> array[int]:
    """By entry, the nearest one at or above it that asks or answers; the root without one."""
    order, parents = range(len(entries)), entries.parents
    return nearest_above(order, parents, lambda entry: entries.kind(entry) not in PASSIVE)


def _compactions_above(entries: ClaudeEntries) -> Links | None:
    """By entry, the compaction above it with only passive entries between; None without any."""
    if not entries.has_kind(*COMPACTION):
        return None
    nearest = _nearest_active(entries)
    above = Links.empty(len(entries))
    for entry, parent in enumerate(entries.parents):
        if parent is not None and entries.kind(nearest[parent]) in COMPACTION:
            above[entry] = nearest[parent]
    return above


def _fold_before_forks(groups: Grouping, local: Set[int], folded: dict[int, int | None]) -> None:
    """Fold commands that only the program answered into the turn above, where the prompt after them
    was taken back and asked again: all of these prompts follow that turn."""
    for opener in groups.openers if local else ():
        path: dict[int, None] = {}
        at = groups.parents[opener]
        while opener not in local and at is not None and at in local and at not in path:
            path[at] = None
            at = groups.parents[at]
        if path and at is not None and at not in path:
            for moved in (opener, *path):
                groups.parents[moved] = at
            folded |= dict.fromkeys(path, at)
