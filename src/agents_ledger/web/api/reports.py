"""The HTTP API of reports: usage, tools, comparisons, search and files."""

from __future__ import annotations

from typing import Annotated

from litestar import Response
from litestar.params import FromPath, FromQuery, QueryParameter

from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.reports.comparison import Comparison, WrittenFile
from agents_ledger.model.reports.search import Found, Order, Touched
from agents_ledger.model.reports.secrets import SecretReport
from agents_ledger.model.reports.usage import ToolUsage, UsageBy, UsageReport
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.responses import PER_PAGE, Limit, OptionalNumber, answer, reads
from agents_ledger.web.site import ThisSite

ROWS_MAX = 1000
ROWS = 100


@reads("/usage")
def get_usage(
    request: WebRequest,
    site: ThisSite,
    *,
    by: FromQuery[UsageBy] = "day",
    since: OptionalNumber = None,
    until: OptionalNumber = None,
    project: FromQuery[str | None] = None,
    model: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=ROWS_MAX)] = ROWS,
) -> Response[UsageReport]:
    """Turns, tokens and cost by day, week, month, model, project or session."""
    report = site.usage(by, since=since, until=until, project=project, model=model, limit=limit)
    return answer(report, request)


@reads("/tools")
def get_tools(
    request: WebRequest,
    site: ThisSite,
    *,
    since: OptionalNumber = None,
    until: OptionalNumber = None,
    limit: Annotated[int, QueryParameter(ge=1, le=ROWS_MAX)] = ROWS_MAX,
) -> Response[list[ToolUsage]]:
    """Calls, failures and durations of every tool."""
    return answer(list(site.ledger.tools(since=since, until=until, limit=limit)), request)


@reads("/secrets")
def get_secrets(request: WebRequest, site: ThisSite) -> Response[SecretReport]:
    """The secrets in the ledger by kind and session, without them. It reads the whole ledger."""
    return answer(site.ledger.secrets.report(), request)


@reads("/permissions")
def get_permissions(
    request: WebRequest,
    site: ThisSite,
    *,
    persona: FromQuery[str | None] = None,
    since: OptionalNumber = None,
    until: OptionalNumber = None,
) -> Response[PermissionReview]:
    """Which tools each persona called, and which calls lacked permission."""
    review = site.ledger.review_permissions(persona_id=persona, since=since, until=until)
    return answer(review, request)


@reads("/compare")
def get_comparison(
    request: WebRequest,
    site: ThisSite,
    *,
    a: FromQuery[str],
    b: FromQuery[str],
    limit: Annotated[int, QueryParameter(ge=1, le=PER_PAGE)] = PER_PAGE,
) -> Response[Comparison]:
    """The common ancestor of two threads, and what each did since."""
    return answer(site.ledger.compare(a, b, limit=limit), request)


@reads("/compare/files")
def get_written_files(
    request: WebRequest,
    site: ThisSite,
    *,
    a: FromQuery[str],
    b: FromQuery[str],
    limit: Annotated[int, QueryParameter(ge=1, le=PER_PAGE)] = 20,
) -> Response[list[WrittenFile]]:
    """The files that two threads wrote since they parted, as diffs of their final content."""
    return answer(list(site.ledger.compare_files(a, b, limit=limit)), request)


@reads("/search")
def get_hits(
    request: WebRequest,
    site: ThisSite,
    *,
    q: FromQuery[str],
    order: FromQuery[Order] = "relevance",
    limit: Limit = 20,
    after: FromQuery[str | None] = None,
) -> Response[Found]:
    """The turns that match a query; docs/reference/search.md lists the operators."""
    return answer(site.ledger.search(q, limit=limit, order=order, after=after), request)


@reads("/files/{path:str}")
def get_touches(
    request: WebRequest,
    site: ThisSite,
    *,
    path: FromPath[str],
    limit: Limit = PER_PAGE,
    after: FromQuery[str | None] = None,
) -> Response[Touched]:
    """The turns that read or wrote a file, newest first. The end of a path is enough."""
    return answer(site.ledger.files(decode_part(path), limit=limit, after=after), request)


ROUTES = (
    get_usage,
    get_tools,
    get_permissions,
    get_secrets,
    get_comparison,
    get_written_files,
    get_hits,
    get_touches,
)
