"""Search: turns by their words, newest first or the most relevant first.

It asks the index and what still waits for it, in one snapshot, and never writes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Literal, NamedTuple

from agents_ledger.ledger import search_query, sessions, words
from agents_ledger.ledger.documents import Document, documents, project_of
from agents_ledger.ledger.indexing import NUMBERS, first_number, in_batches
from agents_ledger.ledger.search_query import Asked, Narrowed, Term
from agents_ledger.ledger.snippets import Finder, snippets
from agents_ledger.model.errors import Refused
from agents_ledger.model.search import Found, Hit, Ranking
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.matching import Group, Wanted, match

if TYPE_CHECKING:
    from agents_ledger.model.embedding import Embedder

LAST = 1 << 62  # above every number
LIMIT_MAX = 1000
LOOK_MAX = 50_000  # turns of the index looked at for one page
RANK_MAX = 5_000  # the newest turns with the words are ranked, no more
QUERY_MAX = 200
FEW_SESSIONS = 2_000

Mode = Literal["all", "any"]
_MODES: dict[str, Mode] = {"all": "all", "any": "any"}
Segments = dict[int, int]  # the segments of some threads, each with how far down


class Candidate(NamedTuple):
    """A turn that has the words, before it is narrowed further."""

    number: int
    turn_id: str
    segment_id: int
    depth: int
    score: float = 0.0


class Page(NamedTuple):
    """Where a page begins."""

    mode: Mode
    number: int = LAST
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
    if not found.hits and after is None and looking.has_choice:
        looking = Looking(tx, looking.asked, "any")
        found = looking.found(Page("any"), limit, order)
    return found


def page_of(after: str | None) -> Page:
    """Where a page begins that comes after another."""
    if after is None:
        return Page("all")
    try:
        mode, number, score = after.split(":")
        return Page(_MODES[mode], int(number), float(score))
    except (ValueError, KeyError) as error:
        raise Refused(
            f"{after[:80]!r} is no place to go on from", "Pass a page's `next`."
        ) from error


class Looking:
    """One search, in one of its modes."""

    def __init__(self, tx: Transaction, asked: Asked, mode: Mode) -> None:
        self.asked = asked
        self._tx = tx
        self._mode = mode
        self._finder = Finder(asked)
        self.has_choice = len(_plain(asked)) > 1
        self._match = match(tx.engine, _groups(asked, mode), words.fold)
        self._scopes = [self._scope(scope) for scope in asked.scopes]
        self._waiting = self._load_waiting()
        self._capped = False

    def _scope(self, scope: Narrowed) -> tuple[Narrowed, Segments]:
        by: dict[str, str | None] = {"label": None, "origin": None, "persona_id": None}
        if scope.of == "session":
            by["label"] = sessions.get(self._tx, scope.value).label
        elif scope.of == "origin":
            by["origin"] = scope.value.lower()
        else:
            by["persona_id"] = scope.value
        return scope, dict(self._tx.run("search_scope", **by))

    def _load_waiting(self) -> dict[str, Document]:
        """Turns that the index does not know as they are now."""
        ids = [row[0] for row in self._tx.run("unindexed")]
        self._stale = frozenset(ids)
        found: dict[str, Document] = {}
        for batch in in_batches(ids):
            found |= documents(self._tx, batch)
        return {turn_id: found[turn_id] for turn_id in sorted(found, reverse=True)}

    # -- candidates ----------------------------------------------------------------------------

    def found(
        self, page: Page, limit: int, order: Ranking, embedder: Embedder | None = None
    ) -> Found:
        """A page of hits."""
        if embedder is not None:
            candidates = self._by_meaning(page, embedder)
        else:
            candidates = self.newest(page) if order == "newest" else self.ranked(page)
        hits: list[Candidate] = []
        last: Candidate | None = None
        more = False
        for last in candidates:
            if not self._fits(last):
                continue
            if len(hits) == limit:
                more = True
                break
            hits.append(last)
        goes_on: Candidate | None = hits[-1] if more else (last if self._capped else None)
        if order != "newest" and not more:
            goes_on = None
        return Found(
            self._hits(hits, ranked=order != "newest"),
            self._mode,
            None if goes_on is None else str(Page(self._mode, goes_on.number, goes_on.score)),
            self._capped,
        )

    def _range(self) -> tuple[int, int]:
        asked = self.asked
        low = 0 if asked.from_ms is None else first_number(asked.from_ms)
        high = LAST if asked.until_ms is None else first_number(asked.until_ms)
        return low, high

    def newest(self, page: Page) -> Iterator[Candidate]:
        """What the index has and what waits, as one row of numbers."""
        low, high = self._range()
        waits = sorted(self._waiting_candidates(low, min(high, page.number)), reverse=True)
        high, size, looked = min(high, page.number), 64, 0
        while True:
            rows = self._tx.run("search_newest", match=self._match, low=low, high=high, limit=size)
            for row in rows:
                while waits and waits[0].number > row[0]:
                    yield waits.pop(0)
                if row[1] not in self._stale:
                    yield Candidate(*row)
            looked += len(rows)
            if len(rows) < size:
                yield from waits
                return
            if looked >= LOOK_MAX:
                self._capped = True
                return
            high, size = rows[-1][0], min(size * 4, 4096)

    def ranked(self, page: Page) -> Iterator[Candidate]:
        """The newest of those that have the words, the most relevant first."""
        low, high = self._range()
        values = {"match": self._match, "high": high}
        cut = self._tx.run("search_cutoff", **values, low=low, count=RANK_MAX)
        if cut:
            low, self._capped = cut[0][0] + 1, True
        rows = self._tx.run("search_ranked", **values, low=low, limit=RANK_MAX)
        ranked = [Candidate(*row) for row in rows if row[1] not in self._stale]
        waits = list(self._waiting_candidates(low, high))
        if waits:
            typical = ranked[len(ranked) // 2].score if ranked else 1.0
            ranked += [each._replace(score=typical * each.score) for each in waits]
            ranked.sort(key=lambda each: (each.score, each.number), reverse=True)
        return (each for each in ranked if page.below(each))

    def _by_meaning(self, page: Page, embedder: Embedder) -> Iterator[Candidate]:
        """What the words find and what the meaning finds, as one ranking."""
        from agents_ledger.ledger import meaning

        low, high = self._range()
        said = " ".join(term.text for term in self.asked.terms if not term.negated)
        near = meaning.nearest(self._tx, embedder, said, low=low, high=high) if said else []
        by_words = list(islice(self.ranked(Page("any")), meaning.NEAREST))
        ranked = meaning.fused(by_words, list(self._narrowed(near)))
        return (each for each in ranked if page.below(each))

    def _narrowed(self, near: Sequence[Candidate]) -> Iterator[Candidate]:
        """Those found by meaning alone that have what else was asked for."""
        fresh = [each for each in near if each.turn_id not in self._stale]
        if not self.asked.facets and not any(term.negated for term in self.asked.terms):
            yield from fresh
            return
        for ids in in_batches([each.turn_id for each in fresh]):
            found = documents(self._tx, ids)
            yield from (
                each
                for each in fresh
                if each.turn_id in found and self._in_range(found[each.turn_id])
            )

    def _waiting_candidates(self, low: int, high: int) -> Iterator[Candidate]:
        taken: set[int] = set()
        for document in self._waiting.values():
            number = first_number(document.started_at) + NUMBERS - 1
            while number in taken:
                number -= 1
            taken.add(number)
            if low <= number < high and self._in_range(document):
                share = self._finder.share(document)
                if share and (self._mode == "any" or share == 1.0):
                    yield Candidate(
                        number, document.turn_id, document.segment_id, document.depth, share
                    )

    def _in_range(self, document: Document) -> bool:
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
        self._holders = Holders(self._tx)
        found: dict[str, Document] = {}
        for ids in in_batches([each.turn_id for each in candidates]):
            found |= documents(self._tx, ids)
        return tuple(
            self._hit(found[each.turn_id], each.score if ranked else None) for each in candidates
        )

    def _hit(self, document: Document, score: float | None) -> Hit:
        label, title, also_in = self._holders.of(document.turn_id)
        return Hit(
            document.turn_id,
            label,
            title,
            also_in,
            document.depth,
            document.started_at,
            document.turn_type,
            document.status,
            document.model,
            document.workspace_path,
            first_words(document),
            snippets(document, self._finder),
            score,
        )


def first_words(document: Document) -> str | None:
    """How the first message of a turn begins."""
    texts = (piece.text for piece in document.pieces if piece.part in ("user", "assistant"))
    text = next(texts, None)
    return None if text is None else " ".join(text[: 2 * QUERY_MAX].split())[:QUERY_MAX]


class Holders:
    """Which sessions hold a turn. Where there are few sessions they are read once for all turns;
    else, for each turn, what stands below it."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self._heads: dict[int, list[Row]] | None = None
        if tx.run("session_count", limit=FEW_SESSIONS)[0][0] < FEW_SESSIONS:
            self._heads = {}
            for segment_id, *head in tx.run("heads"):
                self._heads.setdefault(segment_id, []).append(tuple(head))

    def of(self, turn_id: str) -> tuple[str | None, str | None, int]:
        """The session a turn belongs to, its title, and how many others hold it too.

        A turn beside the threads, because it failed or was left behind, belongs to the session that
        wrote it, else to that of the turn it hangs on.
        """
        at: str | None = turn_id
        while at is not None:
            held = self._holding(at) or self._tx.run("session_that_held", turn_id=at)
            if held:
                return held[0][0], held[0][1], len(held) - 1 if at == turn_id else 0
            at = self._tx.run("turn_parent", id=at)[0][0]
        return None, None, 0

    def _holding(self, turn_id: str) -> Sequence[Row]:
        if self._heads is None:
            return self._tx.run("sessions_holding", turn_id=turn_id)
        below = self._tx.run("segments_below", turn_id=turn_id)
        held = [
            head
            for segment_id, from_depth in below
            for head in self._heads.get(segment_id, ())
            if head[0] >= from_depth
        ]
        held.sort(key=lambda head: (head[1], head[2]))
        return [head[2:] for head in held]


