"""Pages of numbers: usage, tools, and two branches side by side."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple, get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery
from markupsafe import Markup

from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.comparison import WrittenFile
from agents_ledger.model.reports.usage import UsageBy, UsageReport
from agents_ledger.model.text.periods import UNDATED
from agents_ledger.render import bodies
from agents_ledger.web.pages import charts
from agents_ledger.web.site import Asked, Here, Site, named

DAY_MS = 86_400_000
LINES_MAX = 100
TOOLS_MAX = 400
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
    before: FromQuery[str] = "",
) -> Response[str]:
    """What was used, line by line, and when. The next page of days comes `before` the last."""
    if by not in get_args(UsageBy):
        raise Refused(f"usage is told by {', '.join(get_args(UsageBy))}, not {by!r}")
    latest = site.pages.latest_turn_at() or 0
    since = latest - days * DAY_MS if days > 0 else None
    in_time = by in ("day", "week", "month")
    ask = partial(
        site.ledger.usage,
        by,  # type: ignore[arg-type]
        since=since,
        project=project or None,
        model=model or None,
        limit=None if in_time else PER_PAGE,
    )
    report = _kept(site, f"usage by {by}", ask) if not (days or project or model) else ask()
    lines = report.lines
    if in_time:
        lines = tuple(line for line in lines[::-1] if not before or (line.key or "") < before)
    drawn = [(line.key or "", line.spent.total_tokens) for line in lines[BARS_MAX - 1 :: -1]]
    drawn = [(key, tokens) for key, tokens in drawn if key > UNDATED]
    if by == "day":
        drawn = charts.every_day(drawn, BARS_MAX)
    return site.page(
        "usage.html",
        request,
        title="Usage",
        report=report,
        lines=lines[:LINES_MAX],
        older=lines[LINES_MAX - 1].key if len(lines) > LINES_MAX else None,
        by=by,
        ways=get_args(UsageBy),
        asked={"days": days or "", "project": project, "model": model},
        bars=charts.bars(drawn) if in_time else (),
        undated=UNDATED,
        heat=site.heat_map(),
    )


def _kept(site: Site, name: str, ask: Callable[[], UsageReport]) -> UsageReport:
    """What all of it used is told as it was at most a minute ago."""
    return site.keeper.get(name, ask) or ask()


@get("/tools", sync_to_thread=True)
def tools_page(request: Asked, site: Here) -> Response[str]:
    """Every tool: uses, failures, durations."""
    return site.page("tools.html", request, title="Tools", tools=site.ledger.tools(limit=TOOLS_MAX))


@get("/tools/{name:str}", sync_to_thread=True)
def tool_page(
    request: Asked, site: Here, name: FromPath[str], before: FromQuery[str] = ""
) -> Response[str]:
    """One tool, and its latest calls."""
    wanted = named(name)
    calls = site.pages.tool_examples(wanted, limit=PER_PAGE + 1, before=_before(before))
    if not calls and not before:
        raise NotFound(f"no tool {wanted!r} was called", "The page Tools lists those that were.")
    older = calls[PER_PAGE - 1] if len(calls) > PER_PAGE else None
    usage = next((tool for tool in site.ledger.tools() if tool.tool_name == wanted), None)
    return site.page(
        "tool.html",
        request,
        title=wanted,
        tool_name=wanted,
        usage=usage,
        calls=calls[:PER_PAGE],
        older=f"{older.sequence}:{older.turn_id}" if older else None,
    )


def _before(text: str) -> tuple[str, int] | None:
    """The call a page comes before, from `sequence:turn`."""
    sequence, _, turn_id = text.partition(":")
    if not sequence.isdecimal() or len(sequence) > 15:  # noqa: PLR2004
        return None
    return turn_id, int(sequence)


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
        written=[_Written(file, *_drawn(file)) for file in _known_first(site, a, b)],
        sides=((a, comparison.a), (b, comparison.b)),
        both=sorted(both),
        only=tuple(
            [file for file in side.files if file.file_path not in both]
            for side in (comparison.a, comparison.b)
        ),
    )


def _known_first(site: Site, a: str, b: str) -> list[WrittenFile]:
    files = site.ledger.compare_files(a, b)
    return sorted(files, key=lambda file: (file.diff is None, not file.diff))


class _Written(NamedTuple):
    """A file that a branch wrote, with what is to be seen of it."""

    file: WrittenFile
    diff: Markup | None
    sides: tuple[tuple[str, list[Markup]], ...]


def _drawn(file: WrittenFile) -> tuple[Markup | None, tuple[tuple[str, list[Markup]], ...]]:
    """The difference of what two branches left behind; if that is not known, what each changed."""
    if file.diff is not None:
        return bodies.patch(file.diff) if file.diff else None, ()
    sides = (("A", file.a), ("B", file.b))
    return None, tuple(
        (name, [bodies.diff(change.old, change.new) for change in changes])
        for name, changes in sides
    )


ROUTES = (usage_page, tools_page, tool_page, compare_page)
