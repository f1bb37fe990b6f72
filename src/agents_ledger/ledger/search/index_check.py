"""Compares the word index with the turns it was made from."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from agents_ledger.ledger.search import tokenizer
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.model.reports.search import PARTS
from agents_ledger.store.database import Engine, Transaction
from agents_ledger.store.matching import QueryTerm, TermGroup, match
from agents_ledger.store.text import in_batches

_LETTERS = 400  # looked at, at each end of a text
_CHUNKS = 3  # tried, at each end
_CHUNK_MAX = 60


def wrong(tx: Transaction) -> Iterator[str]:
    """The turns that are in the index, but not found by the words they begin and end with."""
    numbers = {turn_id: number for number, turn_id in tx.run("indexed_turns")}
    for ids in in_batches(sorted(numbers, key=numbers.__getitem__)):
        having: dict[TermGroup, dict[int, str]] = {}
        for turn_id, document in documents(tx, ids).items():
            for group in _tried(document, tx.engine):
                having.setdefault(group, {})[numbers[turn_id]] = turn_id
        missing = {
            number: turns[number]
            for group, turns in having.items()
            for number in turns.keys() - _found(tx, group, min(turns), max(turns))
        }
        yield from missing.values()


def _found(tx: Transaction, group: TermGroup, first: int, last: int) -> set[int]:
    """Asked once for many turns: a common word of each by itself would be sought among all."""
    asked = match(tx.engine, [group], tokenizer.fold)
    return {number for (number,) in tx.run("search_numbers", match=asked, low=first, high=last + 1)}


def _tried(document: SearchDocument, engine: Engine) -> Iterator[TermGroup]:
    for part in PARTS:
        text = document.part(part)
        if not text:
            continue
        begins, ends = _chunks(text[:_LETTERS], text), _chunks(text[-_LETTERS:], text)
        for chunk in {*_plain(begins), *_plain(reversed(ends))}:
            said = (chunk,) if engine == "sqlite" else tuple(tokenizer.words(chunk))
            yield TermGroup((QueryTerm(said, (part,)),))


def _chunks(piece: str, text: str) -> list[str]:
    """What stands between spaces."""
    chunks = tokenizer.spaced(piece).split()
    return chunks[1:-1] if len(piece) < len(text) else chunks  # the outermost may be cut


def _plain(chunks: Iterable[str]) -> Iterator[str]:
    """The first few whose words the engines agree on."""
    plain = (
        each
        for each in chunks
        if len(each) <= _CHUNK_MAX and each.isascii() and any(map(str.isalnum, each))
    )
    return islice(plain, _CHUNKS)
