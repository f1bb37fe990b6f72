"""How a tool or a command was used with success."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import islice

from agents_ledger.ledger.ask.calls import Call
from agents_ledger.ledger.ask.fixes import following, offset_of
from agents_ledger.ledger.search.query import SearchQuery, Term
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.ledger.search.turn_search import FIRST_LOOK, PageStart, SearchRun
from agents_ledger.ledger.search.words import tokenizer
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.ask import ToolExample, ToolExamples
from agents_ledger.model.turns import check_limit, check_text
from agents_ledger.store.database import Transaction

LIMIT_MAX = 50
TURNS_READ = 60  # the newest that called it
TEXT_MAX = 1000
OUTPUT_CHARS = 300


def how(tx: Transaction, name: str, *, limit: int, after: str | None) -> ToolExamples:
    """Calls of a tool, or of a command by its first words, that succeeded; most frequent first."""
    check_limit(limit, LIMIT_MAX)
    first = offset_of(after)
    check_text(name, "a tool or command")
    if not tokenizer.asked(name) or len(name) > TEXT_MAX:
        raise Refused(
            f"{name[:80]!r} is not a tool or a command",
            "Pass the name of a tool, or the first words of a command: `git rebase`.",
        )
    groups: dict[str, list[Call]] = defaultdict(list)
    for turn in _turns(tx, name):
        for call in following(tx, turn, turns=0):
            if _is_of(call, name):
                groups[" ".join(call.command.split())].append(call)
    used = [calls for calls in groups.values() if not all(call.failed for call in calls)]
    used.sort(key=_order)
    page = used[first : first + limit]
    examples = tuple(_example(tx, calls) for calls in page)
    return ToolExamples(examples, str(first + limit) if len(used) > first + limit else None)


def _turns(tx: Transaction, name: str) -> list[Candidate]:
    """The newest turns that have the words one after the other in a call, or else all of them."""
    for terms in ([Term(name)], [Term(word) for word in tokenizer.asked(name)]):
        run = SearchRun(tx, SearchQuery(terms, [], [], ("tool_call",)), "all")
        turns = list(islice(run.newest(PageStart("all"), FIRST_LOOK), TURNS_READ))
        if turns:
            return turns
    return []


def _is_of(call: Call, name: str) -> bool:
    if call.tool_name.casefold() == name.casefold():
        return True
    wanted = name.split()
    return any(list(ran[: len(wanted)]) == wanted for ran in call.commands) or (
        call.shell is not None and name in call.shell and len(wanted) > 1
    )


def _order(calls: Sequence[Call]) -> tuple[int, int]:
    # Of calls that succeeded equally often, the shortest shows the usage best.
    return -sum(not call.failed for call in calls), len(calls[0].command)


def _example(tx: Transaction, calls: Sequence[Call]) -> ToolExample:
    latest = max((call for call in calls if not call.failed), key=lambda call: call.started_at)
    label, title, _ = holders(tx, [latest.turn_id])[latest.turn_id]
    failed = sum(call.failed for call in calls)
    return ToolExample(
        latest.step(),
        label,
        title,
        latest.started_at,
        len(calls) - failed,
        failed,
        latest.result[:OUTPUT_CHARS],
    )
