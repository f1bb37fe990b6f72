"""Which turns read or wrote a file, as opposed to mentioning it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from agents_ledger.ledger.search.documents import IndexedFile, SearchDocument, documents
from agents_ledger.ledger.search.query import Narrowed, SearchQuery
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import SearchRun, page_of
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Action, Touch, Touched
from agents_ledger.model.turns import check_limit, check_text
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches

LIMIT_MAX = 1000
PATH_MAX = 4096


def files(
    tx: Transaction,
    path: str,
    *,
    action: Action | None,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> Touched:
    """The turns that touched a file, newest first. A path that ends with a slash is a folder."""
    check_limit(limit, LIMIT_MAX)
    check_text(path, "a path")
    if len(path) > PATH_MAX:
        raise Refused(f"a path has at most {PATH_MAX:,} characters, not {len(path):,}")
    wanted = _plain(path)
    name = wanted.rstrip("/").rpartition("/")[2]
    if not any(char.isalnum() for char in name):
        raise Refused(f"{path!r} is not a file name", "Pass its name, or the end of its path.")
    query = SearchQuery([], [Narrowed("file", name)], [], from_ms=since, until_ms=until)
    run = SearchRun(tx, query, "all")
    candidates = run.newest(page_of(after), limit + 1)
    turns: list[_TouchingTurn] = []
    while len(turns) <= limit and (batch := list(islice(candidates, limit + 1))):
        turns += _touching(tx, batch, wanted, action)
    holder_of = holders(tx, [turn.document.turn_id for turn in turns[:limit]])
    touches = [
        Touch(
            document.turn_id,
            file.path,
            _action(file),
            file.tool_name,
            *holder_of[document.turn_id],
            document.started_at,
        )
        for _, document, touched in turns[:limit]
        for file in touched
    ]
    next_page = run.next_page(None if len(turns) <= limit else turns[limit - 1].number)
    return Touched(tuple(touches), None if next_page is None else str(next_page))


class _TouchingTurn(NamedTuple):
    number: float
    document: SearchDocument
    files: list[IndexedFile]


def _touching(
    tx: Transaction, candidates: Sequence[Candidate], wanted: str, action: Action | None
) -> Iterator[_TouchingTurn]:
    """Of turns that touched a file of that name, those that touched this one."""
    by_id: dict[str, SearchDocument] = {}
    for ids in in_batches([candidate.turn_id for candidate in candidates]):
        by_id |= documents(tx, ids)
    for candidate in candidates:
        document = by_id[candidate.turn_id]
        touched = [
            file
            for file in document.files
            if _is_same(wanted, file, document) and action in (None, _action(file))
        ]
        if touched:
            yield _TouchingTurn(candidate.number, document, touched)


def _action(file: IndexedFile) -> Action:
    return "written" if file.written else "read"


def _plain(path: str) -> str:
    plain = path.replace("\\", "/").casefold()
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def _is_same(wanted: str, file: IndexedFile, document: SearchDocument) -> bool:
    """Whether a path is the file's, or its last components; for a folder, any components."""
    own = _plain(file.path)
    if not own.startswith("/") and own[1:3] != ":/":
        own = f"{_plain(document.workspace_path or '').rstrip('/')}/{own}"
    if wanted.endswith("/"):
        return f"/{wanted.lstrip('/')}" in f"/{own.lstrip('/')}"
    return own == wanted or own.endswith(f"/{wanted.lstrip('/')}")
