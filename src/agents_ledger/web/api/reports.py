"""The HTTP API of everything else: numbers, the audit, imports, the queue, the bus, tokens."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from agents_ledger.importers import requests as import_requests
from agents_ledger.ledger.access import Tokens
from agents_ledger.ledger.sessions.queue import Queue
from agents_ledger.model.access import Scope, Token
from agents_ledger.model.context import ProviderFormat
from agents_ledger.model.queue import QueueEntry
from agents_ledger.model.reports.comparison import Comparison, WrittenFile
from agents_ledger.model.reports.pages import ImportRun
from agents_ledger.model.reports.search import Found, Order, Touched
from agents_ledger.model.reports.usage import ToolUsage, UsageBy, UsageReport
from agents_ledger.model.sessions import DEFAULT_PERSONA, Finding
from agents_ledger.web.responses import PER_PAGE, Limit, Page, answer, makes, reads, removes
from agents_ledger.web.site import Asked, Here, check_persona, named

IMPORT_MAX = 64 << 20
LINES_MAX = 1000
LINES = 100

Since = Annotated[int | None, QueryParameter(ge=0, le=2**53)]


class NewToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A token to make."""

    name: Annotated[str, Meta(min_length=1, max_length=200)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1)] = ("read",)
    expires_at: Annotated[int, Meta(ge=0, le=2**53)] | None = None


class TokenMade(Struct, frozen=True):
    """A token with its secret, which is told this once."""

    token: Token
    secret: str


class Audited(Struct, frozen=True):
    """What the audit found."""

    findings: list[Finding]


# -- numbers ----------------------------------------------------------------------------------


@reads("/usage")
def get_usage(
    request: Asked,
    site: Here,
    *,
    by: FromQuery[UsageBy] = "day",
    since: Since = None,
    until: Since = None,
    project: FromQuery[str | None] = None,
    model: FromQuery[str | None] = None,
    limit: Annotated[int, QueryParameter(ge=1, le=LINES_MAX)] = LINES,
) -> Response[UsageReport]:
    """Turns, tokens and costs by day, week, month, model, project or session."""
    report = site.usage(by, since=since, until=until, project=project, model=model, limit=limit)
    return answer(report, request)


@reads("/tools")
def get_tools(
    request: Asked,
    site: Here,
    *,
    since: Since = None,
    until: Since = None,
    limit: Annotated[int, QueryParameter(ge=1, le=LINES_MAX)] = LINES_MAX,
) -> Response[list[ToolUsage]]:
    """Uses, failures and durations of every tool."""
    return answer(list(site.ledger.tools(since=since, until=until, limit=limit)), request)


@reads("/compare")
def get_comparison(
    request: Asked,
    site: Here,
    *,
    a: FromQuery[str],
    b: FromQuery[str],
    limit: Annotated[int, QueryParameter(ge=1, le=PER_PAGE)] = PER_PAGE,
) -> Response[Comparison]:
    """Where two threads part, and what each did since."""
    return answer(site.ledger.compare(a, b, limit=limit), request)


@reads("/compare/files")
def get_written_files(
    request: Asked,
    site: Here,
    *,
    a: FromQuery[str],
    b: FromQuery[str],
    limit: Annotated[int, QueryParameter(ge=1, le=PER_PAGE)] = 20,
) -> Response[list[WrittenFile]]:
    """The files that two threads wrote since they parted, as diffs of what they hold in the end."""
    return answer(list(site.ledger.compare_files(a, b, limit=limit)), request)


@reads("/audit")
def get_audit(request: Asked, site: Here) -> Response[Audited]:
    """Every broken rule; none when all hold. It reads the whole ledger."""
    return answer(Audited(list(site.ledger.audit())), request)


# -- finding ----------------------------------------------------------------------------------


@reads("/search")
def get_hits(
    request: Asked,
    site: Here,
    *,
    q: FromQuery[str],
    order: FromQuery[Order] = "newest",
    limit: Limit = 20,
    after: FromQuery[str | None] = None,
) -> Response[Found]:
    """The turns that say or do something; docs/reference/search.md has the operators."""
    return answer(site.ledger.search(q, limit=limit, order=order, after=after), request)


