"""archive, alias, note, history and undo: what people do with a session, not in it."""

from __future__ import annotations

from typing import Any

import click

from agents_ledger.cli import terminal
from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Span
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Session, SessionStatus
from agents_ledger.model.text import humanize

SHOWN = 20


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--deleted", is_flag=True, help="Mark it deleted instead; its turns stay.")
@click.option("--undo", "back", is_flag=True, help="Make it active again.")
def archive(run: Invocation, *, session: str, deleted: bool, back: bool) -> None:
    """Archive a session, mark it deleted, or make it active again. Nothing is removed."""
    if deleted and back:
        raise click.UsageError("--deleted and --undo contradict each other.")
    status: SessionStatus = "active" if back else "deleted" if deleted else "archived"
    with run.writing() as ledger:
        changed = ledger.archive(ledger.lookup(session), status)
    _tell(run, changed, f" is {changed.status}")


@command
@click.argument("session", shell_complete=complete_target)
@click.argument("name", required=False)
def alias(run: Invocation, *, session: str, name: str | None) -> None:
    """Let a session answer to another NAME, too; without one, list its aliases."""
    with run.writing() if name is not None else run.reading() as ledger:
        label = ledger.session(ledger.lookup(session)).label
        if name is not None:
            ledger.alias(name, label)
        aliases = ledger.aliases(label)
    if run.as_json:
        run.out.json(session=label, aliases=aliases)
        return
    if not aliases:
        terminal.note(f"Session {label} has no aliases.")
        return
    rows: list[list[Span]] = [[(each.alias, "label"), each.reason or ""] for each in aliases]
    run.out.table(["ALIAS", "REASON"], rows)


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--title", metavar="TEXT", help="Call it so; an empty one takes it away.")
@click.option("--text", metavar="TEXT", help="Write this on it; an empty one takes it away.")
@click.option("--star/--no-star", default=None, help="Mark it, or take the mark away.")
def note(
    run: Invocation, *, session: str, title: str | None, text: str | None, star: bool | None
) -> None:
    """Write a title, a star or a note on a session; they are not part of the record."""
    given: dict[str, Any] = {"title": title, "note": text, "starred": star}
    changes = {name: value for name, value in given.items() if value is not None}
    if not changes:
        raise click.UsageError("Give --title, --text, --star or --no-star.")
    with run.writing() as ledger:
        label = ledger.lookup(session)
        changed = ledger.annotate(label, **{k: None if v == "" else v for k, v in changes.items()})
    words = ["starred" if changed.starred else "", changed.title or "", changed.note or ""]
    _tell(run, changed, "  " + " · ".join(word for word in words if word))


@command
@click.argument("session", shell_complete=complete_target)
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=SHOWN,
    show_default=True,
    help="At most so many.",
)
def history(run: Invocation, *, session: str, limit: int) -> None:
    """List the moves of a session's head, latest first."""
    with run.reading() as ledger:
        moves = ledger.history(ledger.lookup(session), limit=limit + 1)
    more, moves = len(moves) > limit, moves[:limit]
    if run.as_json:
        run.out.json(moves=moves, more=more)
        return
    now = now_ms()
    rows: list[list[Span]] = [
        [
            str(move.id),
            move.reason,
            (move.thread_id or "empty", "id"),
            (humanize.age(move.changed_at, now, ago=""), "dim"),
        ]
        for move in moves
    ]
    run.out.table(["MOVE", "WHY", "TO", "AGE"], rows, right=("MOVE",))


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--move", type=int, metavar="N", help="Back to before this one.  [the last]")
def undo(run: Invocation, *, session: str, move: int | None) -> None:
    """Point a session to where it was before a move, which `history` lists. Nothing is removed."""
    with run.writing() as ledger:
        changed = ledger.undo(ledger.lookup(session), move)
    _tell(run, changed, " is at ", (changed.thread_id or "no turn", "id"))


def _tell(run: Invocation, session: Session, *said: Span) -> None:
    if run.as_json:
        run.out.json(session=session)
        return
    run.out.line((session.label, "label"), *said)