# -- what to look for -------------------------------------------------------------------------


def _wanted(term: Term, asked: Asked) -> list[Wanted]:
    said = tuple(words.asked(term.text))
    if not said:
        return []
    prefix = term.prefix or words.is_letter(said[-1])
    return [Wanted(said, asked.parts, prefix)]


def _plain(asked: Asked) -> list[Wanted]:
    return [each for term in asked.terms if not term.negated for each in _wanted(term, asked)]


def _groups(asked: Asked, mode: Mode) -> list[Group]:
    """Each group must be found; words are one group if any of them will do."""
    groups: list[Group] = []
    plain = _plain(asked)
    if mode == "any" and plain:
        groups.append(Group(tuple(plain)))
    else:
        groups += [Group((wanted,)) for wanted in plain]
    for negated in (False, True):
        groups += _facet_groups([f for f in asked.facets if f.negated is negated], negated)
    groups += [
        Group((wanted,), negated=True)
        for term in asked.terms
        if term.negated
        for wanted in _wanted(term, asked)
    ]
    if all(group.negated for group in groups):
        groups.insert(0, Group((Wanted(("turn",), ("state",)),)))
    return groups


def _facet_groups(facets: Iterable[Narrowed], negated: bool) -> list[Group]:
    by_kind: dict[str, list[Wanted]] = {}
    for facet in facets:
        said = tuple(words.asked(_facet_text(facet)))
        if not said:
            raise Refused(f"{facet.of}:{facet.value} has no word to look for")
        prefix = facet.value.endswith("*") or words.is_letter(said[-1])
        by_kind.setdefault(facet.of, []).append(Wanted(said, (facet.of,), prefix))
    return [Group(tuple(wanted), negated) for wanted in by_kind.values()]


def _facet_text(facet: Narrowed) -> str:
    return project_of(facet.value) if facet.of == "project" else facet.value


def _has_facets(document: Document, facets: Sequence[Narrowed]) -> bool:
    """The same for a turn that waits."""
    columns = document.texts()
    fits: dict[str, bool] = {}
    for facet in facets:
        pattern = words.pattern(_facet_text(facet), prefix=facet.value.endswith("*"))
        has = pattern is not None and pattern.search(words.fold(columns[facet.of])) is not None
        if facet.negated:
            if has:
                return False
        else:
            fits[facet.of] = fits.get(facet.of, False) or has
    return all(fits.values())
