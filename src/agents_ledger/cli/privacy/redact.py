"""redact: what is removed from the ledger for good, after a look at it."""

from __future__ import annotations

import getpass
import sys
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli import terminal
from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import Span
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.reports.redaction import Redaction, RedactionPreview, Selection
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

LINES = 50
BACKUPS = (
    "Backups, copies and exports made before still contain it, and so may the logs of the agents"
    " themselves: delete those, and change the secret where it is in use."
)


@command
@click.option("--text", metavar="TEXT", help="Remove exactly this text; - reads it from stdin.")
@click.option("--pattern", metavar="REGEX", help="Remove what a regular expression matches.")
@click.option("--kind", metavar="KIND", help="Remove secrets of a kind; `all` for every kind.")
@click.option("--message", metavar="ID", help="In one message; alone, its whole content.")
@click.option("--call", metavar="TURN/CALL", help="In one tool call.")
@click.option("--turn", metavar="TURN", help="In one turn.")
@click.option("--session", metavar="SESSION", help="In a session and its subagents.")
@click.option("--project", metavar="FOLDER", help="In the turns of a project's folder.")
@click.option("--persona", metavar="ID", help="In the sessions of a persona.")
@click.option("--reason", metavar="TEXT", default="", help="Why; kept in the ledger.")
@click.option("--dry-run", is_flag=True, help="Show what would be removed, and stop.")
@click.option("--yes", is_flag=True, help="Do not ask; required when not on a terminal.")
@click.option("--list", "listed", is_flag=True, help="List what was removed so far.")
@click.option("--finish", is_flag=True, help="Clear free pages and the log, if that is due.")
@limit_option(LINES, "lines")
def redact(
    run: Invocation,
    *,
    reason: str,
    dry_run: bool,
    yes: bool,
    listed: bool,
    finish: bool,
    limit: int,
    **selected: str | None,
) -> int:
    """Remove values from the ledger for good, after showing what would go.

    Rows, imported records, the search index, vectors and free pages lose it; ids, times and numbers
    stay, and a record says what was removed, when, why and by whom. It stays out of later imports.
    """
    if listed:
        return _list(run, limit)
    if finish:
        with run.writing() as ledger:
            return _finished(run, ledger.redactions.finish())
    if selected["text"] == "-":
        selected["text"] = sys.stdin.read().rstrip("\n")
    selection = Selection(**selected)
    selection.check()
    with run.reading() if dry_run else run.writing() as ledger:
        preview = ledger.redactions.preview(selection)
        if not (run.as_json and not dry_run):
            _print_preview(run, preview, limit)
        if dry_run or not (preview.count or preview.spans):
            return 0
        if not yes and not _confirmed():
            raise click.UsageError("nothing was removed: --yes is required when not on a terminal")
        return _remove(run, ledger, selection, reason)


def _json(run: Invocation, **answer: object) -> None:
    run.out.json(**{"preview": None, "redaction": None, "redactions": None, **answer})


def _confirmed() -> bool:
    if not sys.stdin.isatty():
        return False
    return click.confirm("Remove this for good?", err=True, abort=True)


def _remove(run: Invocation, ledger: Ledger, selection: Selection, reason: str) -> int:
    done = ledger.redactions.redact(
        selection, reason=reason or "requested", actor=getpass.getuser()
    )
    if run.as_json:
        _json(run, redaction=done)
    else:
        run.out.line("removed ", _counts(done.places, done.spans), "; redaction ", (done.id, "id"))
    terminal.note((BACKUPS, "dim"))
    return _finished(run, done.scrubbed_at is not None)


def _finished(run: Invocation, is_finished: bool) -> int:
    if is_finished:
        return 0
    hint = as_typed("`agents-ledger redact --finish`")
    terminal.note(
        ("warning:", "bad"),
        " free pages and the log may still hold it: another program is reading. Close it, then run "
        + hint,
    )
    return 1


def _counts(values: int, spans: int) -> str:
    return f"{humanize.count(values, 'value')} in rows, {spans:,} in imported records"


def _print_preview(run: Invocation, preview: RedactionPreview, limit: int) -> None:
    if run.as_json:
        _json(run, preview=preview)
        return
    if not (preview.count or preview.spans):
        run.out.line("nothing matches")
        return
    rows: list[list[Span]] = [
        [
            f"{place.table}.{place.column}",
            (place.session_label or "", "label"),
            (place.turn_id or "", "id"),
            place.kind,
            (place.shown, "dim"),
            f"{place.count:,}",
        ]
        for place in preview.places[:limit]
    ]
    heads = ["WHERE", "SESSION", "TURN", "WHAT", "BEGINS", "COUNT"]
    run.out.table(heads, rows, right=("COUNT",), flexible="SESSION")
    if len(preview.places) > limit:
        run.out.line((f"… {len(preview.places) - limit:,} more lines (--limit)", "dim"))
    turns = humanize.count(preview.turns, "turn")
    files = humanize.count(len(preview.files), "imported file")
    run.out.line("to remove: ", _counts(preview.count, preview.spans), f"; {turns}, {files}")


def _list(run: Invocation, limit: int) -> int:
    with run.reading() as ledger:
        redactions = ledger.redactions.latest(limit)
    if run.as_json:
        _json(run, redactions=redactions)
        return 0
    if not redactions:
        run.out.line("nothing was removed")
        return 0
    run.out.table(
        ["WHEN", "ID", "WHO", "WHY", "WHAT", "VALUES", "IMPORTED"],
        [_row(redaction) for redaction in redactions],
        right=("VALUES", "IMPORTED"),
        flexible="WHY",
    )
    return 0


def _row(redaction: Redaction) -> list[Any]:
    what = ", ".join(f"{name} {value}" for name, value in redaction.selection.items())
    return [
        humanize.moment(redaction.started_at),
        (redaction.id, "id"),
        redaction.actor,
        redaction.reason,
        what,
        f"{redaction.places:,}",
        f"{redaction.spans:,}",
    ]
