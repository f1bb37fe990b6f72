"""Which turns read or wrote a file: touched, not merely mentioned."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import NamedTuple

from agents_ledger.ledger.search.documents import IndexedFile, SearchDocument, documents
from agents_ledger.ledger.search.query import Asked, Narrowed
from agents_ledger.ledger.search.turn_search import Candidate, Looking, page_of
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Action, Touch, Touched
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches

LIMIT_MAX = 1000
PATH_MAX = 4096


def files(
    tx: Transaction, path: str, *, action: Action | None, limit: int, after: str | None
) -> Touched:
    """The turns that touched a file, newest first. A path that ends with a slash is a folder."""
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused(f"limit is {limit}; it is between 1 and {LIMIT_MAX}")
    if len(path) > PATH_MAX:
        raise Refused(f"a path has at most {PATH_MAX:,} characters, not {len(path):,}")
    wanted = _plain(path)
    name = wanted.rstrip("/").rpartition("/")[2]
    if not any(letter.isalnum() for letter in name):
        raise Refused(f"{path!r} names no file", "Give its name, or as much of its path as needed.")
    looking = Looking(tx, Asked([], [Narrowed("file", name)], []), "all")
    candidates = looking.newest(page_of(after), limit + 1)
    found: list[_Found] = []
    while len(found) <= limit and (batch := list(islice(candidates, limit + 1))):
        found += _meant(tx, batch, wanted, action)
    held = holders(tx, [each.document.turn_id for each in found[:limit]])
    touches = [
        Touch(
            document.turn_id,
            file.path,
            _action(file),
            file.tool_name,
            *held[document.turn_id],
            document.started_at,
        )
        for _, document, touched in found[:limit]
        for file in touched
    ]
    goes_on = looking.goes_on(None if len(found) <= limit else found[limit - 1].number)
    return Touched(tuple(touches), None if goes_on is None else str(goes_on))


class _Found(NamedTuple):
    number: float
    document: SearchDocument
    files: list[IndexedFile]


def _meant(
    tx: Transaction, candidates: Sequence[Candidate], wanted: str, action: Action | None
) -> Iterator[_Found]:
    """Of turns that touched a file of that name, those that touched this one."""
    found: dict[str, SearchDocument] = {}
    for ids in in_batches([each.turn_id for each in candidates]):
        found |= documents(tx, ids)
    for candidate in candidates:
        document = found[candidate.turn_id]
        touched = [
            file
            for file in document.files
            if _is_meant(wanted, file, document) and action in (None, _action(file))
        ]
        if touched:
            yield _Found(candidate.number, document, touched)


def _action(file: IndexedFile) -> Action:
    return "written" if file.written else "read"


def _plain(path: str) -> str:
    plain = path.replace("\\", "/").casefold()
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def _is_meant(wanted: str, file: IndexedFile, document: SearchDocument) -> bool:
    """Whether the path asked for is the file's own, or the end of it; of a folder, any part."""
    own = _plain(file.path)
    if not own.startswith("/") and own[1:3] != ":/":
        own = f"{_plain(document.workspace_path or '').rstrip('/')}/{own}"
    if wanted.endswith("/"):
        return f"/{wanted.lstrip('/')}" in f"/{own.lstrip('/')}"
    return own == wanted or own.endswith(f"/{wanted.lstrip('/')}")
