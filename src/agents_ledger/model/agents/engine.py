"""The Engine port: what runs a model, whoever makes it.

An engine is given a request and yields events. Pieces of a message come before its `MessageDone`,
the calls it makes after it; `Finished` is the last event, once. An engine never executes a tool: it
awaits `request.call`, whose owner checks, records and executes. What goes wrong is raised as
EngineError, after the events that happened.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import msgspec
from msgspec import Struct

from agents_ledger.model.context.items import CallItem, Item, ResultItem, TextItem
from agents_ledger.model.errors import EngineError, Refused
from agents_ledger.model.turns import Usage

StopReason = Literal["end", "max_tokens", "refusal", "other"]
CallTool = Callable[[CallItem], Awaitable[ResultItem]]
Steer = Callable[[], Awaitable[tuple[TextItem, ...]]]


class ModelConfig(Struct, frozen=True):
    """How the model runs. None: as the engine decides."""

    model: str | None = None
    thinking: str | int | bool | None = None  # on or off, a named level, or a number of tokens
    max_tokens: int | None = None
    temperature: float | None = None


class Tool(Struct, frozen=True):
    """A tool offered to the model. `parameters` is the JSON Schema of an object."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = msgspec.field(default_factory=lambda: {"type": "object"})


async def no_tools(call: CallItem) -> ResultItem:
    """The answer to every call where no tools are offered."""
    return ResultItem(call.id, f"there is no tool {call.tool_name!r}", is_error=True)


async def nothing_more() -> tuple[TextItem, ...]:
    """The answer where nobody steers."""
    return ()


class Request(Struct, frozen=True):
    """What an engine is asked to do. The last item is what the model has to answer.

    `steer` gives what was said meanwhile; an engine awaits it before it asks the model once more.
    """

    items: tuple[Item, ...]
    system_prompt: str | None = None
    config: ModelConfig = ModelConfig()
    tools: tuple[Tool, ...] = ()
    call: CallTool = no_tools
    steer: Steer = nothing_more

    @property
    def last_message(self) -> str:
        """The text of the last message of the user."""
        texts = (item for item in reversed(self.items) if isinstance(item, TextItem))
        return next((item.text for item in texts if item.role == "user"), "")


class TextPiece(Struct, frozen=True, tag="text"):
    """A piece of what is being said."""

    type: ClassVar[Literal["text"]] = "text"
    text: str


class ThinkingPiece(Struct, frozen=True, tag="thinking"):
    """A piece of what is being thought."""

    type: ClassVar[Literal["thinking"]] = "thinking"
    text: str


class MessageDone(Struct, frozen=True, tag="message"):
    """A message of the assistant is complete: all of its text and thinking.

    `signature` is what the provider wants to see again with the thinking; messages keep it in
    `metadata_json` as `thinking_signature`.
    """

    type: ClassVar[Literal["message"]] = "message"
    text: str
    thinking: str | None = None
    signature: str | None = None


class CallBegun(Struct, frozen=True, tag="call_begun"):
    """The model calls a tool; it is executed next."""

    type: ClassVar[Literal["call_begun"]] = "call_begun"
    call: CallItem


class CallFinished(Struct, frozen=True, tag="call_finished"):
    """What came of it."""

    type: ClassVar[Literal["call_finished"]] = "call_finished"
    result: ResultItem


class Finished(Struct, frozen=True, tag="finished"):
    """The model is done: what it cost over all its calls, and why it stopped."""

    type: ClassVar[Literal["finished"]] = "finished"
    usage: Usage = Usage()
    model: str | None = None
    provider: str | None = None
    stop_reason: StopReason = "end"


EngineEvent = TextPiece | ThinkingPiece | MessageDone | CallBegun | CallFinished | Finished


@runtime_checkable
class Engine(Protocol):
    """Runs a model. Two exist: the echo engine, and one for every provider through pydantic-ai."""

    @property
    def name(self) -> str:
        """The name that is recorded with each turn."""

    def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        """What the model says and does, as it happens."""


@runtime_checkable
class ChecksModel(Protocol):
    """An engine that needs a model, and knows before a turn begins whether it can run it."""

    def check(self, model: str) -> None:
        """Raise EngineError if the model cannot run: it is unknown, or there is no key for it."""


AnswerFunction = Callable[[str], str | Awaitable[str]]


class FunctionEngine:
    """Answers with a function of the prompt: all that a summary needs."""

    def __init__(self, function: AnswerFunction) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self._function = function

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        """The function's answer. It is called in a thread, since it may block."""
        import asyncio

        texts = [item.text for item in request.items if isinstance(item, TextItem)]
        prompt = "\n\n".join([*filter(None, [request.system_prompt]), *texts])
        answer = await asyncio.to_thread(self._function, prompt)
        if isinstance(answer, Awaitable):
            answer = await answer
        if not isinstance(answer, str):
            raise EngineError(f"{self.name} returned {answer!r:.80}, not text", "bad_request")
        yield MessageDone(answer)
        yield Finished()


def as_engine(engine: Engine | AnswerFunction | None) -> Engine | None:
    """The engine itself, or one that answers with a function."""
    if engine is None or isinstance(engine, Engine):
        return engine
    if not callable(engine):
        raise Refused(f"an engine is an Engine or a function, not {engine!r:.80}")
    return FunctionEngine(engine)


class Reply(Struct, frozen=True):
    """All that an engine said in the end, for callers who need no pieces."""

    text: str
    finished: Finished


async def ask(engine: Engine, request: Request) -> Reply:
    """Run an engine to its end; the text is that of its last message."""
    text, finished = "", None
    async for event in engine.run(request):
        if isinstance(event, MessageDone):
            text = event.text
        elif isinstance(event, Finished):
            finished = event
    if finished is None:
        raise EngineError(f"engine {engine.name!r} ended without an answer")
    return Reply(text, finished)
