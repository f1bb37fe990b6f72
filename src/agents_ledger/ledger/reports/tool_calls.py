"""The latest calls of a tool, found by the words of the index: no index of the calls is kept, which
every turn would pay for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import dropwhile, islice

from agents_ledger.ledger.search.index import first_number
from agents_ledger.ledger.search.query import Narrowed, SearchQuery
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import FIRST_LOOK, PageStart, SearchRun
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.model.reports.pages import CallCursor, CallLine
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import ids_of

TURNS_SCANNED = 10_000  # on one page


def latest(
    tx: Transaction, tool_name: str, *, failed: bool, before: CallCursor | None
) -> Iterator[CallLine]:
    """The calls of a tool, newest turns first, before the last one of a page."""
    turns = islice(_turns(tx, tool_name, before and before.turn_id), TURNS_SCANNED)
    while batch := [turn.turn_id for turn in islice(turns, FIRST_LOOK)]:
        by_turn: defaultdict[str, list[CallLine]] = defaultdict(list)
        for row in tx.run(
            "calls_of_tool", ids=ids_of(batch), tool_name=tool_name, failed=int(failed)
        ):
            by_turn[row[0]].append(CallLine(*row))
        for turn_id in batch:
            for call in by_turn[turn_id]:
                if before is None or turn_id != before.turn_id or call.sequence < before.sequence:
                    yield call


def _turns(tx: Transaction, tool_name: str, first: str | None) -> Iterator[Candidate]:
    """The turns with a tool of such a name, newest first, from a turn on."""
    query = SearchQuery([], [], [])
    if tokenizer.asked(tool_name):  # others have no word in the index
        query.facets.append(Narrowed("tool", tool_name))
    if first is None:
        return SearchRun(tx, query, "all").newest(PageStart("all"), FIRST_LOOK)
    rows = tx.run("document_turns", ids=ids_of([first]))
    if not rows:
        return iter(())
    started_at = rows[0][1]
    low = first_number(started_at)
    query.until_ms = started_at + 1
    turns = SearchRun(tx, query, "all").newest(PageStart("all"), FIRST_LOOK)
    # Of turns that began in the same millisecond, those before it were on earlier pages.
    return dropwhile(lambda turn: turn.turn_id != first and turn.number >= low, turns)
