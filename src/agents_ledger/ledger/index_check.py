"""Compares the word index with the turns it was made from."""

from __future__ import annotations

from collections.abc import Iterator

from agents_ledger.ledger import words
from agents_ledger.ledger.documents import Document, documents
from agents_ledger.model.search import PARTS
from agents_ledger.store.database import Engine, Transaction
from agents_ledger.store.matching import Group, Wanted, match
from agents_ledger.store.text import in_batches

_LETTERS = 400  # looked at, at each end of a text
_CHUNKS = 3  # tried, at each end
_CHUNK_MAX = 60


def wrong(tx: Transaction) -> Iterator[str]:
    """The turns that are in the index, but not found by the words they begin and end with."""
    numbers = {turn_id: number for number, turn_id in tx.run("indexed_turns")}
    for ids in in_batches(list(numbers)):
        for turn_id, document in documents(tx, ids).items():
            groups = list(_tried(document, tx.engine))
            if groups and not _found(tx, numbers[turn_id], groups):
                yield turn_id


def _found(tx: Transaction, number: int, groups: list[Group]) -> bool:
    asked = match(tx.engine, groups, words.fold)
    return bool(tx.run("search_cutoff", match=asked, low=number, high=number + 1, count=0))


def _tried(document: Document, engine: Engine) -> Iterator[Group]:
    for part in PARTS:
        text = document.part(part)
        if not text:
            continue
        for chunk in {*_chunks(text[:_LETTERS], text)[:_CHUNKS], *_chunks(text, text)[-_CHUNKS:]}:
            said = (chunk,) if engine == "sqlite" else tuple(words.words(chunk))
            yield Group((Wanted(said, (part,)),))


def _chunks(piece: str, text: str) -> list[str]:
    """What stands between spaces, where it is plain: the engines agree on its words."""
    piece = piece[-_LETTERS:]
    chunks = words.spaced(piece).split()
    if len(piece) < len(text):  # the outermost may be cut
        chunks = chunks[1:-1]
    return [each for each in chunks if len(each) <= _CHUNK_MAX and _is_plain(each)]


def _is_plain(chunk: str) -> bool:
    return chunk.isascii() and any(letter.isalnum() for letter in chunk)
