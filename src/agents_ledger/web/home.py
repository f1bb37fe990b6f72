"""The first page: what to go on with, and what needs a look."""

from __future__ import annotations

from litestar import Response, get

from agents_ledger.web.site import Asked, Here

RECENT = 6


@get("/", sync_to_thread=True)
def home(request: Asked, site: Here) -> Response[str]:
    """Home."""
    return site.page(
        "home.html", request, title="Home", lines=site.pages.session_lines(limit=RECENT)
    )


ROUTES = (home,)
