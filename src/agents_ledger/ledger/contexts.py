"""What a model is shown of a thread. Only the visible range is read: what a compaction hides costs
nothing, and with a budget no more is read than can fit.

The modules that assemble and render are imported when a context is made: opening a ledger is quick.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct, structs

from agents_ledger.ledger import recording, threads
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.context import Cut, Item, Part, Problem, Repair
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.tokens import Counter, estimate_tokens
from agents_ledger.model.turns import Message, Query, Turn
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    from agents_ledger.context.assembly import Assembled, History
    from agents_ledger.context.providers import Provider

LAST_TURNS = 3  # never cut for a budget, unless the caller says otherwise
PAGE = 32


class Context(Struct, frozen=True):
    """What a model is shown: ready to be sent to any provider. Every item names its turn.

    `tokens` are estimates by part; `turns` how many turns are shown of each.
    """

    turn_id: str | None
    system_prompt: str | None
    items: tuple[Item, ...]
    tokens: Mapping[Part | str, int]
    turns: Mapping[Part | str, int]
    compaction_turn_id: str | None = None
    budget: int | None = None
    cuts: tuple[Cut, ...] = ()
    turns_left_out: int = 0  # for the budget
    repairs: tuple[Repair, ...] = ()

    @property
    def total_tokens(self) -> int:
        """The tokens of all parts."""
        return sum(self.tokens.values())

    def as_anthropic(self) -> dict[str, Any]:
        """`system` and `messages`, for `client.messages.create(**...)`."""
        return self.rendered("anthropic")

    def as_openai(self) -> dict[str, Any]:
        """`messages`, for `client.chat.completions.create(**...)`."""
        return self.rendered("openai")

    def as_openai_responses(self) -> dict[str, Any]:
        """`instructions` and `input`, for `client.responses.create(**...)`."""
        return self.rendered("openai-responses")

    def rendered(self, provider: str) -> dict[str, Any]:
        """The context in the form of a provider, chosen by name."""
        return _provider(provider).render(self.system_prompt, self.items)


def _provider(name: str) -> Provider:
    from agents_ledger.context.providers import PROVIDERS

    if name not in PROVIDERS:
        raise Refused(
            f"there is no provider {name!r} whose form is known",
            f"Choose one of {', '.join(PROVIDERS)}.",
        )
    return PROVIDERS[name]


def validate(messages: Sequence[Any] | Mapping[str, Any], provider: str) -> tuple[Problem, ...]:
    """What a provider would refuse in any list of its messages; empty when all is well.

    Providers are anthropic, openai and openai-responses. What `Context.as_...` gives may be passed
    as it is.
    """
    chosen = _provider(provider)
    if isinstance(messages, Mapping):
        messages = messages.get(chosen.messages) or ()
    if not isinstance(messages, (list, tuple)):
        raise Refused(f"messages are a list, not {type(messages).__name__}")
    return tuple(chosen.problems(messages))


# -- assembling -------------------------------------------------------------------------------


def context(
    tx: Transaction,
    target: str,
    *,
    query: Query | None = None,
    budget: int | None = None,
    last: int = LAST_TURNS,
    before: bool = False,
    count: Counter = estimate_tokens,
) -> Context:
    """The context of a target. `before`: as it was when that turn was asked."""
    from agents_ledger.context.assembly import assemble

    if (budget is not None and budget < 1) or last < 0:
        raise Refused(f"a budget of {budget} tokens with the last {last} turns cannot be kept")
    turn_id = threads.resolve(tx, target)
    asked = () if query is None else recording.messages_of(query)
    prompt_of = turn_id
    if before:
        turn = threads.turn(tx, target)
        asked = asked or turn.query
        turn_id = turn.parent_turn_id
    boundary = boundary_at(tx, turn_id)
    history, unread = visible(
        tx, turn_id, prompt_of, boundary=boundary, query=asked, budget=budget, count=count
    )
    made = assemble(history, budget=budget, last=last, count=count)
    return of(
        made,
        turn_id,
        compaction_turn_id=boundary.compaction_turn_id,
        budget=budget,
        unread=unread,
        count=count,
    )


def of(
    made: Assembled,
    turn_id: str | None,
    *,
    compaction_turn_id: str | None = None,
    budget: int | None = None,
    unread: int = 0,
    count: Counter = estimate_tokens,
) -> Context:
    """A context that was assembled, as users see it."""
    from agents_ledger.context.assembly import prompt_tokens

    tokens: dict[Part | str, int] = {"system": prompt_tokens(made.system_prompt, count)}
    turns: dict[Part | str, int] = {}
    for block in made.blocks:
        tokens[block.part] = tokens.get(block.part, 0) + block.tokens
        turns[block.part] = turns.get(block.part, 0) + 1
    return Context(
        turn_id=turn_id,
        system_prompt=made.system_prompt,
        items=made.items,
        tokens=tokens,
        turns=turns,
        compaction_turn_id=compaction_turn_id,
        budget=budget,
        cuts=made.cuts,
        turns_left_out=unread + sum(cut.kind == "turn" for cut in made.cuts),
        repairs=made.repairs,
    )


# -- reading ----------------------------------------------------------------------------------


class Held(Struct, frozen=True):
    """What a compaction's `metadata_json` says of the context: single turns that it kept before
    its first kept one, and the compaction whose summary still holds."""

    kept_turn_ids: tuple[str, ...] = ()
    summary_turn_id: str | None = None


_held = msgspec.json.Decoder(Held).decode


class Boundary(Struct, frozen=True):
    """Where the visible part of a thread begins."""

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
    count: Counter = estimate_tokens,
) -> tuple[History, int]:
    """What a model may see of a thread, and how many turns were not read because they cannot fit
    into the budget."""
    from agents_ledger.context.assembly import History

    prompts = tx.run("system_prompt", hash=threads.place_of(tx, prompt_of).system_prompt_hash)
    prompt = str(prompts[0][0]) if prompts else None
    if turn_id is None:
        return History(prompt, query=query), 0
    start = boundary or boundary_at(tx, turn_id)
    if budget is None:
        turns = threads.load(tx, turn_id, start.from_depth, threads.DEEPEST)
        unread = 0
    else:
        turns, unread = _fitting(tx, turn_id, start.from_depth, budget=budget, count=count)
    history = History(
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
    """The latest compaction on a thread that says or keeps something. One that does neither hides
    nothing: its source kept the summary to itself."""
    above = threads.place_of(tx, turn_id).compaction_turn_id
    while above is not None:
        compaction = threads.compaction(tx, above)
        if compaction is not None and (compaction.summary or compaction.first_kept_turn_id):
            made = boundary_of(
                tx,
                threads.place_of(tx, above).depth,
                first=compaction.first_kept_turn_id,
                summary=compaction.summary,
                held=held_by(compaction),
            )
            own = above if compaction.summary else made.summary_turn_id
            return structs.replace(made, compaction_turn_id=above, summary_turn_id=own)
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
    """What its metadata says of the context; nothing, if that is someone else's."""
    try:
        return _held(compaction.metadata_json or "{}")
    except (msgspec.DecodeError, UnicodeEncodeError):
        return Held()


def _fitting(
    tx: Transaction, turn_id: str, from_depth: int, *, budget: int, count: Counter
) -> tuple[tuple[Turn, ...], int]:
    """The turns of a thread backwards, page by page, until older ones cannot fit; and how many of
    those there are."""
    from agents_ledger.context.assembly import least_tokens

    turns: tuple[Turn, ...] = ()
    to_depth, page = threads.place_of(tx, turn_id).depth, PAGE
    while budget >= 0 and to_depth >= from_depth:
        start = max(from_depth, to_depth - page + 1)
        older = threads.load(tx, turn_id, start, to_depth)
        budget -= sum(least_tokens(turn, count) for turn in older)
        turns = older + turns
        to_depth, page = start - 1, page * 2
    return turns, max(to_depth - from_depth + 1, 0)


def _picked(tx: Transaction, turn_id: str, boundary: Boundary) -> list[Turn]:
    """Single turns that a compaction kept; ids that are not on the thread are passed over."""
    found = []
    for kept in boundary.kept_turn_ids:
        try:
            depth = threads.place_of(tx, kept).depth
        except NotFound:
            continue
        turns = threads.load(tx, turn_id, depth, depth)
        found += [turn for turn in turns if turn.id == kept and depth < boundary.from_depth]
    return found
