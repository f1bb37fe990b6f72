"""A ConversationStore of pydantic-ai: a conversation is a session, an exchange a turn.

An entry is a message of a turn, under its own id, and kept as pydantic-ai serializes it. When a
conversation continues in the middle of an exchange, the new turn begins with copies of the entries
before that point, and the turn as it was stays as a branch. Deleting a conversation marks its
session deleted: its entries stay, and can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from msgspec.structs import replace

from agents_ledger.integrations.threads import checked, in_thread
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.turns.grafting import GraftedTurn
from agents_ledger.model.errors import NotFound
from agents_ledger.model.ids import new_id
from agents_ledger.model.installation.extras import needed
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, MessageRole, ToolCall, Turn, Usage, to_json

with needed("engine", "agents_ledger.integrations.pydantic_ai"):
    from pydantic import TypeAdapter
    from pydantic_ai.conversation_store import (
        ConversationConflict,
        ConversationEntry,
        ConversationRecord,
        ConversationStore,
    )
    from pydantic_ai.messages import (
        ModelMessage,
        ModelMessagesTypeAdapter,
        ModelRequest,
        ModelResponse,
        RetryPromptPart,
        SystemPromptPart,
        ThinkingPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

ORIGIN = "pydantic-ai"
PAGE = 200
MESSAGE = "pydantic_ai"  # the whole message, in the metadata of the first of ours
COPY_OF = "entry_id"  # of an entry that another turn has too
NO_RESULT = "no result was saved with the call"
_RECORD = TypeAdapter(ConversationRecord)


class LedgerConversationStore(ConversationStore):
    """`await LedgerConversationStore(ledger).save(result)`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = checked(ledger)

    async def read_record(self, conversation_id: str) -> ConversationRecord | None:
        """The record of a conversation, if there is one."""
        return await in_thread(self._record, conversation_id)

    async def read_records(
        self, *, scope: str | None = None, limit: int | None = None
    ) -> Sequence[ConversationRecord]:
        """All records, or those of a scope, latest first."""
        return await in_thread(self._records, scope, limit)

    async def write_record(
        self,
        record: ConversationRecord,
        *,
        new_entries: Sequence[ConversationEntry] = (),
        expected_revision: str | None,
    ) -> None:
        """Store a record and its new entries, as one."""
        await in_thread(self._write, record, new_entries, expected_revision)

    async def delete_record(self, conversation_id: str, *, expected_revision: str) -> None:
        """Mark a conversation deleted. Its entries stay."""
        await in_thread(self._delete, conversation_id, expected_revision)

    async def read_entry(self, entry_id: str) -> ConversationEntry:
        """One entry."""
        return await in_thread(self._entry, entry_id)

    async def read_history(
        self, head_id: str | None, *, limit: int | None = None
    ) -> list[ConversationEntry]:
        """The entries up to one, or the last `limit` of them, in one read."""
        return await in_thread(self._history, head_id, limit)

    # -- in a thread --------------------------------------------------------------------------

    def _record(self, conversation_id: str) -> ConversationRecord | None:
        try:
            return _record_of(self._ledger.session(_label(conversation_id), exact=True))
        except NotFound:
            return None

    def _records(self, scope: str | None, limit: int | None) -> list[ConversationRecord]:
        records: list[ConversationRecord] = []
        page: tuple[Session, ...] = ()
        while True:
            page = self._ledger.sessions(
                origin=ORIGIN, limit=PAGE, after=page[-1] if page else None
            )
            records += [record for record in map(_record_of, page) if record is not None]
            if len(page) < PAGE:
                break
        records = [record for record in records if scope is None or record.scope == scope]
        records.sort(key=lambda record: record.updated_at, reverse=True)
        return records[:limit]

    def _write(
        self,
        record: ConversationRecord,
        new_entries: Sequence[ConversationEntry],
        expected_revision: str | None,
    ) -> None:
        try:
            turns = self._turns(new_entries) if new_entries else []
            self._ledger.graft(
                Session(
                    _label(record.conversation_id),
                    origin=ORIGIN,
                    origin_session_id=record.conversation_id,
                ),
                turns=turns,
                head=self._head(record.head_id, new_entries, turns),
                check=_checking(record.conversation_id, expected_revision),
                metadata_json=_RECORD.dump_json(record).decode(),
            )
        except (NotFound, KeyError) as error:
            raise ConversationConflict(record.conversation_id) from error

    def _turns(self, new_entries: Sequence[ConversationEntry]) -> list[GraftedTurn]:
        """The new entries as turns, each with an exchange."""
        parent_id = new_entries[0].parent_id
        below = self._located(parent_id) if parent_id is not None else None
        base = None if below is None else below.turn_id
        groups: list[list[StoredEntry]] = [[]]
        if below is not None and not below.is_last:
            # The exchange was left in the middle: what remains of it is part of the new turn, and
            # the original turn stays as a branch.
            base = below.turn.parent_turn_id
            groups = [[entry._replace(is_copy=True) for entry in below.entries]]
        for entry in new_entries:
            if groups[-1] and _is_question(entry.message):
                groups.append([])
            groups[-1].append(StoredEntry(entry.id, entry.message))
        turns: list[GraftedTurn] = []
        for group in groups:
            turns.append(_grafted(group, base))
            base = turns[-1].id
        return turns

    def _head(
        self,
        head_id: str | None,
        new_entries: Sequence[ConversationEntry],
        turns: Sequence[GraftedTurn],
    ) -> str | None:
        """The turn that ends with an entry. If none does, the parent of its exchange, whose rest is
        recorded with what follows it."""
        if head_id is None:
            return None
        if new_entries and new_entries[-1].id == head_id:
            return turns[-1].id
        located = self._located(head_id)
        return located.turn_id if located.is_last else located.turn.parent_turn_id

    def _located(self, entry_id: str) -> LocatedEntry:
        """Where an entry is stored. KeyError if it is not."""
        try:
            turn = self._ledger.turn_of_message(entry_id)
        except NotFound:
            try:
                # Earlier versions recorded a turn for each entry, under the id of the entry.
                turn = self._ledger.get_turn(entry_id)
            except NotFound as error:
                raise KeyError(entry_id) from error
        entries = _entries_of(turn)
        position = next((n for n, entry in enumerate(entries) if entry.id == entry_id), None)
        if position is None:
            raise KeyError(entry_id)
        is_last = position == len(entries) - 1
        return LocatedEntry(turn, entries[: position + 1], is_last)

    def _delete(self, conversation_id: str, expected_revision: str) -> None:
        label = _label(conversation_id)
        record = self._record(conversation_id)
        if record is None or record.revision != expected_revision:
            raise ConversationConflict(conversation_id)
        self._ledger.graft(
            Session(label),
            head=None,
            check=_checking(conversation_id, expected_revision),
            metadata_json="{}",
        )
        self._ledger.archive(label, "deleted")

    def _entry(self, entry_id: str) -> ConversationEntry:
        located = self._located(entry_id)
        before = located.entries[:-1]
        parent_id = located.turn.parent_turn_id
        if not before and parent_id is not None:
            before = _entries_of(self._ledger.get_turn(parent_id))
        return ConversationEntry(
            id=entry_id,
            parent_id=before[-1].id if before else None,
            message=located.entries[-1].message,
        )

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        if head_id is None or limit == 0:
            return []
        located = self._located(head_id)
        parent_id = located.turn.parent_turn_id
        # One turn more than needed: an entry names its predecessor.
        earlier = () if parent_id is None else self._ledger.thread(parent_id, last=limit).turns
        entries = [entry for turn in earlier for entry in _entries_of(turn)]
        history = []
        before: str | None = None
        for entry in (*entries, *located.entries):
            history.append(ConversationEntry(id=entry.id, parent_id=before, message=entry.message))
            before = entry.id
        return history if limit is None else history[-limit:]


