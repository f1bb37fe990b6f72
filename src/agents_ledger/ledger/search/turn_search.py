"""Search: turns by their words, newest first or the most relevant first.

It asks the index and what still waits for it, in one snapshot, and never writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from msgspec.structs import replace

from agents_ledger.ledger.reports.events import readable
from agents_ledger.ledger.search import query as search_query
from agents_ledger.ledger.search import tokenizer
from agents_ledger.ledger.search.documents import Document, documents, project_of
from agents_ledger.ledger.search.index import NUMBERS, first_number
from agents_ledger.ledger.search.query import Asked, Narrowed, Term
from agents_ledger.ledger.search.snippets import Finder, snippets
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.sessions.lookup import Holder, holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Found, Hit, Ranking
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import QueryTerm, TermGroup, match
from agents_ledger.store.text import ids_of, in_batches

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

LAST = 1 << 62  # above every number
LIMIT_MAX = 1000
LOOK_MAX = 50_000  # turns of the index looked at for one page
RANK_MAX = 5_000  # the newest turns with the words are ranked, no more
QUERY_MAX = 200
FIRST_LETTERS = 20_000  # of a message are looked at for its first words
WAITS_AT_ONCE = 50
WAITS_MAX = 10_000  # turns that wait for the index looked at for one page
WAITS_LETTERS = 20_000_000
WAITS_KEPT = 600  # if more wait, their texts are not remembered: they would push out all else
FIRST_LOOK = 64  # turns asked for at first, where some will not fit

Mode = Literal["all", "any"]
_MODES: dict[str, Mode] = {"all": "all", "any": "any"}
Segments = dict[int, int]  # the segments of some threads, each with how far down


class Candidate(NamedTuple):
    """A turn that has the words, before it is narrowed further. Its number is that of the index, so
    no two have the same; those that wait stand half a number above."""

    number: float
    turn_id: str
    segment_id: int
    depth: int
    score: float = 0.0


class Page(NamedTuple):
    """Where a page begins."""

    mode: Mode
    number: float = LAST
    score: float = math.inf

    def __str__(self) -> str:
        return f"{self.mode}:{self.number}:{self.score}"

    def below(self, candidate: Candidate) -> bool:
        """Whether a ranked candidate comes after what earlier pages showed."""
        return (candidate.score, candidate.number) < (self.score, self.number)


def search(
    tx: Transaction,
    text: str,
    *,
    limit: int,
    order: Ranking,
    after: str | None,
    now_ms: int,
    embedder: Embedder | None = None,
) -> Found:
    """The turns that have the words of `text`; if none has all, those that have some. By meaning,
    also those that say it in other words."""
    if not 1 <= limit <= LIMIT_MAX:
        raise Refused(f"limit is {limit}; it is between 1 and {LIMIT_MAX}")
    if order not in ("newest", "relevance", "meaning"):
        raise Refused(f"order is {order!r}; it is newest, relevance or meaning")
    page = page_of(after)
    if order == "meaning":
        if embedder is None:
            raise Refused("searching by meaning needs an embedder", "Pass one, or choose one.")
        looking = Looking(tx, search_query.parse(text, now_ms), "any")
        return looking.found(page._replace(mode="any"), limit, order, embedder)
    looking = Looking(tx, search_query.parse(text, now_ms), page.mode)
    found = looking.found(page, limit, order)
    if not found.hits and found.next is None and after is None and looking.has_choice:
        looking = Looking(tx, looking.asked, "any")
        found = looking.found(Page("any"), limit, order)
    return found


def page_of(after: str | None) -> Page:
    """Where a page begins that comes after another."""
    if after is None:
        return Page("all")
    with suppress(ValueError, KeyError):
        mode, number, score = after.split(":")
        page = Page(_MODES[mode], float(number), float(score))
        if abs(page.number) <= LAST and not math.isnan(page.score):
            return page
    raise Refused(f"{after[:80]!r} is no place to go on from", "Pass a page's `next`.")


class Looking:
    """One search, in one of its modes."""

    def __init__(self, tx: Transaction, asked: Asked, mode: Mode) -> None:
        self.asked = asked
        self._tx = tx
        self._mode = mode
        self._finder = Finder(asked)
        self.has_choice = len(_plain(asked)) > 1
        self._match = match(tx.engine, _groups(asked, mode), tokenizer.fold)
        self._scopes = [self._scope(scope) for scope in asked.scopes]
        self._is_narrowed = bool(self._scopes) or asked.fork is not None
        self.capped = False
        self._reached: float = -LAST
        self._final: set[str] = set()  # turns that wait and never change again

    def _scope(self, scope: Narrowed) -> tuple[Narrowed, Segments]:
        by: dict[str, str | None] = {"label": None, "origin": None, "persona_id": None}
        if scope.of == "session":
            by["label"] = heads.get(self._tx, scope.value).label
        elif scope.of == "origin":
            by["origin"] = scope.value.lower()
        else:
            by["persona_id"] = scope.value
        return scope, dict(self._tx.run("search_scope", **by))

    # -- candidates ----------------------------------------------------------------------------

    def found(
        self, page: Page, limit: int, order: Ranking, embedder: Embedder | None = None
    ) -> Found:
        """A page of hits."""
        if embedder is not None:
            candidates = self._by_meaning(page, embedder)
        else:
            first = FIRST_LOOK if self._is_narrowed else limit + 1
            candidates = self.newest(page, first) if order == "newest" else self.ranked(page)
        hits: list[Candidate] = []
        more = False
        for each in candidates:
            if not self._fits(each):
                continue
            if len(hits) == limit:
                more = True
                break
            hits.append(each)
        goes_on = None
        if order == "newest":
            goes_on = self.goes_on(hits[-1].number if more else None)
        elif more:
            goes_on = Page(self._mode, hits[-1].number, hits[-1].score)
        return Found(
            self._hits(hits, ranked=order != "newest"),
            self._mode,
            None if goes_on is None else str(goes_on),
            self.capped,
        )

    def goes_on(self, last: float | None) -> Page | None:
        """Where the next page begins, newest first; `last`: the last number shown, if there are
        more."""
        if last is None and not self.capped:
            return None
        return Page(self._mode, self._reached if last is None else last)

    def _range(self) -> tuple[int, int]:
        asked = self.asked
        low = -LAST if asked.from_ms is None else first_number(asked.from_ms)
        high = LAST if asked.until_ms is None else first_number(asked.until_ms)
        return low, high

    def newest(self, page: Page, first: int) -> Iterator[Candidate]:
        """What the index has and what waits, as one row of numbers; `first`: how many to ask the
        index for, to begin with."""
        low, high = self._range()
        waits = self._waits(-LAST, page.number)
        wait = next(waits, None)
        for indexed in self._indexed(low, min(high, math.ceil(page.number)), first):
            while wait is not None and wait.number > indexed.number:
                yield wait
                wait = next(waits, None)
            if indexed.number < self._reached:
                return
            yield indexed
        while wait is not None and not self.capped:
            yield wait
            wait = next(waits, None)

    def _indexed(self, low: int, high: int, size: int) -> Iterator[Candidate]:
        looked = 0
        while True:
            rows = self._tx.run("search_newest", match=self._match, low=low, high=high, limit=size)
            for row in rows:
                yield Candidate(*row)
            looked += len(rows)
            if len(rows) < size:
                return
            if looked >= LOOK_MAX:
                self._stop(rows[-1][0])
                return
            high, size = rows[-1][0], min(size * 4, 4096)

    def ranked(self, page: Page) -> Iterator[Candidate]:
        """The newest of those that have the words, the most relevant first."""
        low, high = self._range()
        values = {"match": self._match, "high": high}
        cut = self._tx.run("search_cutoff", **values, low=low, count=RANK_MAX)
        if cut:
            self._stop(cut[0][0] + 1)
        waits = list(self._waits(self._reached, LAST))
        low = max(low, math.ceil(self._reached))
        rows = self._tx.run("search_ranked", **values, low=low, limit=RANK_MAX)
        ranked = [Candidate(*row) for row in rows]
        if waits:
            typical = ranked[len(ranked) // 2].score if ranked else 1.0
            ranked += [each._replace(score=typical * each.score) for each in waits]
            ranked.sort(key=lambda each: (each.score, each.number), reverse=True)
        return (each for each in ranked if page.below(each))

    def _by_meaning(self, page: Page, embedder: Embedder) -> Iterator[Candidate]:
        """What the words find and what the meaning finds, as one ranking."""
        from agents_ledger.ledger.search import vectors

        low, high = self._range()
        said = " ".join(term.text for term in self.asked.terms if not term.negated)
        near = vectors.nearest(self._tx, embedder, said, low=low, high=high) if said else []
        ranked = vectors.fused(self._by_telling_words(), list(self._narrowed(near)))
        return (each for each in ranked if page.below(each))

    def _by_telling_words(self) -> list[Candidate]:
        """What the words find that are not in every text: those would outweigh the meaning."""
        from agents_ledger.ledger.search import vectors

        terms = [term for term in self.asked.terms if term.negated or not _is_common(term.text)]
        if all(term.negated for term in terms):
            return []
        looking = Looking(self._tx, replace(self.asked, terms=terms), "any")
        found = list(islice(looking.ranked(Page("any")), vectors.NEAREST))
        self.capped = looking.capped
        return found

    def _narrowed(self, near: Sequence[Candidate]) -> Iterator[Candidate]:
        """Those found by meaning alone that have what else was asked for."""
        if not self.asked.facets and not any(term.negated for term in self.asked.terms):
            yield from near
            return
        for ids in in_batches([each.turn_id for each in near]):
            found = documents(self._tx, ids)
            yield from (
                each
                for each in near
                if each.turn_id in found and self._is_meant(found[each.turn_id])
            )

    def _waits(self, low: float, high: float) -> Iterator[Candidate]:
        """Turns that wait for the index and have the words, newest first."""
        for each, document in self.waiting(low, high):
            share = self._share(document)
            if share:
                yield each._replace(score=share)

    def waiting(self, low: float, high: float) -> Iterator[tuple[Candidate, Document]]:
        """Turns that wait for the index, newest first. It stops after so many that one page takes
        its time, and no more."""
        waiting = list(self._numbered(low, high))
        letters = 0
        for at in range(0, len(waiting), WAITS_AT_ONCE):
            batch = waiting[at : at + WAITS_AT_ONCE]
            if at >= WAITS_MAX or letters > WAITS_LETTERS:
                self._stop(batch[0].number + 0.5)
                return
            found = self._documents(batch, keep=len(waiting) <= WAITS_KEPT)
            letters += sum(document.letters for document in found.values())
            yield from ((each, found[each.turn_id]) for each in batch)

    def _documents(self, batch: Sequence[Candidate], *, keep: bool) -> dict[str, Document]:
        """The texts of turns that wait; those of sealed turns are read only once."""
        known = self._tx.cache
        if known is None or not keep:
            return documents(self._tx, ids_of([each.turn_id for each in batch]))
        found: dict[str, Document] = {}
        for each in batch:
            document = known.get(f"document {each.turn_id}")
            if document is not None:
                found[each.turn_id] = document
        missing = [each.turn_id for each in batch if each.turn_id not in found]
        if missing:
            for turn_id, document in documents(self._tx, ids_of(missing)).items():
                found[turn_id] = document
                if turn_id in self._final:
                    known.keep(f"document {turn_id}", document, document.letters)
        return found

    def _numbered(self, low: float, high: float) -> Iterator[Candidate]:
        """What waits, each above the numbers that the index has for its time, and below the last
        one."""
        asked = self.asked
        from_ms = -LAST if asked.from_ms is None else asked.from_ms
        until_ms = LAST if asked.until_ms is None else asked.until_ms
        number: float = LAST
        for turn_id, started_at, segment_id, depth, is_final in self._tx.run("unindexed"):
            if is_final:
                self._final.add(turn_id)
            number = min(number - 1, first_number(started_at) + NUMBERS - 0.5)
            if low <= number < high and from_ms <= started_at < until_ms:
                yield Candidate(number, turn_id, segment_id, depth)

    def _share(self, document: Document) -> float:
        """The part of the words that a turn has; 0: it has too few, or is not meant."""
        if not self._is_meant(document):
            return 0.0
        share = self._finder.share(document)
        return share if self._mode == "any" or share == 1.0 else 0.0

    def _stop(self, number: float) -> None:
        """Look no further on this page than down to a number."""
        self.capped, self._reached = True, number

    def _is_meant(self, document: Document) -> bool:
        return _has_facets(document, self.asked.facets) and not self._finder.has_unwanted(document)

    def _fits(self, candidate: Candidate) -> bool:
        by_kind: dict[str, bool] = {}
        for scope, segments in self._scopes:
            held = segments.get(candidate.segment_id, 0) >= candidate.depth
            if scope.negated:
                if held:
                    return False
            else:
                by_kind[scope.of] = by_kind.get(scope.of, False) or held
        if not all(by_kind.values()):
            return False
        if self.asked.fork is None:
            return True
        forks = bool(self._tx.run("turn_forks", turn_id=candidate.turn_id)[0][0])
        return forks is self.asked.fork

    # -- hits ----------------------------------------------------------------------------------

    def _hits(self, candidates: Sequence[Candidate], *, ranked: bool) -> tuple[Hit, ...]:
        turn_ids = [each.turn_id for each in candidates]
        found: dict[str, Document] = {}
        for ids in in_batches(turn_ids):
            found |= documents(self._tx, ids)
        held = holders(self._tx, turn_ids)
        return tuple(
            self._hit(each, found[each.turn_id], held[each.turn_id], ranked=ranked)
            for each in candidates
        )

    def _hit(
        self, candidate: Candidate, document: Document, holder: Holder, *, ranked: bool
    ) -> Hit:
        return Hit(
            document.turn_id,
            *holder,
            candidate.depth,
            document.started_at,
            document.turn_type,
            document.status,
            document.model,
            document.workspace_path,
            first_words(document),
            snippets(document, self._finder),
            candidate.score if ranked else None,
        )


def first_words(document: Document) -> str | None:
    """How the first message of a turn begins, without what a harness put before it."""
    texts = (piece.text for piece in document.pieces if piece.part in ("user", "assistant"))
    said = (readable(text[:FIRST_LETTERS]) for text in texts)
    text = next((each for each in said if each), None)
    return None if text is None else " ".join(text[: 2 * QUERY_MAX].split())[:QUERY_MAX]


# -- what to look for -------------------------------------------------------------------------


def _is_common(text: str) -> bool:
    return tokenizer.COMMON.issuperset(tokenizer.words(text))


def _wanted(term: Term, asked: Asked) -> list[QueryTerm]:
    said = tuple(tokenizer.asked(term.text))
    if not said:
        return []
    prefix = term.prefix or tokenizer.is_letter(said[-1])
    return [QueryTerm(said, asked.parts, prefix)]


def _plain(asked: Asked) -> list[QueryTerm]:
    return [each for term in asked.terms if not term.negated for each in _wanted(term, asked)]


def _groups(asked: Asked, mode: Mode) -> list[TermGroup]:
    """Each group must be found; words are one group if any of them will do."""
    groups: list[TermGroup] = []
    plain = _plain(asked)
    if mode == "any" and plain:
        groups.append(TermGroup(tuple(plain)))
    else:
        groups += [TermGroup((wanted,)) for wanted in plain]
    for negated in (False, True):
        groups += _facet_groups([f for f in asked.facets if f.negated is negated], negated)
    groups += [
        TermGroup((wanted,), negated=True)
        for term in asked.terms
        if term.negated
        for wanted in _wanted(term, asked)
    ]
    if all(group.negated for group in groups):
        groups.insert(0, TermGroup((QueryTerm(("turn",), ("state",)),)))
    return groups


def _facet_groups(facets: Iterable[Narrowed], negated: bool) -> list[TermGroup]:
    by_kind: dict[str, list[QueryTerm]] = {}
    for facet in facets:
        said = tuple(tokenizer.asked(_facet_text(facet)))
        if not said:
            raise Refused(
                f"{facet.of}:{facet.value} has no word to look for",
                f"Give {facet.of}: a value with letters or digits.",
            )
        prefix = facet.value.endswith("*") or tokenizer.is_letter(said[-1])
        by_kind.setdefault(facet.of, []).append(QueryTerm(said, (facet.of,), prefix))
    return [TermGroup(tuple(wanted), negated) for wanted in by_kind.values()]


def _facet_text(facet: Narrowed) -> str:
    return project_of(facet.value) if facet.of == "project" else facet.value


def _has_facets(document: Document, facets: Sequence[Narrowed]) -> bool:
    """The same for a turn that waits."""
    if not facets:
        return True
    columns = document.texts()
    fits: dict[str, bool] = {}
    for facet in facets:
        phrase = tokenizer.phrase(_facet_text(facet).rstrip("*"), prefix=facet.value.endswith("*"))
        has = phrase is not None and phrase.is_in(tokenizer.fold(columns[facet.of]))
        if facet.negated:
            if has:
                return False
        else:
            fits[facet.of] = fits.get(facet.of, False) or has
    return all(fits.values())
