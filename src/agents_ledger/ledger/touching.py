"""Which turns read or wrote a file: touched, not merely mentioned."""

from __future__ import annotations

from agents_ledger.ledger.documents import Document, TouchedFile, documents, ids_of
from agents_ledger.ledger.search import Holders, Looking, Page, page_of
from agents_ledger.ledger.search_query import Asked, Narrowed
from agents_ledger.model.errors import Refused
from agents_ledger.model.search import Action, Touch, Touched
from agents_ledger.store.database import Transaction

LIMIT_MAX = 1000


def files(
    tx: Transaction, path: str, *, action: Action | None, limit: int, after: str | None
) -> Touched:
    """The turns that touched a file, newest first. A path that ends with a slash is a folder."""
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused(f"limit is {limit}; it is between 1 and {LIMIT_MAX}")
    wanted = _plain(path)
    name = wanted.rstrip("/").rpartition("/")[2]
    if not any(letter.isalnum() for letter in name):
        raise Refused(f"{path!r} names no file", "Give its name, or as much of its path as needed.")
    looking = Looking(tx, Asked([], [Narrowed("file", name)], []), "all")
    holders = Holders(tx)
    touches: list[Touch] = []
    turns = last = 0
    for candidate in looking.newest(page_of(after)):
        document = documents(tx, ids_of([candidate.turn_id]))[candidate.turn_id]
        found = [
            file
            for file in document.files
            if _is_meant(wanted, file, document) and action in (None, _action(file))
        ]
        if not found:
            continue
        if turns == limit:
            return Touched(tuple(touches), str(Page("all", last)))
        turns, last = turns + 1, candidate.number
        label, title, also_in = holders.of(document.turn_id)
        touches += [
            Touch(
                document.turn_id,
                file.path,
                _action(file),
                file.tool_name,
                label,
                title,
                also_in,
                document.started_at,
            )
            for file in found
        ]
    return Touched(tuple(touches))


def _action(file: TouchedFile) -> Action:
    return "written" if file.written else "read"


def _plain(path: str) -> str:
    plain = path.replace("\\", "/").casefold()
    while plain.startswith("./"):
        plain = plain[2:]
    return plain


def _is_meant(wanted: str, file: TouchedFile, document: Document) -> bool:
    """Whether the path asked for is the file's own, or the end of it; of a folder, any part."""
    own = _plain(file.path)
    if not own.startswith("/") and own[1:3] != ":/":
        own = f"{_plain(document.workspace_path or '').rstrip('/')}/{own}"
    if wanted.endswith("/"):
        return f"/{wanted.lstrip('/')}" in f"/{own.lstrip('/')}"
    return own == wanted or own.endswith(f"/{wanted.lstrip('/')}")
