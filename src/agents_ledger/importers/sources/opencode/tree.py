"""opencode: how the messages of sessions become one tree of turns, and the derived sessions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from msgspec import Struct

from agents_ledger.importers.parsing.json_values import pruned
from agents_ledger.importers.parsing.lenient_json import DEPTH_MAX, as_dict, as_text, project_name
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.opencode.records import OpencodeTask
from agents_ledger.importers.sources.opencode.rules import (
    DEFAULT_TITLE,
    NAME,
    SESSION_METADATA,
    TASK_STATUSES,
)
from agents_ledger.importers.sources.opencode.storage import OpencodeSession, StorageReader
from agents_ledger.importers.transcript.packed_store import PackedList
from agents_ledger.importers.transcript.turn_tree import TurnTree, parents_first
from agents_ledger.model.imports.sources import DerivedSession

# The number of a message in its session, and its time.
Position = tuple[int | None, int]


def session_label(session_id: str) -> str:
    return f"{NAME}:{session_id}"[:500]


class OpencodeTurn(Struct, array_like=True):
    session: str
    messages: list[int]
    is_compaction: bool


class OpencodeTree(TurnTree):
    """The turns of all sessions: messages that ask, and those that answer them."""

    def __init__(self, storage: StorageReader) -> None:
        super().__init__()
        self.messages = storage.messages
        self.sessions = storage.sessions
        self.derived_sessions: list[DerivedSession] = []
        self.turns = PackedList(OpencodeTurn, storage.messages.limits)
        self.copies: dict[int, list[int]] = {}  # by turn, the messages of forks that repeat it
        forks = {
            name: session.forked_from
            for name, session in sorted(storage.sessions.items())
            if session.messages
        }
        # By forked session and position of its first message, each turn.
        self._forked: dict[str, dict[Position, int]] = {n: {} for n in forks.values() if n}
        for name in parents_first(forks):  # a session before its forks
            session = self.sessions[name]
            self.derived_sessions.append(self._derived(session, self._add_session(session)))

    def name(self, turn: int) -> str:
        """The id of a turn: that of its first message."""
        return self.messages.name(self.turns.read(turn).messages[0])

    def _add_session(self, session: OpencodeSession) -> str | None:
        """Add the turns of a session. The head is the last turn that was answered and not
        reverted."""
        head: int | None = None
        reverted: int | None = None  # the last turn of the branch that was reverted
        spans = self._reverted_spans(session)
        of_parent = self._forked.get(session.forked_from or "", {})
        for group in self._exchanges(session.messages):
            positions = self._positions(group)
            turn = self._turn_of_copies(group, positions, of_parent)
            is_reverted = False
            if turn is None:
                created = self.messages.record(group[0]).created
                # Up to the time of the revert: what was asked later is on the path again.
                is_reverted = any(first <= created <= last for first, last in spans)
                follows_reverted = is_reverted and reverted is not None
                turn = self._add_turn(session, group, reverted if follows_reverted else head)
            if positions and session.id in self._forked:
                self._forked[session.id][positions[0]] = turn
            if is_reverted:
                reverted = turn
            elif any(self.messages.record(number).answers for number in group):
                head, reverted = turn, None
        return None if head is None else self.name(head)

    def _add_turn(self, session: OpencodeSession, group: list[int], parent: int | None) -> int:
        has_summary = any(self.messages.record(number).is_summary for number in group)
        self.turns.add(OpencodeTurn(session.id, group, parent is not None and has_summary))
        return self.add(parent)

    def _exchanges(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """What was asked with all that was answered. A compaction of the second format is a turn of
        its own: the agent may continue after it without being asked."""
        group: list[int] = []
        is_answered = is_alone = False
        for number in numbers:
            message, was_alone = self.messages.record(number), is_alone
            is_alone = message.type == "compaction"
            if group and (is_alone or was_alone or (is_answered and message.asks)):
                yield group
                group, is_answered = [], False
            group.append(number)
            is_answered = is_answered or message.answers
        if group:
            yield group

    # -- forks: they begin with copies that have new ids, and the same numbers and times ------

    def _positions(self, group: Iterable[int]) -> list[Position]:
        """What the copies of an exchange in a fork have in common: the numbers and times of its
        first message and of the answers.

        The other messages differ if the session was upgraded: in the first format text added to a
        prompt is part of it, and a compaction has two messages, the second without a number.
        """
        numbered = [m for m in map(self.messages.record, group) if m.seq is not None]
        return [(m.seq, m.created) for m in numbered if m is numbered[0] or m.answers]

    def _turn_of_copies(
        self, group: list[int], positions: list[Position], turns: dict[Position, int]
    ) -> int | None:
        """The turn of the forked session that some messages are copies of."""
        turn = turns.get(positions[0]) if positions else None
        if turn is None:
            return None
        members = self.turns.read(turn).messages
        if positions != self._positions(members) or not self._times(group) <= self._times(members):
            return None
        self.copies.setdefault(turn, []).extend(group)
        return turn

    def _times(self, group: Iterable[int]) -> set[int]:
        return {self.messages.record(number).created for number in group}

    def _reverted_spans(self, session: OpencodeSession) -> list[tuple[int, int]]:
        """The times of the first reverted messages, and of the reverts."""
        firsts = ((self.messages.get(name), until) for name, until in session.reverts.items())
        return [(m.created, until) for m, until in firsts if m and m.session == session.id]

    # -- sessions -----------------------------------------------------------------------------

    def _derived(self, session: OpencodeSession, head: str | None) -> DerivedSession:
        fields, directory = session.fields, session.directory
        reported = as_dict(fields.get("time"))
        times = set(filter(None, self._times(session.messages)))
        title = as_text(fields.get("title"))
        metadata = {name: fields.get(name) for name in SESSION_METADATA} | {
            "workspace_path": directory,
            "project": project_name(directory) if directory else None,
        }
        task = session.task or OpencodeTask("", None, None)
        return DerivedSession(
            session_id=session.id,
            label=session_label(session.id),
            head=head,
            file_ids=frozenset(session.file_ids),
            title=title if title and not DEFAULT_TITLE.fullmatch(title) else None,
            created_at=milliseconds(reported.get("created")) or min(times, default=0),
            updated_at=max(milliseconds(reported.get("updated")), max(times, default=0)),
            is_subagent=session.parent is not None,
            parent_label=session_label(session.parent) if session.parent else None,
            task_description=task.description,
            task_status=TASK_STATUSES.get(task.status or ""),
            routing_key=directory,
            metadata=as_dict(pruned(metadata, DEPTH_MAX + 1)),
        )
