"""Two branches side by side."""

from __future__ import annotations

from typing import NamedTuple

from litestar import Response, get
from litestar.params import FromQuery
from markupsafe import Markup

from agents_ledger.model.reports.comparison import WrittenFile
from agents_ledger.render import bodies
from agents_ledger.web.requests import WebRequest
from agents_ledger.web.site import Site, ThisSite

SUGGESTIONS = 50


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
        lines = site.pages.session_lines(limit=SUGGESTIONS)
        return site.page("compare_form.html", request, title="Compare", a=a, b=b, lines=lines)
    comparison = site.ledger.compare(a, b)
    both = set(comparison.files_in_both)
    return site.page(
        "compare.html",
        request,
        title="Compare",
        compared=comparison,
        written=[_diffs(file) for file in _written_files(site, a, b)],
        sides=((a, comparison.a), (b, comparison.b)),
        both=sorted(both),
        only=tuple(
            [file for file in side.files if file.file_path not in both]
            for side in (comparison.a, comparison.b)
        ),
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
