"""Two branches side by side."""

from __future__ import annotations

from typing import Any, NamedTuple

from litestar import Response, get
from litestar.params import FromQuery
from markupsafe import Markup

from agents_ledger.model.reports.comparison import Branch, WrittenFile
from agents_ledger.model.sessions import Session
from agents_ledger.render import bodies
from agents_ledger.web.pages.tree import heads_of, rail
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.site import Site, ThisSite

SUGGESTIONS = 50


class Candidate(NamedTuple):
    """A session to choose, with its last prompt."""

    session: Session
    name: str
    prompt: str | None


class ComparedSide(NamedTuple):
    """One of the two threads, with its last prompt if it is a session's."""

    name: str
    target: str
    prompt: str | None
    branch: Branch


class FileDiffs(NamedTuple):
    """A file that a branch wrote: the diff of both branches, or the edits of each."""

    file: WrittenFile
    diff: Markup | None
    sides: tuple[tuple[str, list[Markup]], ...]


@get("/compare", sync_to_thread=True)
def compare_page(
    request: WebRequest, site: ThisSite, a: FromQuery[str] = "", b: FromQuery[str] = ""
) -> Response[str]:
    if not a or not b:
        return site.page("compare_form.html", request, title="Compare", **_choices(site, a or b))
    comparison = site.ledger.compare(a, b)
    both = set(comparison.files_in_both)
    names = site.pages.session_names([a, b])
    turns = site.ledger.headlines([comparison.a.turn_id, comparison.b.turn_id])
    return site.page(
        "compare.html",
        request,
        title="Compare",
        compared=comparison,
        written=[_diffs(file) for file in _written_files(site, a, b)],
        sides=tuple(
            ComparedSide(
                names[target].name if target in names else line.text or target,
                target,
                line.text if target in names else None,
                side,
            )
            for target, line, side in zip((a, b), turns, (comparison.a, comparison.b), strict=True)
        ),
        both=sorted(both),
        only=tuple(
            [file for file in side.files if file.file_path not in both]
            for side in (comparison.a, comparison.b)
        ),
    )


def _choices(site: Site, a: str) -> dict[str, Any]:
    """The sessions that one session or turn can be compared with; or, without it, all."""
    with site.pages.snapshot():
        heads = heads_of(rail(site, site.ledger.thread(a, last=0))) if a else []
        names = site.pages.session_names([a, *(head.session.label for head in heads)])
        lines = site.pages.session_lines(limit=SUGGESTIONS)
    branches = {
        head.session.label: Candidate(head.session, names[head.session.label].name, head.prompt)
        for head in heads
        if head.session.label != a
    }
    return dict(
        a=a,
        name=names[a].name if a in names else a,
        branches=tuple(branches.values()),
        latest=[
            Candidate(line.session, line.name, line.last_prompt)
            for line in lines
            if line.depth and line.session.label not in (a, *branches)
        ],
    )


def _written_files(site: Site, a: str, b: str) -> list[WrittenFile]:
    """Files with a diff first, then those that are equal, then those without final content."""
    files = site.ledger.compare_files(a, b)
    return sorted(files, key=lambda file: (file.diff is None, not file.diff))


def _diffs(file: WrittenFile) -> FileDiffs:
    if file.diff is not None:
        return FileDiffs(file, bodies.patch(file.diff) if file.diff else None, ())
    sides = tuple(
        (name, [bodies.diff(change.old, change.new) for change in changes])
        for name, changes in (("A", file.a), ("B", file.b))
    )
    return FileDiffs(file, None, sides)


ROUTES = (compare_page,)
