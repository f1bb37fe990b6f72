"""A ConversationStore of pydantic-ai over the ledger: an entry is a turn, a conversation a session.

Entries form the same tree as turns do, and a record points to one as a session does. Each message
is kept as pydantic-ai serializes it. Deleting a conversation marks its session deleted: its entries
stay, and can still be read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from agents_ledger.integrations.threads import in_thread
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.turns.grafting import GraftedTurn
from agents_ledger.model.errors import NotFound
from agents_ledger.model.extras import needed
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, ToolCall, Turn, Usage, to_json

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
_RECORD = TypeAdapter(ConversationRecord)


class LedgerConversationStore(ConversationStore):
    """`await LedgerConversationStore(ledger).save(result)`."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

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
        label = _label(record.conversation_id)
        messages = {entry.id: entry.message for entry in new_entries}
        turns = [_grafted(entry, self._message(entry.parent_id, messages)) for entry in new_entries]
        try:
            self._ledger.graft(
                Session(label, origin=ORIGIN, origin_session_id=record.conversation_id),
                turns=turns,
                head=record.head_id,
                check=_checking(record.conversation_id, expected_revision),
                metadata_json=_RECORD.dump_json(record).decode(),
            )
        except NotFound as error:
            raise ConversationConflict(record.conversation_id) from error

    def _message(
        self, entry_id: str | None, new: Mapping[str, ModelMessage]
    ) -> ModelMessage | None:
        """The message of an entry that may not be stored yet."""
        if entry_id is None or entry_id in new:
            return new.get(entry_id or "")
        try:
            return self._entry(entry_id).message
        except KeyError:
            return None

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
        try:
            return _entry_of(self._ledger.get_turn(entry_id))
        except NotFound as error:
            raise KeyError(entry_id) from error

    def _history(self, head_id: str | None, limit: int | None) -> list[ConversationEntry]:
        if head_id is None or limit == 0:
            return []
        try:
            return [_entry_of(turn) for turn in self._ledger.thread(head_id, last=limit).turns]
        except NotFound as error:
            raise KeyError(head_id) from error


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


def _entry_of(turn: Turn) -> ConversationEntry:
    stored = next((m.metadata_json for m in turn.messages if m.metadata_json), None)
    if stored is None:
        raise NotFound(f"turn {turn.id} holds no entry of pydantic-ai")
    [message] = ModelMessagesTypeAdapter.validate_json(f"[{stored}]")
    return ConversationEntry(id=turn.id, parent_id=turn.parent_turn_id, message=message)


def _grafted(entry: ConversationEntry, before: ModelMessage | None) -> GraftedTurn:
    message_json = ModelMessagesTypeAdapter.dump_json([entry.message]).decode()[1:-1]
    fields: dict[str, Any] = {}
    if isinstance(entry.message, ModelResponse):
        usage = entry.message.usage
        fields["usage"] = Usage(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
        fields["model"] = entry.message.model_name
        fields["provider"] = entry.message.provider_name
        response = _answer(entry.message, message_json)
        return GraftedTurn(entry.id, entry.parent_id, (), response, fields)
    query = _query(entry.message, message_json)
    fields["steps"] = tuple(_calls(entry.message, before))
    return GraftedTurn(entry.id, entry.parent_id, query, None, fields)


def _answer(response: ModelResponse, message_json: str) -> Message:
    thought = "\n".join(p.content for p in response.parts if isinstance(p, ThinkingPart))
    return Message("assistant", response.text, thinking=thought or None, metadata_json=message_json)


def _query(request: ModelRequest, message_json: str) -> list[Message]:
    """The parts of a request as messages; the first one carries the whole request."""
    messages = [message for message in map(_part, request.parts) if message is not None]
    first = messages[0] if messages else Message("system")
    whole = Message(
        first.role,
        first.content,
        first.source,
        metadata_json=message_json,
        tool_call_id=first.tool_call_id,
    )
    return [whole, *messages[1:]]


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
        role = "user" if part.tool_name is None else "tool"
        return Message(role, part.model_response(), tool_call_id=part.tool_call_id)  # type: ignore[arg-type]
    return None


def _calls(request: ModelRequest, before: ModelMessage | None) -> list[ToolCall]:
    """The calls whose outcome a request carries, with what the response before it requested."""
    requested: dict[str, ToolCallPart] = {}
    if isinstance(before, ModelResponse):
        requested = {p.tool_call_id: p for p in before.parts if isinstance(p, ToolCallPart)}
    calls = []
    for part in request.parts:
        if not isinstance(part, ToolReturnPart | RetryPromptPart) or not part.tool_name:
            continue
        wanted = requested.get(part.tool_call_id)
        failed = isinstance(part, RetryPromptPart)
        outcome = _outcome(part)
        calls.append(
            ToolCall(
                part.tool_name,
                wanted.args_as_json_str() if wanted else "{}",
                None if failed else to_json([outcome])[1:-1],
                outcome if failed else None,
                "failed" if failed else "completed",
            )
        )
    return calls


def _outcome(part: ToolReturnPart | RetryPromptPart) -> str:
    return part.model_response() if isinstance(part, RetryPromptPart) else part.model_response_str()
