"""Copilot CLI: how the logs of a family become one tree of turns, and its sessions."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import project_name
from agents_ledger.importers.sources.copilot import rules
from agents_ledger.importers.sources.copilot.log import CopilotLog
from agents_ledger.importers.sources.copilot.turn_copies import CopilotCopies, CopilotTurnCopy
from agents_ledger.importers.transcript.columns import Links
from agents_ledger.importers.transcript.merge_copies import MergedTurns
from agents_ledger.model.imports.sources import DerivedSession

Strength = tuple[bool, bool, bool, int, bool, str]


class CopilotTree(MergedTurns[CopilotTurnCopy]):
    copies: CopilotCopies

    def __init__(self, copies: CopilotCopies) -> None:
        claims = EventClaims(copies)
        self._continued_by = claims.continued_by
        super().__init__(copies, claims.merged_into)

    def head_of(self, number: int | None) -> str | None:
        """The nearest settled turn at or above the end of a copy."""
        if number is None:
            return None
        return self.head(self._continued_by.get(number, self.copies.read(number).name))


# -- events that several turns have, as where one file has lost a prompt ----------------------


class EventClaims:
    """Decides which turn has each event; other copies lose it.

    A file that has more prompts is right: what another file has as the rest of an earlier turn
    belongs to the turn that begins last before it.
    """

    def __init__(self, copies: CopilotCopies) -> None:
        # By name of a turn that is left without events: the turn that has them.
        self.merged_into: dict[int, int] = {}
        # By copy that lost its end: the turn that continues there.
        self.continued_by: dict[int, int] = {}
        self._copies = copies
        # One file has each event once.
        if len({copy.file_id for copy in copies}) > 1 and self._are_contested():
            self._divide(self._owners())
        copies.entries.free_owners()

    def _keys(self, number: int) -> list[int]:
        entries = self._copies.entries
        return [entries.tag(entry) for entry in entries.of(number)]

    def _are_contested(self) -> bool:
        """Whether several turns have an event."""
        owners = Links.empty(len(self._copies.names))
        for number, copy in enumerate(self._copies):
            for key in self._keys(number):
                if owners[key] not in (None, copy.name):
                    return True
                owners[key] = copy.name
        return False

    def _owners(self) -> dict[int, int]:
        """For each event the name of the turn with the strongest claim."""
        depths = self._depths()
        best: dict[int, tuple[Strength, int]] = {}
        for number, copy in enumerate(self._copies):
            for key, strength in self._strengths(number, copy, depths[copy.name]):
                claim = strength, copy.name
                best[key] = max(best.get(key, claim), claim)
        return {key: name for key, (_, name) in best.items()}

    def _strengths(
        self, number: int, copy: CopilotTurnCopy, depth: int
    ) -> Iterator[tuple[int, Strength]]:
        """How strong the claims of a copy to its events are."""
        entries, keys = self._copies.entries, self._keys(number)
        opener = keys.index(copy.name) if copy.name in keys else -1
        kind = entries.kind(entries.of(number)[opener]) if opener >= 0 else ""
        has_prompt = kind in (rules.PROMPT, rules.COMPACTION)
        is_subagent, name = copy.subagent is not None, self._copies.id(number)
        for index, key in enumerate(keys):
            opens = has_prompt and index == opener
            yield key, (opens, index >= opener, is_subagent, depth, has_prompt, name)

    def _depths(self) -> Sequence[int]:
        """By name, how deep a turn is in the tree. Each file may know turns that others do not."""
        depths = array("I", bytes(4 * len(self._copies.names)))
        # Each pass carries depths across one more file; more passes than files change nothing.
        for _ in {copy.file_id for copy in self._copies}:
            before = depths[:]
            for copy in self._copies:
                above = depths[copy.parent] if copy.parent is not None else 0
                depths[copy.name] = max(depths[copy.name], above + 1)
            if depths == before:
                break
        return depths

    def _divide(self, owners: Mapping[int, int]) -> None:
        """Leave each copy its own events, and attach what follows to the turn that continues."""
        copies = self._copies
        latest = Links.empty(len(copies.names))  # by name, the copy in the file at hand
        subagents = {copy.name for copy in copies if copy.subagent is not None}
        heirs: dict[int, int] = {}
        remaining: set[int] = set()  # the names of turns that are left with something
        for number, copy in enumerate(copies):
            above = latest[copy.parent] if copy.parent is not None else None
            # The copy above lost its end to another turn: what follows it follows that turn.
            if above is not None and above in self.continued_by:
                copies[number].parent = self.continued_by[above]
            latest[copy.name] = number
            share = self._share(number, copy.name, owners, subagents)
            if share.is_whole:
                remaining.add(copy.name)
                continue
            copies.keep(number, share.entries, with_totals=not share.has_start)
            if share.entries or not share.other_turns:
                remaining.add(copy.name)
            if not share.other_turns:
                continue
            if share.has_start:
                self.continued_by[number] = share.other_turns[-1]
            else:
                heirs.setdefault(copy.name, share.other_turns[0])
                if share.entries and copy.parent is None and copy.subagent is None:
                    copies[number].parent = share.other_turns[0]
        copies.entries.group(len(copies))
        self.merged_into = {name: heir for name, heir in heirs.items() if name not in remaining}

    def _share(
        self, number: int, name: int, owners: Mapping[int, int], subagents: set[int]
    ) -> CopyShare:
        """What a copy is left with. A subagent and its caller never take events of each other's
        turns over."""
        names = [owners.get(key, name) for key in self._keys(number)]
        entries = self._copies.entries.of(number)
        own = {entry for entry, owner in zip(entries, names, strict=True) if owner == name}
        is_subagent = name in subagents
        other_turns = [n for n in names if n != name and (n in subagents) == is_subagent]
        return CopyShare(own, other_turns, names[:1] == [name], len(own) == len(names))


class CopyShare(NamedTuple):
    """What a copy of a turn is left with once every event has one turn."""

    entries: set[int]
    # The names of the turns that have its other entries.
    other_turns: list[int]
    has_start: bool
    is_whole: bool


# -- sessions ---------------------------------------------------------------------------------

Workspaces = Mapping[str, Mapping[str, str]]  # the values of workspace.yaml, by session


def sessions_of(
    logs: Sequence[CopilotLog], workspaces: Workspaces, tree: CopilotTree
) -> Iterator[DerivedSession]:
    """One session for the files with its id, and one for each of its subagents."""
    by_session: dict[str, list[CopilotLog]] = {}
    for log in logs:
        by_session.setdefault(log.session_id, []).append(log)
    for session_id, files in sorted(by_session.items()):
        latest = _latest(files, tree.copies)
        workspace = workspaces.get(session_id, {})
        metadata = _metadata(latest, workspace)
        session = DerivedSession(
            session_id=session_id,
            label=f"{rules.NAME}:{session_id}",
            head=tree.head_of(latest.last_turn),
            file_ids=frozenset(log.file.id for log in files),
            title=workspace.get("name") or workspace.get("summary"),
            created_at=latest.first_at,
            updated_at=latest.last_at,
            routing_key=metadata.get("cwd"),
            metadata=metadata,
        )
        yield session
        subagents = {call_id: turn for log in files for call_id, turn in log.subagents.items()}
        for call_id, number in subagents.items():
            last = tree.best_of(tree.copies.read(number))
            yield _subagent_session(session, call_id, last, tree.head_of(number))


def _latest(files: list[CopilotLog], copies: CopilotCopies) -> CopilotLog:
    """The file with the latest event; of several the longest."""

    def rank(log: CopilotLog) -> tuple[int, int]:
        return log.last_at, len(log.turns)

    def names(log: CopilotLog) -> list[str]:
        return sorted(map(copies.id, log.turns))

    highest = max(map(rank, files))
    equal = [log for log in files if rank(log) == highest]
    return equal[0] if len(equal) == 1 else max(equal, key=names)


def _metadata(log: CopilotLog, workspace: Mapping[str, str]) -> dict[str, Any]:
    fields = rules.WORKSPACE_FIELDS.items()
    metadata = {name: workspace[theirs] for name, theirs in fields if workspace.get(theirs)}
    metadata |= log.metadata
    if "cwd" in metadata:
        metadata["project"] = project_name(metadata["cwd"])
    return metadata


def _subagent_session(
    parent: DerivedSession, call_id: str, last: CopilotTurnCopy, head: str | None
) -> DerivedSession:
    return DerivedSession(
        session_id=f"{parent.session_id}:{call_id}",
        label=f"{parent.label}:{call_id}",
        head=head,
        file_ids=parent.file_ids,
        agent_id=call_id,
        created_at=last.first_at,
        updated_at=last.last_at,
        is_subagent=True,
        parent_label=parent.label,
        metadata=parent.metadata,
    )
