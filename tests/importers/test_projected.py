"""What becomes of sessions, whatever a reader says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec import structs

from agents_ledger import Ledger
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.ledger.projection.reconcile import Names, ProjectionResult, Projector
from agents_ledger.model.imports.sources import Derivation, DerivedSession, DerivedTurn
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


def project(
    ledger: Ledger, turns: tuple[DerivedTurn, ...], *sessions: DerivedSession
) -> ProjectionResult:
    derivation = Derivation(turns=turns, sessions=sessions)
    done: list[ProjectionResult | Exception] = []
    projector = Projector(ledger._core)
    projector.add("made", 1, (), derivation, names=Names(derivation), done=done.append)
    projector.flush()
    assert isinstance(done[0], ProjectionResult), done
    return done[0]


@pytest.mark.parametrize(("answers", "head"), [(("That.", None, None), "a"), ((None,) * 3, None)])
def test_a_head_is_the_nearest_turn_that_was_answered(
    ledger: Ledger, answers: tuple[str | None, ...], head: str | None
) -> None:
    turns = tuple(map(_turn, "abc", (None, "a", "b"), answers))
    session = DerivedSession(session_id="s", label="made:s", head="c", file_ids=frozenset())

    assert project(ledger, turns, session).turns == len(turns)

    assert ledger.session("made:s").thread_id == head


@pytest.mark.parametrize("parent", ["made:other", None])
def test_a_session_s_parent_is_the_one_that_its_records_name_now(
    ledger: Ledger, parent: str | None
) -> None:
    names = ("one", "other", "child")
    sessions = [
        DerivedSession(session_id=each, label=f"made:{each}", head=None, file_ids=frozenset())
        for each in names
    ]
    project(ledger, (), *sessions[:2], structs.replace(sessions[2], parent_label="made:one"))
    assert ledger.session("made:child").parent_session_label == "made:one"

    project(ledger, (), structs.replace(sessions[2], parent_label=parent))

    assert ledger.session("made:child").parent_session_label == parent
    assert ledger.audit() == ()
