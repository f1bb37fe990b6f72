"""The first page: what to go on with, and what needs a look."""

from __future__ import annotations

from litestar import Response, get

from agents_ledger.model.periods import period_of
from agents_ledger.web.site import Asked, Here, Site

RECENT = 6
FAILED = 5
FILES = 8
DAY_MS = 86_400_000


@get("/", sync_to_thread=True)
def home(request: Asked, site: Here) -> Response[str]:
    """Home."""
    lines = site.pages.session_lines(limit=RECENT)
    return site.page(
        "home.html",
        request,
        title="Home",
        lines=lines,
        spans=site.kept("spans", lambda: _spans(site)),
        heat=site.heat_map(),
        failed=site.pages.failed_turns(limit=FAILED),
        faults=site.pages.source_faults(limit=1),
        audited=site.audited,
        files=site.pages.recent_files(limit=FILES),
        sources=site.sources(),
        importing=site.importing,
    )


def _spans(site: Site) -> list[tuple[str, object]]:
    """What was used today and this week; of the last day there was, if these are empty."""
    latest = site.pages.latest_turn_at()
    if latest is None:
        return []
    now = site.now()
    report = site.ledger.usage("day", since=now - 7 * DAY_MS)
    today = period_of(now, "day")
    spans: list[tuple[str, object]] = [
        ("Today", line.spent) for line in report.lines if line.key == today
    ]
    if report.total.turns:
        return [*spans, ("Last 7 days", report.total)]
    day = site.ledger.usage("day", since=latest - DAY_MS)
    return [(f"Last active {line.key}", line.spent) for line in day.lines[-1:]]


ROUTES = (home,)
