"""Search, files, and the palette."""

from __future__ import annotations

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Found
from agents_ledger.model.text import humanize
from agents_ledger.web.formats import part, session_url, turn_url
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

PER_PAGE = 20
FILES_MAX = 50
PALETTE_MAX = 6
MODELS_MAX = 4
FILTERS = ("after:7d", "is:failed", "is:fork", "is:compaction", "role:user", "in:tool_result")
PLACES = (
    ("Home", "/"), ("Sessions", "/sessions"), ("Search", "/search"), ("Files", "/files"),
    ("Tools", "/tools"), ("Usage", "/usage"), ("Compare", "/compare"), ("Audit", "/audit"),
    ("Imports", "/imports"),
)  # fmt: skip

PaletteEntry = tuple[str, str, str]  # text, address, second text


@get("/search", sync_to_thread=True)
def search_page(
    request: WebRequest,
    site: ThisSite,
    *,
    q: FromQuery[str] = "",
    order: FromQuery[str] = "newest",
    after: FromQuery[str] = "",
) -> Response[str]:
    order = order if order in ("newest", "relevance") else "newest"
    result = problem = None
    if q.strip():
        try:
            result = site.ledger.search(
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
        result=result,
        problem=problem,
        filters=_filters(q, result) if result else (),
    )


def _filters(q: str, result: Found) -> list[str]:
    """Operators that narrow the result: its models, then the usual ones."""
    models = dict.fromkeys(hit.model for hit in result.hits if hit.model)
    by_model = [f'model:"{model}"' for model in models if '"' not in model][:MODELS_MAX]
    return [term for term in (*(by_model if len(models) > 1 else ()), *FILTERS) if term not in q]


@get("/files", sync_to_thread=True)
def files_page(request: WebRequest, site: ThisSite, q: FromQuery[str] = "") -> Response[str]:
    files = site.pages.recent_files(text=q or None, limit=10 * PER_PAGE)
    return site.page("files.html", request, title="Files", files=files, q=q)


@get("/files/{path:str}", sync_to_thread=True)
def file_page(
    request: WebRequest, site: ThisSite, path: FromPath[str], after: FromQuery[str] = ""
) -> Response[str]:
    file_path = decode_part(path)
    touched = site.ledger.files(file_path, limit=FILES_MAX, after=after or None)
    return site.page("file.html", request, title=file_path, file_path=file_path, touched=touched)


@get("/palette", sync_to_thread=True)
def palette(request: WebRequest, site: ThisSite, q: FromQuery[str] = "") -> Response[str]:
    """Sessions, turns, files and pages that match a text; the latest sessions for no text."""
    groups: list[tuple[str, list[PaletteEntry]]] = []
    text = q.strip()
    lines = site.pages.session_lines(text=text or None, subagents=bool(text), limit=PALETTE_MAX)
    sessions = [
        (line.name, session_url(line.session.label), line.last_prompt or "") for line in lines
    ]
    groups.append(("Sessions", sessions))
    if text:
        groups.append(("Turns", _turns(site, text)))
        files = [
            (file.path, f"/files/{part(file.path)}", humanize.count(file.touches, "use"))
            for file in site.pages.recent_files(text=text, limit=PALETTE_MAX)
        ]
        groups.append(("Files", files))
    places = [(name, url, "") for name, url in PLACES if text.lower() in name.lower()]
    groups.append(("Pages", places))
    if text:
        groups.append(("Everything", [(f"Search “{text}”", f"/search?q={part(text)}", "")]))
    return site.page("palette.html", request, groups=[group for group in groups if group[1]])


def _turns(site: Site, text: str) -> list[PaletteEntry]:
    try:
        result = site.ledger.search(text, limit=PALETTE_MAX)
    except Refused:
        return []
    return [
        (hit.query or hit.turn_type, turn_url(hit.turn_id, q=text), hit.session_label or "")
        for hit in result.hits
    ]


ROUTES = (search_page, files_page, file_page, palette)
