"""opencode: how the messages of sessions become one tree of turns, and the derived sessions."""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator

from agents_ledger.importers.parsing.json_values import pruned
from agents_ledger.importers.parsing.lenient_json import as_dict, as_text, project_name
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.opencode.messages import MessageStore
from agents_ledger.importers.sources.opencode.records import OpencodeTask
from agents_ledger.importers.sources.opencode.rules import (
    DEFAULT_TITLE,
    NAME,
    SESSION_METADATA,
    TASK_STATUSES,
)
from agents_ledger.importers.sources.opencode.storage import OpencodeSession, StorageReader
from agents_ledger.importers.transcript.turn_tree import TurnTree, parents_first
from agents_ledger.model.imports.sources import DerivedSession

# The number of a message in its session, and its time.
Position = tuple[int | None, int]


def session_label(session_id: str) -> str:
    return f"{NAME}:{session_id}"[:500]


class OpencodeTree(TurnTree):
    """The turns of all sessions: messages that ask, and those that answer them."""

    def __init__(self, messages: MessageStore, forked: Collection[str | None]) -> None:
        """`forked`: the sessions that others are forks of; these must be added first."""
        super().__init__()
        self.messages = messages
        self.copies: dict[int, list[int]] = {}  # by turn, the messages of forks that repeat it
        self._members = array("I")  # the messages of all turns
        # Where those of each turn end; the first is before them.
        self._ends = array("I", [0])
        self._compactions = bytearray()
        self._sessions: list[OpencodeSession] = []
        self._session_numbers = array("I")  # by turn
        # By forked session and position of its first message, each turn.
        self._forked: dict[str, dict[Position, int]] = {name: {} for name in forked if name}

    def members(self, turn: int) -> array[int]:
        return self._members[self._ends[turn] : self._ends[turn + 1]]

    def session(self, turn: int) -> OpencodeSession:
        return self._sessions[self._session_numbers[turn]]

    def is_compaction(self, turn: int) -> bool:
        return bool(self._compactions[turn])

    def name(self, turn: int) -> str:
        """The id of a turn: that of its first message."""
        return self.messages.ids.name(self._members[self._ends[turn]])

    def add_session(self, session: OpencodeSession) -> str | None:
        """Add the turns of a session. The head is the last turn that was answered and not
        reverted."""
        head: int | None = None
        reverted: int | None = None  # the last turn of the branch that was reverted
        spans = self._reverted_spans(session)
        self._sessions.append(session)
        of_parent = self._forked.get(session.forked_from or "", {})
        for group in self._exchanges(session.messages):
            positions = self._positions(group)
            turn = self._turn_of_copies(group, positions, of_parent)
            is_reverted = False
            if turn is None:
                created = self.messages.created(group[0])
                # Up to the time of the revert: what was asked later is on the path again.
                is_reverted = any(first <= created <= last for first, last in spans)
                follows_reverted = is_reverted and reverted is not None
                turn = self._add_turn(group, reverted if follows_reverted else head)
            if positions and session.id in self._forked:
                self._forked[session.id][positions[0]] = turn
            if is_reverted:
                reverted = turn
            elif any(map(self.messages.answers, group)):
                head, reverted = turn, None
        return None if head is None else self.name(head)

    def _add_turn(self, group: list[int], parent: int | None) -> int:
        self._members.extend(group)
        self._ends.append(len(self._members))
        has_summary = any(map(self.messages.is_summary, group))
        self._compactions.append(parent is not None and has_summary)
        self._session_numbers.append(len(self._sessions) - 1)
        return self.add(parent)

    def _exchanges(self, numbers: Iterable[int]) -> Iterator[list[int]]:
        """What was asked with all that was answered. A compaction of the second format is a turn of
        its own: the agent may continue after it without being asked."""
        group: list[int] = []
        is_answered = False
        for number in numbers:
            is_alone = self.messages.type(number) == "compaction"
            if group and (is_alone or (is_answered and self.messages.asks(number))):
                yield group
                group, is_answered = [], False
            group.append(number)
            is_answered = is_answered or self.messages.answers(number)
            if is_alone:
                yield group
                group, is_answered = [], False
        if group:
            yield group

    # -- forks: they begin with copies that have new ids, and the same numbers and times ------

    def _positions(self, group: Iterable[int]) -> list[Position]:
        """What the copies of an exchange in a fork have in common: the numbers and times of its
        first message and of the answers.

        The other messages differ if the session was upgraded: in the first format text added to a
        prompt is part of it, and a compaction has two messages, the second without a number.
        """
        messages = self.messages
        numbered = [number for number in group if messages.seq(number) is not None]
        compared = [n for n in numbered if n == numbered[0] or messages.answers(n)]
        return [(messages.seq(number), messages.created(number)) for number in compared]

    def _turn_of_copies(
        self, group: list[int], positions: list[Position], turns: dict[Position, int]
    ) -> int | None:
        """The turn of the forked session that some messages are copies of."""
        turn = turns.get(positions[0]) if positions else None
        if turn is None:
            return None
        members = self.members(turn)
        times = {*map(self.messages.created, members)}
        has_times = times.issuperset(map(self.messages.created, group))
        if positions != self._positions(members) or not has_times:
            return None
        self.copies.setdefault(turn, []).extend(group)
        return turn

    # -- reverts ------------------------------------------------------------------------------

    def _reverted_spans(self, session: OpencodeSession) -> list[tuple[int, int]]:
        """The times of the first reverted messages, and of the reverts."""
        messages, spans = self.messages, []
        session_number = messages.sessions.get(session.id)
        for name, until in session.reverts.items():
            number = messages.ids.get(name)
            if number in messages and messages.session(number) == session_number:
                spans.append((messages.created(number), until))
        return spans


# -- sessions ---------------------------------------------------------------------------------


def build_tree(storage: StorageReader) -> tuple[OpencodeTree, list[DerivedSession]]:
    """The turns and the sessions of a data folder. A session comes before its forks."""
    by_id = storage.sessions
    forks = {name: by_id[name].forked_from for name in sorted(by_id) if by_id[name].messages}
    tree = OpencodeTree(storage.messages, frozenset(forks.values()))
    sessions = []
    for name in parents_first(forks):
        session = by_id[name]
        sessions.append(_derived(session, storage.messages, tree.add_session(session)))
    return tree, sessions


def _derived(session: OpencodeSession, messages: MessageStore, head: str | None) -> DerivedSession:
    fields, directory = session.fields, session.directory
    times = as_dict(fields.get("time"))
    created = array("Q", filter(None, map(messages.created, session.messages)))
    title = as_text(fields.get("title"))
    metadata = {name: pruned(fields.get(name)) for name in SESSION_METADATA}
    metadata |= {
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
        created_at=milliseconds(times.get("created")) or min(created, default=0),
        updated_at=max(milliseconds(times.get("updated")), max(created, default=0)),
        is_subagent=session.parent is not None,
        parent_label=session_label(session.parent) if session.parent else None,
        task_description=task.description,
        task_status=TASK_STATUSES.get(task.status or ""),
        routing_key=directory,
        metadata={k: v for k, v in metadata.items() if v not in (None, "", [], {})},
    )
