"""An engine without a model, for trials and tests: it repeats the last message of the user.

Lines that begin with a slash are executed instead:

    /think TEXT             emit thinking
    /call NAME {"a": 1}     call a tool
    /wait MILLISECONDS      wait, then include the messages that arrived meanwhile
    /fail KIND TEXT         fail, as the engine of a provider would
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import cast, get_args

from agents_ledger.model.agents.engine import (
    CallBegun,
    CallFinished,
    EngineEvent,
    Finished,
    MessageDone,
    Request,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.model.context.items import CallItem, count_tokens
from agents_ledger.model.errors import EngineError, EngineFault
from agents_ledger.model.ids import new_id
from agents_ledger.model.text.tokens import BYTES_PER_TOKEN, estimate_tokens
from agents_ledger.model.turns import Usage

FAULTS = get_args(EngineFault)


class EchoEngine:
    """Repeats the last message. Above `context_window` tokens, if set, it overflows."""

    name = "echo"

    def __init__(self, *, context_window: int | None = None) -> None:
        self.context_window = context_window

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        """Execute the lines with a slash in order, then answer with the others."""
        tokens = count_tokens(request.system_prompt, request.items)
        if self.context_window is not None and tokens > self.context_window:
            raise EngineError(
                f"{tokens} tokens exceed the context window of {self.context_window}", "overflow"
            )
        lines: list[str] = []
        thoughts: list[str] = []
        for line in request.last_message.splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "/call":
                async for event in _call(request, rest):
                    yield event
            elif verb == "/think":
                thoughts.append(rest)
                yield ThinkingPiece(rest)
            elif verb in ("/fail", "/wait"):
                await _wait_or_fail(verb, rest)
                lines += [item.text for item in await request.steer()]
            else:
                lines.append(line)
        text, complete = _truncated("\n".join(lines).strip(), request.config.max_tokens)
        for piece in text.splitlines(keepends=True):
            yield TextPiece(piece)
        yield MessageDone(text, "\n".join(thoughts) or None)
        usage = Usage(input_tokens=tokens, output_tokens=estimate_tokens(text))
        model = request.config.model or "echo"
        yield Finished(usage, model, "echo", "end" if complete else "max_tokens")


async def _call(request: Request, rest: str) -> AsyncIterator[EngineEvent]:
    tool_name, _, params = rest.strip().partition(" ")
    call = CallItem(f"call_{new_id()}", tool_name, params.strip() or "{}")
    yield CallBegun(call)
    yield CallFinished(await request.call(call))


async def _wait_or_fail(verb: str, rest: str) -> None:
    first, _, message = rest.strip().partition(" ")
    if verb == "/wait":
        import asyncio

        await asyncio.sleep(int(first or 0) / 1000)
    else:
        kind = cast(EngineFault, first if first in FAULTS else "unavailable")
        raise EngineError(message or f"failed on request: {kind}", kind)


def _truncated(text: str, max_tokens: int | None) -> tuple[str, bool]:
    """The text up to a number of tokens, and whether it is complete."""
    if max_tokens is None or estimate_tokens(text) <= max_tokens:
        return text, True
    encoded = text.encode()[: max_tokens * BYTES_PER_TOKEN]
    return encoded.decode(errors="ignore"), False
