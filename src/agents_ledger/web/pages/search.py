"""Search, find within a thread, and the palette."""

from __future__ import annotations

from typing import NamedTuple

from litestar import Response, get
from litestar.params import FromPath, FromQuery

from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import KIND_PARTS, Ranking, SearchFacets, ThreadMatch
from agents_ledger.model.text import humanize
from agents_ledger.web.formats import (
    match_url,
    part,
    session_url,
    step_anchor,
    turn_url,
    with_query,
)
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

PER_PAGE = 20
PALETTE_MAX = 6
KIND_NAMES = {"prompt": "Prompts", "answer": "Answers", "tool": "Tool calls and results"}
# What the page shows of the search syntax; docs/reference/search.md has all of it.
EXAMPLES = (
    ('"no such file"', "these words in this order"),
    ("config*", "words that begin so"),
    ("parser -draft", "the first word without the second"),
    ("tool:Bash is:failed", "failed turns that used a tool"),
    ("file:app.py", "turns that read or wrote a file"),
    ("in:tool_result timeout", "only in results of tools; also user, assistant, thinking"),
    ("project:shop model:opus", "turns in a folder, by a model"),
    ("origin:codex after:yesterday", "from an agent, since a day"),
    ("is:fork", "where conversations part; also is:compaction"),
)
PLACES = (
    ("Home", "/"), ("Sessions", "/sessions"), ("Search", "/search"), ("Files", "/files"),
    ("Tools", "/tools"), ("Usage", "/usage"), ("Compare", "/compare"), ("Audit", "/audit"),
    ("Imports", "/imports"),
)  # fmt: skip

PaletteEntry = tuple[str, str, str]  # text, address, second text


class SearchFilters(NamedTuple):
    """The choices of the page, each a part of its address."""

    origin: str = ""
    project: str = ""
    kind: str = ""
    days: str = ""

    @property
    def operators(self) -> str:
        """The same in the language of searches. A quote cannot be part of a value there."""
        terms = [
            f'{name}:"{value}"'
            for name, value in (("origin", self.origin), ("project", self.project))
            if value and '"' not in value
        ]
        terms += [
            f"in:{part}"
            for kind, parts in KIND_PARTS.items()
            if kind == self.kind
            for part in parts
        ]
        if self.days.isdecimal():
            terms.append(f"after:{self.days[:5]}d")
        return " ".join(terms)

    def named(self) -> dict[str, str]:
        return {name: value for name, value in self._asdict().items() if value}


@get("/search", sync_to_thread=True)
def search_page(
    request: WebRequest,
    site: ThisSite,
    *,
    q: FromQuery[str] = "",
    order: FromQuery[str] = "relevance",
    after: FromQuery[str] = "",
    origin: FromQuery[str] = "",
    project: FromQuery[str] = "",
    kind: FromQuery[str] = "",
    days: FromQuery[str] = "",
) -> Response[str]:
    ranking: Ranking = "newest" if order == "newest" else "relevance"
    filters = SearchFilters(origin, project, kind, days)
    text = f"{q} {filters.operators}".strip()
    result = problem = facets = None
    if text:
        try:
            with site.pages.snapshot():
                result = site.ledger.search(
                    text, limit=PER_PAGE, order=ranking, after=after or None
                )
                facets = site.ledger.search_facets(text)
        except Refused as error:
            problem = error
    query = {"q": q, "order": ranking if ranking == "newest" else ""}
    labels = {hit.session_label for hit in result.hits if hit.session_label} if result else ()
    return site.page(
        "search.html",
        request,
        title=f"Search {q}" if q else "Search",
        q=q,
        order=ranking,
        result=result,
        problem=problem,
        examples=EXAMPLES,
        names={label: named.name for label, named in site.pages.session_names(labels).items()},
        narrowed=filters.named(),
        chips=_chips(filters, query),
        found=f"{humanize.count(facets.turns, 'turn')}{'+' if facets.capped else ''}"
        if facets
        else "",
        facets=_choices(facets, filters, query) if facets else (),
        search_name=", ".join([q, *(text for text, _ in _chips(filters, query))]).strip(", "),
        more_url=with_query("/search", {**query, **filters.named(), "after": result.next})
        if result
        else "",
    )


def _period(days: str) -> str:
    return "Last 24 hours" if days == "1" else f"Last {days} days"


def _text(name: str, value: str) -> str:
    return (
        KIND_NAMES.get(value, value)
        if name == "kind"
        else _period(value)
        if name == "days"
        else value
    )


def _chips(filters: SearchFilters, query: dict[str, str]) -> list[tuple[str, str]]:
    """Each choice in words, with the address of the search without it."""
    return [
        (
            _text(name, value),
            with_query("/search", {**query, **filters._replace(**{name: ""}).named()}),
        )
        for name, value in filters.named().items()
    ]


def _choices(
    facets: SearchFacets, filters: SearchFilters, query: dict[str, str]
) -> list[tuple[str, list[tuple[str, str, str]]]]:
    """The facets that can still be chosen: text, number of turns, address."""
    groups = (
        ("Agent", "origin", facets.origins),
        ("Project", "project", facets.projects),
        ("Found in", "kind", facets.kinds),
        ("Time", "days", facets.periods),
    )
    more = "+" if facets.capped else ""
    choices = []
    for title, name, values in groups:
        lines = [
            (
                _text(name, str(value)),
                f"{number:,}{more}",
                with_query("/search", {**query, **filters._replace(**{name: str(value)}).named()}),
            )
            for value, number in values
        ]
        if lines and not filters.named().get(name):
            choices.append((title, lines))
    return choices


@get("/find/{target:str}", sync_to_thread=True)
def find_page(
    request: WebRequest, site: ThisSite, target: FromPath[str], q: FromQuery[str] = ""
) -> Response[str]:
    """Where a thread has a text. An open page of the thread steps through these links."""
    wanted = decode_part(target)
    with site.pages.snapshot():
        thread = site.ledger.thread(wanted, last=0)
        matches = site.ledger.find_in_thread(wanted, q)
    is_turn = thread.turn_id == wanted

    def find_url(match: ThreadMatch) -> str:
        anchor = part(step_anchor(match.turn_id, match.snippet))
        query = {
            "turn": match.turn_id,
            "upto": min(match.depth + 3, thread.depth),
            "mark": matches.words,
            "step": match.snippet.sequence,
            "find": q,
        }
        if is_turn:
            return f"{turn_url(match.turn_id, mark=matches.words, step=query['step'])}#{anchor}"
        return f"{with_query(session_url(wanted), query)}#{anchor}"

    return site.page(
        "find.html", request, title="Find in session", q=q, matches=matches, find_url=find_url
    )


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
    names = site.pages.session_names(hit.session_label for hit in result.hits if hit.session_label)
    return [
        (
            hit.query or hit.turn_type,
            match_url(hit.turn_id, hit.snippets[0], result.words)
            if hit.snippets
            else turn_url(hit.turn_id, mark=result.words),
            names[hit.session_label].name if hit.session_label in names else "",
        )
        for hit in result.hits
    ]


ROUTES = (search_page, find_page, palette)