def _label(conversation_id: str) -> str:
    return f"{ORIGIN}:{conversation_id}"


def _record_of(session: Session) -> ConversationRecord | None:
    if session.status != "active" or not session.metadata_json or session.metadata_json == "{}":
        return None
    return _RECORD.validate_json(session.metadata_json)


def _checking(conversation_id: str, expected: str | None) -> Callable[[Session | None], None]:
    def check(session: Session | None) -> None:
        stored = _record_of(session) if session else None
        if (stored.revision if stored else None) != expected:
            raise ConversationConflict(conversation_id)

    return check


# -- entries and turns ------------------------------------------------------------------------


class StoredEntry(NamedTuple):
    id: str
    message: ModelMessage
    is_copy: bool = False  # of an entry that another turn has too


class LocatedEntry(NamedTuple):
    """An entry within its turn."""

    turn: Turn
    entries: list[StoredEntry]  # of the turn, up to this one
    is_last: bool

    @property
    def turn_id(self) -> str:
        return self.turn.id


def _is_question(message: ModelMessage) -> bool:
    return isinstance(message, ModelRequest) and any(
        isinstance(part, UserPromptPart) for part in message.parts
    )


def _is_answer(message: ModelMessage) -> bool:
    return isinstance(message, ModelResponse) and not any(
        isinstance(part, ToolCallPart) for part in message.parts
    )


