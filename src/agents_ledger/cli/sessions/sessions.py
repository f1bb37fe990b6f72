"""sessions and fork: list sessions and create new ones."""

from __future__ import annotations

from collections.abc import Sequence

import click
from msgspec import to_builtins

from agents_ledger.cli.command import (
    Invocation,
    command,
    complete_target,
    limit_option,
    project_folder,
    since_option,
    until_option,
)
from agents_ledger.cli.terminal import Span, fit, note
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.reports.pages import SessionLine
from agents_ledger.model.sessions import NATIVE, SessionStatus, Thread
from agents_ledger.model.text import humanize

# The columns that a narrow terminal does without, the first one first.
DISPENSABLE = ("ORIGIN", "PERSONA", "TOKENS", "STATUS", "TURNS", "AGE")
LABEL_MAX = 32  # columns of a terminal
TITLE_MAX = 100
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
@click.option(
    "--project", metavar="FOLDER", help="Sessions last in this project, or words of its path."
)
@click.option(
    "--model", metavar="NAME", help="Sessions last answered by this model, or part of its name."
)
@since_option("Sessions changed")
@until_option("Sessions last changed")
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
    since: int | None,
    until: int | None,
    no_subagents: bool,
    limit: int,
) -> None:
    """List sessions, most recent first."""
    with run.reading() as ledger:
        lines = ledger.pages.session_lines(
            status=next((word for word in STATUSES if word == status), None),
            persona_id=persona,
            origin=origin,
            project=project_folder(project),
            model=model,
            since=since or 0,
            until=until,
            subagents=not no_subagents,
            limit=limit + 1,
        )
        entries = [_as_json(ledger, line) for line in lines[:limit]] if run.as_json else []
        is_new = not lines and not ledger.sessions(status=None, limit=1)
    more = len(lines) > limit
    if run.as_json:
        run.out.json(sessions=entries, more=more)
        return
    if not lines:
        start = "No sessions. Import history or record a demonstration with `agents-ledger up`."
        note(as_typed(start) if is_new else "No session matches.")
        return
    _print(run, lines[:limit])
    if more:
        note(("There are more sessions (--limit).", "dim"))


def _as_json(ledger: Ledger, line: SessionLine) -> dict[str, object]:
    """The session, its thread's metrics under `thread`, and the start of its latest prompt."""
    head = line.session.thread_id
    metrics = to_builtins(ledger.thread(head, last=0) if head else Thread(None))
    del metrics["turns"]
    prompt = ledger.headlines([head])[0].text if head else None
    return {**to_builtins(line.session), "thread": metrics, "prompt": prompt}


def _print(run: Invocation, lines: Sequence[SessionLine]) -> None:
    """Print a table, without the columns that would have the same value in every row."""
    now = now_ms()
    columns: dict[str, list[Span]] = {
        "TITLE": [_title(line) for line in lines],
        "SESSION": [(_label(run, line), "label") for line in lines],
        "TURNS": [str(line.depth) for line in lines],
        "TOKENS": [humanize.tokens(line.total_tokens) for line in lines],
        "AGE": [(humanize.age(line.session.updated_at, now, ago=""), "dim") for line in lines],
        "STATUS": [(line.session.status, "dim") for line in lines],
        "PERSONA": [(line.session.persona_id, "dim") for line in lines],
        "ORIGIN": [(line.session.origin, "dim") for line in lines],
    }
    for name, value in (("STATUS", "active"), ("PERSONA", "main"), ("ORIGIN", NATIVE)):
        if {cell[0] for cell in columns[name]} == {value}:
            del columns[name]
    run.out.table(
        list(columns),
        list(zip(*columns.values(), strict=True)),
        right=("TURNS", "TOKENS"),
        flexible="TITLE",
        optional=[name for name in DISPENSABLE if name in columns],
    )


def _title(line: SessionLine) -> str:
    """The title or task, else what was asked first."""
    session = line.session
    prompt = line.first_prompt or line.last_prompt
    if session.created_as == "fork":  # its first prompt is that of the session it branched off
        prompt = line.last_prompt or prompt
    title = session.title or session.task_description or prompt or "(untitled)"
    # Of a file or a pipe too, where no width of a terminal shortens it.
    return fit(f"{'★ ' if session.starred else ''}{title}", TITLE_MAX)


def _label(run: Invocation, line: SessionLine) -> str:
    """On a terminal, as much of it as identifies the session."""
    return fit(line.short_label, LABEL_MAX) if run.out.is_terminal else line.session.label


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
        raise click.BadParameter("the label is empty", param_hint="'--label'")
    with run.writing() as ledger:
        turn_id, route = ledger.explain_route(target)
        session = ledger.fork(turn_id, label=label, before=before, persona_id=persona)
        depth = ledger.thread(session.label, last=0).depth
    reasons = () if route is None else route.proposals[0].reasons
    if run.as_json:
        confidence = None if route is None else route.confidence
        run.out.json(session=session, depth=depth, confidence=confidence, reasons=reasons)
        return
    where: list[Span] = ["empty"]
    if session.thread_id:
        where = ["at turn ", (session.thread_id, "id"), f", with {humanize.count(depth, 'turn')}"]
    run.out.line((session.label, "label"), " is a new session, ", *where)
    if route is not None:
        run.out.line((f"  confidence {route.confidence:.2f}", "dim"))
    for reason in reasons:
        words = ", ".join((*reason.terms, *reason.files))
        run.out.line(("  because ", "dim"), (reason.turn_id, "id"), f" mentions {words}")
