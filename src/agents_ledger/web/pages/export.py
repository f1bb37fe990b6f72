"""Exports: a review of what is masked, then the file."""

from __future__ import annotations

import re
from typing import get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.model.errors import Refused
from agents_ledger.model.secrets.masking import review
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import ThisSite

FILE_TYPES = {
    "html": ("html", "text/html"),
    "markdown": ("md", "text/markdown"),
    "json": ("json", "application/json"),
}
LISTED_MAX = 300
VERY_LONG = 10  # times a long thread: up to then, an open page reads it by itself
# Of the preview, which is the exported page inside ours: nothing in it can run, submit or load.
PREVIEW_HEADERS = {
    "content-security-policy": "default-src 'none'; img-src data:; style-src 'unsafe-inline';"
    " base-uri 'none'; form-action 'none'; frame-ancestors 'self'; sandbox",
    "x-frame-options": "SAMEORIGIN",
}


@get("/share/{target:str}", sync_to_thread=True)
def export_review(
    request: WebRequest,
    site: ThisSite,
    *,
    target: FromPath[str],
    subagents: FromQuery[bool] = True,
    whole: FromQuery[bool] = False,
    part: FromQuery[bool] = False,
) -> Response[str]:
    """What an export would mask. A long thread is read only with `whole`."""
    key = decode_part(target)
    is_read = whole or not site.pages.is_long(key)
    # JSON has every field, so it masks at least what the other forms do.
    export = Export(site.ledger, key, "json", subagents=subagents)
    size = sum(map(len, export)) if is_read else None
    return site.page(
        "export_review.html" if part else "export.html",
        request,
        title="Share",
        target=key,
        named=site.pages.session_names([key]).get(key),
        size=size,
        is_very_long=not is_read and site.pages.is_long(key, times=VERY_LONG),
        masked=export.masked[:LISTED_MAX],
        left_out=max(0, len(export.masked) - LISTED_MAX),
        counts=review(export.masked),
        subagents=subagents,
    )


@get("/share/{target:str}/preview", sync_to_thread=True)
def export_preview(
    site: ThisSite,
    *,
    target: FromPath[str],
    mask: FromQuery[bool] = True,
    full: FromQuery[bool] = False,
    subagents: FromQuery[bool] = True,
) -> Response[bytes]:
    """The page that a colleague will see, shown inside the page of the export."""
    export = Export(
        site.ledger, decode_part(target), "html", mask=mask, full=full, subagents=subagents
    )
    content = "".join(export).encode("utf-8", "backslashreplace")
    return Response(content, media_type="text/html", headers=PREVIEW_HEADERS)


@get("/share/{target:str}/file", sync_to_thread=True)
def export_file(
    site: ThisSite,
    *,
    target: FromPath[str],
    form: FromQuery[str] = "html",
    mask: FromQuery[bool] = True,
    full: FromQuery[bool] = False,
    subagents: FromQuery[bool] = True,
) -> Response[bytes]:
    if form not in get_args(Form):
        raise Refused(f"unknown export form {form!r}", f"Forms: {', '.join(get_args(Form))}.")
    key = decode_part(target)
    export = Export(
        site.ledger,
        key,
        form,  # type: ignore[arg-type]
        mask=mask,
        full=full,
        subagents=subagents,
    )
    content = "".join(export).encode("utf-8", "backslashreplace")
    suffix, kind = FILE_TYPES[form]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", key).strip("-.")[:80] or "thread"
    headers = {"content-disposition": f'attachment; filename="{name}.{suffix}"'}
    return Response(content, media_type=kind, headers=headers)


ROUTES = (export_review, export_preview, export_file)
