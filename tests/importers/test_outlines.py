"""Records put in turns, where there are very many."""

from __future__ import annotations

from agents_ledger.importers.transcript.turn_tree import in_turns

MANY = 100_000


def test_any_number_of_prompts_without_an_answer_is_one_turn() -> None:
    parents = range(-1, MANY - 1)

    found = in_turns(
        range(MANY),
        parents,
        (),
        opens=lambda record: True,
        joins=lambda opener, above, *, waits: waits,
    )

    assert list(found.turns) == [0]
    assert set(found.turn_of) == {0}
