"""Codex: how the rollouts of a family become one tree of turns, and its sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, project_name
from agents_ledger.importers.parsing.timestamps import UUID7, milliseconds, uuid7_ms
from agents_ledger.importers.sources.codex.log import Rollout
from agents_ledger.importers.sources.codex.records import Payload
from agents_ledger.importers.sources.codex.rules import GIT_FIELDS, META_FIELDS, NAME
from agents_ledger.importers.sources.codex.turn_copies import CodexCopies, CodexTurnCopy
from agents_ledger.importers.transcript.merge_copies import MergedTurns
from agents_ledger.model.imports.sources import DerivedSession, SourceTitle


class CodexTree(MergedTurns[CodexTurnCopy]):
    copies: CodexCopies

    def __init__(self, rollouts: Sequence[Rollout], copies: CodexCopies) -> None:
        self.references = RolloutReferences(rollouts, copies)
        super().__init__(copies)
        for name, file_ids in self.references.file_ids.items():
            self.add_files(self._turns.numbers[name], file_ids)


# -- paginated histories: a rollout continues from a point in another, without replaying it ---


class RolloutReferences:
    """Names of rollouts as record ids of turns: they make one family of rollouts that have no
    record in common. A turn that is named so belongs to the files that continue from it, too."""

    def __init__(self, rollouts: Sequence[Rollout], copies: CodexCopies) -> None:
        self.names: dict[int, list[str]] = {}  # by name of a turn
        self.file_ids: dict[int, set[int]] = {}
        self._attach(rollouts, copies)
        rollouts = [rollout for rollout in rollouts if rollout.turns]
        turns: dict[str, int] = {}  # by rollout: its first turn
        for rollout in rollouts:
            if rollout.ordinals.first is not None:
                turns.setdefault(rollout.id, copies.read(rollout.turns[0]).name)
        for rollout in rollouts:
            # Of a missing rollout: the first turn that continues it.
            if rollout.meta.base is not None:
                first = copies.read(rollout.turns[0]).name
                turn = turns.setdefault(rollout.meta.base.rollout_id, first)
                self.file_ids.setdefault(turn, set()).add(rollout.file.id)
        for rollout_id, turn in turns.items():
            self.names.setdefault(turn, []).append(f"{NAME}:rollout:{rollout_id}")

    @staticmethod
    def _attach(rollouts: Sequence[Rollout], copies: CodexCopies) -> None:
        """Make the turns that rollouts continue from the parents of their first turns."""
        by_id: dict[str, Rollout] = {}
        for rollout in rollouts:
            by_id.setdefault(rollout.id, rollout)
        for rollout in rollouts:
            parent = _base_turn(rollout, by_id)
            for number in rollout.turns if parent is not None else ():
                if parent is not None and copies.read(number).parent is None:
                    copies[number].parent = copies.read(parent).name


def _base_turn(rollout: Rollout, by_id: dict[str, Rollout]) -> int | None:
    """The turn that a rollout continues from, through rollouts without turns of their own."""
    base, first = rollout.meta.base, rollout.ordinals.first
    visited: set[str] = set()
    # Ordinals grow along a chain of rollouts; anything else would be a cycle.
    while base and first is not None and base.end <= first and base.rollout_id not in visited:
        visited.add(base.rollout_id)
        other = by_id.get(base.rollout_id)
        if other is None:
            break
        turn, first = other.ordinals.turn_before(base.end), other.ordinals.first
        if turn is not None:
            return turn
        base = other.meta.base
    return None


# -- sessions ---------------------------------------------------------------------------------


def sessions_of(rollouts: Sequence[Rollout], tree: CodexTree) -> Iterator[DerivedSession]:
    """One session for each thread with a file, and for each that only forks replay."""
    threads: dict[str, list[Rollout]] = {}
    for rollout in rollouts:
        threads.setdefault(rollout.thread, []).append(rollout)
    for thread, files in threads.items():
        # No path as a tie-break: archived threads move to another folder.
        files.sort(key=lambda r: (r.last_at, len(r.turns), r.first_line))
        yield _own_session(thread, files, tree)
    for thread, replays in _replays(rollouts, tree.copies).items():
        if thread not in threads:
            yield _replayed_session(thread, replays, tree)


def latest_titles(titles: Iterable[SourceTitle]) -> dict[str, SourceTitle]:
    return {title.record_id: title for title in sorted(titles, key=SourceTitle.rank)}


def _own_session(thread: str, files: list[Rollout], tree: CodexTree) -> DerivedSession:
    latest, copies = files[-1], tree.copies
    titles = [rollout.title for rollout in files if rollout.title]
    meta = latest.meta
    extra: dict[str, Any] = {"cwd": latest.cwd} if latest.cwd and not as_text(meta.cwd) else {}
    # The turns that it was forked within, each with the last record that it has of it.
    within = {
        copies.id(number): f"{copies.id(number)}:{copy.items - 1}"
        for number, copy in zip(latest.turns, map(copies.read, latest.turns), strict=True)
        if copy.is_replayed and copy.items > 0 and copy.weight < tree.best_of(copy).weight
    }
    extra |= {"forked_within": within} if within else {}
    return _session(
        thread,
        meta,
        extra,
        head=tree.head(copies.read(latest.path[-1]).name) if latest.path else None,
        title=titles[-1] if titles else None,
        file_ids=frozenset(rollout.file.id for rollout in files),
        created_at=milliseconds(meta.timestamp) or uuid7_ms(thread) or latest.first_at,
        updated_at=latest.last_at or milliseconds(meta.timestamp),
    )


class Replay(NamedTuple):
    """A thread as the file of a fork replays it."""

    meta: Payload
    length: int  # in turns
    last: int  # the last of them
    file_id: int


def _replays(rollouts: Sequence[Rollout], copies: CodexCopies) -> dict[str, list[Replay]]:
    replays: dict[str, list[Replay]] = {}
    for rollout in rollouts:
        for fork, meta in zip(rollout.metas, rollout.metas[1:], strict=False):
            before = [turn for turn in rollout.turns if _precedes(copies.read(turn).task, fork.id)]
            if before:
                replay = Replay(meta, len(before), before[-1], rollout.file.id)
                replays.setdefault(meta.id, []).append(replay)
    return replays


def _precedes(task: str, thread: Any) -> bool:
    """Whether a turn is older than a thread: both ids begin with their time."""
    if not (isinstance(thread, str) and UUID7.fullmatch(thread) and UUID7.fullmatch(task)):
        return False
    return task < thread


def _replayed_session(thread: str, replays: list[Replay], tree: CodexTree) -> DerivedSession:
    longest = max(replays, key=lambda replay: (replay.length, tree.copies.rank(replay.last)))
    last = tree.copies.read(longest.last)
    return _session(
        thread,
        longest.meta,
        {"only_in_forks": True},
        head=tree.head(last.name),
        file_ids=frozenset(replay.file_id for replay in replays),
        created_at=milliseconds(longest.meta.timestamp) or uuid7_ms(thread),
        # The fork's timestamps are those of the replay.
        updated_at=uuid7_ms(last.task),
    )


def _session(thread: str, meta: Payload, extra: dict[str, Any], **fields: Any) -> DerivedSession:
    metadata = {
        name: value
        for name, theirs in META_FIELDS.items()
        if (value := as_text(getattr(meta, theirs))) is not None
    } | extra
    git = as_dict(meta.git)
    metadata |= {name: git[key] for name, key in GIT_FIELDS.items() if as_text(git.get(key))}
    if as_text(meta.source):
        metadata["source"] = meta.source
    if meta.history_base is not None:
        metadata["history_base"] = meta.history_base
    if "cwd" in metadata:
        metadata["project"] = project_name(metadata["cwd"])
    parent = meta.parent_thread
    return DerivedSession(
        session_id=thread,
        label=f"{NAME}:{thread}",
        is_subagent=meta.is_subagent,
        agent_id=thread if meta.is_subagent else None,
        parent_label=f"{NAME}:{parent}" if parent and parent != thread else None,
        routing_key=metadata.get("cwd"),
        metadata=metadata,
        **fields,
    )
