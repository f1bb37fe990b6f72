"""The engine for all providers, with pydantic-ai. Keys come from the providers' own variables.

The model is called until it calls no more tools. The broker executes the tools, those of one
message concurrently.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from typing import Any, cast

from pydantic_ai import exceptions, models
from pydantic_ai.direct import model_request_stream
from pydantic_ai.messages import (
    BinaryContent,
    ImageUrl,
    ModelMessage,
    ModelRequest,
    ModelRequestPart,
    ModelResponse,
    ModelResponsePart,
    PartDeltaEvent,
    PartStartEvent,
    TextPart,
    TextPartDelta,
    ThinkingPart,
    ThinkingPartDelta,
    ToolCallPart,
    ToolReturnPart,
    UserContent,
    UserPromptPart,
)
from pydantic_ai.settings import ModelSettings
from pydantic_ai.tools import ToolDefinition
from pydantic_ai.usage import RequestUsage

from agents_ledger.model.agents.engine import (
    CallBegun,
    CallFinished,
    EngineEvent,
    Finished,
    MessageDone,
    ModelConfig,
    Request,
    StopReason,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.model.context.items import (
    CallItem,
    ImageItem,
    Item,
    ResultItem,
    TextItem,
    ThinkingItem,
)
from agents_ledger.model.errors import EngineError, EngineFault
from agents_ledger.model.turns import Usage

_STOPS: dict[str | None, StopReason] = {
    "stop": "end",
    "length": "max_tokens",
    "content_filter": "refusal",
    None: "end",
}
_FAULTS: tuple[tuple[type[Exception], EngineFault], ...] = (
    (exceptions.ModelContextWindowExceededError, "overflow"),
    (exceptions.ModelRateLimitError, "rate"),
    (exceptions.ModelQuotaExceededError, "rate"),
    (exceptions.ModelAuthenticationError, "auth"),
    (exceptions.ModelRequestRejectedError, "bad_request"),
    (exceptions.ModelAPIError, "unavailable"),
    (exceptions.UnexpectedModelBehavior, "unavailable"),
)
MODEL_NAMES = "Name the model as provider:name, such as anthropic:claude-opus-5."
# For a token budget, where a provider knows only levels.
_EFFORTS = (
    (2_000, "low"),
    (10_000, "medium"),
)


class ProviderEngine:
    """Runs models by their pydantic-ai name: "anthropic:claude-opus-5", "openai:gpt-5"."""

    name = "pydantic-ai"

    def __init__(self, find_model: Callable[[str], models.Model] = models.infer_model) -> None:
        self._find_model = find_model
        self._models: dict[str, models.Model] = {}

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        """Call the model and execute its tool calls, until it calls no more tools."""
        model = self._model(request.config.model)
        messages = list(to_messages(request.items))
        model_calls = _ModelCalls(model, request)
        while True:
            async for event in model_calls.call(messages):
                yield event
            response = model_calls.response
            messages.append(response)
            calls = [part for part in response.parts if isinstance(part, ToolCallPart)]
            parts: list[ModelRequestPart] = []
            begun = [CallItem(c.tool_call_id, c.tool_name, _params(c)) for c in calls]
            for call in begun:
                yield CallBegun(call)
            # gather() returns results in the order of the calls, whichever ends first.
            for result in await asyncio.gather(*map(request.call, begun)):
                yield CallFinished(result)
                parts.append(_result(result, {call.id: call.tool_name for call in begun}))
            parts += (UserPromptPart(item.text) for item in await request.steer())
            if not parts:
                break
            messages.append(ModelRequest(parts))
        yield model_calls.finished()

    def check(self, model: str) -> None:
        """Raise EngineError if the model cannot run: it is unknown, or there is no key for it."""
        self._model(model)

    def _model(self, name: str | None) -> models.Model:
        if not name:
            raise EngineError("no model is configured", "bad_request", MODEL_NAMES)
        if name not in self._models:
            try:
                self._models[name] = self._find_model(name)
            except exceptions.UserError as error:
                raise _unusable(name, str(error)) from error
            except ImportError as error:
                raise EngineError(
                    f"model {name!r} needs another package: {error}", "bad_request"
                ) from error
        return self._models[name]


def _unusable(name: str, reason: str) -> EngineError:
    variable = re.search(r"`([A-Z][A-Z0-9_]+)`", reason)
    if variable is not None:
        return EngineError(
            f"model {name!r} needs the environment variable {variable[1]}, which is not set",
            "auth",
            f"Set {variable[1]}, or choose another model.",
        )
    return EngineError(reason, "bad_request", MODEL_NAMES)


class _ModelCalls:
    """The calls of a model in one turn, with the same settings and tools; their usage is summed."""

    def __init__(self, model: models.Model, request: Request) -> None:
        self._model = model
        self._prompt = request.system_prompt
        self._settings = to_settings(request.config, model)
        self._parameters = models.ModelRequestParameters(
            function_tools=[
                ToolDefinition(
                    name=tool.name,
                    description=tool.description,
                    parameters_json_schema=dict(tool.parameters),
                )
                for tool in request.tools
            ]
        )
        self._usage: list[RequestUsage] = []
        self.response: ModelResponse

    async def call(self, messages: Sequence[ModelMessage]) -> AsyncIterator[EngineEvent]:
        """Yield one answer of the model: its parts, then the complete message."""
        last = messages[-1]
        if isinstance(last, ModelRequest):
            last.instructions = self._prompt
        try:
            async with model_request_stream(
                self._model,
                messages,
                model_settings=self._settings,
                model_request_parameters=self._parameters,
            ) as stream:
                async for event in stream:
                    piece = _piece(event)
                    if piece is not None:
                        yield piece
                self.response = stream.get()
        except (exceptions.AgentRunError, exceptions.UserError) as error:
            raise _fault(error) from error
        self._usage.append(self.response.usage)
        yield _complete_message(self.response)

    def finished(self) -> Finished:
        response = self.response
        reason = _STOPS.get(response.finish_reason, "other")
        return Finished(
            to_usage(self._usage),
            response.model_name or self._model.model_name,
            response.provider_name or self._model.system,
            reason,
        )


def _piece(event: Any) -> TextPiece | ThinkingPiece | None:
    if isinstance(event, PartStartEvent) and isinstance(event.part, TextPart | ThinkingPart):
        text, thinks = event.part.content, isinstance(event.part, ThinkingPart)
    elif isinstance(event, PartDeltaEvent) and isinstance(
        event.delta, TextPartDelta | ThinkingPartDelta
    ):
        text, thinks = event.delta.content_delta or "", isinstance(event.delta, ThinkingPartDelta)
    else:
        return None
    if not text:
        return None
    return ThinkingPiece(text) if thinks else TextPiece(text)


def _complete_message(response: ModelResponse) -> MessageDone:
    thoughts = [part for part in response.parts if isinstance(part, ThinkingPart)]
    return MessageDone(
        "".join(part.content for part in response.parts if isinstance(part, TextPart)),
        "\n\n".join(part.content for part in thoughts) or None,
        next((part.signature for part in thoughts if part.signature), None),
    )


def _params(call: ToolCallPart) -> str:
    """The parameters as the provider sent them, if they are text."""
    return call.args if isinstance(call.args, str) and call.args else call.args_as_json_str()


def _fault(error: Exception) -> EngineError:
    kind: EngineFault = next((k for fault, k in _FAULTS if isinstance(error, fault)), "bad_request")
    return EngineError(str(error), kind)


# -- conversion to and from the types of pydantic-ai ---------------------------------------------


def to_usage(requests: Sequence[RequestUsage]) -> Usage:
    """The sum of several requests; input includes cached tokens, output reasoning tokens."""
    reasoning = sum(usage.details.get("reasoning_tokens", 0) for usage in requests)
    return Usage(
        input_tokens=sum(usage.input_tokens for usage in requests),
        output_tokens=sum(usage.output_tokens for usage in requests),
        cached_input_tokens=sum(usage.cache_read_tokens for usage in requests) or None,
        cache_write_tokens=sum(usage.cache_write_tokens for usage in requests) or None,
        reasoning_tokens=reasoning or None,
    )


def to_settings(config: ModelConfig, model: models.Model) -> ModelSettings:
    """The settings of a model; the provider decides what is not set."""
    settings: dict[str, Any] = {}
    if config.max_tokens is not None:
        settings["max_tokens"] = config.max_tokens
    if config.temperature is not None:
        settings["temperature"] = config.temperature
    thinking = config.thinking
    if isinstance(thinking, int) and not isinstance(thinking, bool):
        if model.system == "anthropic":
            settings["anthropic_thinking"] = {"type": "enabled", "budget_tokens": thinking}
        else:
            efforts = (effort for tokens, effort in _EFFORTS if thinking <= tokens)
            settings["thinking"] = next(efforts, "high")
    elif thinking is not None:
        settings["thinking"] = thinking
    return cast(ModelSettings, settings)


def to_messages(items: Sequence[Item]) -> Iterator[ModelMessage]:
    """The items of a context as messages; consecutive items of one side form one message."""
    names = {item.id: item.tool_name for item in items if isinstance(item, CallItem)}
    responses: list[ModelResponsePart] = []
    requests: list[ModelRequestPart] = []
    for item in items:
        part = _response_part(item)
        if part is not None:
            if requests:
                yield ModelRequest(requests)
                requests = []
            responses.append(part)
            continue
        if responses:
            yield ModelResponse(responses)
            responses = []
        requests.append(_request_part(item, names))
    if responses:
        yield ModelResponse(responses)
    if requests:
        yield ModelRequest(requests)


def _response_part(item: Item) -> ModelResponsePart | None:
    """The item as a part of a model's response; None for the items of a request."""
    if isinstance(item, TextItem) and item.role == "assistant":
        return TextPart(item.text)
    if isinstance(item, ThinkingItem):
        return ThinkingPart(
            item.text,
            signature=item.signature,
            provider_name=item.provider if item.signature else None,
        )
    if isinstance(item, CallItem):
        return ToolCallPart(item.tool_name, item.params_json, item.id)
    if isinstance(item, ImageItem) and item.role == "assistant":
        return TextPart(f"[image: {item.reference[:200]}]")
    return None


def _request_part(item: Item, names: dict[str, str]) -> ModelRequestPart:
    if isinstance(item, ResultItem):
        return _result(item, names)
    if isinstance(item, ImageItem):
        return UserPromptPart([_image(item)])
    return UserPromptPart(item.text if isinstance(item, TextItem) else "")


def _result(result: ResultItem, names: dict[str, str]) -> ToolReturnPart:
    content: Any = result.text
    if result.images:
        content = [result.text, *map(_image, result.images)]
    outcome: Any = "failed" if result.is_error else "success"
    name = names.get(result.call_id, "unknown")
    return ToolReturnPart(name, content, result.call_id, outcome=outcome)


def _image(item: ImageItem) -> UserContent:
    if item.reference.startswith("data:"):
        return BinaryContent.from_data_uri(item.reference)
    if item.reference.startswith(("http://", "https://")):
        return ImageUrl(item.reference)
    return f"[image: {item.reference}]"
