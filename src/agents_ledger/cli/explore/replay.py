"""replay: the steps of a thread in order, at a chosen speed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Literal, NamedTuple

import click
from msgspec import structs

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.explore.show import TurnPrinter
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import Thread
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import Message, ToolCall, Turn

TURNS_PER_READ = 50
SPEED = 10.0
PAUSE_MAX_S = 3.0
SECOND_MS = 1000


class ReplayStep(NamedTuple):
    """A step of a replay and its time."""

    kind: Literal["began", "message", "tool_call", "ended"]
    at: int
    turn: Turn
    step: Message | ToolCall | None = None


@command
@click.argument("target", shell_complete=complete_target)
@click.option(
    "--speed",
    type=click.FloatRange(0, min_open=True),
    metavar="N",
    default=SPEED,
    show_default=True,
    help="Speed, as a multiple of the original.",
)
@click.option("--step", is_flag=True, help="Wait for Enter after each step.")
@click.option("--no-wait", is_flag=True, help="Print everything at once.")
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help="Number of final turns to replay.  [default: all]",
)
@click.option("--full", is_flag=True, help="Show complete texts, parameters and results.")
def replay(
    run: Invocation,
    *,
    target: str,
    speed: float,
    step: bool,
    no_wait: bool,
    last: int | None,
    full: bool,
) -> None:
    """Replay a session, or the thread of a turn, step by step."""
    if not isfinite(speed):
        raise click.BadParameter(f"{speed} is not a finite number", param_hint="'--speed'")
    with run.reading() as ledger:
        thread = ledger.thread(ledger.lookup(target), last=0)
        if thread.turn_id is None:
            raise Refused(f"session {target!r} is empty", "Choose a session with turns.")
        moments = _moments(ledger, thread, last)
        if run.as_json:
            run.out.json(moments=[_as_json(moment) for moment in moments])
            return
        wait = _waiting(run, speed, step=step, no_wait=no_wait)
        _play(TurnPrinter(run.out, full=full), moments, wait, thread.depth)


def _moments(ledger: Ledger, thread: Thread, last: int | None) -> Iterator[ReplayStep]:
    """All steps in order. Times never decrease: a step before its predecessor gets its time."""
    now = 0
    first = max(1, thread.depth - last + 1) if last else 1
    for depth in range(first, thread.depth + 1, TURNS_PER_READ):
        part = ledger.thread(
            str(thread.turn_id), from_depth=depth, to_depth=depth + TURNS_PER_READ - 1
        )
        for turn in part.turns:
            for moment in _of_turn(turn):
                now = max(now, moment.at)
                yield moment._replace(at=now)


def _of_turn(turn: Turn) -> Iterator[ReplayStep]:
    # Messages of an imported turn may carry the time of the import, after the end of the turn.
    latest = turn.completed_at if turn.completed_at is not None else sys.maxsize
    yield ReplayStep("began", turn.started_at, turn)
    for step in turn.steps:
        if isinstance(step, ToolCall):
            at = step.completed_at or step.started_at
            yield ReplayStep("tool_call", min(latest, at), turn, step)
        else:
            yield ReplayStep("message", min(latest, step.created_at), turn, step)
    yield ReplayStep("ended", turn.completed_at or turn.started_at, turn)


def _waiting(run: Invocation, speed: float, *, step: bool, no_wait: bool) -> Callable[[int], None]:
    """A function that waits for a number of milliseconds, scaled. A pipe does not wait."""
    if step and run.out.is_terminal:
        return lambda _: click.pause("")
    if no_wait or not run.out.is_terminal:
        return lambda _: None
    return lambda passed: time.sleep(min(PAUSE_MAX_S, passed / SECOND_MS / speed))


def _play(
    printer: TurnPrinter, moments: Iterator[ReplayStep], wait: Callable[[int], None], depth: int
) -> None:
    previous: int | None = None
    for moment in moments:
        passed = 0 if previous is None else moment.at - previous
        previous = moment.at
        wait(passed)
        if moment.kind == "began":
            if passed:
                printer.out.line((f"{humanize.duration(passed)} later", "dim"))
            printer.begin(moment.turn, depth)
        elif moment.step is not None:
            printer.step(moment.step)
        else:
            printer.end(moment.turn)


def _as_json(moment: ReplayStep) -> dict[str, object]:
    value = moment.step or structs.replace(moment.turn, messages=(), tool_calls=())
    return {"kind": moment.kind, "at": moment.at, "turn_id": moment.turn.id, "value": value}
