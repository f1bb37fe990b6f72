"""Files: which were touched, the changelog of each, and its versions."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from litestar import Response, get
from litestar.params import FromPath, FromQuery
from markupsafe import Markup

from agents_ledger.model.reports.file_history import ChangelogEntry
from agents_ledger.model.reports.pages import NamedSession
from agents_ledger.render import bodies
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import ThisSite

FILES_MAX = 200
TURNS_MAX = 40
DIFFS_CHARS_MAX = 60_000  # of a page; further diffs are on the pages of their versions
OPEN_DIFFS = 5
CONTENT_CHARS_MAX = 150_000


class ShownChange(NamedTuple):
    change: ChangelogEntry
    diff: Markup | None
    is_open: bool


class ChangesOfTurn(NamedTuple):
    """The changes of one turn, with who made them and on which prompt."""

    turn_id: str
    label: str | None
    holder: NamedSession | None
    also_in: int
    prompt: str | None
    at: int
    changes: list[ShownChange]


@get("/files", sync_to_thread=True)
def files_page(request: WebRequest, site: ThisSite, q: FromQuery[str] = "") -> Response[str]:
    files = site.pages.recent_files(text=q or None, limit=FILES_MAX)
    return site.page("files.html", request, title="Files", files=files, q=q)


@get("/files/{path:str}", sync_to_thread=True)
def file_page(
    request: WebRequest,
    site: ThisSite,
    path: FromPath[str],
    after: FromQuery[str] = "",
    reads: FromQuery[bool] = False,
) -> Response[str]:
    file_path = decode_part(path)
    history = site.pages.file_history(file_path, limit=TURNS_MAX, after=after or None, reads=reads)
    labels = {change.session_label for change in history.changes if change.session_label}
    holders = site.pages.session_names(labels)
    return site.page(
        "file.html",
        request,
        title=file_path,
        file_path=file_path,
        history=history,
        after=after,
        reads=reads,
        changes=sum(change.action == "written" for change in history.changes),
        agents={holder.session.origin or "native" for holder in holders.values()},
        groups=list(_by_turn(_shown(history.changes), holders)),
    )


def _shown(changes: Iterable[ChangelogEntry]) -> Iterator[ShownChange]:
    """Changes with their diffs, as long as these fit on the page; the latest are open."""
    chars = shown = 0
    for change in changes:
        chars += len(change.diff or "")
        diff = bodies.patch(change.diff) if change.diff and chars <= DIFFS_CHARS_MAX else None
        shown += diff is not None
        yield ShownChange(change, diff, is_open=shown <= OPEN_DIFFS)


def _by_turn(
    changes: Iterable[ShownChange], holders: Mapping[str, NamedSession]
) -> Iterator[ChangesOfTurn]:
    for turn_id, group in groupby(changes, key=lambda shown: shown.change.turn_id):
        shown = list(group)
        first = shown[0].change
        yield ChangesOfTurn(
            turn_id,
            first.session_label,
            holders.get(first.session_label or ""),
            first.also_in,
            first.prompt,
            first.at,
            shown,
        )


@get("/files/{path:str}/{turn_id:str}/{call_id:str}", sync_to_thread=True)
def file_version_page(
    request: WebRequest,
    site: ThisSite,
    path: FromPath[str],
    turn_id: FromPath[str],
    call_id: FromPath[str],
) -> Response[str]:
    """A file as a call left it."""
    file_path = decode_part(path)
    version = site.pages.file_version(file_path, decode_part(turn_id), decode_part(call_id))
    content, diff = version.content, version.change.diff
    return site.page(
        "file_version.html",
        request,
        title=file_path,
        file_path=file_path,
        version=version,
        diff=bodies.patch(diff[:DIFFS_CHARS_MAX]) if diff else None,
        content=None if content is None else bodies.text_block(content, CONTENT_CHARS_MAX),
    )


ROUTES = (files_page, file_page, file_version_page)
