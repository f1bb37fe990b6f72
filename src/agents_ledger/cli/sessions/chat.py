"""chat: talk through the broker, with the engine that the policy names."""

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
from agents_ledger.cli.terminal import ask, complain, fit, note
from agents_ledger.model import settings
from agents_ledger.model.errors import Ambiguous, EngineError, EngineFault, NotFound, Refused

if TYPE_CHECKING:
    from collections.abc import Iterator

    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.events import Completed, Failed

PARAMS_MAX = 100


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option("--message", metavar="TEXT", help="Say this, and end.")
@click.option("--model", metavar="NAME", help="As the engine names it: anthropic:claude-opus-5.")
@click.option("--engine", metavar="NAME", help="echo or pydantic-ai; else as the policy says.")
@click.option("--persona", metavar="ID", help="Its main session, or the persona of a new one.")
def chat(
    run: Invocation,
    *,
    target: str | None,
    message: str | None,
    model: str | None,
    engine: str | None,
    persona: str | None,
) -> int | None:
    """Talk with a session, a fork or an imported conversation.

    TARGET is a session, which goes on; a turn, from which a fork goes on; or a new session's label.
    Without it, the main session. On a terminal a line is a message, Ctrl-C stops the answer and
    Ctrl-D ends; else every line of the input is one.
    """
    if message is not None and not message.strip():
        raise Refused("the message is empty", "Say something with --message.")
    said = {"directives": {"model": model} if model else {}, "persona_id": persona}
    return asyncio.run(_chat(run, target, message, engine, said))


async def _chat(
    run: Invocation,
    target: str | None,
    message: str | None,
    engine: str | None,
    said: dict[str, Any],
) -> int | None:
    from agents_ledger.broker.broker import Broker
    from agents_ledger.broker.engines.chosen import choose

    chosen = choose(engine) if engine else None
    async with Broker.open(run.address, engine=chosen, create=False) as broker:
        label = await _label(broker, target, said["persona_id"])
        talk = _Talk(run, broker, label, said)
        if broker.engine.name == "echo" and sys.stdin.isatty() and message is None:
            note(("The echo engine answers. Another is chosen in ", "dim"))
            note((f"  {settings.policy_file(run.address)}", "dim"))
        async for text in _lines(message):
            await talk.say(text)
        return talk.end()


async def _label(broker: Broker, target: str | None, persona: str | None) -> str:
    """The session to talk with; one that is new is made by the first message, and may be called
    as another begins."""
    if target is not None:
        with suppress(NotFound, Ambiguous):
            target = await broker.ledger.lookup(target, beginnings=False)
    label, _ = await broker.resolve(target or f"persona:{persona or 'main'}")
    try:
        session = await broker.ledger.session(label)
    except NotFound:
        note(("new session ", "dim"), (label, "label"))
        return target or label
    if session.created_as == "fork" and session.thread_id and label != target:
        note(("fork ", "dim"), (label, "label"), (" at turn ", "dim"), (session.thread_id, "id"))
    return label


async def _lines(message: str | None) -> AsyncIterator[str]:
    """What is to be said: one message, or lines as they are typed."""
    if message is not None:
        yield message
        return
    typed = sys.stdin.isatty()
    while True:
        if typed:
            ask()
            await _something_typed()
        line = sys.stdin.readline()
        if not line:
            break
        if line.strip():
            yield line.rstrip("\n")


async def _something_typed() -> None:
    """Wait for a line without blocking what runs meanwhile, nor Ctrl-C."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    try:
        loop.add_reader(sys.stdin.fileno(), ready.set)
    except NotImplementedError:  # on Windows; then the line is waited for as it is read
        return
    try:
        await ready.wait()
    finally:
        loop.remove_reader(sys.stdin.fileno())


class _Talk:
    """One conversation, and what became of each message."""

    def __init__(
        self, run: Invocation, broker: Broker, target: str, options: dict[str, Any]
    ) -> None:
        self._run = run
        self._broker = broker
        self._target = target
        self._options = options
        self._label = ""
        self._said: list[dict[str, Any]] = []
        self._failed: Failed | None = None

    async def say(self, text: str) -> None:
        """Send a message and print what comes of it."""
        from agents_ledger.broker.events import Completed, Failed, Queued
        from agents_ledger.model.agents.engine import TextPiece

        begun = False
        with self._stopping():
            async for event in self._broker.send(self._target, text, **self._options):
                if isinstance(event, Queued):
                    self._target = self._label = event.session_label
                elif isinstance(event, TextPiece):
                    begun = True
                    self._piece(event.text)
                elif isinstance(event, Completed):
                    self._completed(event, begun=begun)
                elif isinstance(event, Failed):
                    self._fail(event, begun=begun)
                else:
                    self._note(event)

    def _piece(self, text: str) -> None:
        if not self._run.as_json:
            self._run.out.say(text)

    def _completed(self, event: Completed, *, begun: bool) -> None:
        self._failed = None
        self._said.append(
            {"turn_id": event.turn_id, "text": event.text, "error": None, "usage": event.usage}
        )
        if not self._run.as_json:
            self._run.out.say("\n" if begun else f"{event.text}\n")
        if event.beside:
            note(("The session moved meanwhile: this turn is kept beside its head.", "live"))

    def _fail(self, event: Failed, *, begun: bool) -> None:
        self._failed = event
        self._said.append(
            {"turn_id": event.turn_id, "text": event.kept, "error": event.error, "usage": None}
        )
        if begun and not self._run.as_json:
            self._run.out.say("\n")
        if sys.stdin.isatty() and not self._run.as_json:
            complain("error", event.error)
        elif not self._run.as_json:
            raise _error(event)

    def _note(self, event: Any) -> None:
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
        """While an answer comes: Ctrl-C stops it, and not the conversation."""
        loop = asyncio.get_running_loop()

        def stop() -> None:
            self._cancelling = loop.create_task(self._broker.cancel(self._label or self._target))

        try:
            loop.add_signal_handler(signal.SIGINT, stop)
        except (NotImplementedError, RuntimeError, ValueError):  # not on this system, or thread
            yield
            return
        try:
            yield
        finally:
            loop.remove_signal_handler(signal.SIGINT)

    def end(self) -> int | None:
        """The answer in JSON, and the exit code."""
        if self._run.as_json:
            self._run.out.json(session=self._label, turns=self._said)
        if self._failed is None:
            return None
        return EXIT_CODES[type(_error(self._failed))] if not sys.stdin.isatty() else None


def _error(event: Failed) -> EngineError | Refused:
    if event.kind in ("refused", "dropped"):
        return Refused(event.error)
    known = event.kind in get_args(EngineFault)
    return EngineError(cast(EngineFault, event.kind if known else "unavailable"), event.error)
