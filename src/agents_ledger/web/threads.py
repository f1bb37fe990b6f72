"""A thread as its page shows it: a window of cards, never more than a page may hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from markupsafe import Markup

from agents_ledger.exporters import bodies
from agents_ledger.ledger.pages import Pages
from agents_ledger.model.pages import Window
from agents_ledger.model.trees import Headline
from agents_ledger.model.turns import Message, ToolCall, Turn

TURNS_MAX = 50
BYTES_MAX = 190_000  # of cards; the rest of the page has room beside them
CHUNK = 10
STEPS_FIRST, STEPS_LAST = 40, 20
TEXT_MAX = 3000


class Step(NamedTuple):
    """A message or a call within a card."""

    message: Message | None = None
    call: ToolCall | None = None
    body: Markup = Markup("")
    cut: int = 0  # the whole length, if the body is only its beginning
    thinking_cut: int = 0
    result_length: int = 0
    part: str = ""  # query, response or step
    left_out: int = 0  # instead: so many steps are not shown


class Card(NamedTuple):
    """A turn on a page."""

    turn: Turn
    steps: tuple[Step, ...]
    siblings: tuple[Headline, ...] = ()  # the other turns that hang where this one does
    place: int = 1  # among them
    continues: tuple[Headline, ...] = ()  # of the last one: what hangs on it

    @property
    def size(self) -> int:
        """About how much of a page it takes."""
        return 1500 + sum(400 + len(step.body) for step in self.steps) + 250 * len(self.siblings)


class Cards(NamedTuple):
    """A window of a thread, ready to be shown."""

    cards: tuple[Card, ...]
    first_depth: int
    last_depth: int
    depth: int


def cards_upto(pages: Pages, target: str, depth: int, last_depth: int) -> Cards:
    """The cards that fit a page, ending at a depth."""
    last_depth = max(0, min(last_depth, depth))
    shown: list[Card] = []
    used, at = 0, last_depth
    while at > 0 and len(shown) < TURNS_MAX and used < BYTES_MAX:
        from_depth = max(1, at - CHUNK + 1)
        window = pages.window(target, from_depth=from_depth, to_depth=at, text_max=TEXT_MAX)
        for card in reversed(_cards(window, is_end=at == depth)):
            if shown and used + card.size > BYTES_MAX:
                used = BYTES_MAX
                break
            shown.append(card)
            used += card.size
        at = from_depth - 1
    shown.reverse()
    shown = shown[-TURNS_MAX:]
    first = shown[0].turn.depth if shown else 0
    return Cards(tuple(shown), first, last_depth, depth)


def card_of(turn: Turn) -> Card:
    """One turn that is not on a thread's page: a live one."""
    return Card(turn, _steps(turn, {}))


def _cards(window: Window, *, is_end: bool) -> list[Card]:
    beside: dict[str | None, list[Headline]] = {}
    for headline in window.branches:
        beside.setdefault(headline.turn.parent_turn_id, []).append(headline)
    made = []
    for turn in window.turns:
        siblings = tuple(beside.get(turn.parent_turn_id, ()) if turn.parent_turn_id else ())
        place = 1 + sum(other.turn.id < turn.id for other in siblings)
        last = is_end and turn is window.turns[-1]
        continues = tuple(beside.get(turn.id, ())) if last else ()
        made.append(Card(turn, _steps(turn, window.sizes), siblings, place, continues))
    return made


def _steps(turn: Turn, sizes: Mapping[tuple[str, str, str], int]) -> tuple[Step, ...]:
    asked = {message.id for message in turn.query}
    steps = [_step(turn, step, asked, sizes) for step in turn.steps if not _is_result(step, turn)]
    if len(steps) > STEPS_FIRST + STEPS_LAST + 1:
        hidden = len(steps) - STEPS_FIRST - STEPS_LAST
        steps = [*steps[:STEPS_FIRST], Step(left_out=hidden), *steps[-STEPS_LAST:]]
    return tuple(steps)


def _is_result(step: Message | ToolCall, turn: Turn) -> bool:
    """A tool's message repeats the result of its call."""
    if not isinstance(step, Message) or step.role != "tool":
        return False
    return any(call.id == step.tool_call_id for call in turn.tool_calls)


def _step(
    turn: Turn,
    step: Message | ToolCall,
    asked: set[str],
    sizes: Mapping[tuple[str, str, str], int],
) -> Step:
    if isinstance(step, ToolCall):
        return Step(call=step, result_length=sizes.get((turn.id, step.id, "result_json"), 0))
    part = "query" if step.id in asked else "step"
    if step.id == turn.response_message_id:
        part = "response"
    body = bodies.markdown(step.content) if step.content else Markup("")
    return Step(
        message=step,
        body=body,
        cut=sizes.get((turn.id, step.id, "content"), 0),
        thinking_cut=sizes.get((turn.id, step.id, "thinking"), 0),
        part=part,
    )
