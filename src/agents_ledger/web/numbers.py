"""Pages of numbers: usage, tools, and two branches side by side."""

from __future__ import annotations

from typing import get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.usage import UsageBy
from agents_ledger.web import charts
from agents_ledger.web.site import Asked, Here, named

DAY_MS = 86_400_000
LINES_MAX = 400
PER_PAGE = 50
BARS_MAX = 120


@get("/usage", sync_to_thread=True)
def usage_page(
    request: Asked,
    site: Here,
    *,
    by: FromQuery[str] = "day",
    days: FromQuery[int] = 0,
    project: FromQuery[str] = "",
    model: FromQuery[str] = "",
) -> Response[str]:
    """What was used, line by line, and when."""
    if by not in get_args(UsageBy):
        raise Refused(f"usage is told by {', '.join(get_args(UsageBy))}, not {by!r}")
    latest = site.pages.latest_turn_at() or 0
    since = latest - days * DAY_MS if days > 0 else None
    report = site.ledger.usage(
        by,  # type: ignore[arg-type]
        since=since,
        project=project or None,
        model=model or None,
        limit=LINES_MAX,
    )
    in_time = by in ("day", "week", "month")
    drawn = [(line.key or "", line.spent.total_tokens) for line in report.lines][-BARS_MAX:]
    return site.page(
        "usage.html",
        request,
        title="Usage",
        report=report,
        lines=report.lines[::-1] if in_time else report.lines,
        by=by,
        ways=get_args(UsageBy),
        asked={"days": days or "", "project": project, "model": model},
        bars=charts.bars(drawn) if in_time else (),
        heat=site.heat_map(),
    )


@get("/tools", sync_to_thread=True)
def tools_page(request: Asked, site: Here) -> Response[str]:
    """Every tool: uses, failures, durations."""
    return site.page("tools.html", request, title="Tools", tools=site.ledger.tools(limit=LINES_MAX))


@get("/tools/{name:str}", sync_to_thread=True)
def tool_page(
    request: Asked, site: Here, name: FromPath[str], before: FromQuery[str] = ""
) -> Response[str]:
    """One tool, and its latest calls."""
    wanted = named(name)
    calls = site.pages.tool_examples(wanted, limit=PER_PAGE + 1, before=before or None)
    if not calls and not before:
        raise NotFound(f"no tool {wanted!r} was called", "The page Tools lists those that were.")
    usage = next((tool for tool in site.ledger.tools() if tool.tool_name == wanted), None)
    return site.page(
        "tool.html",
        request,
        title=wanted,
        tool_name=wanted,
        usage=usage,
        calls=calls[:PER_PAGE],
        older=calls[PER_PAGE - 1].turn_id if len(calls) > PER_PAGE else None,
    )


@get("/compare", sync_to_thread=True)
def compare_page(
    request: Asked, site: Here, a: FromQuery[str] = "", b: FromQuery[str] = ""
) -> Response[str]:
    """Where two branches part, and what each did since."""
    if not a or not b:
        return site.page(
            "compare_ask.html",
            request,
            title="Compare",
            a=a,
            b=b,
            lines=site.pages.session_lines(limit=PER_PAGE),
        )
    comparison = site.ledger.compare(a, b)
    both = set(comparison.files_in_both)
    return site.page(
        "compare.html",
        request,
        title="Compare",
        compared=comparison,
        sides=((a, comparison.a), (b, comparison.b)),
        both=sorted(both),
        only=tuple(
            [file for file in side.files if file.file_path not in both]
            for side in (comparison.a, comparison.b)
        ),
    )


ROUTES = (usage_page, tools_page, tool_page, compare_page)
