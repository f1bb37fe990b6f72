"""The first page: sessions to continue, recent use, and what needs attention."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import NamedTuple

from litestar import Response, get
from litestar.params import FromQuery

from agents_ledger.ledger.reports.pages import Pages
from agents_ledger.ledger.reports.usage import add_up
from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.errors import LedgerError
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.reports.pages import FileLine, NamedSession, SessionLine, SourceFault
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.reports.usage import Spent
from agents_ledger.model.text import humanize
from agents_ledger.model.text.periods import UNDATED, period_of
from agents_ledger.model.turns import Turn
from agents_ledger.render.activity import ASKING_MS, Activity, activity, written_tokens
from agents_ledger.render.turn_status import turn_status
from agents_ledger.web.pages import charts
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.site import Site, ThisSite

RECENT = 6
HEAT_WEEKS = 27  # a week takes 13 pixels of the column beside the sessions
FAILED = 5
FILES = 8
DAY_MS = 86_400_000
MEASURES: tuple[tuple[str, Callable[[Spent], int], Callable[[int], str]], ...] = (
    ("cost", lambda spent: spent.cost_microdollars or 0, humanize.money),
    (
        "tokens",
        lambda spent: spent.total_tokens,
        lambda tokens: f"{humanize.tokens(tokens)} tokens",
    ),
    ("turns", lambda spent: spent.turns, lambda turns: humanize.count(turns, "turn")),
)
SPANS = (("Today", 1, "today"), ("Last 7 days", 7, "7d"), ("Last 30 days", 30, "30d"))


@get("/", sync_to_thread=True)
def home(request: WebRequest, site: ThisSite) -> Response[str]:
    recent = site.shared.get("home", lambda: _recent(site.pages))
    lines = recent.lines
    return site.page(
        "home.html",
        request,
        title="Home",
        lines=lines,
        is_demonstration=bool(lines) and all(line.session.origin == "demo" for line in lines),
        running=running_turns(site, request),
        running_of="",
        commands={line.session.label: _command(line) for line in lines},
        costs=site.session_usage.get([(line.session, line.depth) for line in lines]),
        spans=_spans(site),
        days_spent=_days_spent(site),
        heat=site.heat_map(HEAT_WEEKS),
        counting=site.days() is None,
        failed=recent.failed,
        faults=recent.faults,
        audited=site.audited,
        files=recent.files,
        sources=site.sources(),
        importing=site.imports.status,
        import_failure=site.imports.failure,
    )


class RunningTurn(NamedTuple):
    """A turn that an agent is writing, here or in a log of its own."""

    session: NamedSession
    turn: Turn
    prompt: str
    activity: Activity
    elapsed_ms: int
    tokens_so_far: int  # estimated while the turn has no total
    can_stop: bool


def running_turns(site: Site, request: WebRequest, label: str | None = None) -> list[RunningTurn]:
    """What agents are doing now, of one session or of all; reads as many turns as there are."""
    now = site.now()
    live = [(turn_id, label, now) for turn_id, label, _ in site.pages.live_progress(label)]
    growing = site.pages.growing_sessions(now - ASKING_MS, label)
    names = site.pages.session_names(label for _, label, _ in (*live, *growing))
    stoppable = _stoppable(site, request) if live else frozenset()
    lines = []
    for turn_id, session, at in (*live, *growing):
        try:
            turn = site.ledger.get_turn(turn_id)
            partial = site.ledger.partial_text(turn_id) if at == now else ""
        except LedgerError:  # it has just ended
            continue
        doing = activity(turn, max(0, now - at))
        if doing is None or session not in names:
            continue
        prompt = next((message.content for message in turn.query if message.content), "")
        lines.append(
            RunningTurn(
                names[session],
                turn,
                prompt or "",
                doing,
                max(0, now - turn.started_at),
                turn.total_tokens or written_tokens(turn, partial),
                turn_id in stoppable,
            )
        )
    return lines


def _stoppable(site: Site, request: WebRequest) -> frozenset[str | None]:
    """The turns that the broker runs, if the reader may stop them."""
    token = request.scope["state"]["token"]
    if site.broker is None or not (token.may("chat") or token.may("write")):
        return frozenset()
    return frozenset(entry.turn_id for entry in Queue(site.ledger).entries())


@get("/running", sync_to_thread=True)
def running_fragment(
    request: WebRequest, site: ThisSite, session: FromQuery[str] = ""
) -> Response[str]:
    """The turns that agents are writing now, of one session or of all."""
    running = running_turns(site, request, session or None)
    return site.page("running.html", request, running=running, running_of=session)


class RecentActivity(NamedTuple):
    """The latest sessions, failures and files."""

    lines: tuple[SessionLine, ...]
    failed: tuple[Headline, ...]
    faults: tuple[SourceFault, ...]
    files: tuple[FileLine, ...]


def _recent(pages: Pages) -> RecentActivity:
    # One snapshot: the lists agree, and one transaction is faster than four.
    with pages.snapshot():
        return RecentActivity(
            tuple(line for line in pages.session_lines(limit=2 * RECENT) if line.depth)[:RECENT],
            failures(pages, FAILED),
            pages.source_faults(limit=1),
            pages.recent_files(limit=FILES),
        )


def failures(pages: Pages, most: int) -> tuple[Headline, ...]:
    """The latest failed turns. Those that a person interrupted need no attention."""
    lines = pages.failed_turns(limit=most * 5)
    return tuple(line for line in lines if turn_status(line.turn) == "failed")[:most]


def _command(line: SessionLine) -> str:
    """The command that continues a session, in its own agent if possible."""
    there = command_there(line.session, line.workspace_path)
    return there or command_here(line.session)


class Span(NamedTuple):
    """What was spent in a period that the usage page knows by `period`."""

    name: str
    spent: Spent
    period: str


def _spans(site: Site) -> list[Span]:
    """Usage of today and of the last days; if there is none, of the last active week."""
    days = site.days() or ()
    now = site.now()
    today = period_of(now, "day")
    spans = []
    for name, length, period in SPANS:
        first = period_of(now - (length - 1) * DAY_MS, "day")
        used = [day.spent for day in days if first <= (day.key or "") <= today]
        if used:
            spans.append(Span(name, add_up(used), period))
    return spans or [Span(f"Last active {day.key}", day.spent, "active") for day in days[-1:]]


class DaysSpent(NamedTuple):
    """What was used on each of the last days, in what is known of them."""

    measure: str
    bars: tuple[charts.DayBar, ...]


def _days_spent(site: Site) -> DaysSpent | None:
    """The days up to today, or up to the last active day: their cost, else tokens, else turns."""
    used = {day.key: day.spent for day in site.days() or () if day.key and day.key > UNDATED}
    if not used:
        return None
    today = date.fromisoformat(period_of(site.now(), "day"))
    latest = date.fromisoformat(max(used))
    last = latest if today - latest > timedelta(days=charts.DAY_BARS) else today
    first = (last - timedelta(days=charts.DAY_BARS - 1)).isoformat()
    for measure, value_of, describe in MEASURES:
        values = {day: value_of(spent) for day, spent in used.items() if day >= first}
        if any(values.values()):
            return DaysSpent(measure, charts.day_bars(values, last, describe))
    return None


ROUTES = (home, running_fragment)
