"""Where the words of a search stand in a turn."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from agents_ledger.ledger.search import tokenizer
from agents_ledger.ledger.search.documents import IndexedPiece, SearchDocument
from agents_ledger.ledger.search.query import Asked, Term
from agents_ledger.model.reports.search import PARTS, Snippet

WIDTH = 160
BEFORE = 40  # letters shown before the first mark
ENOUGH = 2  # snippets, unless a third shows another word
SNIPPETS = 3


_SPACE = re.compile(r"\s")


class Finder:
    """Finds what was asked for, in text that is at hand."""

    def __init__(self, asked: Asked) -> None:
        self._parts = frozenset(asked.parts)
        self._sought = _phrases(asked.terms, negated=False)
        self._unwanted = _phrases(asked.terms, negated=True)

    def share(self, document: SearchDocument) -> float:
        """The part of the words that a turn has: 1.0 if all, or if there are none."""
        if not self._sought:
            return 1.0
        texts = [tokenizer.fold(piece.text) for piece in self._readable(document)]
        found = sum(any(map(sought.is_in, texts)) for sought in self._sought)
        return found / len(self._sought)

    def has_unwanted(self, document: SearchDocument) -> bool:
        """Whether a turn has a word that it may not have."""
        return any(
            unwanted.is_in(tokenizer.fold(piece.text))
            for piece in self._readable(document)
            for unwanted in self._unwanted
        )

    def _readable(self, document: SearchDocument) -> Iterator[IndexedPiece]:
        return (piece for piece in document.pieces if piece.part in self._parts)

    def marks(self, piece: IndexedPiece) -> dict[int, list[tuple[int, int]]]:
        """Where each of the words stands in a text, by the word's place in the search."""
        if piece.part not in self._parts:
            return {}
        folded = tokenizer.fold(piece.text)
        found = {}
        for number, sought in enumerate(self._sought):
            if sought.quick in folded:
                spans = list(sought.spans(folded))
                if spans:
                    found[number] = spans
        return found


def _phrases(terms: Sequence[Term], *, negated: bool) -> list[tokenizer.Phrase]:
    found = (
        tokenizer.phrase(term.text.rstrip("*") if term.prefix else term.text, prefix=term.prefix)
        for term in terms
        if term.negated is negated
    )
    return [phrase for phrase in found if phrase is not None]


def snippets(document: SearchDocument, finder: Finder) -> tuple[Snippet, ...]:
    """The pieces of a turn that show most of the words: what people said before what tools did."""
    found: list[tuple[int, int, IndexedPiece, dict[int, list[tuple[int, int]]]]] = []
    for at, piece in enumerate(document.pieces):
        marks = finder.marks(piece)
        if marks:
            found.append((PARTS.index(piece.part), at, piece, marks))
    found.sort(key=lambda each: (-len(each[3]), each[0], each[1]))
    shown: list[Snippet] = []
    seen: set[int] = set()
    for _, _, piece, marks in found:
        if len(shown) == SNIPPETS or (len(shown) == ENOUGH and set(marks) <= seen):
            break
        seen |= set(marks)
        shown.append(_snippet(piece, sorted(span for spans in marks.values() for span in spans)))
    return tuple(shown)


def _snippet(piece: IndexedPiece, spans: list[tuple[int, int]]) -> Snippet:
    """The stretch of a text that holds most marks, in one line."""
    first, last = spans[0] if len(spans) == 1 else _densest(spans)
    start = max(0, first - BEFORE)
    if start:
        space = piece.text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(len(piece.text), max(start + WIDTH, min(last, start + 2 * WIDTH)))
    text = _SPACE.sub(" ", piece.text[start:end])
    marks: list[tuple[int, int]] = []
    for span in spans:
        low, high = max(span[0], start) - start, min(span[1], end) - start
        if low < high and (not marks or low >= marks[-1][1]):
            marks.append((low, high))
    before, after = "…" if start else "", "…" if end < len(piece.text) else ""
    shifted = tuple((low + len(before), high + len(before)) for low, high in marks)
    return Snippet(piece.part, f"{before}{text}{after}", shifted, piece.tool_name)


def _densest(spans: list[tuple[int, int]]) -> tuple[int, int]:
    """The mark that most others follow closely."""
    best = max(
        range(len(spans)), key=lambda at: sum(_within(spans[at][0], s) for s in spans[at : at + 20])
    )
    return spans[best]


def _within(start: int, span: tuple[int, int]) -> bool:
    return span[1] <= start + WIDTH - BEFORE