@reads("/files/{path:str}")
def get_touches(
    request: Asked,
    site: Here,
    *,
    path: FromPath[str],
    limit: Limit = PER_PAGE,
    after: FromQuery[str | None] = None,
) -> Response[Touched]:
    """The turns that read or wrote a file, newest first; a path may be given by its end."""
    return answer(site.ledger.files(named(path), limit=limit, after=after), request)


@reads("/context/{target:str}")
def get_context(
    request: Asked,
    site: Here,
    *,
    target: FromPath[str],
    form: FromQuery[ProviderFormat] = "anthropic",
    budget: Annotated[int | None, QueryParameter(ge=1, le=2**53)] = None,
) -> Response[dict[str, Any]]:
    """What a model would be shown at a turn, in the form of a provider."""
    context = site.ledger.context(named(target), budget=budget)
    shown = {"total_tokens": context.total_tokens, "form": form, "shown": context.rendered(form)}
    return answer(shown, request)


# -- imports ----------------------------------------------------------------------------------


@reads("/imports")
def list_imports(
    request: Asked, site: Here, limit: Limit = PER_PAGE, before: FromQuery[str] = ""
) -> Response[Page[ImportRun]]:
    """What imports did, latest first."""
    runs = site.pages.import_runs(limit=limit + 1, before=before or None)
    cursor = runs[limit - 1].id if len(runs) > limit else None
    return answer(Page(list(runs[:limit]), cursor), request)


@reads("/imports/{run:str}")
def get_import(request: Asked, site: Here, run: FromPath[str]) -> Response[ImportRun]:
    """What one import did."""
    return answer(site.pages.import_run(named(run)), request)


@makes("/imports", scope="import", request_max_body_size=IMPORT_MAX)
def import_request(
    request: Asked, site: Here, data: JSONBody[dict[str, Any]]
) -> Response[dict[str, Any]]:
    """A `sessions.import` request, whole or a chunk of one; docs/sources/request.md tells it.
    Another persona than `main` needs the scope `admin`."""
    check_persona(request, import_requests.persona_of(data), DEFAULT_PERSONA)
    return answer(import_requests.import_request(site.ledger, data))


# -- queue ------------------------------------------------------------------------------------


@reads("/queue")
def list_queue(
    request: Asked, site: Here, session: FromQuery[str | None] = None, limit: Limit = PER_PAGE
) -> Response[list[QueueEntry]]:
    """What waits to be asked, of one session or of all."""
    return answer(list(Queue(site.ledger).entries(session, limit=limit)), request)


@removes("/queue/{entry:str}")
def cancel_entry(site: Here, entry: FromPath[str]) -> Response[QueueEntry]:
    """Cancel what waits."""
    return answer(Queue(site.ledger).cancel(named(entry)))


# -- bus --------------------------------------------------------------------------------------


@makes("/bus/{ability:str}", scope="admin", status_code=200)
def invoke(
    site: Here, ability: FromPath[str], data: JSONBody[dict[str, Any]]
) -> Response[dict[str, Any]]:
    """Invoke an ability of the Agent Bus; the answer says whether it went well."""
    done = site.bus.try_invoke(named(ability), msgspec.json.encode(data))
    return answer(msgspec.to_builtins(done))


# -- tokens -----------------------------------------------------------------------------------


@reads("/tokens", opt={"scope": "admin"})
def list_tokens(site: Here) -> Response[list[Token]]:
    """Every token; their secrets are known to their holders alone."""
    return answer(list(Tokens(site.ledger._core).all()))


@makes("/tokens", scope="admin")
def create_token(site: Here, data: JSONBody[NewToken]) -> Response[TokenMade]:
    """Make a token."""
    made, secret = Tokens(site.ledger._core).create(
        data.name, data.scopes, expires_at=data.expires_at
    )
    return answer(TokenMade(made, secret))


@removes("/tokens/{token:str}", scope="admin")
def revoke_token(site: Here, token: FromPath[str]) -> Response[Token]:
    """Make a token worthless for ever."""
    return answer(Tokens(site.ledger._core).revoke(named(token)))


ROUTES = (
    get_usage,
    get_tools,
    get_comparison,
    get_written_files,
    get_audit,
    get_hits,
    get_touches,
    get_context,
    list_imports,
    get_import,
    import_request,
    list_queue,
    cancel_entry,
    invoke,
    list_tokens,
    create_token,
    revoke_token,
)
