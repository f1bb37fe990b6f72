"""replay: what happened, again, in order and at a chosen speed."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from math import isfinite
from typing import Literal, NamedTuple

import click
from msgspec import structs

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.explore.show import Page
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.sessions import Thread
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import Message, ToolCall, Turn

AT_ONCE = 50
SPEED = 10.0
PAUSE_MAX_S = 3.0
SECOND_MS = 1000


class Moment(NamedTuple):
    """Something that happened, and when."""

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
    help="So many times as fast as it happened.",
)
@click.option("--step", is_flag=True, help="Wait for Enter after each step, not for time.")
@click.option("--no-wait", is_flag=True, help="All at once.")
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only so many turns.")
@click.option("--full", is_flag=True, help="Whole texts, parameters and results.")
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
    """Step through what happened in a session or up to a turn, in order."""
    if not isfinite(speed):
        raise Refused(f"--speed is {speed}", "Say how many times as fast, such as 10.")
    with run.reading() as ledger:
        thread = ledger.thread(ledger.lookup(target), last=0)
        if thread.turn_id is None:
            raise Refused(f"session {target!r} is empty", "There is nothing to replay.")
        moments = _moments(ledger, thread, last)
        if run.as_json:
            run.out.json(moments=[_as_json(moment) for moment in moments])
            return
        wait = _waiting(run, speed, step=step, no_wait=no_wait)
        _play(Page(run.out, full=full), moments, wait, thread.depth)


def _moments(ledger: Ledger, thread: Thread, last: int | None) -> Iterator[Moment]:
    """Everything that happened, turn by turn; times that run backwards are made to stand still."""
    now = 0
    first = max(1, thread.depth - last + 1) if last else 1
    for depth in range(first, thread.depth + 1, AT_ONCE):
        part = ledger.thread(str(thread.turn_id), from_depth=depth, to_depth=depth + AT_ONCE - 1)
        for turn in part.turns:
            for moment in _of_turn(turn):
                now = max(now, moment.at)
                yield moment._replace(at=now)


def _of_turn(turn: Turn) -> Iterator[Moment]:
    """A step is never later than its turn's end: what was recorded afterwards says so of all."""
    latest = turn.completed_at if turn.completed_at is not None else sys.maxsize
    yield Moment("began", turn.started_at, turn)
    for step in turn.steps:
        if isinstance(step, ToolCall):
            done = step.completed_at or step.started_at
            yield Moment("tool_call", min(latest, done), turn, step)
        else:
            yield Moment("message", min(latest, step.created_at), turn, step)
    yield Moment("ended", turn.completed_at or turn.started_at, turn)


def _waiting(run: Invocation, speed: float, *, step: bool, no_wait: bool) -> Callable[[int], None]:
    """How to let so many milliseconds pass. Who reads a pipe is not kept waiting."""
    if step and run.out.is_terminal:
        return lambda _: click.pause("")
    if no_wait or not run.out.is_terminal:
        return lambda _: None
    return lambda passed: time.sleep(min(PAUSE_MAX_S, passed / SECOND_MS / speed))


def _play(page: Page, moments: Iterator[Moment], wait: Callable[[int], None], depth: int) -> None:
    before: int | None = None
    for moment in moments:
        passed = 0 if before is None else moment.at - before
        before = moment.at
        wait(passed)
        if moment.kind == "began":
            if passed:
                page.out.line((f"{humanize.duration(passed)} later", "dim"))
            page.begin(moment.turn, depth)
        elif moment.step is not None:
            page.step(moment.step)
        else:
            page.end(moment.turn)


def _as_json(moment: Moment) -> dict[str, object]:
    told = moment.step if moment.step else structs.replace(moment.turn, messages=(), tool_calls=())
    return {"kind": moment.kind, "at": moment.at, "turn_id": moment.turn.id, "value": told}
