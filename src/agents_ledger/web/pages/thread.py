"""A thread as its page shows it: a window of cards, never more than a page may hold."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from markupsafe import Markup

from agents_ledger.ledger.reports.pages import Pages
from agents_ledger.model.reports.pages import Window
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.turns import Message, ToolCall, Turn
from agents_ledger.render import bodies

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

    @property
    def size(self) -> int:
        """About how much of a page it takes."""
        said = self.message.content if self.message else None
        thought = self.message.thinking if self.message else None
        return 400 + max(len(self.body), len(said or "")) + len(thought or "")


class Card(NamedTuple):
    """A turn on a page."""

    turn: Turn
    steps: tuple[Step, ...]
    siblings: tuple[Headline, ...] = ()  # other turns that hang where this one does, the first few
    number: int = 1  # of this one there
    among: int = 1  # how many there are
    continues: tuple[Headline, ...] = ()  # of the last one: what hangs on it, the first few
    branches: int = 0  # of the last one: how many hang on it

    @property
    def shown(self) -> tuple[object, ...]:
        """All that a page shows of it: the steps say what the turn says, cut where it is long."""
        cuts = [(s.cut, s.thinking_cut, s.result_length, s.left_out) for s in self.steps]
        place = (self.number, self.among, self.branches)
        return (self.turn, cuts, place, self.siblings, self.continues)

    @property
    def size(self) -> int:
        """About how much of a page it takes."""
        return 1500 + sum(step.size for step in self.steps) + 250 * len(self.siblings)


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
        number, among = window.numbers.get(turn.id, (1, 1))
        last = is_end and turn is window.turns[-1]
        continues = tuple(beside.get(turn.id, ())) if last else ()
        branches = window.numbers[continues[0].turn.id][1] if continues else 0
        steps = _steps(turn, window.sizes)
        made.append(Card(turn, steps, siblings, number, among, continues, branches))
    return made


def _steps(turn: Turn, sizes: Mapping[tuple[str, str, str], int]) -> tuple[Step, ...]:
    asked = {message.id for message in turn.query}
    calls = {call.id for call in turn.tool_calls}
    steps = [step for step in turn.steps if not _is_result(step, calls)]
    hidden = len(steps) - STEPS_FIRST - STEPS_LAST
    if hidden <= 1:
        return tuple(_step(turn, step, asked, sizes) for step in steps)
    first = [_step(turn, step, asked, sizes) for step in steps[:STEPS_FIRST]]
    last = [_step(turn, step, asked, sizes) for step in steps[-STEPS_LAST:]]
    return (*first, Step(left_out=hidden), *last)


def _is_result(step: Message | ToolCall, calls: Collection[str]) -> bool:
    """A tool's message repeats the result of its call."""
    return isinstance(step, Message) and step.role == "tool" and step.tool_call_id in calls


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
    body = bodies.markdown(step.content or "") if step.role == "assistant" else Markup("")
    return Step(
        message=step,
        body=body,
        cut=sizes.get((turn.id, step.id, "content"), 0),
        thinking_cut=sizes.get((turn.id, step.id, "thinking"), 0),
        part=part,
    )
