"""archive, alias, rename, merge, note, history and undo: manage sessions."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli import terminal
from agents_ledger.cli.command import Invocation, command, complete_target, limit_option
from agents_ledger.cli.terminal import Span
from agents_ledger.model.errors import Ambiguous, NotFound, Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.sessions import Session, SessionStatus
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

MOVES = 20


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--deleted", is_flag=True, help="Mark it as deleted instead, and hide it.")
@click.option("--undo", "reactivate", is_flag=True, help="Make it active again.")
def archive(run: Invocation, *, session: str, deleted: bool, reactivate: bool) -> None:
    """Archive a session, mark it as deleted, or make it active again. Nothing is erased.

    A deleted session is hidden from searches, pages and agents. To erase what it says, use
    `agents-ledger redact`.
    """
    if deleted and reactivate:
        raise click.UsageError("--deleted and --undo cannot be combined.")
    status: SessionStatus = "active" if reactivate else "deleted" if deleted else "archived"
    with run.writing() as ledger:
        changed = ledger.archive(ledger.lookup(session), status)
    _print_session(run, changed, f" is {changed.status}")
    if deleted and not run.as_json:
        undo = shlex.join(["agents-ledger", "archive", "--undo", changed.label])
        hidden = "It is hidden from searches, pages and agents, but nothing was erased."
        terminal.note((as_typed(f"{hidden} To show it again: `{undo}`."), "dim"))


@command
@click.argument("session", shell_complete=complete_target)
@click.argument("name", required=False)
@click.option("--remove", is_flag=True, help="Remove the alias NAME instead.")
def alias(run: Invocation, *, session: str, name: str | None, remove: bool) -> None:
    """Add the alias NAME to a session, or remove it; without NAME, list its aliases."""
    if remove and name is None:
        raise click.UsageError("--remove requires a NAME")
    with run.writing() if name is not None else run.reading() as ledger:
        label = ledger.session(ledger.lookup(session)).label
        if name is not None and remove:
            _remove_alias(ledger, name, label)
        elif name is not None:
            ledger.alias(name, label)
        aliases = ledger.aliases(label)
    if run.as_json:
        run.out.json(session=label, aliases=aliases)
        return
    if not aliases:
        terminal.note(f"Session {label} has no aliases.")
        return
    rows: list[list[Span]] = [[(row.alias, "label"), row.reason or ""] for row in aliases]
    run.out.table(["ALIAS", "REASON"], rows, flexible="ALIAS")


def _remove_alias(ledger: Ledger, name: str, label: str) -> None:
    if name not in {alias.alias for alias in ledger.aliases(label)}:
        raise NotFound(
            f"session {label!r} has no alias {name!r}",
            f"List its aliases with `{shlex.join(['agents-ledger', 'alias', label])}`.",
        )
    ledger.remove_alias(name)


@command
@click.argument("session", shell_complete=complete_target)
@click.argument("label")
def rename(run: Invocation, *, session: str, label: str) -> None:
    """Give a session another label. The former label becomes an alias."""
    with run.writing() as ledger:
        former = ledger.session(ledger.lookup(session)).label
        changed = ledger.rename(former, label)
    _print_session(run, changed, " is the new label of ", (former, "label"))


@command
@click.argument("session", shell_complete=complete_target)
@click.argument("other", required=False, shell_complete=complete_target)
@click.option("--undo", "unmerge", is_flag=True, help="Make a merged SESSION its own again.")
def merge(run: Invocation, *, session: str, other: str | None, unmerge: bool) -> None:
    """Merge two sessions into the one with the longer history, or undo that. No turn is lost."""
    if unmerge is (other is not None):
        raise click.UsageError("Give two sessions, or one and --undo.")
    with run.writing() as ledger:
        if other is None:
            changed = ledger.unmerge(_merged(ledger, session))
            _print_session(run, changed, " is a session of its own again")
            return
        labels = {ledger.session(ledger.lookup(name)).label for name in (session, other)}
        if len(labels) == 1:
            raise Refused(
                f"{session!r} and {other!r} are one session: {labels.pop()!r}",
                "Name two different sessions.",
            )
        changed = ledger.merge(*sorted(labels))
    (merged,) = labels - {changed.label}
    _print_session(run, changed, " now includes ", (merged, "label"))
    if not run.as_json:
        undo = shlex.join(["agents-ledger", "merge", "--undo", merged])
        terminal.note((as_typed(f"To undo it: `{undo}`."), "dim"))


def _merged(ledger: Ledger, typed: str) -> str:
    """The merged session of a label, of its beginning, or of the session that includes it."""
    stays = ledger.session(ledger.lookup(typed)).label
    merged = [alias.alias for alias in ledger.aliases(stays) if _is_label(ledger, alias.alias)]
    if typed in merged:
        return typed
    fitting = [label for label in merged if typed in label] or merged
    if len(fitting) > 1:
        raise Ambiguous(
            f"several sessions are merged into {stays!r}: {', '.join(fitting)}",
            "Name the session to separate.",
        )
    return fitting[0] if fitting else stays


def _is_label(ledger: Ledger, name: str) -> bool:
    try:
        ledger.session(name, exact=True)
    except NotFound:
        return False
    return True


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--title", metavar="TEXT", help="Set the title; an empty title clears it.")
@click.option("--text", metavar="TEXT", help="Set the note; an empty note clears it.")
@click.option("--star/--no-star", default=None, help="Star the session, or remove the star.")
def note(
    run: Invocation, *, session: str, title: str | None, text: str | None, star: bool | None
) -> None:
    """Set the title, note or star of a session. They are not part of the record."""
    options: dict[str, Any] = {"title": title, "note": text, "starred": star}
    changes = {name: value for name, value in options.items() if value is not None}
    if not changes:
        raise click.UsageError("Give --title, --text, --star or --no-star.")
    with run.writing() as ledger:
        label = ledger.lookup(session)
        cleared: dict[str, Any] = {k: None if v == "" else v for k, v in changes.items()}
        changed = ledger.annotate(label, **cleared)
    notes = ["starred" if changed.starred else "", changed.title or "", changed.note or ""]
    _print_session(run, changed, "  " + " · ".join(filter(None, notes)))


@command
@click.argument("session", shell_complete=complete_target)
@limit_option(MOVES, "moves")
def history(run: Invocation, *, session: str, limit: int) -> None:
    """List the moves of a session's head, latest first.

    An import is one move. Lines without a number are the turns that it brought, at the time each
    ended.
    """
    with run.reading() as ledger:
        moves = ledger.history(ledger.lookup(session), limit=limit + 1)
    more, moves = len(moves) > limit, moves[:limit]
    if run.as_json:
        run.out.json(moves=moves, more=more)
        return
    now = now_ms()
    rows: list[list[Span]] = [
        [
            "" if move.computed else str(move.id),
            "computed" if move.computed else move.reason,
            (move.thread_id or "empty", "id"),
            (humanize.age(move.changed_at, now, ago=""), "dim"),
        ]
        for move in moves
    ]
    run.out.table(["MOVE", "REASON", "TO", "AGE"], rows, right=("MOVE",), flexible="TO")


@command
@click.argument("session", shell_complete=complete_target)
@click.option("--move", type=int, metavar="N", help="Move to undo.  [default: the last]")
def undo(run: Invocation, *, session: str, move: int | None) -> None:
    """Move a session's head back to where it was before a move listed by `history`.

    No turn is removed, and undoing is itself a move: undo again to restore the head. The import of
    a session is one move; undoing it leaves the session empty.
    """
    with run.writing() as ledger:
        label = ledger.lookup(session)
        head = ledger.head(label)
        changed = ledger.undo(label, move)
        lost = ledger.thread(head, last=0).depth if head and changed.thread_id is None else 0
    _print_session(run, changed, " is at ", (changed.thread_id or "no turn", "id"))
    if lost:
        turns = humanize.count(lost, "turn")
        terminal.note((f"It was empty before that move. No turn is removed: {turns} kept.", "dim"))
    if head != changed.thread_id:
        restore = shlex.join(["agents-ledger", "undo", changed.label])
        terminal.note((as_typed(f"To restore its head: `{restore}`."), "dim"))


def _print_session(run: Invocation, session: Session, *spans: Span) -> None:
    if run.as_json:
        run.out.json(session=session)
        return
    run.out.line((session.label, "label"), *spans)
