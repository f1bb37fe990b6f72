"""Giving a thread away: first what was masked, then the file."""

from __future__ import annotations

import re
from typing import get_args

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.exporters.secrets import review
from agents_ledger.model.errors import Refused
from agents_ledger.web.site import Asked, Here, named

KINDS = {
    "html": ("html", "text/html"),
    "markdown": ("md", "text/markdown"),
    "json": ("json", "application/json"),
}
LISTED_MAX = 300


@get("/share/{target:str}", sync_to_thread=True)
def export_review(
    request: Asked,
    site: Here,
    *,
    target: FromPath[str],
    subagents: FromQuery[bool] = True,
    whole: FromQuery[bool] = False,
    part: FromQuery[bool] = False,
) -> Response[str]:
    """What an export would mask, before it is made; of a long thread, when that is asked for."""
    wanted = named(target)
    is_read = whole or not site.pages.is_long(wanted)
    export = Export(site.ledger, wanted, "json", subagents=subagents)
    size = sum(len(piece) for piece in export) if is_read else None
    return site.page(
        "export_part.html" if part else "export.html",
        request,
        title="Export",
        target=wanted,
        size=size,
        masked=export.masked[:LISTED_MAX],
        left_out=max(0, len(export.masked) - LISTED_MAX),
        counts=review(export.masked),
        subagents=subagents,
    )


@get("/share/{target:str}/file", sync_to_thread=True)
def export_file(
    site: Here,
    *,
    target: FromPath[str],
    form: FromQuery[str] = "html",
    mask: FromQuery[bool] = True,
    full: FromQuery[bool] = False,
    subagents: FromQuery[bool] = True,
) -> Response[bytes]:
    """The export itself, as a file to keep."""
    if form not in get_args(Form):
        raise Refused(f"an export is in one of the forms {', '.join(get_args(Form))}, not {form!r}")
    wanted = named(target)
    export = Export(
        site.ledger,
        wanted,
        form,  # type: ignore[arg-type]
        mask=mask,
        full=full,
        subagents=subagents,
    )
    content = "".join(export).encode("utf-8", "backslashreplace")
    ending, kind = KINDS[form]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", wanted).strip("-.")[:80] or "thread"
    headers = {"content-disposition": f'attachment; filename="{name}.{ending}"'}
    return Response(content, media_type=kind, headers=headers)


ROUTES = (export_review, export_file)
