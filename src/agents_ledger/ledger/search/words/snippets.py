"""Finds the words of a search in the text of a turn, and cuts snippets around them."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Sequence

from agents_ledger.ledger.search.documents import IndexedPiece, SearchDocument
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.reports.search import PARTS, Snippet

WIDTH = 160
BEFORE = 40  # characters before the first mark
ENOUGH = 2  # snippets, unless a third shows another word
SNIPPETS = 3


_SPACE = re.compile(r"\s")
Marks = dict[int, list[tuple[int, int]]]  # spans by the number of their term


class PhraseFinder:
    """Finds the terms of a search without the index."""

    def __init__(
        self, query: SearchQuery, phrases: Sequence[tokenizer.Phrase] | None = None
    ) -> None:
        """`phrases`: the terms, if they are not to be found as they are written."""
        self._parts = frozenset(query.parts)
        self._phrases = _phrases(query.terms, negated=False) if phrases is None else phrases
        self._unwanted = _phrases(query.terms, negated=True)
        self.common = frozenset(
            number
            for number, phrase in enumerate(self._phrases)
            if tokenizer.COMMON.issuperset(tokenizer.words(phrase.text))
        )

    def share(self, document: SearchDocument) -> float:
        """The fraction of the terms that a turn has; 1.0 if there are no terms."""
        if not self._phrases:
            return 1.0
        return len(self.present(document)) / len(self._phrases)

    def present(self, document: SearchDocument) -> list[int]:
        """The numbers of the terms that a turn has."""
        texts = [tokenizer.fold(piece.text) for piece in self._readable(document)]
        phrases = enumerate(self._phrases)
        return [number for number, phrase in phrases if any(map(phrase.is_in, texts))]

    def has_unwanted(self, document: SearchDocument) -> bool:
        return any(
            unwanted.is_in(tokenizer.fold(piece.text))
            for piece in self._readable(document)
            for unwanted in self._unwanted
        )

    def _readable(self, document: SearchDocument) -> Iterator[IndexedPiece]:
        return (piece for piece in document.pieces if piece.part in self._parts)

    @property
    def words(self) -> tuple[str, ...]:
        """The terms that are worth marking: all of them only if all are common words."""
        texts = [phrase.text for phrase in self._phrases]
        rare = [text for number, text in enumerate(texts) if number not in self.common]
        return tuple(dict.fromkeys(rare or texts))

    def marks(self, piece: IndexedPiece) -> Marks:
        """The spans of each term in a piece of text, by the term's number in the search."""
        if piece.part not in self._parts:
            return {}
        folded = tokenizer.fold(piece.text)
        marks = {}
        for number, phrase in enumerate(self._phrases):
            if phrase.quick in folded:
                spans = list(phrase.spans(folded))
                if spans:
                    marks[number] = spans
        return marks


def _phrases(terms: Sequence[Term], *, negated: bool) -> list[tokenizer.Phrase]:
    phrases = (
        tokenizer.phrase(term.text.rstrip("*") if term.prefix else term.text, prefix=term.prefix)
        for term in terms
        if term.negated is negated
    )
    return [phrase for phrase in phrases if phrase is not None]


def snippets(document: SearchDocument, finder: PhraseFinder) -> tuple[Snippet, ...]:
    """The pieces of a turn that show most terms; of equal ones, messages before tool output.

    Common words count only if the search has no others; of the others, the rarest in the turn is
    shown first.
    """
    found = ((at, piece, finder.marks(piece)) for at, piece in enumerate(document.pieces))
    marked = [(at, piece, marks) for at, piece, marks in found if marks]
    counts: dict[int, int] = defaultdict(int)
    for _, _, marks in marked:
        for number, spans in marks.items():
            counts[number] += len(spans)
    worth = set(counts) - finder.common or set(counts)
    candidates: list[tuple[int, int, int, IndexedPiece, Marks]] = []
    for at, piece, all_marks in marked:
        marks = {number: spans for number, spans in all_marks.items() if number in worth}
        if marks:
            rank = PARTS.index(piece.part)
            candidates.append((min(counts[n] for n in marks), rank, at, piece, marks))
    candidates.sort(key=lambda candidate: (-len(candidate[4]), *candidate[:3]))
    chosen: list[Snippet] = []
    seen: set[int] = set()
    for *_, piece, marks in candidates:
        if len(chosen) == SNIPPETS or (len(chosen) == ENOUGH and set(marks) <= seen):
            break
        seen |= set(marks)
        rarest = min(marks, key=lambda number: counts[number])
        chosen.append(cut_snippet(piece, marks, rarest))
    return tuple(chosen)


def cut_snippet(piece: IndexedPiece, marks: Marks, shown: int) -> Snippet:
    """The part of a text with most marks around one of the term `shown`, as one line."""
    spans = sorted(span for spans in marks.values() for span in spans)
    first, last = spans[0] if len(spans) == 1 else _densest(spans, marks[shown])
    start = max(0, first - BEFORE)
    if start:
        space = piece.text.find(" ", start, first)
        start = space + 1 if space >= 0 else start
    end = min(len(piece.text), max(start + WIDTH, min(last, start + 2 * WIDTH)))
    text = _SPACE.sub(" ", piece.text[start:end])
    cuts: list[tuple[int, int]] = []
    for span in spans:
        low, high = max(span[0], start) - start, min(span[1], end) - start
        if low < high and (not cuts or low >= cuts[-1][1]):
            cuts.append((low, high))
    before, after = "…" if start else "", "…" if end < len(piece.text) else ""
    shifted = tuple((low + len(before), high + len(before)) for low, high in cuts)
    return Snippet(
        piece.part,
        f"{before}{text}{after}",
        shifted,
        piece.tool_name,
        piece.sequence,
        piece.message_id,
    )


def _densest(spans: list[tuple[int, int]], shown: list[tuple[int, int]]) -> tuple[int, int]:
    """The first of the marks that are close together, one of `shown` among them."""
    wanted = set(shown)

    def marks_after(at: int) -> tuple[bool, int]:
        # Only the next 20: a text may have thousands of marks, and a snippet shows few.
        near = [span for span in spans[at : at + 20] if _within(spans[at][0], span)]
        return not wanted.isdisjoint(near), len(near)

    return spans[max(range(len(spans)), key=marks_after)]


def _within(start: int, span: tuple[int, int]) -> bool:
    return span[1] <= start + WIDTH - BEFORE
