"""The HTTP API of redactions: what would be removed, and its removal."""

from __future__ import annotations

from typing import Annotated

from litestar import Response
from litestar.params import FromQuery, JSONBody
from msgspec import Meta, Struct

from agents_ledger.model.access import Token
from agents_ledger.model.reports.redaction import Redaction, RedactionPreview, Selection
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.responses import answer, creates, reads
from agents_ledger.web.site import ThisSite

LISTED = 50


class NewRedaction(Struct, frozen=True, forbid_unknown_fields=True):
    """What to remove, and why."""

    selection: Selection
    reason: Annotated[str, Meta(min_length=1, max_length=2000)]


@reads("/redactions", opt={"scope": "admin"})
def list_redactions(
    request: WebRequest, site: ThisSite, limit: FromQuery[int] = LISTED
) -> Response[list[Redaction]]:
    """What was removed from the ledger, the last first; no value is in it."""
    return answer(list(site.ledger.redactions.latest(max(1, limit))), request)


@creates("/redactions/preview", scope="admin")
def preview_redaction(site: ThisSite, data: JSONBody[Selection]) -> Response[RedactionPreview]:
    """What a redaction would remove. No value is in the answer whole."""
    return answer(site.ledger.redactions.preview(data))


@creates("/redactions", scope="admin")
def create_redaction(
    request: WebRequest, site: ThisSite, data: JSONBody[NewRedaction]
) -> Response[Redaction]:
    """Remove values for good. This cannot be undone; backups made before still have them."""
    token: Token = request.scope["state"]["token"]
    done = site.ledger.redactions.redact(data.selection, reason=data.reason, actor=token.name)
    return answer(done)


ROUTES = (list_redactions, preview_redaction, create_redaction)
