"""Headlines and trees of turns, with long runs folded."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Sequence
from operator import attrgetter

from msgspec import structs

from agents_ledger.ledger.reports.events import readable
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.trees import Headline, Node, Subagent, Tree
from agents_ledger.model.sessions import Session
from agents_ledger.model.turns import Turn, to_json
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.rows import to_session, to_turn

# The time part of a ULID; only turns of the same millisecond need more.
SHORT = 10
TEXT_MAX = 400
# Characters of a message that are searched for its first words.
LOOKED_AT = 4000

_WIDTH = len(Turn.__struct_fields__) - 3  # without messages, tool calls and compaction


def headlines(tx: Transaction, turn_ids: Iterable[str]) -> tuple[Headline, ...]:
    lines = []
    for turn_id in turn_ids:
        rows = tx.run("headline", turn_id=turn_id, text_max=LOOKED_AT)
        if not rows:
            raise NotFound(f"there is no turn {turn_id}")
        lines.append(headline_of(tx, rows[0]))
    return tuple(lines)


def headline_of(tx: Transaction, row: Row) -> Headline:
    turn = to_turn(row[:_WIDTH])
    text, before, after = row[_WIDTH:]
    if turn.turn_type == "compaction":
        turn = structs.replace(turn, compaction=threads.compaction(tx, turn.id))
    return Headline(turn, _short(turn.id, before, after), beginning(text))


def beginning(text: str | None, most: int = TEXT_MAX) -> str | None:
    """The start of a message without harness blocks, unless these are all of it."""
    return text and (readable(text) or text)[:most]


def _short(turn_id: str, *neighbours: str | None) -> str:
    """The shortest prefix of an id that neither of its neighbours has."""
    length = max(threads.shared_prefix(turn_id, other or "") for other in neighbours) + 1
    return turn_id[: max(SHORT, length)]


def latest_roots(
    tx: Transaction,
    *,
    since: int | None,
    until: int | None,
    limit: int,
    before: str | None,
    subagents: bool,
) -> tuple[str, ...]:
    rows = tx.run(
        "latest_roots",
        since=since or 0,
        until=threads.DEEPEST if until is None else until,
        limit=limit,
        before=before,
        subagents=int(subagents),
    )
    return tuple(row[0] for row in rows)


def branches(
    tx: Transaction, target: str, *, limit: int, after: str | None
) -> tuple[Headline, ...]:
    turn_id = threads.resolve(tx, target)
    values = {"turn_id": turn_id, "after": after or "", "limit": limit, "text_max": LOOKED_AT}
    return tuple(headline_of(tx, row) for row in tx.run("branches", **values))


def tree(
    tx: Transaction, target: str, *, fold: bool, limit: int, to_depth: int | None = None
) -> Tree:
    top = threads.resolve(tx, target)
    if top is None:
        raise Refused(f"session {target!r} is empty", "Name a turn, or record one on it.")
    if limit < 1:
        raise Refused(f"limit is {limit}; it must be positive")
    within = {"turn_id": top, "to_depth": threads.DEEPEST if to_depth is None else to_depth}
    segments = {row[0]: row[1:] for row in tx.run("tree_segments", **within)}
    if not any(count > 0 for *_, count in segments.values()):
        raise Refused(f"depth {to_depth} is above turn {top}")
    rows = tx.run("tree_nodes", **within, text_max=LOOKED_AT, fold=int(fold), limit=limit)
    heads, subagents = _hanging(tx, within)
    nodes: list[Node] = []
    runs: dict[int, list[Turn]] = defaultdict(list)
    for _, segment_id, *row in rows:
        headline = headline_of(tx, tuple(row))
        turn = headline.turn
        above = _above(runs, segments, segment_id)
        above_id = above.id if above else None
        folded = turn.depth - above.depth - 1 if above else 0
        if folded == 1 and turn.parent_turn_id:  # folding one turn saves no line
            single = headlines(tx, [turn.parent_turn_id])[0]
            nodes.append(Node(single, above_id, 0))
            above_id, folded = single.turn.id, 0
        nodes.append(
            Node(headline, above_id, folded, tuple(heads[turn.id]), tuple(subagents[turn.id]))
        )
        runs[segment_id].append(turn)
    turn_count = sum(count for *_, count in segments.values())
    return Tree(tuple(nodes), turn_count, rows[0][0] - len(rows))


def _above(
    runs: dict[int, list[Turn]], segments: dict[int, tuple[int | None, int, int]], segment_id: int
) -> Turn | None:
    """The nearest ancestor node of the next turn of a segment; nodes come shallowest first."""
    at: int | None = segment_id
    depth = threads.DEEPEST
    while at in segments:
        run = runs[at]
        index = bisect_right(run, depth, key=attrgetter("depth"))
        if index:
            return run[index - 1]
        at, depth, _ = segments[at]
    return None


def _hanging(
    tx: Transaction, within: dict[str, object]
) -> tuple[dict[str, list[Session]], dict[str, list[Subagent]]]:
    """Sessions by their head, and subagents by the turn that spawned them."""
    heads: dict[str, list[Session]] = defaultdict(list)
    for row in tx.run("tree_heads", **within):
        session = to_session(row)
        heads[str(session.thread_id)].append(session)
    subagents: dict[str, list[Subagent]] = defaultdict(list)
    rows = tx.run("tree_subagents", **within, text_max=TEXT_MAX)
    for depth, total_tokens, params_json, *columns in rows:
        session = to_session(tuple(columns))
        subagents[str(session.parent_turn_id)].append(
            Subagent(session, depth, total_tokens, params_json)
        )
    return heads, subagents


def subagents_of(tx: Transaction, turn_ids: Sequence[str]) -> dict[tuple[str, str], Subagent]:
    """The subagents that turns spawned, by turn and call, with their last answers."""
    rows = tx.run("turn_subagents", ids=to_json(turn_ids), text_max=LOOKED_AT)
    return {(row[0], row[1]): Subagent(to_session(row[9:]), *row[2:9]) for row in rows}
