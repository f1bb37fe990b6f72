"""What a model is shown of a thread. Only the visible range is read: turns that a compaction hides
cost nothing, and with a budget no more is read than can fit.

The modules that assemble and render are imported on use, so that opening a ledger is fast.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import Struct

from agents_ledger.ledger.turns import recording, threads
from agents_ledger.model.context.items import Cut, Item, Part, Problem, Repair
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.text.tokens import (
    LAST_TURNS,
    Counter,
    check_counter,
    estimate_tokens,
)
from agents_ledger.model.turns import Message, Query, check_number
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    from agents_ledger.context.assembly import Assembled
    from agents_ledger.context.providers import Provider


class Context(Struct, frozen=True):
    """What a model is shown, ready to be sent to any provider. Every item names its turn.

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
    turns_left_out: int = 0  # because of the budget
    repairs: tuple[Repair, ...] = ()

    @property
    def total_tokens(self) -> int:
        """The estimated tokens of all parts."""
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
        """The context in a provider's format: anthropic, openai or openai-responses."""
        return _provider(provider).render(self.system_prompt, self.items)


def _provider(name: str) -> Provider:
    from agents_ledger.context.providers import PROVIDERS

    if name not in PROVIDERS:
        raise Refused(
            f"there is no provider format {name!r}",
            f"Choose one of {', '.join(PROVIDERS)}.",
        )
    return PROVIDERS[name]


def validate(messages: Sequence[Any] | Mapping[str, Any], provider: str) -> tuple[Problem, ...]:
    """What a provider would reject in a list of messages; empty if they are valid.

    Providers are anthropic, openai and openai-responses. The results of `Context.as_...` can be
    passed as they are.
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
    system_prompt: str | None = None,
    count: Counter = estimate_tokens,
) -> Context:
    """The context of a target; see Ledger.context."""
    if budget is not None:
        check_number(budget, "budget", 1)
    check_number(last, "last")
    check_counter(count)
    new_query = tuple(map(recording.checked_step, recording.messages_of(query or ())))
    if before:
        turn = threads.turn(tx, target)
        prompt_of: str | None = turn.id
        turn_id, new_query = turn.parent_turn_id, new_query or turn.query
    else:
        turn_id = prompt_of = _resolved(tx, target, new_query)
    return _at(
        tx,
        turn_id,
        prompt_of=prompt_of,
        query=new_query,
        budget=budget,
        last=last,
        system_prompt=system_prompt,
        count=count,
    )


def _resolved(tx: Transaction, target: str, query: Sequence[Message]) -> str | None:
    try:
        return threads.resolve(tx, target)
    except NotFound:
        if not query:
            raise
        return None  # the session begins with this query


def at(tx: Transaction, turn_id: str, *, count: Counter = estimate_tokens) -> Context:
    """The whole context of an exact turn."""
    return _at(tx, turn_id, prompt_of=turn_id, count=count)


def _at(
    tx: Transaction,
    turn_id: str | None,
    *,
    prompt_of: str | None,
    query: tuple[Message, ...] = (),
    budget: int | None = None,
    last: int = LAST_TURNS,
    system_prompt: str | None = None,
    count: Counter,
) -> Context:
    from agents_ledger.context.assembly import assemble
    from agents_ledger.ledger.context import window

    boundary = window.boundary_at(tx, turn_id)
    history, unread = window.visible(
        tx,
        turn_id,
        prompt_of,
        boundary=boundary,
        query=query,
        budget=budget,
        system_prompt=system_prompt,
        count=count,
    )
    assembled = assemble(history, budget=budget, last=last, count=count, cache=tx.cache)
    return of(
        assembled,
        turn_id,
        compaction_turn_id=boundary.compaction_turn_id,
        budget=budget,
        unread=unread,
        count=count,
    )


def of(
    assembled: Assembled,
    turn_id: str | None,
    *,
    compaction_turn_id: str | None = None,
    budget: int | None = None,
    unread: int = 0,
    count: Counter = estimate_tokens,
) -> Context:
    from agents_ledger.context.assembly import prompt_tokens

    tokens: dict[Part | str, int] = {"system": prompt_tokens(assembled.system_prompt, count)}
    turns: dict[Part | str, int] = {}
    for block in assembled.blocks:
        tokens[block.part] = tokens.get(block.part, 0) + block.tokens
        turns[block.part] = turns.get(block.part, 0) + 1
    return Context(
        turn_id=turn_id,
        system_prompt=assembled.system_prompt,
        items=assembled.items,
        tokens=tokens,
        turns=turns,
        compaction_turn_id=compaction_turn_id,
        budget=budget,
        cuts=assembled.cuts,
        turns_left_out=unread + sum(cut.kind == "turn" for cut in assembled.cuts),
        repairs=assembled.repairs,
    )
