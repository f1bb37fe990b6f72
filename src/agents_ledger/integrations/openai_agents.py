"""A Session of the OpenAI Agents SDK on the ledger: an exchange is a turn, nothing is deleted.

The SDK adds the items of a run in batches: the question, then each step with its calls, then the
answer. The question begins a live turn, each batch is committed to it as a whole, and the answer
seals it. What `pop_item` takes back and what `clear_session` or `branch` leave stays as a branch.

Each item is stored verbatim with its message, except for the text that the message's content or the
tool call holds already.
"""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, cast
from weakref import WeakKeyDictionary

import msgspec
from msgspec.structs import replace

from agents_ledger.integrations.threads import checked, in_thread
from agents_ledger.ledger.aio.async_ledger import AsyncLedger, AsyncLiveTurn
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.reports.transcripts import (
    TranscriptCall,
    TranscriptMessage,
    TranscriptPage,
)
from agents_ledger.ledger.turns.grafting import GraftedTurn
from agents_ledger.model.errors import HeadMoved, NotFound
from agents_ledger.model.ids import new_id
from agents_ledger.model.installation.extras import needed
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import (
    Message,
    MessageRole,
    ToolCall,
    Turn,
    Usage,
    check_text,
    is_json,
    to_json,
)

with needed("openai-agents", "agents_ledger.integrations.openai_agents"):
    from agents import RunHooks
    from agents.models import get_default_model

if TYPE_CHECKING:
    from agents import Agent, ModelResponse, RunContextWrapper
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
PAGE = 6  # turns in the first page; an exchange has some four items
NO_RESULT = "no result was added with the call"
TAKEN_BACK = "the last item was taken back"
NO_ANSWER = "the run ended without an answer"

Item = dict[str, Any]

_decode = msgspec.json.Decoder().decode


