"""The part of a thread that a model sees: from its latest compaction on, within a budget."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec import Struct, structs

from agents_ledger.context.assembly import VisibleThread, least_tokens
from agents_ledger.ledger.turns import threads
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.errors import NotFound
from agents_ledger.model.text.tokens import Counter, estimate_tokens
from agents_ledger.model.turns import Message, Turn
from agents_ledger.store.database import Transaction


class Held(Struct, frozen=True):
    """From a compaction's `metadata_json`: single turns kept from before its first kept one, and
    the compaction whose summary is still valid."""

    kept_turn_ids: tuple[str, ...] = ()
    summary_turn_id: str | None = None


_held = msgspec.json.Decoder(Held).decode


class Boundary(Struct, frozen=True):
    from_depth: int = 1
    depth: int = 0  # of the compaction
    compaction_turn_id: str | None = None
    summary: str = ""
    summary_turn_id: str | None = None
    kept_turn_ids: tuple[str, ...] = ()


def visible(
    tx: Transaction,
    turn_id: str | None,
    prompt_of: str | None,
    *,
    boundary: Boundary | None = None,
    query: Sequence[Message] = (),
    budget: int | None = None,
    system_prompt: str | None = None,
    count: Counter = estimate_tokens,
) -> tuple[VisibleThread, int]:
    """The visible part of a thread, and the number of turns that were not read because they cannot
    fit into the budget. A system prompt replaces that of the turn `prompt_of`."""
    prompt = system_prompt
    if prompt is None:
        prompts = tx.run("system_prompt", hash=threads.place_of(tx, prompt_of).system_prompt_hash)
        prompt = str(prompts[0][0]) if prompts else None
    if turn_id is None:
        return VisibleThread(prompt, query=query), 0
    start = boundary or boundary_at(tx, turn_id)
    if budget is None:
        turns = threads.load(tx, turn_id, start.from_depth, threads.DEEPEST)
        unread = 0
    else:
        turns, unread = _fitting(tx, turn_id, start.from_depth, budget=budget, count=count)
    history = VisibleThread(
        prompt,
        start.summary,
        start.summary_turn_id,
        picked=[] if unread else _picked(tx, turn_id, start),
        kept=[turn for turn in turns if turn.depth < start.depth],
        since=[turn for turn in turns if turn.depth >= start.depth],
        query=query,
    )
    return history, unread + (len(start.kept_turn_ids) if unread else 0)


def boundary_at(tx: Transaction, turn_id: str | None) -> Boundary:
    """The latest compaction on a thread that has a summary or kept turns. One without either hides
    nothing: some agents do not log the summary."""
    above = threads.place_of(tx, turn_id).compaction_turn_id
    while above is not None:
        compaction = threads.compaction(tx, above)
        if compaction is not None and (compaction.summary or compaction.first_kept_turn_id):
            boundary = boundary_of(
                tx,
                threads.place_of(tx, above).depth,
                first=compaction.first_kept_turn_id,
                summary=compaction.summary,
                held=held_by(compaction),
            )
            own = above if compaction.summary else boundary.summary_turn_id
            return structs.replace(boundary, compaction_turn_id=above, summary_turn_id=own)
        parent_id = tx.run("turn_parent", id=above)[0][0]
        above = threads.place_of(tx, parent_id).compaction_turn_id
    return Boundary()


def boundary_of(
    tx: Transaction, depth: int, *, first: str | None, summary: str, held: Held
) -> Boundary:
    """Where the visible part begins after a compaction at a depth."""
    if not summary and held.summary_turn_id is not None:
        earlier = threads.compaction(tx, held.summary_turn_id)
        summary = earlier.summary if earlier is not None else ""
    return Boundary(
        from_depth=depth if first is None else threads.place_of(tx, first).depth,
        depth=depth,
        summary=summary,
        summary_turn_id=held.summary_turn_id,
        kept_turn_ids=held.kept_turn_ids,
    )


def held_by(compaction: Compaction) -> Held:
    """The fields of its metadata; none, if the metadata is not ours."""
    try:
        return _held(compaction.metadata_json or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Held()


def _fitting(
    tx: Transaction, turn_id: str, from_depth: int, *, budget: int, count: Counter
) -> tuple[tuple[Turn, ...], int]:
    """The turns of a thread, read backwards in pages until older ones cannot fit, and the number of
    those."""
    turns: tuple[Turn, ...] = ()
    to_depth, page = threads.place_of(tx, turn_id).depth, tx.limits.context_turns
    while budget >= 0 and to_depth >= from_depth:
        start = max(from_depth, to_depth - page + 1)
        older = threads.load(tx, turn_id, start, to_depth)
        # What each takes at least, after all cuts: a turn that could still fit is never left
        # unread.
        budget -= sum(least_tokens(turn, count) for turn in older)
        turns = older + turns
        # Pages double, so that a large budget takes few reads and a small one reads few turns too
        # many.
        to_depth, page = start - 1, page * 2
    return turns, max(to_depth - from_depth + 1, 0)


def _picked(tx: Transaction, turn_id: str, boundary: Boundary) -> list[Turn]:
    """Single turns that a compaction kept; ids that are not on the thread are passed over."""
    picked = []
    for kept_id in boundary.kept_turn_ids:
        try:
            depth = threads.place_of(tx, kept_id).depth
        except NotFound:
            continue
        turns = threads.load(tx, turn_id, depth, depth)
        picked += [turn for turn in turns if turn.id == kept_id and depth < boundary.from_depth]
    return picked
