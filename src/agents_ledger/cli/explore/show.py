"""show: a turn, or the last turns of a session."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import (
    Invocation,
    When,
    command,
    complete_target,
    latest_session,
)
from agents_ledger.cli.terminal import fit, note
from agents_ledger.model.errors import NotFound
from agents_ledger.model.text import humanize

# The rest is imported when the command runs, not when a shell completes it.
if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.sessions import Session
    from agents_ledger.model.turns import Turn

LAST = 5
ERROR_MAX = 200  # characters of an error that are printed where there is no terminal


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help=f"Number of turns to show.  [default: {LAST} of a session, 1 of a turn]",
)
@click.option(
    "--at", type=When(), metavar="WHEN", help="Show the session at that time: 2026-03-01, 7d."
)
@click.option("--full", is_flag=True, help="Show complete texts, parameters and results.")
@click.option("--events", is_flag=True, help="Show messages only, without tools.")
@click.option(
    "--day",
    type=When(),
    metavar="DATE",
    help="With --events: the messages of a day, in all sessions.",
)
def show(
    run: Invocation,
    *,
    target: str | None,
    last: int | None,
    at: int | None,
    full: bool,
    events: bool,
    day: int | None,
) -> None:
    """Show a turn, or the last turns of a session; by default, of the latest session.

    Long output is paged on a terminal, by $PAGER.
    """
    if events or day is not None:
        if at is not None:
            raise click.UsageError("--at does not apply to --events")
        from agents_ledger.cli.explore.events import show_events

        show_events(run, target, last=last, day=day)
        return
    with run.reading() as ledger:
        target = ledger.lookup(target) if target is not None else latest_session(ledger)
        session = _session(ledger, target)
        head = target if at is None else _head(ledger, target, at)
        thread = ledger.thread(head, last=last or (LAST if session else 1))
        live = _live(ledger, session.label) if session and at is None else ()
        failed = ledger.failed_turns(session.label) if session and at is None else ()
        turns = (*thread.turns, *live)
        partial = {
            turn.id: ledger.partial_text(turn.id) for turn in turns if turn.status == "streaming"
        }
    if run.as_json:
        from msgspec import to_builtins

        metrics = to_builtins(thread)
        del metrics["turns"]
        failed_ids = [turn.id for turn in failed]
        run.out.json(
            session=session, thread=metrics, turns=turns, partial=partial, failed_turns=failed_ids
        )
        return
    from agents_ledger.cli.explore.turn_printer import TurnPrinter

    printer = TurnPrinter(run.out, full=full)
    with run.out.paged():
        if session is not None:
            printer.session(session, thread)
        for turn in turns:
            printer.turn(turn, thread.depth, partial.get(turn.id))
    if failed:
        latest = failed[0]
        note(f"{humanize.count(len(failed), 'turn')} failed since, the latest:")
        room = run.out.width - len(latest.id) - 3 if run.out.is_terminal else ERROR_MAX
        note("  ", (latest.id, "id"), " ", fit(latest.error or "", room))
    above = thread.depth - len(thread.turns)
    if above:
        note((f"{humanize.count(above, 'earlier turn')} (--last N)", "dim"))


def _session(ledger: Ledger, target: str) -> Session | None:
    try:
        return ledger.session(target)
    except NotFound:
        return None


def _head(ledger: Ledger, label: str, at: int) -> str:
    head = ledger.head(label, at=at)
    if head is None:
        moves = shlex.join(["agents-ledger", "history", label])
        raise NotFound(
            f"session {label!r} had no turn at {humanize.moment(at)}",
            f"List its moves with `{moves}`.",
        )
    return head


def _live(ledger: Ledger, label: str) -> tuple[Turn, ...]:
    """The turns being written on a session; they come after its head."""
    from agents_ledger.model.turns import SEALED

    turns = (ledger.get_turn(turn_id) for turn_id in ledger.live_turns(label))
    return tuple(turn for turn in turns if turn.status not in SEALED)