class LedgerSession:
    """`Runner.run(agent, "...", session=session, hooks=session.hooks)`. The id is the label.

    With its hooks, turns carry the model and the tokens that the SDK reports.
    """

    def __init__(
        self, session_id: str, ledger: Ledger, *, session_settings: SessionSettings | None = None
    ) -> None:
        check_text(session_id, "the id of a session")
        self.session_id = session_id
        self.session_settings = session_settings
        self.hooks = UsageHooks()
        self._ledger = checked(ledger)
        self._writing = AsyncLedger.over(ledger)
        # Shared by all sessions over this ledger: each request of a server may make its own.
        self._exchanges = _EXCHANGES.setdefault(ledger, {})

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """All items, or the latest `limit`, oldest first."""
        if limit is None and self.session_settings is not None:
            limit = self.session_settings.limit
        return await in_thread(self._items, limit)

    async def add_items(self, items: list[TResponseInputItem]) -> None:
        """Store items, all of them or none. A question begins a turn, an answer ends it.

        The SDK does not report a run that raised: its turn fails when the next question comes.
        """
        if not items:
            return
        new_items = [_plain(item) for item in items]
        exchange = await self._take()
        try:
            if exchange is not None and _is_question(new_items[0]):
                await self._fail(exchange)
            if exchange is not None and not exchange.sealed:
                await self._continue(exchange, new_items)
            elif _is_question(new_items[0]) and not _is_answer(new_items[-1]):
                exchange = await self._begin(new_items)
            else:
                await self._record(new_items)
        finally:
            self._put_back(exchange)

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove the last item: the session continues without it, and it stays as a branch."""
        exchange = await self._take()
        if exchange is None:
            return await in_thread(self._pop)
        try:
            await exchange.turn.fail(TAKEN_BACK)
            exchange.sealed = True
            *remaining, last = exchange.items
            if remaining:
                exchange = await self._begin(remaining)
        finally:
            self._put_back(exchange)
        return cast("TResponseInputItem", last)

    async def clear_session(self) -> None:
        """Empty the session. Its turns stay."""
        await self._leave("the session was cleared")
        await in_thread(self._clear)

    async def fork(self, session_id: str) -> LedgerSession:
        """Create a session at this one's head; nothing is copied."""
        await in_thread(self._ledger.fork, self.session_id, label=session_id)
        return LedgerSession(session_id, self._ledger, session_settings=self.session_settings)

    async def branch(self, turn_id: str) -> None:
        """Continue from an earlier turn, or from one that was left."""
        await self._leave("the session continued from another turn")
        await in_thread(self._ledger.move, self.session_id, turn_id)

    # -- the exchange that is open ------------------------------------------------------------

    async def _take(self) -> _OpenExchange | None:
        """The open exchange, which no other task gets meanwhile. The first time, one whose process
        died is continued."""
        if self.session_id not in self._exchanges:
            self._exchanges[self.session_id] = None
            items = await in_thread(self._interrupted)
            if not items:
                return None
            continued = await self._begin(items)
            # It replaces the interrupted turn, also if its items are taken back.
            await in_thread(self._ledger.forget_unfinished, self.session_id)
            return continued
        exchange = self._exchanges[self.session_id]
        self._exchanges[self.session_id] = None
        return exchange

    def _put_back(self, exchange: _OpenExchange | None) -> None:
        if exchange is not None and not exchange.sealed:
            self._exchanges[self.session_id] = exchange

    async def _begin(self, items: list[Item]) -> _OpenExchange:
        exchange_items = ExchangeItems()
        parts = exchange_items.add(items, live=True)
        turn = await self._writing.turn(self.session_id, parts.query)
        steps = [*parts.steps, *((parts.response,) if parts.response else ())]
        if steps:
            await turn.add(*steps)
        return _OpenExchange(turn, exchange_items, items)

    async def _continue(self, exchange: _OpenExchange, items: list[Item]) -> None:
        if _is_answer(items[-1]):
            await self._seal(exchange, items)
        else:
            await exchange.turn.add(*exchange.matched.add(items, live=True).steps)
            exchange.items += items

    async def _seal(self, exchange: _OpenExchange, items: list[Item]) -> None:
        """End an exchange with its last items."""
        parts = exchange.matched.add(items, live=True)
        try:
            await exchange.turn.respond(
                parts.response, steps=parts.steps, usage=self.hooks.usage, model=self.hooks.model
            )
        except HeadMoved:
            # Another writer was first: the turn is a branch now, and its items follow the head. The
            # tokens were spent once: they stay with the branch.
            query, steps, response = ExchangeItems().add(exchange.items + items, live=False)
            await self._writing.record(
                self.session_id, query, response, steps=steps, model=self.hooks.model
            )
        exchange.sealed = True
        self.hooks.reset()

    async def _fail(self, exchange: _OpenExchange) -> None:
        """End an exchange without an answer. Its items stay: the next run sees them too."""
        await exchange.turn.fail(NO_ANSWER, usage=self.hooks.usage, model=self.hooks.model)
        exchange.sealed = True
        self.hooks.reset()
        turn_id = exchange.turn.id
        while not await in_thread(self._follow, turn_id):
            # Another writer was first: the turn is a branch now, and its items follow the head.
            query, steps, response = ExchangeItems().add(exchange.items, live=False)
            turn = await self._writing.record(
                self.session_id, query, response, steps=steps, status="failed", error=NO_ANSWER
            )
            turn_id = turn.id

    async def _record(self, items: list[Item]) -> None:
        query, steps, response = ExchangeItems().add(items, live=False)
        await self._writing.record(
            self.session_id,
            query,
            response,
            steps=steps,
            usage=self.hooks.usage,
            model=self.hooks.model,
        )
        self.hooks.reset()

    async def _leave(self, reason: str) -> None:
        exchange = await self._take()
        if exchange is not None:
            await exchange.turn.fail(reason)

    # -- in a thread --------------------------------------------------------------------------

    def _interrupted(self) -> list[Item]:
        """The items of an exchange whose process died."""
        self._ledger.recover()
        turn = self._ledger.unfinished(self.session_id)
        if turn is None or turn.status != "failed":
            return []
        return [_plain(item) for item in _items(turn.messages, turn.tool_calls)]

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

    def _step_back(self, turn: Turn, remaining: Sequence[TResponseInputItem]) -> None:
        """Move the head to a turn's parent, and record the remaining items there."""
        turns = []
        if remaining:
            items = [_plain(item) for item in remaining]
            query, steps, response = ExchangeItems().add(items, live=False)
            fields = {"steps": tuple(steps)}
            turns.append(GraftedTurn(new_id(), turn.parent_turn_id, query, response, fields))
        self._move(turn.id, turns[0].id if turns else turn.parent_turn_id, turns)

    def _follow(self, turn_id: str) -> bool:
        """Move the head from a failed turn's parent to the turn; False if it is not there."""
        try:
            self._move(self._ledger.get_turn(turn_id).parent_turn_id, turn_id)
        except HeadMoved:
            return False
        return True

    def _move(
        self, expected: str | None, head: str | None, turns: Sequence[GraftedTurn] = ()
    ) -> None:
        """Move the head, unless another writer has moved it."""
        label = self._ledger.session(self.session_id).label

        def check(session: Session | None) -> None:
            head = session.thread_id if session else None
            if head != expected:
                raise HeadMoved(label, expected=expected, found=head)

        self._ledger.graft(Session(label), turns=turns, head=head, check=check)

    def _clear(self) -> None:
        try:
            self._ledger.forget_unfinished(self.session_id)
            if self._ledger.head(self.session_id) is not None:
                self._ledger.clear(self.session_id)
        except NotFound:  # nothing was ever added
            return


