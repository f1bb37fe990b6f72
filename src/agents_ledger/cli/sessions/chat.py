"""chat: send messages to a session through the broker."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, cast, get_args

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.errors import EXIT_CODES
from agents_ledger.cli.terminal import diagnostic, fit, note, prompt
from agents_ledger.model.errors import Ambiguous, EngineError, EngineFault, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents_ledger.broker.broker import Broker, Destination
    from agents_ledger.broker.events import Completed, Failed

PARAMS_MAX = 100


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option("--message", metavar="TEXT", help="Send this message and exit.")
@click.option(
    "--model",
    metavar="NAME",
    help="Model, such as anthropic:claude-opus-5, or echo.  [default: policy]",
)
@click.option("--engine", metavar="NAME", help="Engine: echo or pydantic-ai.  [default: policy]")
@click.option(
    "--persona", metavar="ID", help="Persona of a new session; without TARGET, its main session."
)
def chat(
    run: Invocation,
    *,
    target: str | None,
    message: str | None,
    model: str | None,
    engine: str | None,
    persona: str | None,
) -> int | None:
    """Chat in a session, a fork or an imported conversation.

    TARGET is a session to continue, a turn to fork from, or the label of a new session; the default
    is the main session. Each line of the input is one message. On a terminal, Ctrl-C cancels the
    answer and Ctrl-D ends the chat.
    """
    if message is not None and not message.strip():
        raise Refused("the message is empty", "Give a text with --message.")
    options = {"directives": {"model": model} if model else {}, "persona_id": persona}
    return asyncio.run(_chat(run, target, message, engine, options))


async def _chat(
    run: Invocation,
    target: str | None,
    message: str | None,
    engine: str | None,
    options: dict[str, Any],
) -> int | None:
    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.engines.registry import requested

    chosen = requested(engine, options["directives"].get("model"))
    async with Broker.open(run.address, engine=chosen, create=False) as broker:
        if target is not None:
            with suppress(NotFound, Ambiguous):  # a new label may be a prefix of an existing one
                target = await broker.ledger.lookup(target, beginnings=False)
        destination = await broker.check(target, **options)
        conversation = _Conversation(run, broker, target, destination, options)
        async for text in _lines(message):
            await conversation.send(text)
        return conversation.end()


async def _lines(message: str | None) -> AsyncIterator[str]:
    """The messages to send: --message, or the lines of the input."""
    if message is not None:
        yield message
        return
    interactive = sys.stdin.isatty()
    while True:
        if interactive:
            prompt()
            await _stdin_ready()
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip():
            yield line.rstrip("\n")


async def _stdin_ready() -> None:
    """Wait for a line without blocking the event loop or Ctrl-C."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), ready.set)
    except NotImplementedError:  # Windows: readline() blocks instead
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


class _Conversation:
    """Sends messages and collects the outcome of each."""

    def __init__(
        self,
        run: Invocation,
        broker: Broker,
        target: str | None,
        destination: Destination,
        options: dict[str, Any],
    ) -> None:
        self._run = run
        self._broker = broker
        self._target = target
        self._destination = destination
        self._options = options
        self._label = ""
        self._turns: list[dict[str, Any]] = []
        self._failed: Failed | None = None

    async def send(self, text: str) -> None:
        """Send a message and print the answer as it arrives."""
        from agents_ledger.broker.events import Completed, Failed, Queued
        from agents_ledger.model.agents.engine import TextPiece

        begun = False
        with self._stopping():
            async for event in self._broker.send(self._target, text, **self._options):
                if isinstance(event, Queued):
                    self._queued(event.session_label)
                elif isinstance(event, TextPiece):
                    begun = True
                    self._print_text(event.text)
                elif isinstance(event, Completed):
                    self._completed(event, begun=begun)
                elif isinstance(event, Failed):
                    self._failure(event, begun=begun)
                else:
                    self._print_event(event)

    def _queued(self, label: str) -> None:
        """Report the session that the first message created, which the next ones continue."""
        if not self._label and self._destination.session is None:
            forked = self._destination.turn_id
            origin = ((" at turn ", "dim"), (forked, "id")) if forked else ()
            note(("fork " if forked else "new session ", "dim"), (label, "label"), *origin)
        self._target = self._label = label

    def _print_text(self, text: str) -> None:
        if not self._run.as_json:
            self._run.out.stream(text)

    def _completed(self, event: Completed, *, begun: bool) -> None:
        self._failed = None
        self._turns.append(
            {"turn_id": event.turn_id, "text": event.text, "error": None, "usage": event.usage}
        )
        if not self._run.as_json:
            self._run.out.stream("\n" if begun else f"{event.text}\n")
        if event.beside:
            note(("The session moved meanwhile: this turn was recorded off its head.", "live"))

    def _failure(self, event: Failed, *, begun: bool) -> None:
        self._failed = event
        self._turns.append(
            {"turn_id": event.turn_id, "text": event.kept, "error": event.error, "usage": None}
        )
        if begun and not self._run.as_json:
            self._run.out.stream("\n")
        if sys.stdin.isatty() and not self._run.as_json:
            diagnostic("error", event.error)
        elif not self._run.as_json:
            raise _error(event)

    def _print_event(self, event: Any) -> None:
        from agents_ledger.broker.events import Compacted
        from agents_ledger.model.agents.engine import CallBegun, CallFinished

        if isinstance(event, CallBegun):
            note(("tool ", "dim"), (event.call.tool_name, "tool"), " ",
                 (fit(event.call.params_json, PARAMS_MAX), "dim"))  # fmt: skip
        elif isinstance(event, CallFinished) and event.result.is_error:
            note(("failed ", "bad"), fit(event.result.text, PARAMS_MAX))
        elif isinstance(event, Compacted):
            note((f"compacted: {event.tokens_before} to {event.tokens_after} tokens", "seam"))

    @contextmanager
    def _stopping(self) -> Iterator[None]:
        """While an answer arrives, Ctrl-C cancels the answer and not the chat."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            if self._label:
                self._cancelling = loop.create_task(self._broker.cancel(self._label))

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # not on Windows or in a thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def end(self) -> int | None:
        """Print the JSON, and return the exit code."""
        if self._run.as_json:
            self._run.out.json(session=self._label, turns=self._turns)
        if self._failed is None:
            return None
        return EXIT_CODES[type(_error(self._failed))] if not sys.stdin.isatty() else None


def _error(event: Failed) -> EngineError | Refused:
    if event.kind in ("refused", "dropped"):
        return Refused(event.error)
    kind = event.kind if event.kind in get_args(EngineFault) else "unavailable"
    return EngineError(event.error, cast(EngineFault, kind))
