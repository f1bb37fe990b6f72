"""Trees of very many turns."""

from __future__ import annotations

from typing import Any

from agents_ledger.importers.transcript.columns import Links
from agents_ledger.importers.transcript.turn_tree import EntryTree, TurnTree

MANY = 100_000


class OnlyPrompts(EntryTree):
    def opens(self, entry: int) -> bool:
        return True

    def joins(self, opener: int, above: int, *, waits: bool) -> bool:
        return waits

    def ends(self, entry: int) -> bool:
        return False


def test_any_number_of_prompts_without_an_answer_is_one_turn() -> None:
    tree = OnlyPrompts(Links(range(-1, MANY - 1)), range(MANY))

    assert len(tree) == 1
    assert list(tree.members(0)) == list(range(MANY))


class Counted(list[int]):
    reads = 0

    def __getitem__(self, at: Any) -> Any:
        self.reads += 1
        return super().__getitem__(at)


def test_the_way_to_an_ancestor_of_many_turns_is_found_in_one_walk() -> None:
    number = 2000
    tree = TurnTree()
    for turn in range(number):
        tree.add(turn - 1 if turn else None)
    parents: Any = Counted(tree._parents.numbers)
    tree._parents.numbers = parents

    steps = tree.steps_towards(dict.fromkeys(range(number), 1))

    assert steps == dict.fromkeys(range(2, number), 2)
    assert parents.reads <= 10 * number


def test_an_unanswered_prompt_is_never_a_head() -> None:
    tree = TurnTree()
    answered = tree.add(None, settled=True)
    waiting = tree.add(tree.add(answered))

    assert tree.nearest_settled(waiting) == answered
    assert tree.nearest_settled(tree.add(None)) is None