class UsageHooks(RunHooks[Any]):
    """Takes the model and the tokens of a run from the SDK."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.model: str | None = None
        self.usage = Usage()

    async def on_llm_end(
        self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse
    ) -> None:
        """Add what a request to the model took."""
        self.model = _model_name(agent.model) or self.model
        spent, before = response.usage, self.usage
        self.usage = Usage(
            (before.input_tokens or 0) + spent.input_tokens,
            (before.output_tokens or 0) + spent.output_tokens,
            (before.cached_input_tokens or 0) + spent.input_tokens_details.cached_tokens,
            reasoning_tokens=(before.reasoning_tokens or 0)
            + spent.output_tokens_details.reasoning_tokens,
        )


def _model_name(model: object) -> str | None:
    if model is None:
        return get_default_model()
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) else None


class _OpenExchange:
    """A live turn and the items that were added to it."""

    def __init__(self, turn: AsyncLiveTurn, matched: ExchangeItems, items: list[Item]) -> None:
        self.turn = turn
        self.matched = matched
        self.items = items
        self.sealed = False


# By ledger and session. None: this process knows that no exchange is open.
_EXCHANGES: WeakKeyDictionary[Ledger, dict[str, _OpenExchange | None]] = WeakKeyDictionary()


# -- items and turns --------------------------------------------------------------------------


class ExchangeParts(NamedTuple):
    query: list[Message]
    steps: list[Message | ToolCall]
    response: Message | None


class _WaitingCall(NamedTuple):
    """A call whose output was not added yet."""

    id: str
    tool_name: str
    at: int | None  # its index in the batch; None: it was added with an earlier one


class ExchangeItems:
    """The items of an exchange as messages and calls, batch by batch.

    An output is matched with its call, which may have been added with an earlier batch. A call
    without an id of its own gets one.
    """

    def __init__(self) -> None:
        self._waiting: dict[str, deque[_WaitingCall]] = {}  # by the id their items carry

    def add(self, items: Sequence[Item], *, live: bool) -> ExchangeParts:
        """Query, steps and response of a batch. `live`: an output may follow with a later one."""
        matched, outputs = self._match(items)
        steps: list[Message | ToolCall] = []
        for at, item in enumerate(items):
            call = matched.get(at)
            is_own = call is not None and call.id == item.get("call_id") and _is_json(item)
            if call is not None and item.get("type") == "function_call":
                arguments = item.get("arguments")
                # Those that are not JSON are encoded in the call.
                in_call = is_own and isinstance(arguments, str) and is_json(arguments)
                steps.append(_message(item, "arguments" if in_call else None))
                steps.append(_call(item, outputs.get(at), call.id, live=live))
                continue
            in_call = is_own and "output" in item
            steps.append(_message(item, "output" if in_call else None, self._answered(item, call)))
            if call is not None and call.at is None:
                result = _result_json(item)
                steps.append(ToolCall(call.tool_name, result_json=result, id=call.id))
        response = steps.pop() if items and _is_answer(items[-1]) else None
        length = 0
        while length < len(steps) and _is_question(items[length]):
            length += 1
        return ExchangeParts(steps[:length], steps[length:], response)  # type: ignore[arg-type]

    def _match(self, items: Sequence[Item]) -> tuple[dict[int, _WaitingCall], dict[int, Item]]:
        """The call of each call and output, by their index; the outputs by the index of a call."""
        matched: dict[int, _WaitingCall] = {}
        outputs: dict[int, Item] = {}
        for at, item in enumerate(items):
            call_id = item.get("call_id")
            key = repr(call_id)  # an id may be of any type, and need not be hashable
            if item.get("type") == "function_call":
                own = call_id if isinstance(call_id, str) and key not in self._waiting else ""
                call = _WaitingCall(own or f"call_{new_id()}", _tool_name(item), at)
                self._waiting.setdefault(key, deque()).append(call)
                matched[at] = call
            elif _is_output(item) and self._waiting.get(key):
                # Several calls may carry one id: each gets the next output that has it.
                call = matched[at] = self._waiting[key].popleft()
                if call.at is not None:
                    outputs[call.at] = item
        for key, calls in self._waiting.items():
            self._waiting[key] = deque(call._replace(at=None) for call in calls)
        return matched, outputs

    def _answered(self, item: Item, call: _WaitingCall | None) -> str | None:
        """The id of the call that an item is the output of. The call may be of an earlier turn; if
        it is one of this exchange, the output must be its own."""
        call_id = item.get("call_id")
        if call is not None or repr(call_id) in self._waiting:
            return call.id if call is not None else None
        return call_id if isinstance(call_id, str) and call_id else None


def _is_question(item: Item) -> bool:
    return ROLES.get(str(item.get("role"))) in ("user", "system")


def _is_answer(item: Item) -> bool:
    return item.get("role") == "assistant"


def _tool_name(item: Item) -> str:
    return str(item.get("name") or "function")


def _plain(item: Any) -> Item:
    plain: Item = item if isinstance(item, dict) else json.loads(to_json(item))
    return plain


def _is_output(item: Item) -> bool:
    return str(item.get("type", "")).endswith("_output")


def _is_json(value: object) -> bool:
    """Whether JSON can represent a value: it has no infinity and no NaN."""
    if isinstance(value, dict):
        return all(map(_is_json, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_json, value))
    return not isinstance(value, float) or math.isfinite(value)


def _message(item: Item, in_call: str | None, answered: str | None = None) -> Message:
    """The message of an item. `in_call`: the field that its tool call holds; `answered`: the id of
    the call whose output it is."""
    role = "tool" if _is_output(item) else ROLES.get(str(item.get("role")), "assistant")
    metadata: Item = {ITEM: _with_text(item, None)}
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


def _with_text(item: Item, text: str | None) -> Item:
    """The item with another text where its message's content comes from; unchanged, if the content
    is joined from several texts."""
    name = "content" if "content" in item else "output"
    match item.get(name):
        case str() | None if name in item:
            return {**item, name: text}
        case [{"text": str() | None} as part] if part["text"] != "":
            return {**item, name: [{**part, "text": text}]}
    return item


def _text(item: Item) -> str | None:
    content = item.get("content", item.get("output"))
    if isinstance(content, str) or content is None:
        return content
    if isinstance(content, list):
        texts = [part.get("text") for part in content if isinstance(part, dict)]
        return "\n".join(text for text in texts if isinstance(text, str)) or None
    return to_json(content)


def _call(item: Item, output: Item | None, call_id: str, *, live: bool) -> ToolCall:
    params = item.get("arguments")
    call = ToolCall(
        _tool_name(item),
        params if isinstance(params, str) else to_json(params or {}),
        status="running",
        id=call_id,
    )
    if output is not None:
        return replace(call, result_json=_result_json(output), status="completed")
    return call if live else replace(call, error=NO_RESULT, status="cancelled")


def _result_json(output: Item) -> str | None:
    result = output.get("output")
    return None if result is None else to_json([result])[1:-1]


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


def _with_call(item: Item, call: ToolCall | TranscriptCall) -> Item:
    if item["type"] == "function_call":
        return {**item, "arguments": call.params_json}
    return {**item, "output": _decoded(call.result_json or "null")}


def _decoded(text: str) -> Any:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        # The slower decoder accepts unpaired surrogates and NaN.
        return json.loads(text)
