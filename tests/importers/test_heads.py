"""A turn that nobody answered is no session's head, whatever a reader says."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.building import TurnBuilder
from agents_ledger.ledger.projection import Names, Projector, Written
from agents_ledger.model.sources import Derivation, DerivedSession, DerivedTurn
from agents_ledger.model.turns import Turn


def _built(name: str, parent: str | None, answer: str | None) -> Turn:
    builder = TurnBuilder(name, parent)
    builder.message(f"{name}-asked", "user", "What?", at=1, source="human")
    if answer is not None:
        builder.message(f"{name}-said", "assistant", answer, at=2)
    return builder.build()


def _turn(name: str, parent: str | None, answer: str | None) -> DerivedTurn:
    build: Callable[[], Turn] = partial(_built, name, parent, answer)
    return DerivedTurn(name, parent, name.encode(), frozenset(), (f"{name}-asked",), build)


@pytest.mark.parametrize(("answers", "head"), [(("That.", None, None), "a"), ((None,) * 3, None)])
def test_a_head_is_the_nearest_turn_that_was_answered(
    ledger: Ledger, answers: tuple[str | None, ...], head: str | None
) -> None:
    above = (None, "a", "b")
    turns = tuple(map(_turn, "abc", above, answers))
    session = DerivedSession(session_id="s", label="made:s", head="c", file_ids=frozenset())
    derivation = Derivation(turns=turns, sessions=(session,))
    done: list[Written | Exception] = []
    projector = Projector(ledger._core)

    projector.add("made", 1, (), derivation, names=Names(derivation), done=done.append)
    projector.flush()

    assert isinstance(done[0], Written), done
    assert done[0].turns == len(turns)
    assert ledger.session("made:s").thread_id == head
