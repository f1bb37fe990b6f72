"""What ended an error before: the calls between it and the next success.

Turns are found by the rarest words of the error, as smart routing finds them, so that the cost is
bounded on a ledger of any size. In the best of them, each call that reported a similar problem is
followed down its thread to a call of the same kind that succeeded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from agents_ledger.ledger.ask.calls import Call, problem_lines, stored_call
from agents_ledger.ledger.search import smart_routing
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.sessions.deleted import hidden
from agents_ledger.ledger.sessions.lookup import Holder, holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.ask import Fix, Fixes
from agents_ledger.model.turns import check_limit, check_text
from agents_ledger.store.database import Transaction

LIMIT_MAX = 50
ERROR_CHARS = 100_000
TURNS_READ = 40  # that have words of the error
TURNS_FOLLOWED = 3  # after the turn of an error
CALLS_READ = 400  # of a turn and those that follow it
STEPS = 12  # of one fix
# Share of the error's weight that another error must have. Of a result that did not fail, most: it
# may be a file or a log that has these words.
LIKE = 0.35
LIKE_IN_OUTPUT = 0.7
ENDED = 0.5  # of that share: a result that has less of it no longer shows the error
_NUMBER = re.compile(r"\b(?:0x)?(?=[0-9a-f]*\d)[0-9a-f]{5,}\b|\b\d+\b", re.IGNORECASE)


class ErrorWords:
    """The distinctive words of an error, and how much of their weight a text has."""

    def __init__(self, tx: Transaction, text: str) -> None:
        # Line numbers, times and ids are of one occurrence alone.
        plain = _NUMBER.sub(" ", problem_lines(text) or text)
        self.terms = smart_routing.distinctive_terms(tx, plain)
        known = [term for term in self.terms if term.turns]
        phrases = [(tokenizer.phrase(term.text), term.weight) for term in known]
        self._phrases = [(phrase, weight) for phrase, weight in phrases if phrase is not None]
        self._total = sum(weight for _, weight in self._phrases)

    def likeness(self, text: str) -> float:
        if not self._total:
            return 0.0
        folded = tokenizer.fold(text)
        return sum(w for phrase, w in self._phrases if phrase.is_in(folded)) / self._total


class Episode(NamedTuple):
    """An error and its end."""

    likeness: float
    failed: Call
    between: tuple[Call, ...]
    succeeded: Call

    @property
    def fixed_by(self) -> Call:
        """The last change before the success; where nothing changed, the last look at the same file
        if the same call succeeded then, or else the corrected call itself."""
        changed = [call for call in self.between if call.changes and not call.failed]
        if changed:
            return changed[-1]
        if self.succeeded.params_json == self.failed.params_json:
            same = [call for call in self.between if call.paths & self.failed.paths]
            return (same or list(self.between) or [self.succeeded])[-1]
        return self.succeeded


def fix(tx: Transaction, error: str, *, limit: int, after: str | None) -> Fixes:
    """The ends of errors like this one, most similar first; one for each way it ended."""
    check_limit(limit, LIMIT_MAX)
    first = offset_of(after)
    check_text(error, "an error")
    if not tokenizer.asked(error[:ERROR_CHARS]):
        raise Refused("the error has no words", "Pass the text of the error message.")
    words = ErrorWords(tx, error[-ERROR_CHARS:])
    ends = _distinct(sorted(_episodes(tx, words), key=_order))
    page = ends[first : first + limit]
    holder_of = holders(tx, [episode.failed.turn_id for episode, _ in page])
    fixes = tuple(_fix(episode, times, holder_of) for episode, times in page)
    more = len(ends) > first + limit
    return Fixes(fixes, str(first + limit) if more else None)


def offset_of(after: str | None) -> int:
    """The position that a page cursor of fix(), how() or recall() stands for."""
    if after is None:
        return 0
    if not after.isdecimal() or len(after) > 6:  # noqa: PLR2004
        raise Refused(f"{after[:80]!r} is not a valid page cursor", "Pass `next` of a page.")
    return int(after)


def _order(episode: Episode) -> tuple[float, int]:
    # Likeness in steps: of errors about equally similar, the latest was fixed in today's project.
    return -round(episode.likeness, 1), -episode.failed.started_at


def _episodes(tx: Transaction, words: ErrorWords) -> Iterator[Episode]:
    seen: set[tuple[str, int]] = set()
    concealed = hidden(tx)
    relevant = (
        candidate
        for candidate in smart_routing.relevant(words.terms)
        if not concealed.has(candidate.segment_id, candidate.depth)
    )
    for candidate in islice(relevant, TURNS_READ):
        for episode in episodes(following(tx, candidate), words):
            key = (episode.failed.turn_id, episode.failed.sequence)
            if key not in seen:
                seen.add(key)
                yield episode


def following(tx: Transaction, candidate: Candidate, *, turns: int = TURNS_FOLLOWED) -> list[Call]:
    """The calls of a turn and of so many next turns of its segment."""
    return tx.read_as(
        "following_calls",
        stored_call,
        segment_id=candidate.segment_id,
        from_depth=candidate.depth,
        to_depth=candidate.depth + turns,
        limit=CALLS_READ,
    )


def episodes(calls: Sequence[Call], words: ErrorWords) -> Iterator[Episode]:
    """The errors in a turn's calls that are like the one asked for, and ended."""
    for at, call in enumerate(calls):
        likeness = words.likeness(call.problem) if call.failed else words.likeness(call.result)
        if likeness < (LIKE if call.failed else LIKE_IN_OUTPUT):
            continue
        end = _end(calls, at, words, likeness)
        if end is not None:
            yield Episode(likeness, call, tuple(calls[at + 1 : end]), calls[end])


def _end(calls: Sequence[Call], at: int, words: ErrorWords, likeness: float) -> int | None:
    """The next call of the same kind that succeeded; None if the same error came again first: what
    was tried until then did not end it."""
    for number in range(at + 1, len(calls)):
        call = calls[number]
        if not call.is_like(calls[at]):
            continue
        if words.likeness(call.problem) >= ENDED * likeness and call.failed:
            return None
        if not call.failed and words.likeness(call.result) < ENDED * likeness:
            return number
    return None


def _distinct(ordered: Iterable[Episode]) -> list[tuple[Episode, int]]:
    """One episode for each way of fixing, with how often it happened."""
    by_way: dict[tuple[object, ...], tuple[Episode, int]] = {}
    for episode in ordered:
        way = _way(episode)
        best, times = by_way.get(way, (episode, 0))
        by_way[way] = best, times + 1
    return list(by_way.values())


def _way(episode: Episode) -> tuple[object, ...]:
    """Equal for equal remedies. To read or edit the file of the failed call is one, whatever file
    that was."""
    call = episode.fixed_by
    if call.shell is None and call.paths & episode.failed.paths:
        return (call.tool_name, "the file of the failed call")
    return (call.tool_name, call.programs or call.paths or call.params_json)


def _fix(episode: Episode, times: int, holder_of: Mapping[str, Holder]) -> Fix:
    failed = episode.failed
    label, title, _ = holder_of[failed.turn_id]
    changing = [call for call in episode.between if call.changes]
    steps = tuple(call.step() for call in (changing or episode.between)[-STEPS:])
    return Fix(
        failed.turn_id,
        label,
        title,
        failed.started_at,
        round(episode.likeness, 3),
        failed.problem,
        failed.step(),
        steps,
        episode.fixed_by.step(),
        episode.succeeded.step(),
        times,
    )
