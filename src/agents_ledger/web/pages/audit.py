"""The audit of the ledger, and its records as they are stored."""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.ledger.maintenance import audit
from agents_ledger.web.pages.home import failures
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import RAW_BYTES, ThisSite

FAILED_MAX = 50


@get("/audit", sync_to_thread=True)
def audit_page(request: WebRequest, site: ThisSite, run: FromQuery[bool] = False) -> Response[str]:
    """What breaks a rule. A large ledger is checked only with `run`."""
    report, running = site.audit_report(run=run)
    return site.page(
        "audit.html",
        request,
        title="Audit",
        report=report,
        meanings=audit.meanings(),
        running=running,
        permissions=report.permissions if report is not None else None,
        secrets=report.secrets if report is not None else None,
        failed=failures(site.pages, FAILED_MAX),
    )


@get("/raw/{kind:str}/{key:str}", sync_to_thread=True)
def raw_page(
    request: WebRequest,
    site: ThisSite,
    kind: FromPath[str],
    key: FromPath[str],
    start: FromQuery[int] = 0,
) -> Response[str]:
    """The rows of a record, or the bytes of an imported file from `start`."""
    kind = decode_part(kind)
    record = site.raw(kind, decode_part(key), max(0, start))
    return site.page("raw.html", request, title=f"Raw {kind}", record=record, step=RAW_BYTES)


ROUTES = (audit_page, raw_page)
