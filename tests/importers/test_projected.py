"""What becomes of sessions, whatever a reader says of them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
from msgspec import structs

from agents_ledger import Ledger
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.ledger.projection.reconcile import Names, ProjectionResult, Projector
from agents_ledger.model.imports.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    SourceFile,
)
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
    ledger: Ledger,
    turns: tuple[DerivedTurn, ...],
    *sessions: DerivedSession,
    files: tuple[SourceFile, ...] = (),
) -> ProjectionResult:
    derivation = Derivation(turns=turns, sessions=sessions)
    done: list[ProjectionResult | Exception] = []
    projector = Projector(ledger._core)
    projector.add("made", 1, files, derivation, names=Names(derivation), done=done.append)
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


def test_a_fork_on_a_retired_turn_moves_to_the_turn_that_repeats_its_records(
    ledger: Ledger,
) -> None:
    columns = "id, source, path, generation, family, kind, size, mtime_ns, kept_bytes"
    insert = f"INSERT INTO source_files ({columns}, first_seen_at, seen_at) VALUES"
    values = "(1, 'made', '/a', 0, 'f', 'lines', 0, 1, 0, 1, 1)"
    ledger._core.write(lambda tx: tx.execute(f"{insert} {values}"))
    file = SourceFile(1, "made", "/a", 0, "f", "lines", 0, 1, 0)

    def of_file(turn: DerivedTurn, *repeated: str) -> DerivedTurn:
        return structs.replace(turn, file_ids=frozenset({1}), repeated_ids=repeated)

    session = DerivedSession(
        session_id="s", label="made:s", head="first", file_ids=frozenset({1}), updated_at=1
    )
    root = of_file(_turn("root-turn", None, "That."))
    project(
        ledger,
        (root, of_file(_turn("first-turn", "root-turn", "Yes."))),
        structs.replace(session, head="first-turn"),
        files=(file,),
    )
    ledger.fork("first-turn", label="mine")

    project(
        ledger,
        (
            root,
            of_file(_turn("between-turn", "root-turn", "Or.")),
            of_file(_turn("again-turn", "between-turn", "Yes."), "first-turn", "first-turn-asked"),
            of_file(_turn("last-turn", "again-turn", "End.")),
        ),
        structs.replace(session, head="last-turn", updated_at=2),
        files=(file,),
    )

    assert ledger.session("mine").thread_id == "again-turn"
