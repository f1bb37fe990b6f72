"""A Session of the OpenAI Agents SDK on the ledger: added items become turns, nothing is deleted.

Each item is stored verbatim with its message, except for the text that the message's content or the
tool call holds already. `pop_item` and `clear_session` move the session's head: the turns stay, and
can be returned to with `branch`.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from agents_ledger.integrations.threads import in_thread
from agents_ledger.ledger.aio.async_ledger import AsyncLedger
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.reports.transcripts import (
    TranscriptCall,
    TranscriptMessage,
    TranscriptPage,
)
from agents_ledger.ledger.turns.grafting import GraftedTurn
from agents_ledger.model.errors import HeadMoved, NotFound
from agents_ledger.model.ids import new_id
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Message, MessageRole, ToolCall, Turn, to_json

if TYPE_CHECKING:
    from agents.items import TResponseInputItem
    from agents.memory import SessionSettings

ITEM = "openai_item"
# An item whose arguments or output are in the tool call of its id.
CALLED = "openai_call"
# An item as JSON text, if it has numbers that JSON lacks (NaN).
WRITTEN = "openai_json"
ROLES: dict[str, MessageRole] = {
    "user": "user",
    "assistant": "assistant",
    "system": "system",
    "developer": "system",
}
PAGE = 20  # turns in the first page
NO_RESULT = "no result was added with the call"

_decode = msgspec.json.Decoder().decode


class LedgerSession:
    """`Runner.run(agent, "...", session=LedgerSession("main", ledger))`. The id is the label."""

    def __init__(
        self, session_id: str, ledger: Ledger, *, session_settings: SessionSettings | None = None
    ) -> None:
        self.session_id = session_id
        self.session_settings = session_settings
        self._ledger = ledger
        self._writing = AsyncLedger.over(ledger)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """All items, or the latest `limit`, oldest first."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await in_thread(self._items, limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Record items as one turn: all of them, or none."""
        if items:
            query, steps, response = _turn(items)
            await self._writing.record(self.session_id, query, response, steps=steps)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item: the head moves to a thread without it."""
        return await in_thread(self._pop)

    async def clear_session(self) -> None:
        """Empty the session. Its turns stay."""
        await in_thread(self._clear)

    async def fork(self, session_id: str) -> LedgerSession:
        """Create a session at this one's head; nothing is copied."""
        await in_thread(self._ledger.fork, self.session_id, label=session_id)
        return LedgerSession(session_id, self._ledger, session_settings=self.session_settings)

    async def branch(self, turn_id: str) -> None:
        """Continue from an earlier turn, or from one that was left."""
        await in_thread(self._ledger.move, self.session_id, turn_id)

    # -- in a thread --------------------------------------------------------------------------

    def _items(self, limit: int | None) -> list[TResponseInputItem]:
        if limit is not None and limit <= 0:
            return []
        page = None if limit is None else PAGE
        return self._ledger.read_transcript(
            self.session_id, lambda pages: _latest(pages, limit), page=page
        )

    def _pop(self) -> TResponseInputItem | None:
        while True:
            try:
                turn = self._ledger.get_turn(self.session_id)
            except NotFound:  # no session, or an empty one
                return None
            items = list(_items(turn.messages, turn.tool_calls))
            try:
                self._step_back(turn, items[:-1])
            except HeadMoved:
                continue
            if items:
                return items[-1]  # a turn without items is skipped

    def _step_back(self, turn: Turn, left: Sequence[TResponseInputItem]) -> None:
        """Move the head to a turn's parent, and record the remaining items there."""
        label = self._ledger.session(self.session_id).label
        turns = []
        if left:
            query, steps, response = _turn(left)
            fields = {"steps": tuple(steps)}
            turns.append(GraftedTurn(new_id(), turn.parent_turn_id, query, response, fields))

        def check(session: Session | None) -> None:
            head = session.thread_id if session else None
            if head != turn.id:
                raise HeadMoved(label, expected=turn.id, found=head)

        self._ledger.graft(
            Session(label),
            turns=turns,
            head=turns[0].id if turns else turn.parent_turn_id,
            check=check,
        )

    def _clear(self) -> None:
        try:
            if self._ledger.head(self.session_id) is not None:
                self._ledger.clear(self.session_id)
        except NotFound:  # nothing was ever added
            return


# -- items and turns --------------------------------------------------------------------------


def _turn(
    items: Sequence[TResponseInputItem],
) -> tuple[list[Message], list[Message | ToolCall], Message | None]:
    """Query, steps and response of items. Calls get the outputs added with them."""
    plain_items = [_plain(item) for item in items]
    calls = _ItemCalls(plain_items)
    steps: list[Message | ToolCall] = []
    for at, item in enumerate(plain_items):
        call_id = calls.ids.get(at)
        is_own = call_id is not None and call_id == item.get("call_id") and _is_json(item)
        if item.get("type") == "function_call":
            in_call = is_own and isinstance(item.get("arguments"), str)
            steps.append(_message(item, "arguments" if in_call else None))
            steps.append(_call(item, calls.outputs.get(at), str(call_id)))
        else:
            in_call = is_own and "output" in item
            steps.append(_message(item, "output" if in_call else None, calls.answered(at)))
    query_length = 0
    for step in steps:
        if not isinstance(step, Message) or step.role not in ("user", "system"):
            break
        query_length += 1
    query = [step for step in steps[:query_length] if isinstance(step, Message)]
    last = steps[-1]
    if len(steps) > query_length and isinstance(last, Message) and last.role == "assistant":
        return query, steps[query_length:-1], last
    return query, steps[query_length:], None