def _entries_of(turn: Turn) -> list[StoredEntry]:
    entries = []
    for message in turn.messages:
        metadata = msgspec.json.decode(message.metadata_json or "{}")
        if MESSAGE in metadata:
            stored, entry_id = metadata[MESSAGE], metadata.get(COPY_OF, message.id)
        elif "parts" in metadata:  # as earlier versions wrote it, one entry in a turn
            stored, entry_id = metadata, turn.id
        else:
            continue
        [decoded] = ModelMessagesTypeAdapter.validate_python([stored])
        entries.append(StoredEntry(entry_id, decoded))
    return entries


def _grafted(group: Sequence[StoredEntry], parent_id: str | None) -> GraftedTurn:
    """The turn of an exchange. Its id is that of its first own entry."""
    own = [entry for entry in group if not entry.is_copy]
    results = {
        part.tool_call_id: part
        for entry in group
        for part in entry.message.parts
        if isinstance(part, ToolReturnPart | RetryPromptPart) and part.tool_name
    }
    query: list[Message] = []
    steps: list[Message | ToolCall] = []
    response: Message | None = None
    for number, entry in enumerate(group):
        messages = _messages(entry)
        if isinstance(entry.message, ModelRequest):
            (query if number == 0 else steps).extend(messages)
        elif number == len(group) - 1 and _is_answer(entry.message):
            [response] = messages
        else:
            steps += [*messages, *_calls(entry.message, results, steps)]
    responses = [entry.message for entry in own if isinstance(entry.message, ModelResponse)]
    fields: dict[str, Any] = {"steps": tuple(steps), "usage": _usage(responses)}
    if responses:
        fields["model"] = responses[-1].model_name
        fields["provider"] = responses[-1].provider_name
    return GraftedTurn(own[0].id if own else new_id(), parent_id, query, response, fields)


def _usage(responses: Sequence[ModelResponse]) -> Usage:
    """What the responses took; a copy was counted where it was recorded first."""
    if not responses:
        return Usage()
    return Usage(
        sum(response.usage.input_tokens for response in responses),
        sum(response.usage.output_tokens for response in responses),
        sum(response.usage.cache_read_tokens for response in responses),
        sum(response.usage.cache_write_tokens for response in responses),
    )


def _messages(entry: StoredEntry) -> list[Message]:
    """An entry as messages; the first one carries the whole entry."""
    stored = ModelMessagesTypeAdapter.dump_python([entry.message], mode="json")[0]
    metadata = {MESSAGE: stored, **({COPY_OF: entry.id} if entry.is_copy else {})}
    if isinstance(entry.message, ModelResponse):
        thought = "\n".join(
            part.content for part in entry.message.parts if isinstance(part, ThinkingPart)
        )
        messages = [Message("assistant", entry.message.text, thinking=thought or None)]
    else:
        parts = [message for message in map(_part, entry.message.parts) if message is not None]
        messages = parts or [Message("system")]
    first = replace(
        messages[0],
        id="" if entry.is_copy else entry.id,
        metadata_json=to_json(metadata),
    )
    return [first, *messages[1:]]


def _part(part: object) -> Message | None:
    if isinstance(part, SystemPromptPart):
        return Message("system", part.content)
    if isinstance(part, UserPromptPart):
        content = part.content
        if not isinstance(content, str):
            texts = [piece for piece in content if isinstance(piece, str)]
            content = "\n".join(texts)
        return Message("user", content, "human")
    if isinstance(part, ToolReturnPart):
        return Message("tool", part.model_response_str(), tool_call_id=part.tool_call_id)
    if isinstance(part, RetryPromptPart):
        role: MessageRole = "user" if part.tool_name is None else "tool"
        return Message(role, part.model_response(), tool_call_id=part.tool_call_id)
    return None


def _calls(
    response: ModelMessage,
    results: Mapping[str, ToolReturnPart | RetryPromptPart],
    steps: Sequence[Message | ToolCall],
) -> list[ToolCall]:
    """The calls that a response requests, with their outcomes."""
    taken = {step.id for step in steps if isinstance(step, ToolCall)}
    calls = []
    for part in response.parts:
        if not isinstance(part, ToolCallPart):
            continue
        call = ToolCall(
            part.tool_name,
            part.args_as_json_str(),
            # Some models repeat ids; within a turn each call needs its own.
            id="" if part.tool_call_id in taken else part.tool_call_id,
        )
        result = results.get(part.tool_call_id)
        if result is None:
            call = replace(call, status="cancelled", error=NO_RESULT)
        elif isinstance(result, RetryPromptPart):
            call = replace(call, status="failed", error=result.model_response())
        else:
            call = replace(call, result_json=to_json([result.model_response_str()])[1:-1])
        taken.add(part.tool_call_id)
        calls.append(call)
    return calls
