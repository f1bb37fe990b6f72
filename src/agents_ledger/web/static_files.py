"""Styles, scripts and the icon: read once, served with an entity tag."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from agents_ledger.render.conversation import STYLE
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.responses import NOT_MODIFIED, etag_of

STATIC = Path(__file__).parent / "static"
MEDIA_TYPES = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    """By name, whatever folder they are in: scripts import each other by name."""
    files = {}
    # The HTML export includes the same style sheet.
    for path in (*STATIC.rglob("*.*"), STYLE):
        if path.suffix in MEDIA_TYPES:
            data = path.read_bytes()
            files[path.name] = (data, MEDIA_TYPES[path.suffix], etag_of(data))
    return files


@get("/static/{name:str}", sync_to_thread=False, opt={"public": True})
def static_file(request: WebRequest, name: FromPath[str]) -> Response[bytes]:
    if name not in _files():
        raise NotFoundException(f"no file {name!r}")
    data, kind, tag = _files()[name]
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=NOT_MODIFIED, headers={"etag": tag})
    return Response(data, media_type=kind, headers={"etag": tag})


ROUTES = (static_file,)
