"""An engine that needs no model: it says what it was told. For trying things out, and for tests.

It answers with the last thing the user said. Lines of it that begin with a slash are done instead:

    /think TEXT             thinks
    /call NAME {"a": 1}     calls a tool
    /wait MILLISECONDS      takes its time, then says what it was told meanwhile too
    /fail KIND TEXT         fails, as an engine of a provider would
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from typing import cast, get_args

from agents_ledger.model.agents.engine import (
    CallBegun,
    CallFinished,
    Event,
    Finished,
    MessageDone,
    Request,
    TextPiece,
    ThinkingPiece,
)
from agents_ledger.model.context import CallItem, Item, TextItem
from agents_ledger.model.errors import EngineError, EngineFault
from agents_ledger.model.ids import new_id
from agents_ledger.model.text.tokens import BYTES_PER_TOKEN, count_tokens, estimate_tokens
from agents_ledger.model.turns import Usage

FAULTS = get_args(EngineFault)


class EchoEngine:
    """Says what it was told. `context_window`: the tokens beyond which it overflows, if any."""

    name = "echo"

    def __init__(self, *, context_window: int | None = None) -> None:
        self.context_window = context_window

    async def run(self, request: Request) -> AsyncIterator[Event]:
        """Do the lines with a slash in their order, then say the others."""
        shown = count_tokens(request.system_prompt, request.items)
        if self.context_window is not None and shown > self.context_window:
            raise EngineError(
                "overflow", f"{shown} tokens are more than the {self.context_window} that fit"
            )
        words: list[str] = []
        thoughts: list[str] = []
        for line in _asked(request.items).splitlines():
            verb, _, rest = line.partition(" ")
            if verb == "/call":
                async for event in _call(request, rest):
                    yield event
            elif verb == "/think":
                thoughts.append(rest)
                yield ThinkingPiece(rest)
            elif verb in ("/fail", "/wait"):
                await _wait_or_fail(verb, rest)
                words += [item.text for item in await request.steer()]
            else:
                words.append(line)
        said, whole = _cut("\n".join(words).strip(), request.config.max_tokens)
        for piece in said.splitlines(keepends=True):
            yield TextPiece(piece)
        yield MessageDone(said, "\n".join(thoughts) or None)
        usage = Usage(input_tokens=shown, output_tokens=estimate_tokens(said))
        model = request.config.model or "echo"
        yield Finished(usage, model, "echo", "end" if whole else "max_tokens")


def _asked(items: Sequence[Item]) -> str:
    """The last thing the user said."""
    said = (i.text for i in reversed(items) if isinstance(i, TextItem) and i.role == "user")
    return next(said, "")


async def _call(request: Request, rest: str) -> AsyncIterator[Event]:
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
        raise EngineError(kind, message or f"told to fail: {kind}")


def _cut(text: str, max_tokens: int | None) -> tuple[str, bool]:
    """The text as far as it may go, and whether that is all of it."""
    if max_tokens is None or estimate_tokens(text) <= max_tokens:
        return text, True
    kept = text.encode()[: max_tokens * BYTES_PER_TOKEN]
    return kept.decode(errors="ignore"), False
