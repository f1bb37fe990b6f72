"""Tools that a program offers, and the calls of a turn: checked, recorded, executed."""

from __future__ import annotations

import asyncio
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NamedTuple

import msgspec

from agents_ledger.ledger.aio.async_ledger import AsyncLiveCall, AsyncLiveTurn
from agents_ledger.model.agents.engine import Tool
from agents_ledger.model.agents.permissions import Permissions, Used
from agents_ledger.model.context.items import CallItem, ResultItem
from agents_ledger.model.errors import Refused
from agents_ledger.model.turns import to_json

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class ToolInvocation(NamedTuple):
    """The argument of a tool's function."""

    params: Mapping[str, Any]
    session_label: str
    turn_id: str
    call: AsyncLiveCall


class OfferedTool(NamedTuple):
    """A tool that a program offers. The result of `run` becomes JSON."""

    tool: Tool
    run: Callable[[ToolInvocation], Awaitable[object]]
    credentials: tuple[str, ...] = ()


def offer(
    function: Callable[..., object],
    *,
    name: str = "",
    description: str = "",
    parameters: Mapping[str, Any] | None = None,
    credentials: Iterable[str] = (),
) -> OfferedTool:
    """Make a tool of a function; its docstring is the default description.

    A function that is not a coroutine runs in a thread.
    """
    if not callable(function):
        raise Refused(f"a tool is a function, not {function!r:.80}")
    schema = parameters if parameters is not None else _schema(function)

    async def run(invocation: ToolInvocation) -> object:
        if inspect.iscoroutinefunction(function):
            return await function(**invocation.params)
        return await asyncio.to_thread(function, **invocation.params)

    tool = Tool(name or function.__name__, description or inspect.getdoc(function) or "", schema)
    return OfferedTool(tool, run, tuple(credentials))


def _schema(function: Callable[..., object]) -> Mapping[str, Any]:
    hints = inspect.get_annotations(function, eval_str=True)
    properties: dict[str, Any] = {}
    required: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise Refused(
                f"tool {function.__name__!r} has variable parameters",
                "Name each parameter, or pass the schema as `parameters`.",
            )
        hint = hints.get(parameter.name, Any)
        properties[parameter.name] = msgspec.json.schema(hint)
        if parameter.default is parameter.empty:
            required.append(parameter.name)
    return {"type": "object", "properties": properties, "required": required}


def _json_of(text: str) -> str:
    """A text that is JSON unchanged; any other text as a JSON string."""
    try:
        msgspec.json.decode(text)
    except msgspec.DecodeError:
        return to_json([text])[1:-1]
    return text


def _text_of(result: object, tool_name: str) -> str:
    if isinstance(result, str):
        return result
    try:
        return to_json(result)
    except (TypeError, ValueError) as error:
        kind = type(result).__name__
        raise TypeError(f"tool {tool_name} returned {kind}, not JSON: {error}") from error


class TurnCalls:
    """Executes the tool calls of one turn."""

    def __init__(
        self, turn: AsyncLiveTurn, label: str, tools: Mapping[str, OfferedTool], may: Permissions
    ) -> None:
        self._turn = turn
        self._label = label
        self._tools = tools
        self._may = may
        self._ids: Counter[str] = Counter()
        self._ran: Counter[str] = Counter()
        self._rejected: Counter[str] = Counter()
        self._credentials: set[str] = set()

    @property
    def used(self) -> Used:
        return Used(dict(self._ran), dict(self._rejected), tuple(sorted(self._credentials)))

    @property
    def any_ran(self) -> bool:
        return bool(self._ran)

    async def call(self, item: CallItem) -> ResultItem:
        """Check, record and execute one call."""
        # Recorded before the check: a rejected call is part of the history too.
        call = await self._turn.tool_call(
            item.tool_name, _json_of(item.params_json), id=self._unique_id(item.id)
        )
        refusal = self._refusal(item.tool_name)
        if refusal is not None:
            self._rejected[item.tool_name] += 1
            await call.reject(refusal)
            return ResultItem(item.id, refusal, is_error=True)
        tool = self._tools[item.tool_name]
        # Counted before it runs: a tool that fails or is stopped may have had effects.
        self._ran[item.tool_name] += 1
        self._credentials.update(tool.credentials)
        try:
            params = _decode(item.params_json)
            result = await tool.run(ToolInvocation(params, self._label, self._turn.id, call))
            text = _text_of(result, item.tool_name)
        except Exception as error:  # the model sees any error of a tool
            message = f"{type(error).__name__}: {error}"
            await call.fail(message)
            return ResultItem(item.id, message, is_error=True)
        await call.complete(_json_of(text))
        return ResultItem(item.id, text)

    def _refusal(self, name: str) -> str | None:
        if name in self._may.tools:
            return None
        tool = self._tools.get(name)
        if tool is None:
            return f"no tool {name!r}"
        return f"not permitted: stopped by {self._may.stopped_by(name, tool.credentials)}"

    def _unique_id(self, id: str) -> str:
        # Some providers repeat call ids; within a turn each call is recorded under its own id.
        self._ids[id] += 1
        return id if self._ids[id] == 1 or not id else f"{id}~{self._ids[id]}"