class _ItemCalls:
    """Matches outputs with calls. A call without an id of its own gets one."""

    def __init__(self, items: Sequence[dict[str, Any]]) -> None:
        self.ids: dict[int, str] = {}  # by the index of a call and of its output
        self.outputs: dict[int, dict[str, Any]] = {}  # by the index of the call
        self._items = items
        self._waiting: dict[str, deque[int]] = {}  # calls by the id they carry
        waiting = self._waiting
        for at, item in enumerate(items):
            call_id = item.get("call_id")
            # An id may be of any type, and need not be hashable.
            key = repr(call_id)
            if item.get("type") == "function_call":
                own = call_id if isinstance(call_id, str) and key not in waiting else ""
                self.ids[at] = own or f"call_{new_id()}"
                waiting.setdefault(key, deque()).append(at)
            elif _is_output(item) and waiting.get(key):
                # Several calls may carry one id: each gets the next output that has it.
                call = waiting[key].popleft()
                self.ids[at] = self.ids[call]
                self.outputs[call] = item

    def answered(self, at: int) -> str | None:
        """The id of the call that an item is the output of. The call may have been added earlier;
        if it is one of these items, the output must be its own."""
        call_id = self._items[at].get("call_id")
        if at in self.ids or repr(call_id) in self._waiting:
            return self.ids.get(at)
        return call_id if isinstance(call_id, str) and call_id else None


def _plain(item: Any) -> dict[str, Any]:
    plain: dict[str, Any] = item if isinstance(item, dict) else json.loads(to_json(item))
    return plain


def _is_output(item: dict[str, Any]) -> bool:
    return str(item.get("type", "")).endswith("_output")


def _is_json(value: object) -> bool:
    """Whether JSON can represent a value: it has no infinity and no NaN."""
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return not isinstance(value, float) or math.isfinite(value)


def _message(item: dict[str, Any], in_call: str | None, answered: str | None = None) -> Message:
    """The message of an item. `in_call`: the field that its tool call holds; `answered`: the id of
    the call whose output it is."""
    role = "tool" if _is_output(item) else ROLES.get(str(item.get("role")), "assistant")
    metadata: dict[str, Any] = {ITEM: _with_text(item, None)}
    if in_call is not None:
        metadata = {CALLED: {**item, in_call: None}}
    elif not _is_json(item):
        metadata = {WRITTEN: json.dumps(item)}
    return Message(
        role,
        _text(item) if in_call is None else None,
        "human" if role == "user" else None,
        metadata_json=to_json(metadata),
        tool_call_id=answered if role == "tool" else None,
    )


def _with_text(item: dict[str, Any], text: str | None) -> dict[str, Any]:
    """The item with another text where its message's content comes from; unchanged, if the content
    is joined from several texts."""
    name = "content" if "content" in item else "output"
    match item.get(name):
        case str() | None if name in item:
            return {**item, name: text}
        case [{"text": str() | None} as part] if part["text"] != "":
            return {**item, name: [{**part, "text": text}]}
    return item


def _text(item: dict[str, Any]) -> str | None:
    content = item.get("content", item.get("output"))
    if isinstance(content, str) or content is None:
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str)) or None
    return to_json(content)


def _call(item: dict[str, Any], output: dict[str, Any] | None, call_id: str) -> ToolCall:
    params = item.get("arguments")
    result = None if output is None else output.get("output")
    return ToolCall(
        str(item.get("name") or "function"),
        params if isinstance(params, str) else to_json(params or {}),
        None if result is None else to_json([result])[1:-1],
        NO_RESULT if output is None else None,
        "cancelled" if output is None else "completed",
        id=call_id,
    )


def _latest(pages: Iterable[TranscriptPage], limit: int | None) -> list[TResponseInputItem]:
    """The items of pages, which come last first: the latest `limit`, or all."""
    by_page: list[list[TResponseInputItem]] = []
    for page in pages:
        by_page.append(list(_items(page.messages, page.tool_calls)))
        if limit is not None and sum(map(len, by_page)) >= limit:
            break
    items = [item for page_items in reversed(by_page) for item in page_items]
    return items if limit is None else items[-limit:]


def _items(
    messages: Iterable[Message | TranscriptMessage], tool_calls: Iterable[ToolCall | TranscriptCall]
) -> Iterator[TResponseInputItem]:
    """The items of messages as they were added; of other messages, role and content."""
    calls = {(call.turn_id, call.id): call for call in tool_calls}
    for message in messages:
        item = _stored_item(message, calls)
        if item is not None:
            yield item
        elif message.role != "tool" and message.content:
            yield {"role": message.role, "content": message.content}


def _stored_item(
    message: Message | TranscriptMessage, calls: Mapping[tuple[str, str], ToolCall | TranscriptCall]
) -> Any:
    try:
        metadata = _decoded(message.metadata_json or "{}")
        if CALLED in metadata:
            item = metadata[CALLED]
            return _with_call(item, calls[message.turn_id, item["call_id"]])
        if WRITTEN in metadata:
            return json.loads(metadata[WRITTEN])
        item = metadata.get(ITEM)
    except (ValueError, AttributeError, TypeError, KeyError):
        # The message was not written by this store, or by another version of it.
        return None
    return _with_text(item, message.content) if isinstance(item, dict) else item


def _with_call(item: dict[str, Any], call: ToolCall | TranscriptCall) -> dict[str, Any]:
    if item["type"] == "function_call":
        return {**item, "arguments": call.params_json}
    return {**item, "output": _decoded(call.result_json or "null")}


def _decoded(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        # The slower decoder accepts unpaired surrogates and NaN.
        return json.loads(text)
