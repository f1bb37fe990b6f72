"""Pages that find: search, files, and the palette."""

from __future__ import annotations

from typing import Any

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Found
from agents_ledger.web.formats import part, session_url, turn_url
from agents_ledger.web.site import Asked, Here, Site, named

PER_PAGE = 20
FILES_MAX = 50
PALETTE_MAX = 6
MODELS_MAX = 4
NARROWER = ("after:7d", "is:failed", "is:fork", "is:compaction", "role:user", "in:tool_result")
PLACES = (
    ("Home", "/"), ("Sessions", "/sessions"), ("Search", "/search"), ("Files", "/files"),
    ("Tools", "/tools"), ("Usage", "/usage"), ("Compare", "/compare"), ("Audit", "/audit"),
    ("Imports", "/imports"),
)  # fmt: skip


@get("/search", sync_to_thread=True)
def search_page(
    request: Asked,
    site: Here,
    *,
    q: FromQuery[str] = "",
    order: FromQuery[str] = "newest",
    after: FromQuery[str] = "",
) -> Response[str]:
    """Turns by what was said and done in them."""
    order = order if order in ("newest", "relevance") else "newest"
    found = problem = None
    if q.strip():
        try:
            found = site.ledger.search(
                q,
                limit=PER_PAGE,
                order=order,  # type: ignore[arg-type]
                after=after or None,
            )
        except Refused as error:
            problem = error
    return site.page(
        "search.html",
        request,
        title=f"Search {q}" if q else "Search",
        q=q,
        order=order,
        found=found,
        problem=problem,
        narrower=_narrower(q, found) if found else (),
    )


def _narrower(q: str, found: Found) -> list[str]:
    """Operators that would leave some of what was found: its models, then what often helps."""
    models = dict.fromkeys(hit.model for hit in found.hits if hit.model)
    named_ones = [f'model:"{model}"' for model in models if '"' not in model][:MODELS_MAX]
    offered = named_ones if len(models) > 1 else []
    return [word for word in (*offered, *NARROWER) if word not in q]


@get("/files", sync_to_thread=True)
def files_page(request: Asked, site: Here, q: FromQuery[str] = "") -> Response[str]:
    """The files that were touched last."""
    files = site.pages.recent_files(text=q or None, limit=10 * PER_PAGE)
    return site.page("files.html", request, title="Files", files=files, q=q)


@get("/files/{path:str}", sync_to_thread=True)
def file_page(
    request: Asked, site: Here, path: FromPath[str], after: FromQuery[str] = ""
) -> Response[str]:
    """The turns that read or wrote a file."""
    wanted = named(path)
    touched = site.ledger.files(wanted, limit=FILES_MAX, after=after or None)
    return site.page("file.html", request, title=wanted, file_path=wanted, touched=touched)


@get("/palette", sync_to_thread=True)
def palette(request: Asked, site: Here, q: FromQuery[str] = "") -> Response[str]:
    """What the palette offers for a text: the latest sessions when it is empty."""
    groups: list[tuple[str, list[tuple[str, str, str]]]] = []
    text = q.strip()
    lines = site.pages.session_lines(text=text or None, subagents=bool(text), limit=PALETTE_MAX)
    groups.append(
        (
            "Sessions",
            [
                (line.name, session_url(line.session.label),
                 line.last_prompt or "")
                for line in lines
            ],
        )
    )  # fmt: skip
    if text:
        groups.append(("Turns", _turns(site, text)))
        groups.append(("Files", [
            (file.path, f"/files/{part(file.path)}", f"{file.touches} touches")
            for file in site.pages.recent_files(text=text, limit=PALETTE_MAX)
        ]))  # fmt: skip
    places = [(name, url, "") for name, url in PLACES if text.lower() in name.lower()]
    groups.append(("Pages", places))
    if text:
        groups.append(("Everything", [(f"Search “{text}”", f"/search?q={part(text)}", "")]))
    return site.page("palette.html", request, groups=[group for group in groups if group[1]])


def _turns(site: Site, text: str) -> list[tuple[str, str, str]]:
    try:
        found: Any = site.ledger.search(text, limit=PALETTE_MAX)
    except Refused:
        return []
    return [
        (hit.query or hit.turn_type, turn_url(hit.turn_id, q=text), hit.session_label or "")
        for hit in found.hits
    ]


ROUTES = (search_page, files_page, file_page, palette)
