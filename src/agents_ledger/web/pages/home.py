"""The first page: sessions to continue, recent use, and what needs attention."""

from __future__ import annotations

from typing import NamedTuple

from litestar import Response, get

from agents_ledger.ledger.reports.pages import Pages
from agents_ledger.ledger.reports.usage import add_up
from agents_ledger.model.imports.resuming import command_here, command_there
from agents_ledger.model.reports.pages import FileLine, SessionLine, SourceFault
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.reports.usage import Spent
from agents_ledger.model.text.periods import period_of
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.site import Site, ThisSite

RECENT = 6
FAILED = 5
FILES = 8
DAY_MS = 86_400_000


@get("/", sync_to_thread=True)
def home(request: WebRequest, site: ThisSite) -> Response[str]:
    recent = site.shared.get("home", lambda: _recent(site.pages))
    lines = recent.lines
    return site.page(
        "home.html",
        request,
        title="Home",
        lines=lines,
        commands={line.session.label: _command(line) for line in lines},
        spans=_spans(site),
        heat=site.heat_map(),
        counting=site.days() is None,
        failed=recent.failed,
        faults=recent.faults,
        audited=site.audited,
        files=recent.files,
        sources=site.sources(),
        importing=site.imports.status,
        import_failure=site.imports.failure,
    )


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
            pages.session_lines(limit=RECENT),
            pages.failed_turns(limit=FAILED),
            pages.source_faults(limit=1),
            pages.recent_files(limit=FILES),
        )


def _command(line: SessionLine) -> str:
    """The command that continues a session, in its own agent if possible."""
    there = command_there(line.session, line.workspace_path)
    return there or command_here(line.session)


def _spans(site: Site) -> list[tuple[str, Spent]]:
    """Usage of today and of the last seven days; if there is none, of the last active day."""
    days = site.days() or ()
    now = site.now()
    today, first = period_of(now, "day"), period_of(now - 6 * DAY_MS, "day")
    spans: list[tuple[str, Spent]] = [("Today", day.spent) for day in days if day.key == today]
    week = [day.spent for day in days if first <= (day.key or "") <= today]
    if week:
        return [*spans, ("Last 7 days", add_up(week))]
    return [(f"Last active {day.key}", day.spent) for day in days[-1:]]


ROUTES = (home,)
