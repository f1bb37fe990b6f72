"""sessions and fork: list sessions and create new ones."""

from __future__ import annotations

import os
import sys

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, complete_target, limit_option
from agents_ledger.cli.terminal import Span, fit, note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.sessions import NATIVE, Session, SessionStatus, Thread
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import moment

# Columns of a terminal from which on persona and origin are shown.
WIDE = 100
LABEL_MAX = 40
STATUSES: tuple[SessionStatus, ...] = ("active", "archived", "deleted")


@command
@click.option(
    "--status",
    type=click.Choice([*STATUSES, "all"]),
    default="active",
    show_default=True,
    help="Status of the sessions.",
)
@click.option("--persona", metavar="ID", help="Sessions of this persona.")
@click.option(
    "--origin", metavar="NAME", help="Sessions imported from this source, such as claude-code."
)
@click.option("--project", metavar="FOLDER", help="Sessions whose last turn worked in this folder.")
@click.option(
    "--model", metavar="NAME", help="Sessions last answered by this model, or part of its name."
)
@click.option("--since", metavar="WHEN", help="Sessions changed since: 2026-03-01, 12h, 7d, 4w.")
@click.option("--no-subagents", is_flag=True, help="Omit the sessions of subagents.")
@limit_option(20, "sessions")
def sessions(
    run: Invocation,
    *,
    status: str,
    persona: str | None,
    origin: str | None,
    project: str | None,
    model: str | None,
    since: str | None,
    no_subagents: bool,
    limit: int,
) -> None:
    """List sessions, most recent first."""
    changed_since = moment(since, now_ms()) if since else 0
    with run.reading() as ledger:
        lines = ledger.pages.session_lines(
            status=next((word for word in STATUSES if word == status), None),
            persona_id=persona,
            origin=origin,
            project=os.path.abspath(project) if project and os.path.isdir(project) else project,
            model=model,
            since=changed_since,
            subagents=not no_subagents,
            limit=limit + 1,
        )
        entries = [SessionRow(ledger, line.session) for line in lines[:limit]]
        is_new = not entries and not ledger.sessions(status=None, limit=1)
    more = len(lines) > limit
    if run.as_json:
        run.out.json(sessions=[entry.as_json() for entry in entries], more=more)
        return
    if not entries:
        start = "No sessions. Import history or record a demonstration with `agents-ledger up`."
        note(start if is_new else "No session matches.")
        return
    _print(run, entries)
    if more:
        note(("There are more sessions (--limit).", "dim"))


class SessionRow:
    """A session with the metrics and the headline of its thread."""

    def __init__(self, ledger: Ledger, session: Session) -> None:
        self.session = session
        self.thread = Thread(None)
        self.headline: Headline | None = None
        if session.thread_id is not None:
            self.thread = ledger.thread(session.thread_id, last=0)
            self.headline = ledger.headlines([session.thread_id])[0]

    def as_json(self) -> dict[str, object]:
        """The session, and its thread's metrics under `thread`."""
        metrics = to_builtins(self.thread)
        del metrics["turns"]
        text = self.headline.text if self.headline else None
        return {**to_builtins(self.session), "thread": metrics, "prompt": text}

    @property
    def text(self) -> str:
        """The title, and the start of the latest prompt."""
        prompt = (self.headline.text if self.headline else None) or ""
        if self.headline and self.headline.turn.compaction:
            prompt = f"compacted: {self.headline.turn.compaction.summary}"
        parts = ["★" if self.session.starred else "", self.session.title or "", prompt]
        return " · ".join(filter(None, parts))


def _print(run: Invocation, entries: list[SessionRow]) -> None:
    """Print a table, without the columns that would have the same value in every row."""
    now = now_ms()
    wide = run.out.width >= WIDE or not run.out.is_terminal
    personas = wide and {entry.session.persona_id for entry in entries} != {"main"}
    origins = wide and any(entry.session.origin != NATIVE for entry in entries)
    statuses = any(entry.session.status != "active" for entry in entries)
    extra = [name for name, varies in (("PERSONA", personas), ("ORIGIN", origins)) if varies]
    extra += ["STATUS"] if statuses else []
    rows: list[list[Span]] = []
    for entry in entries:
        session = entry.session
        values = {
            "PERSONA": session.persona_id,
            "ORIGIN": session.origin,
            "STATUS": session.status,
        }
        rows.append(
            [
                (fit(session.label, LABEL_MAX if run.out.is_terminal else sys.maxsize), "label"),
                (entry.headline.short_id if entry.headline else "empty", "id"),
                str(entry.thread.depth),
                humanize.tokens(entry.thread.total_tokens),
                (humanize.age(session.updated_at, now, ago=""), "dim"),
                *((values[name], "dim") for name in extra),
                entry.text,
            ]
        )
    heads = ["SESSION", "HEAD", "TURNS", "TOKENS", "AGE", *extra, "LATEST PROMPT"]
    run.out.table(heads, rows, right=("TURNS", "TOKENS"))


@command
@click.argument("target", shell_complete=complete_target)
@click.option("--label", help="Label of the new session.  [default: generated]")
@click.option(
    "--before", is_flag=True, help="Fork before the turn, to ask its question differently."
)
@click.option(
    "--persona", metavar="ID", help="Persona of the new session.  [default: that of the turn]"
)
def fork(
    run: Invocation, *, target: str, label: str | None, before: bool, persona: str | None
) -> None:
    """Create a session at a turn, or at the head of a session. No turn is copied."""
    if label == "":
        raise Refused("the label is empty", "Omit --label to have one generated.")
    with run.writing() as ledger:
        turn_id, reasons = ledger.explain_route(target)
        session = ledger.fork(turn_id, label=label, before=before, persona_id=persona)
        depth = ledger.thread(session.label, last=0).depth
    if run.as_json:
        run.out.json(session=session, depth=depth, reasons=reasons)
        return
    where: list[Span] = ["empty"]
    if session.thread_id:
        where = ["at turn ", (session.thread_id, "id"), f", with {humanize.count(depth, 'turn')}"]
    run.out.line((session.label, "label"), " is a new session, ", *where)
    for reason in reasons:
        words = ", ".join((*reason.terms, *reason.files))
        run.out.line(("  because ", "dim"), (reason.turn_id, "id"), f" mentions {words}")
