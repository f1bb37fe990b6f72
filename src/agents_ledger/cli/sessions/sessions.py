"""sessions and fork: the labels, and where they point."""

from __future__ import annotations

import os
import sys

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Span, fit, note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.sessions import Session, SessionStatus, Thread
from agents_ledger.model.text import humanize
from agents_ledger.model.text.dates import moment

ROOMY = 100  # from this width on there is room for persona and origin
LABEL_MAX = 40
STATUSES: tuple[SessionStatus, ...] = ("active", "archived", "deleted")


@command
@click.option(
    "--status",
    type=click.Choice([*STATUSES, "all"]),
    default="active",
    show_default=True,
    help="Only these.",
)
@click.option("--persona", metavar="ID", help="Only sessions of this persona.")
@click.option("--origin", metavar="NAME", help="Only sessions that came from there.")
@click.option("--project", metavar="FOLDER", help="Only sessions that worked there last.")
@click.option("--model", metavar="NAME", help="Only sessions that it answered last; words will do.")
@click.option("--since", metavar="WHEN", help="Only changed since: 2026-03-01, 12h, 7d, 4w.")
@click.option("--no-subagents", is_flag=True, help="Without the sessions of subagents.")
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=20,
    show_default=True,
    help="At most so many.",
)
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
    """List sessions, latest first."""
    changed_since = moment(since, now_ms()) if since else 0
    with run.reading() as ledger:
        found = ledger.pages.session_lines(
            status=next((word for word in STATUSES if word == status), None),
            persona_id=persona,
            origin=origin,
            project=os.path.abspath(project) if project and os.path.isdir(project) else project,
            model=model,
            since=changed_since,
            subagents=not no_subagents,
            limit=limit + 1,
        )
        entries = [Entry(ledger, line.session) for line in found[:limit]]
        is_new = not entries and not ledger.sessions(status=None, limit=1)
    more = len(found) > limit
    if run.as_json:
        run.out.json(sessions=[entry.as_json() for entry in entries], more=more)
        return
    if not entries:
        start = "No sessions. Record a turn, or make the demonstration with `agents-ledger up`."
        note(start if is_new else "No session matches.")
        return
    _print(run, entries)
    if more:
        note(("There are more: --limit N shows them.", "dim"))


class Entry:
    """A session with what a list tells of its thread."""

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
        """Its title, and how the latest prompt begins."""
        prompt = (self.headline.text if self.headline else None) or ""
        if self.headline and self.headline.turn.compaction:
            prompt = f"compacted: {self.headline.turn.compaction.summary}"
        parts = ["★" if self.session.starred else "", self.session.title or "", prompt]
        return " · ".join(part for part in parts if part)


def _print(run: Invocation, entries: list[Entry]) -> None:
    """A table; what is the same everywhere is not worth a column."""
    now = now_ms()
    roomy = run.out.width >= ROOMY or not run.out.is_terminal
    personas = roomy and {entry.session.persona_id for entry in entries} != {"main"}
    origins = roomy and any(entry.session.origin for entry in entries)
    statuses = any(entry.session.status != "active" for entry in entries)
    extra = [name for name, wanted in (("PERSONA", personas), ("ORIGIN", origins)) if wanted]
    extra += ["STATUS"] if statuses else []
    rows: list[list[Span]] = []
    for entry in entries:
        session = entry.session
        values = {
            "PERSONA": session.persona_id,
            "ORIGIN": session.origin or "",
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
@click.option("--label", help="The new session's label; made up if left out.")
@click.option("--before", is_flag=True, help="Point to the turn before, to ask differently.")
@click.option("--persona", metavar="ID", help="The new session's persona; else the turn's.")
def fork(
    run: Invocation, *, target: str, label: str | None, before: bool, persona: str | None
) -> None:
    """Make a new session at a turn, or at a session's head. Nothing is copied."""
    if label == "":
        raise Refused("the label is empty", "Leave out --label to have one made up.")
    with run.writing() as ledger:
        meant, reasons = ledger.explain_route(target)
        session = ledger.fork(meant, label=label, before=before, persona_id=persona)
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
        run.out.line(("  because ", "dim"), (reason.turn_id, "id"), f" speaks of {words}")
