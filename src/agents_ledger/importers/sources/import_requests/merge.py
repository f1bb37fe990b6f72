"""One session from all the items that were imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.sources.import_requests.records import InvalidItem, shown
from agents_ledger.importers.sources.import_requests.rules import ROOT
from agents_ledger.model.imports.requests import (
    ImportItem,
    ImportMessage,
    ImportSession,
    ImportToolCall,
    ImportTurn,
)


class MergedSession(Struct):
    """A session merged from its items. A later item wins, and none deletes anything."""

    session: ImportSession = field(default_factory=ImportSession)
    fingerprint: str = ""
    turns: dict[str, ImportTurn] = field(default_factory=dict)
    parents: dict[str, str | None] = field(default_factory=dict)  # of each turn
    messages: dict[str, ImportMessage] = field(default_factory=dict)
    calls: dict[str, ImportToolCall] = field(default_factory=dict)
    turn_of_message: dict[str, str] = field(default_factory=dict)
    turn_of_call: dict[str, str] = field(default_factory=dict)
    latest: set[str] = field(default_factory=set)  # ids of turns, messages, calls of the last item
    last_turn: str | None = None  # of the last item that has turns

    def add(self, item: ImportItem) -> None:
        """Merge one more item. If it is invalid, nothing changes."""
        new_turns = _by_id(item.turns or (), "turns", "source_turn_id", "turn")
        messages = _by_id(item.messages or (), "messages", "source_message_id", "message")
        calls = _by_id(item.tool_calls or (), "toolCalls", "source_tool_call_id", "tool_call")
        if not new_turns and (messages or calls) and ROOT not in self.turns:
            new_turns = {ROOT: ImportTurn(ROOT)}
        turns = {**self.turns, **new_turns}
        default = next(iter(new_turns), ROOT)
        of_message = {
            message_id: message.source_turn_id or self.turn_of_message.get(message_id) or default
            for message_id, message in messages.items()
        }
        turn_of_message = {**self.turn_of_message, **of_message}
        of_call = {
            call_id: call.source_turn_id
            or turn_of_message.get(call.source_message_id or "")
            or self.turn_of_call.get(call_id)
            or default
            for call_id, call in calls.items()
        }
        _check_turns(of_message, turns, "messages", "message")
        _check_turns(of_call, turns, "toolCalls", "tool_call")
        self.parents = self._parents(new_turns)
        self.turns, self.turn_of_message = turns, turn_of_message
        self.messages.update(messages)
        self.calls.update(calls)
        self.turn_of_call.update(of_call)
        self.latest = {*new_turns, *messages, *calls, *of_message.values()}
        self.last_turn = next(reversed(new_turns), self.last_turn)
        self.fingerprint = item.source_session_fingerprint
        for name in ImportSession.__struct_fields__ if item.session is not None else ():
            value = getattr(item.session, name)
            if value is not None:
                setattr(self.session, name, value)

    def check_parents(self, item: ImportItem) -> None:
        """Refuse an item that was added if a parent it names is not a turn of the session.

        Only new items are checked: earlier versions accepted such turns, and made them roots.
        """
        for index, turn in enumerate(item.turns or ()):
            parent = turn.parent_source_turn_id
            if parent and parent not in self.turns:
                path = f"$.turns[{index}].parentSourceTurnId"
                problem = f"is {shown(parent)}, which is not a turn of this session"
                raise InvalidItem("turn_parent_unknown", path, problem)

    def _parents(self, new_turns: Mapping[str, ImportTurn]) -> dict[str, str | None]:
        """The parents of all turns, with those of an item.

        Turns without a parent follow each other in the order of the item. Turns linked by explicit
        parents form a tree, whose root may come after its descendants: it follows the turn before
        the first of them.
        """
        parents = dict(self.parents)
        for turn_id, turn in new_turns.items():
            parents[turn_id] = turn.parent_source_turn_id or None
        roots = _roots(parents, list(new_turns))
        previous = self._before(new_turns)
        linked: set[str] = set()
        for turn_id in new_turns:
            root = roots[turn_id]
            if root in new_turns and root not in linked:
                parents[root] = previous
            linked.add(root)
            previous = turn_id
        return parents

    def _before(self, new_turns: Mapping[str, ImportTurn]) -> str | None:
        """The parent of an item's first turn: the turn before those that it repeats, or the last
        turn of the previous item."""
        turn_id = next((turn_id for turn_id in new_turns if turn_id in self.parents), None)
        if turn_id is None:
            return self.last_turn
        before = parent = self.parents[turn_id]
        while parent is not None:
            above = self.parents.get(parent)
            if parent in new_turns:
                before = above
            parent = above
        return before


def _by_id(parts: Iterable[Any], field_name: str, id_field: str, kind: str) -> dict[str, Any]:
    by_id: dict[str, Any] = {}
    for index, part in enumerate(parts):
        part_id = getattr(part, id_field)
        if part_id in by_id and by_id[part_id] != part:
            problem = f"repeats the id {shown(part_id)} with another content"
            raise InvalidItem(f"{kind}_id_duplicate", f"$.{field_name}[{index}]", problem)
        by_id[part_id] = part
    return by_id


def _check_turns(
    turn_of: Mapping[str, str], turns: Mapping[str, ImportTurn], field_name: str, kind: str
) -> None:
    for index, turn_id in enumerate(turn_of.values()):
        if turn_id not in turns:
            path = f"$.{field_name}[{index}].sourceTurnId"
            problem = f"is {shown(turn_id)}, which is not a turn of this session"
            raise InvalidItem(f"{kind}_turn_unknown", path, problem)


def _roots(parents: Mapping[str, str | None], order: Sequence[str]) -> dict[str, str]:
    """The root above each turn. Raises InvalidItem if parents form a cycle."""
    roots: dict[str, str] = {}
    for start in parents:
        path: dict[str, None] = {}
        turn_id, parent = start, parents[start]
        while turn_id not in roots and parent is not None:
            path[turn_id] = None
            if parent in path:
                raise _cycle(list(path)[list(path).index(parent) :], parents, order)
            turn_id, parent = parent, parents.get(parent)
        root = roots.get(turn_id, turn_id)
        roots |= dict.fromkeys([*path, turn_id], root)
    return roots


def _cycle(
    cycle: Sequence[str], parents: Mapping[str, str | None], order: Sequence[str]
) -> InvalidItem:
    turn_id = next(turn_id for turn_id in order if turn_id in cycle)
    path = f"$.turns[{order.index(turn_id)}].parentSourceTurnId"
    problem = f"is {shown(parents[turn_id])}, which is or follows this turn"
    return InvalidItem("turn_parent_cycle", path, problem)
