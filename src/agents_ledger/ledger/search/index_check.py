"""Compares the word index with the turns it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.reports.search import PARTS
from agents_ledger.store.database import Engine, Transaction
from agents_ledger.store.matching import QueryTerm, TermGroup, match
from agents_ledger.store.text import in_batches, stored_json

_CHARS = 400  # checked at each end of a text
_CHUNKS = 3  # checked at each end
_CHUNK_MAX = 60


def wrong(tx: Transaction) -> Iterator[str]:
    """The indexed turns that are not found by their first and last words."""
    numbers = {turn_id: number for number, turn_id in tx.run("indexed_turns")}
    for ids in in_batches(sorted(numbers, key=numbers.__getitem__)):
        having: dict[TermGroup, dict[int, str]] = {}
        for turn_id, document in documents(tx, ids).items():
            for group in _tried(document, tx.engine):
                having.setdefault(group, {})[numbers[turn_id]] = turn_id
        missing = list(having.values())
        for place, number in tx.run("search_each", matches=_matches(tx.engine, having)):
            missing[place].pop(number, None)
        yield from {turn_id for turns in missing for turn_id in turns.values()}


def _matches(engine: Engine, having: Mapping[TermGroup, Mapping[int, str]]) -> str | None:
    """One query for all: on a server it takes one round trip. Each has a range of its own, as
    otherwise a common word would be found in all turns."""
    return stored_json(
        [
            {
                "match": match(engine, [group], tokenizer.fold),
                "low": min(turns),
                "high": max(turns) + 1,
            }
            for group, turns in having.items()
        ]
    )


def _tried(document: SearchDocument, engine: Engine) -> Iterator[TermGroup]:
    for part in PARTS:
        text = document.part(part)
        if not text:
            continue
        begins, ends = _chunks(text[:_CHARS], text), _chunks(text[-_CHARS:], text)
        for chunk in {*_plain(begins), *_plain(reversed(ends))}:
            words = (chunk,) if engine == "sqlite" else tuple(tokenizer.words(chunk))
            yield TermGroup((QueryTerm(words, (part,)),))


def _chunks(piece: str, text: str) -> list[str]:
    chunks = tokenizer.spaced(piece).split()
    return chunks[1:-1] if len(piece) < len(text) else chunks  # the outermost may be cut


def _plain(chunks: Iterable[str]) -> Iterator[str]:
    """The first chunks that both engines split into the same words."""
    plain = (
        chunk
        for chunk in chunks
        if len(chunk) <= _CHUNK_MAX and chunk.isascii() and any(map(str.isalnum, chunk))
    )
    return islice(plain, _CHUNKS)
