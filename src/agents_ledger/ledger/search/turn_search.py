"""Search: turns by their words, newest first or most relevant first.

A search reads the index and the turns that wait to be indexed in one snapshot, and never writes.
How much a word counts in each part of a turn: PART_WEIGHTS in model/reports/search.py.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from msgspec.structs import replace

from agents_ledger.ledger.reports.events import readable
from agents_ledger.ledger.search import query as search_query
from agents_ledger.ledger.search import ranking
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.index import NUMBERS, first_number
from agents_ledger.ledger.search.query import Narrowed, SearchQuery
from agents_ledger.ledger.search.ranking import Candidate, WordMatches
from agents_ledger.ledger.search.words import questions, tokenizer
from agents_ledger.ledger.search.words.questions import RANK_MAX, is_common, is_question
from agents_ledger.ledger.search.words.snippets import PhraseFinder, snippets
from agents_ledger.ledger.search.words.term_groups import Mode, has_facets, plain_terms, term_groups
from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.sessions.deleted import hidden
from agents_ledger.ledger.sessions.lookup import Holder, holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.search import Found, Hit, Ranking
from agents_ledger.model.text import question_times
from agents_ledger.model.turns import check_limit
from agents_ledger.store.database import Transaction
from agents_ledger.store.matching import match
from agents_ledger.store.text import ids_of, in_batches

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

LAST = 1 << 62  # larger than every number
LIMIT_MAX = 1000
LOOK_MAX = 50_000  # indexed turns read for one page
QUERY_MAX = 200
FIRST_CHARS = 20_000  # of a message that are read for its first words
# If more turns wait, their texts are not cached: they would evict everything else.
WAITS_KEPT = 600
FIRST_LOOK = 64  # turns read first, if operators may exclude some

TURNS_COUNTED = 20_000  # a word's rarity is relative to at most so many
_MODES: dict[str, Mode] = {"all": "all", "any": "any"}
# Segments of threads, each with the depth it is shared down to.
Segments = dict[int, int]


class PageStart(NamedTuple):
    mode: Mode
    number: float = LAST
    score: float = math.inf
    high: float = LAST  # newer turns were ranked by earlier pages

    def __str__(self) -> str:
        return f"{self.mode}:{self.number}:{self.score}:{self.high}"

    def below(self, candidate: Candidate) -> bool:
        """Whether a ranked candidate is not on an earlier page."""
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
    """The turns that have all words of a search or, if none has, those that have some."""
    check_limit(limit, LIMIT_MAX)
    if order not in ("newest", "relevance", "meaning"):
        raise Refused(f"unknown order {order!r}", "Choose newest, relevance or meaning.")
    page = page_of(after)
    if order == "meaning" and embedder is None:
        raise Refused("searching by meaning needs an embedder", "Pass `embedder`.")
    query = search_query.parse(text, now_ms)
    if order != "newest":
        query = _with_time(query, text, now_ms)
    if order == "meaning" or (order == "relevance" and is_question(query)):
        return SearchRun(tx, query, "any").page(page._replace(mode="any"), limit, order, embedder)
    run = SearchRun(tx, query, page.mode)
    result = run.page(page, limit, order)
    if not result.hits and result.next is None and after is None and run.has_choice:
        run = SearchRun(tx, run.query, "any")
        result = run.page(PageStart("any"), limit, order)
    return result


def _with_time(query: SearchQuery, text: str, now_ms: int) -> SearchQuery:
    """A question that names a time, with that time."""
    named = question_times.time_of(text, now_ms)
    if named is None or not named.rest or not (query.from_ms is query.until_ms is None):
        return query
    rest = search_query.parse(named.rest, now_ms)
    if is_question(rest):
        return replace(query, named_time=(named.from_ms, named.until_ms))
    if rest.terms and all(is_common(term.text) for term in rest.terms):  # what was said then
        return replace(rest, terms=[], from_ms=named.from_ms, until_ms=named.until_ms)
    return query


def page_of(after: str | None) -> PageStart:
    if after is None:
        return PageStart("all")
    with suppress(ValueError, KeyError, TypeError):
        mode, number, score, *high = after.split(":")
        page = PageStart(_MODES[mode], float(number), float(score), *map(float, high))
        # The cursor comes back from outside, and NaN would compare as neither above nor below.
        if max(abs(page.number), abs(page.high)) <= LAST and not math.isnan(page.score):
            return page
    raise Refused(f"{after[:80]!r} is not a valid page cursor", "Pass `next` of a page.")


class SearchRun:
    """One search for all of its words, or for any of them."""

    def __init__(self, tx: Transaction, query: SearchQuery, mode: Mode) -> None:
        self.query = query
        self._tx = tx
        self._mode = mode
        self._finder = PhraseFinder(query)
        self.has_choice = len(plain_terms(query)) > 1
        self._match = match(tx.engine, term_groups(query, mode), tokenizer.fold)
        self._hidden = hidden(tx)
        self._scopes = [self._scope(scope) for scope in query.scopes]
        self._is_narrowed = bool(self._scopes) or query.fork is not None
        self.capped = False
        self._reached: float = -LAST
        self._final: set[str] = set()  # waiting turns that are sealed

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

    def page(
        self, page: PageStart, limit: int, order: Ranking, embedder: Embedder | None = None
    ) -> Found:
        if embedder is not None:
            candidates = self._by_meaning(page, embedder)
        else:
            first = FIRST_LOOK if self._is_narrowed else limit + 1
            if order == "newest":
                candidates = self.newest(page, first)
            else:
                candidates = self._most_relevant(page)
        hits = list(islice(filter(self.in_scope, self.shown(candidates)), limit + 1))
        more = len(hits) > limit
        del hits[limit:]
        next_page = None
        if order == "newest":
            next_page = self.next_page(hits[-1].number if more else None)
        elif more:
            next_page = page._replace(number=hits[-1].number, score=hits[-1].score)
        elif self._reached > -LAST:
            next_page = PageStart(self._mode, high=self._reached)
        return Found(
            self._hits(hits, ranked=order != "newest"),
            self._mode,
            None if next_page is None else str(next_page),
            self.capped,
            self._finder.words,
        )

    def next_page(self, last: float | None) -> PageStart | None:
        """The cursor of the next page, newest first. `last`: the last number of this page, if there
        are more."""
        if last is None and not self.capped:
            return None
        return PageStart(self._mode, self._reached if last is None else last)

    def _range(self) -> tuple[int, int]:
        query = self.query
        low = -LAST if query.from_ms is None else first_number(query.from_ms)
        high = LAST if query.until_ms is None else first_number(query.until_ms)
        return low, high

    def newest(self, page: PageStart, first: int) -> Iterator[Candidate]:
        """Indexed and waiting turns, merged by number. `first`: how many to read from the index
        first."""
        return self.shown(self._newest(page, first))

    def _newest(self, page: PageStart, first: int) -> Iterator[Candidate]:
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

    def ranked(self, page: PageStart) -> Iterator[Candidate]:
        """The newest matching turns, most relevant first; older ones are on further pages."""
        low, high = self._range()
        high = min(high, math.ceil(page.high))
        values = {"match": self._match, "high": high}
        cut = self._tx.run("search_cutoff", **values, low=low, count=RANK_MAX)
        if cut:
            self._stop(cut[0][0] + 1)
        waits = list(self._waits(self._reached, page.high))
        low = max(low, math.ceil(self._reached))
        rows = self._tx.run("search_ranked", **values, low=low, limit=RANK_MAX)
        ranked = _with_waiting([Candidate(*row) for row in rows], waits)
        return filter(page.below, ranked)

    def _most_relevant(self, page: PageStart) -> Iterator[Candidate]:
        if self._mode == "any" and self._says_something:
            return filter(page.below, self._by_question(page))
        return self.ranked(page)

    @property
    def _says_something(self) -> bool:
        return any(not (term.negated or is_common(term.text)) for term in self.query.terms)

    def _by_question(self, page: PageStart) -> list[Candidate]:
        """The turns that have words of a question, each word in any spelling. The first pages have
        those of the index; if many turns wait, further pages have the rest of these."""
        if page.high < LAST:
            return list(self._waits(-LAST, page.high))
        tx, (low, high) = self._tx, self._range()
        asked = list(questions.asked_words(tx, self.query, low, high))
        phrased = [(word, word.phrase) for word in asked]
        words = [(word, phrase) for word, phrase in phrased if phrase is not None]
        self.capped = any(word.capped for word in asked)
        self._finder = PhraseFinder(self.query, [phrase for _, phrase in words])
        found = [list(word.turns) for word, _ in words]
        waiting = 0
        for turn, document in self.waiting(-LAST, LAST):
            waiting += 1
            if self._has_other_terms(document):
                for number in self._finder.present(document):
                    found[number].append(
                        turn._replace(score=ranking.typical(words[number][0].turns))
                    )
        titles = questions.recent_titles(tx, self.query, low, high)
        matches = [
            WordMatches(turns, [one.head for one in titles if phrase.is_in(one.title)])
            for turns, (_, phrase) in zip(found, words, strict=True)
        ]
        count = waiting + tx.run("indexed_count", limit=TURNS_COUNTED)[0][0]
        threads = 1 + (tx.run("last_segment")[0][0] or 0)
        ranked = ranking.ranked(matches, count, threads)
        if self.query.named_time is None:
            return ranked
        return ranking.favouring(ranked, *map(first_number, self.query.named_time))

    def _by_meaning(self, page: PageStart, embedder: Embedder) -> Iterator[Candidate]:
        """The matches by words and those by meaning, as one ranking."""
        from agents_ledger.ledger.search import vectors

        low, high = self._range()
        text = " ".join(term.text for term in self.query.terms if not term.negated)
        near = vectors.nearest(self._tx, embedder, text, low=low, high=high) if text else []
        by_words = list(self._most_relevant(PageStart("any")))
        ranked = vectors.fused(by_words, list(self._narrowed(near)))
        return filter(page.below, ranked)

    def _narrowed(self, near: Sequence[Candidate]) -> Iterator[Candidate]:
        """The matches by meaning that have the facets and no negated term."""
        if not self.query.facets and not any(term.negated for term in self.query.terms):
            yield from near
            return
        for ids in in_batches([turn.turn_id for turn in near]):
            by_id = documents(self._tx, ids)
            for turn in near:
                if turn.turn_id in by_id and self._has_other_terms(by_id[turn.turn_id]):
                    yield turn

    def _waits(self, low: float, high: float) -> Iterator[Candidate]:
        """Waiting turns that have the words, newest first."""
        for candidate, document in self.waiting(low, high):
            share = self._share(document)
            if share:
                yield candidate._replace(score=share)

    def waiting(self, low: float, high: float) -> Iterator[tuple[Candidate, SearchDocument]]:
        """Turns that wait for the index, newest first, up to a limit that keeps a page fast."""
        waiting = list(self._numbered(low, high))
        chars = 0
        limits = self._tx.limits
        for at in range(0, len(waiting), limits.waiting_read_turns):
            batch = waiting[at : at + limits.waiting_read_turns]
            if at >= limits.waiting_turns or chars > limits.waiting_chars:
                self._stop(batch[0].number + 0.5)
                return
            by_id = self._documents(batch, keep=len(waiting) <= WAITS_KEPT)
            chars += sum(document.letters for document in by_id.values())
            yield from ((candidate, by_id[candidate.turn_id]) for candidate in batch)

    def _documents(self, batch: Sequence[Candidate], *, keep: bool) -> dict[str, SearchDocument]:
        """The texts of waiting turns; those of sealed turns are cached."""
        turn_ids = [candidate.turn_id for candidate in batch]
        cache = self._tx.cache
        if cache is None or not keep:
            return documents(self._tx, ids_of(turn_ids))
        by_id: dict[str, SearchDocument] = {}
        for turn_id in turn_ids:
            document = cache.get(f"document {turn_id}")
            if document is not None:
                by_id[turn_id] = document
        missing = [turn_id for turn_id in turn_ids if turn_id not in by_id]
        if missing:
            for turn_id, document in documents(self._tx, ids_of(missing)).items():
                by_id[turn_id] = document
                if turn_id in self._final:
                    cache.keep(f"document {turn_id}", document, document.letters)
        return by_id

    def _numbered(self, low: float, high: float) -> Iterator[Candidate]:
        """Waiting turns, each with a number above those that the index has for its time, and below
        the previous turn's."""
        query = self.query
        from_ms = -LAST if query.from_ms is None else query.from_ms
        until_ms = LAST if query.until_ms is None else query.until_ms
        number: float = LAST
        for turn_id, started_at, segment_id, depth, is_final in self._tx.run("unindexed"):
            if is_final:
                self._final.add(turn_id)
            number = min(number - 1, first_number(started_at) + NUMBERS - 0.5)
            if low <= number < high and from_ms <= started_at < until_ms:
                yield Candidate(number, turn_id, segment_id, depth)

    def _share(self, document: SearchDocument) -> float:
        """The fraction of the words that a turn has; 0 if it does not match."""
        if not self._has_other_terms(document):
            return 0.0
        share = self._finder.share(document)
        return share if self._mode == "any" or share == 1.0 else 0.0

    def _stop(self, number: float) -> None:
        self.capped, self._reached = True, number

    def _has_other_terms(self, document: SearchDocument) -> bool:
        return has_facets(document, self.query.facets) and not self._finder.has_unwanted(document)

    def shown(self, candidates: Iterable[Candidate]) -> Iterator[Candidate]:
        """Without those of sessions that are marked as deleted."""
        return (c for c in candidates if not self._hidden.has(c.segment_id, c.depth))

    def in_scope(self, candidate: Candidate) -> bool:
        by_kind: dict[str, bool] = {}
        for scope, segments in self._scopes:
            is_inside = segments.get(candidate.segment_id, 0) >= candidate.depth
            if scope.negated:
                if is_inside:
                    return False
            else:
                by_kind[scope.of] = by_kind.get(scope.of, False) or is_inside
        if not all(by_kind.values()):
            return False
        if self.query.fork is None:
            return True
        forks = bool(self._tx.run("turn_forks", turn_id=candidate.turn_id)[0][0])
        return forks is self.query.fork

    # -- hits ----------------------------------------------------------------------------------

    def _hits(self, candidates: Sequence[Candidate], *, ranked: bool) -> tuple[Hit, ...]:
        turn_ids = [candidate.turn_id for candidate in candidates]
        by_id: dict[str, SearchDocument] = {}
        for ids in in_batches(turn_ids):
            by_id |= documents(self._tx, ids)
        holder_of = holders(self._tx, turn_ids)
        return tuple(
            self._hit(candidate, by_id[turn_id], holder_of[turn_id], ranked=ranked)
            for turn_id, candidate in zip(turn_ids, candidates, strict=True)
        )

    def _hit(
        self, candidate: Candidate, document: SearchDocument, holder: Holder, *, ranked: bool
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


def first_words(document: SearchDocument) -> str | None:
    """The start of a turn's first message, without what a harness put before it."""
    texts = (piece.text for piece in document.pieces if piece.part in ("user", "assistant"))
    text = next(filter(None, (readable(text[:FIRST_CHARS]) for text in texts)), None)
    return None if text is None else " ".join(text[: 2 * QUERY_MAX].split())[:QUERY_MAX]


def _with_waiting(ranked: list[Candidate], waits: Sequence[Candidate]) -> list[Candidate]:
    """Turns that wait have no score of the index: one that has all words ranks with the median."""
    if not waits:
        return ranked
    typical = ranked[len(ranked) // 2].score if ranked else 1.0
    merged = ranked + [turn._replace(score=typical * turn.score) for turn in waits]
    return sorted(merged, key=lambda turn: (turn.score, turn.number), reverse=True)
