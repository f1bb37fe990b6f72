"""The HTTP API of imports."""

from __future__ import annotations

from typing import Any

from litestar import Response
from litestar.params import FromPath, FromQuery, JSONBody

from agents_ledger.importers import requests as import_requests
from agents_ledger.model.reports.pages import ImportRun
from agents_ledger.model.sessions import DEFAULT_PERSONA
from agents_ledger.web.requests import WebRequest, check_persona, decode_part
from agents_ledger.web.responses import PER_PAGE, Limit, ResultPage, answer, creates, reads
from agents_ledger.web.site import ThisSite

BODY_MAX = 64 << 20


@reads("/imports")
def list_imports(
    request: WebRequest, site: ThisSite, limit: Limit = PER_PAGE, before: FromQuery[str] = ""
) -> Response[ResultPage[ImportRun]]:
    """Import runs, latest first."""
    runs = site.pages.import_runs(limit=limit + 1, before=before or None)
    cursor = runs[limit - 1].id if len(runs) > limit else None
    return answer(ResultPage(list(runs[:limit]), cursor), request)


@reads("/imports/{run:str}")
def get_import(request: WebRequest, site: ThisSite, run: FromPath[str]) -> Response[ImportRun]:
    """One import run."""
    return answer(site.pages.import_run(decode_part(run)), request)


@creates("/imports", scope="import", request_max_body_size=BODY_MAX)
def import_request(
    request: WebRequest, site: ThisSite, data: JSONBody[dict[str, Any]]
) -> Response[dict[str, Any]]:
    """Import sessions with a `sessions.import` request, whole or in chunks; see
    docs/sources/request.md. Another persona than `main` needs the scope `admin`."""
    check_persona(request, import_requests.persona_of(data), DEFAULT_PERSONA)
    return answer(import_requests.import_request(site.ledger, data))


ROUTES = (list_imports, get_import, import_request)
