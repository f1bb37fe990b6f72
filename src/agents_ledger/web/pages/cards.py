"""The cards of a thread's page: a window of turns that fits one page."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from agents_ledger.ledger.reports.pages import Pages
from agents_ledger.model.reports.pages import Window
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.turns import Message, ToolCall, Turn

TURNS_MAX = 50
BYTES_MAX = 190_000  # of all cards; the rest of a page is small
BATCH_TURNS = 10
STEPS_FIRST, STEPS_LAST = 40, 20
TEXT_MAX = 3000

Sizes = Mapping[tuple[str, str, str], int]  # turn, message or call, field -> whole length


class CardStep(NamedTuple):
    """A message or a call on a card, or a gap."""

    message: Message | None = None
    call: ToolCall | None = None
    cut: int = 0  # whole length of a message of which only the beginning was read
    thinking_cut: int = 0
    result_size: int = 0
    kind: str = ""  # query, response or step
    left_out: int = 0  # steps that are not shown here

    @property
    def size(self) -> int:
        """The estimated bytes of its HTML."""
        if self.message is None:
            return 400
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

    @property
    def shown(self) -> tuple[object, ...]:
        """Every value on the card, as the key of its HTML."""
        cuts = [(s.cut, s.thinking_cut, s.result_size, s.left_out) for s in self.steps]
        place = (self.number, self.among, self.branches)
        return (self.turn, cuts, place, self.siblings, self.continues)

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


def cards_upto(pages: Pages, target: str, depth: int, last_depth: int) -> CardWindow:
    """The cards that fit a page, ending at a depth."""
    last_depth = max(0, min(last_depth, depth))
    cards: list[Card] = []
    used, at = 0, last_depth
    # In batches from the end: how many turns fit is not known before they are read.
    while at > 0 and len(cards) < TURNS_MAX and used < BYTES_MAX:
        from_depth = max(1, at - BATCH_TURNS + 1)
        window = pages.window(target, from_depth=from_depth, to_depth=at, text_max=TEXT_MAX)
        for card in reversed(_cards(window, is_end=at == depth)):
            if cards and used + card.size > BYTES_MAX:
                used = BYTES_MAX
                break
            cards.append(card)
            used += card.size
        at = from_depth - 1
    cards.reverse()
    cards = cards[-TURNS_MAX:]
    first = cards[0].turn.depth if cards else 0
    return CardWindow(tuple(cards), first, last_depth, depth)


def card_of(turn: Turn) -> Card:
    """The card of a turn outside of a window."""
    return Card(turn, _steps(turn, {}))


def _cards(window: Window, *, is_end: bool) -> list[Card]:
    children: dict[str | None, list[Headline]] = {}
    for headline in window.branches:
        children.setdefault(headline.turn.parent_turn_id, []).append(headline)
    cards = []
    for turn in window.turns:
        siblings = tuple(children.get(turn.parent_turn_id, ()) if turn.parent_turn_id else ())
        number, among = window.numbers.get(turn.id, (1, 1))
        is_last = is_end and turn is window.turns[-1]
        continues = tuple(children.get(turn.id, ())) if is_last else ()
        branches = window.numbers[continues[0].turn.id][1] if continues else 0
        steps = _steps(turn, window.sizes)
        cards.append(Card(turn, steps, siblings, number, among, continues, branches))
    return cards


def _steps(turn: Turn, sizes: Sizes) -> tuple[CardStep, ...]:
    query = {message.id for message in turn.query}
    calls = {call.id for call in turn.tool_calls}
    steps = [step for step in turn.steps if not _is_result(step, calls)]
    hidden = len(steps) - STEPS_FIRST - STEPS_LAST
    if hidden <= 1:
        return tuple(_step(turn, step, query, sizes) for step in steps)
    first = [_step(turn, step, query, sizes) for step in steps[:STEPS_FIRST]]
    last = [_step(turn, step, query, sizes) for step in steps[-STEPS_LAST:]]
    return (*first, CardStep(left_out=hidden), *last)


def _is_result(step: Message | ToolCall, calls: Collection[str]) -> bool:
    """Whether a message only repeats the result of a call."""
    return isinstance(step, Message) and step.role == "tool" and step.tool_call_id in calls


def _step(turn: Turn, step: Message | ToolCall, query: Collection[str], sizes: Sizes) -> CardStep:
    if isinstance(step, ToolCall):
        return CardStep(call=step, result_size=sizes.get((turn.id, step.id, "result_json"), 0))
    kind = "query" if step.id in query else "step"
    if step.id == turn.response_message_id:
        kind = "response"
    return CardStep(
        message=step,
        cut=sizes.get((turn.id, step.id, "content"), 0),
        thinking_cut=sizes.get((turn.id, step.id, "thinking"), 0),
        kind=kind,
    )
