"""The cards of a thread's page: a window of turns that fits one page."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from msgspec import structs

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.reports.pages import Pages
from agents_ledger.model.reports.pages import Window
from agents_ledger.model.reports.trees import Headline, Subagent
from agents_ledger.model.reports.usage import Spent
from agents_ledger.model.turns import SEALED, Message, ToolCall, Turn
from agents_ledger.render.activity import open_calls

TURNS_MAX = 50
BYTES_MAX = 190_000  # of all cards; the rest of a page is small
BATCH_TURNS = 10
STEPS_FIRST, STEPS_LAST = 40, 20
TEXT_MAX = 3000

Sizes = Mapping[tuple[str, str, str], int]  # turn, message or call, field -> whole length
Subagents = Mapping[tuple[str, str], Subagent]  # by turn and call


class CardStep(NamedTuple):
    """A message or a call on a card, or a gap."""

    message: Message | None = None
    call: ToolCall | None = None
    cut: int = 0  # whole length of a message of which only the beginning was read
    thinking_cut: int = 0
    result_size: int = 0
    subagent: Subagent | None = None  # that the call spawned
    subagent_spent: Spent | None = None
    kind: str = ""  # query, response or step
    left_out: int = 0  # steps that are not shown here

    @property
    def size(self) -> int:
        """The estimated bytes of its HTML."""
        if self.message is None:
            return 1500 if self.subagent else 400
        content = self.message.content or ""
        # Tags of rendered Markdown.
        markup = len(content) // 4 if self.message.role == "assistant" else 0
        return 500 + len(content) + markup + len(self.message.thinking or "")


class Card(NamedTuple):
    """A turn on a page."""

    turn: Turn
    steps: tuple[CardStep, ...]
    siblings: tuple[Headline, ...] = ()  # other turns with the same parent, the first few
    number: int = 1  # of this turn among them
    among: int = 1  # how many there are
    continues: tuple[Headline, ...] = ()  # of the last card: its children, the first few
    branches: int = 0  # of the last card: how many children there are
    spent: Spent | None = None

    @property
    def shown(self) -> tuple[object, ...]:
        """Every value on the card, as the key of its HTML."""
        cuts = [
            (step.cut, step.thinking_cut, step.result_size, step.left_out, step.subagent,
             step.subagent_spent, step.call and step.call.status)
            for step in self.steps
        ]  # fmt: skip
        place = (self.number, self.among, self.branches)
        return (self.turn, cuts, place, self.siblings, self.continues, self.spent)

    @property
    def size(self) -> int:
        """The estimated bytes of its HTML."""
        return 1500 + sum(step.size for step in self.steps) + 250 * len(self.siblings)


class CardWindow(NamedTuple):
    """The cards of one page of a thread."""

    cards: tuple[Card, ...]
    first_depth: int
    last_depth: int
    depth: int


def cards_upto(
    ledger: Ledger, target: str, depth: int, last_depth: int, *, below: int = 0
) -> CardWindow:
    """The cards that fit a page, ending at a depth; only those below another depth."""
    pages = ledger.pages
    last_depth = max(0, min(last_depth, depth))
    cards: list[Card] = []
    used, at = 0, last_depth
    # In batches from the end: how many turns fit is not known before they are read.
    while at > below and len(cards) < TURNS_MAX and used < BYTES_MAX:
        from_depth = max(below + 1, at - BATCH_TURNS + 1)
        window = pages.window(target, from_depth=from_depth, to_depth=at, text_max=TEXT_MAX)
        subagents = _subagents(pages, window.turns)
        for card in reversed(_cards(window, subagents, is_end=at == depth)):
            if cards and used + card.size > BYTES_MAX:
                used = BYTES_MAX
                break
            cards.append(card)
            used += card.size
        at = from_depth - 1
    cards.reverse()
    cards = _with_costs(ledger, cards[-TURNS_MAX:])
    first = cards[0].turn.depth if cards else 0
    return CardWindow(tuple(cards), first, last_depth, depth)


def with_running_calls(window: CardWindow, turns: Iterable[Turn]) -> CardWindow:
    """The cards as they are while agents write these turns to logs of their own: importers take
    calls without a result for cancelled."""
    running = {(turn.id, call.id) for turn in turns for call in open_calls(turn)}

    def shown(card: Card, step: CardStep) -> CardStep:
        if step.call is None or (card.turn.id, step.call.id) not in running:
            return step
        return step._replace(call=structs.replace(step.call, status="running", error=None))

    cards = [
        card._replace(steps=tuple(shown(card, step) for step in card.steps))
        for card in window.cards
    ]
    return window._replace(cards=tuple(cards)) if running else window


def card_of(ledger: Ledger, turn: Turn) -> Card:
    """The card of a turn outside of a window."""
    card = Card(turn, _steps(turn, {}, _subagents(ledger.pages, [turn])))
    return _with_costs(ledger, [card])[0]


def _with_costs(ledger: Ledger, cards: Sequence[Card]) -> list[Card]:
    """The cards with what their turns and subagents used."""
    spent = ledger.turn_usage(card.turn.id for card in cards)
    steps = [step for card in cards for step in card.steps]
    labels = {step.subagent.session.label for step in steps if step.subagent}
    usage = ledger.session_usage(labels) if labels else {}

    def with_cost(step: CardStep) -> CardStep:
        used = usage.get(step.subagent.session.label) if step.subagent else None
        return step._replace(subagent_spent=used.total) if used else step

    return [
        card._replace(spent=spent.get(card.turn.id), steps=tuple(map(with_cost, card.steps)))
        for card in cards
    ]


def _subagents(pages: Pages, turns: Iterable[Turn]) -> Subagents:
    spawning = [turn.id for turn in turns if any(c.spawned_session_label for c in turn.tool_calls)]
    return pages.subagents(spawning) if spawning else {}


def _cards(window: Window, subagents: Subagents, *, is_end: bool) -> list[Card]:
    children: dict[str | None, list[Headline]] = {}
    for headline in window.branches:
        children.setdefault(headline.turn.parent_turn_id, []).append(headline)
    cards = []
    for turn in window.turns:
        siblings = tuple(children.get(turn.parent_turn_id, ()) if turn.parent_turn_id else ())
        number, among = window.numbers.get(turn.id, (1, 1))
        is_last = is_end and turn is window.turns[-1]
        below = tuple(children.get(turn.id, ())) if is_last else ()
        # Turns that are being written have cards of their own.
        continues = tuple(b for b in below if b.turn.status in SEALED or b.turn.projected)
        hidden = len(below) - len(continues)
        branches = window.numbers[continues[0].turn.id][1] - hidden if continues else 0
        steps = _steps(turn, window.sizes, subagents)
        cards.append(Card(turn, steps, siblings, number, among, continues, branches))
    return cards


def _steps(turn: Turn, sizes: Sizes, subagents: Subagents) -> tuple[CardStep, ...]:
    query = {message.id for message in turn.query}
    calls = {call.id for call in turn.tool_calls}
    steps = [step for step in turn.steps if not _is_result(step, calls)]
    hidden = len(steps) - STEPS_FIRST - STEPS_LAST
    if hidden <= 1:
        return tuple(_step(turn, step, query, sizes, subagents) for step in steps)
    first = [_step(turn, step, query, sizes, subagents) for step in steps[:STEPS_FIRST]]
    last = [_step(turn, step, query, sizes, subagents) for step in steps[-STEPS_LAST:]]
    return (*first, CardStep(left_out=hidden), *last)


def _is_result(step: Message | ToolCall, calls: Collection[str]) -> bool:
    """Whether a message only repeats the result of a call."""
    return isinstance(step, Message) and step.role == "tool" and step.tool_call_id in calls


def _step(
    turn: Turn,
    step: Message | ToolCall,
    query: Collection[str],
    sizes: Sizes,
    subagents: Subagents,
) -> CardStep:
    if isinstance(step, ToolCall):
        return CardStep(
            call=step,
            result_size=sizes.get((turn.id, step.id, "result_json"), 0),
            subagent=subagents.get((turn.id, step.id)),
        )
    kind = "query" if step.id in query else "step"
    if step.id == turn.response_message_id:
        kind = "response"
    return CardStep(
        message=step,
        cut=sizes.get((turn.id, step.id, "content"), 0),
        thinking_cut=sizes.get((turn.id, step.id, "thinking"), 0),
        kind=kind,
    )
