"""One session from all the items that were imported for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec import Struct, field

from agents_ledger.importers.sources.import_requests.records import (
    CallIn,
    ImportItem,
    InvalidItem,
    MessageIn,
    SessionIn,
    TurnIn,
)
from agents_ledger.importers.sources.import_requests.rules import ROOT


class MergedSession(Struct):
    """A session merged from its items. A later item wins, and none deletes anything."""

    session: SessionIn = field(default_factory=SessionIn)
    fingerprint: str = ""
    turns: dict[str, TurnIn] = field(default_factory=dict)
    messages: dict[str, MessageIn] = field(default_factory=dict)
    calls: dict[str, CallIn] = field(default_factory=dict)
    turn_of_message: dict[str, str] = field(default_factory=dict)
    turn_of_call: dict[str, str] = field(default_factory=dict)
    latest: set[str] = field(default_factory=set)  # ids of turns, messages, calls of the last item

    def add(self, item: ImportItem) -> None:
        """Merge one more item. If it is invalid, nothing changes."""
        new_turns = _by_id(item.turns or (), "source_turn_id", "turn")
        messages = _by_id(item.messages or (), "source_message_id", "message")
        calls = _by_id(item.tool_calls or (), "source_tool_call_id", "tool_call")
        turns = {**self.turns, **new_turns}
        if not new_turns and (messages or calls):
            turns.setdefault(ROOT, TurnIn(ROOT))
        default = next(iter(new_turns), ROOT)
        of_message = {
            message_id: _turn_of(message, self.turn_of_message.get(message_id) or default, turns)
            for message_id, message in messages.items()
        }
        turn_of_message = {**self.turn_of_message, **of_message}
        of_call = {
            call_id: _turn_of(
                call,
                turn_of_message.get(call.source_message_id or "")
                or self.turn_of_call.get(call_id)
                or default,
                turns,
            )
            for call_id, call in calls.items()
        }
        _check_cycles(turns)
        self.turns, self.turn_of_message = turns, turn_of_message
        self.messages.update(messages)
        self.calls.update(calls)
        self.turn_of_call.update(of_call)
        self.latest = {*new_turns, *messages, *calls, *of_message.values()}
        self.fingerprint = item.source_session_fingerprint
        for name in SessionIn.__struct_fields__ if item.session is not None else ():
            value = getattr(item.session, name)
            if value is not None:
                setattr(self.session, name, value)


def _by_id(parts: Iterable[Any], id_field: str, kind: str) -> dict[str, Any]:
    by_id: dict[str, Any] = {}
    for part in parts:
        part_id = getattr(part, id_field)
        if part_id in by_id and by_id[part_id] != part:
            raise InvalidItem(f"{kind}_id_duplicate", part_id)
        by_id[part_id] = part
    return by_id


def _turn_of(step: MessageIn | CallIn, default: str, turns: Mapping[str, TurnIn]) -> str:
    turn_id = step.source_turn_id
    if turn_id is None:
        return default
    if turn_id not in turns:
        kind = "message" if isinstance(step, MessageIn) else "tool_call"
        raise InvalidItem(f"{kind}_turn_unknown", turn_id)
    return turn_id


def _check_cycles(turns: Mapping[str, TurnIn]) -> None:
    checked: set[str] = set()
    for start in turns:
        path: set[str] = set()
        at: str | None = start
        while at is not None and at in turns and at not in checked:
            if at in path:
                raise InvalidItem("turn_parent_cycle", at)
            path.add(at)
            at = turns[at].parent_source_turn_id
        checked |= path
