"""The audit of the ledger, its records as they are stored, and what is removed from it."""

from __future__ import annotations

from litestar import Response, get, post
from litestar.params import FromPath, FromQuery

from agents_ledger.ledger.maintenance import audit
from agents_ledger.model.access import Token
from agents_ledger.model.reports.redaction import (
    SCOPES as REDACTED_SCOPES,
)
from agents_ledger.model.reports.redaction import (
    Redaction,
    RedactionPreview,
    Selection,
)
from agents_ledger.web.pages.forms import Form
from agents_ledger.web.pages.home import failures
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.responses import OK
from agents_ledger.web.site import RAW_BYTES, ThisSite

FAILED_MAX = 50
LISTED = 50  # redactions


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


@get("/redact", sync_to_thread=True, opt={"scope": "admin"})
def redact_page(request: WebRequest, site: ThisSite) -> Response[str]:
    """A form for what is to be removed, and what was removed."""
    return _redact_page(request, site, {})


@post("/redact", sync_to_thread=True, status_code=OK, opt={"scope": "admin"})
def redact_form(request: WebRequest, site: ThisSite, data: Form) -> Response[str]:
    """Show what would be removed; once that is confirmed, remove it."""
    fields = {name: value for name, value in data.items() if value.strip()}
    selection = Selection(
        **{name: fields[name] for name in Selection.__struct_fields__ if name in fields}
    )
    if "confirmed" not in fields:
        return _redact_page(request, site, fields, site.ledger.redactions.preview(selection))
    token: Token = request.scope["state"]["token"]
    reason = fields.get("reason", "")
    done = site.ledger.redactions.redact(selection, reason=reason, actor=token.name)
    return _redact_page(request, site, {}, done=done)


def _redact_page(
    request: WebRequest,
    site: ThisSite,
    fields: dict[str, str],
    preview: RedactionPreview | None = None,
    done: Redaction | None = None,
) -> Response[str]:
    return site.page(
        "redact.html",
        request,
        title="Redact",
        fields=fields,
        scopes=REDACTED_SCOPES,
        preview=preview,
        done=done,
        redactions=site.ledger.redactions.latest(LISTED),
    )


ROUTES = (audit_page, raw_page, redact_page, redact_form)
