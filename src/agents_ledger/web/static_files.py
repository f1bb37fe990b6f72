"""Styles, scripts and the icon: read once, served with a tag."""

from __future__ import annotations

from functools import cache

from litestar import Response, get
from litestar.exceptions import NotFoundException
from litestar.params import FromPath

from agents_ledger.web.site import HERE, Asked, tag_of

KINDS = {
    ".css": "text/css",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


@cache
def _files() -> dict[str, tuple[bytes, str, str]]:
    found = {}
    for path in (HERE / "static").iterdir():
        if path.suffix in KINDS:
            data = path.read_bytes()
            found[path.name] = (data, KINDS[path.suffix], tag_of(data))
    return found


@get("/static/{name:str}", sync_to_thread=False, opt={"public": True})
def static_file(request: Asked, name: FromPath[str]) -> Response[bytes]:
    """One of our own files."""
    if name not in _files():
        raise NotFoundException(f"there is no file {name!r}")
    data, kind, tag = _files()[name]
    if request.headers.get("if-none-match") == tag:
        return Response(b"", status_code=304, headers={"etag": tag})
    return Response(data, media_type=kind, headers={"etag": tag})


ROUTES = (static_file,)
