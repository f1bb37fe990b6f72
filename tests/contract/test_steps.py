"""What sealed turns consist of is read once by a process; what can still change, each time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger, Message, MessageCodeblock, MessageFile, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.turns.contents import Steps
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.sealed_cache import SealedCache
from tests.builders import chain
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths
from tests.statements import Watched

STEPS = {"segment_messages", "segment_tool_calls", "thread_messages", "thread_tool_calls"}


@pytest.fixture
def watched(db: Database) -> Iterator[tuple[Watched, Ledger]]:
    statements, database = Watched.over(db)
    with Ledger(Core(database)) as ledger:
        yield statements, ledger


def _read(statements: Watched) -> dict[str, int]:
    return {name: rows for name, rows in statements.ran if name in STEPS}


def test_steps_are_read_once_and_then_only_those_of_new_turns(
    watched: tuple[Watched, Ledger],
) -> None:
    statements, ledger = watched
    file = MessageFile("read", "a.py")
    said = Message("assistant", "It is there.", files=(file,))
    ledger.record("main", "Where?", said, steps=[ToolCall.of("Grep", {"for": "it"}, "a.py")])
    chain(ledger, "main", 5)

    first = ledger.thread("main", last=20)
    assert _read(statements)["segment_messages"] == 12
    again = ledger.thread("main", last=20)
    assert _read(statements) == {}
    ledger.record("main", "More?", "No.")
    longer = ledger.thread("main", last=20)
    assert _read(statements) == {"segment_messages": 2, "segment_tool_calls": 0}

    assert again == first
    assert longer.turns[0].tool_calls == first.turns[0].tool_calls
    assert longer.turns[0].messages[-1].files == (file,)
    assert longer.turns[-1].response is not None
    assert longer.turns[-1].response.content == "No."


def test_a_fork_finds_what_its_origin_had_read(watched: tuple[Watched, Ledger]) -> None:
    statements, ledger = watched
    turns = chain(ledger, "main", 6)
    ledger.thread("main")
    ledger.fork(turns[2], label="other")
    ledger.record("other", "Otherwise?", "So.")

    found = ledger.thread("other")

    assert _read(statements) == {"segment_messages": 2, "segment_tool_calls": 0}
    assert [turn.id for turn in found.turns[:3]] == turns[:3]
    assert all(turn.messages for turn in found.turns)


def test_a_turn_that_is_written_is_read_as_it_grows(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    with ledger.turn("main", "Go on.") as turn:
        assert len(ledger.get_turn(turn.id).messages) == 1
        turn.message("I am looking.")
        assert len(ledger.get_turn(turn.id).messages) == 2
        with turn.tool_call("Read", {"path": "a.py"}) as call:
            assert ledger.get_turn(turn.id).tool_calls[0].status == "running"
            call.complete("text")
        turn.respond("Done.")

    assert [message.content for message in ledger.get_turn(turn.id).messages] == [
        "Go on.",
        "I am looking.",
        "Done.",
    ]
    assert ledger.get_turn(turn.id).tool_calls[0].status == "completed"


def test_an_imported_turn_is_read_as_it_is_derived_anew(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path / "logs")
    log.user("a", "Begin.")
    log.assistant("b", text("First."))
    log.save()
    import_paths(ledger, tmp_path / "logs")
    (session,) = ledger.sessions()
    before = ledger.thread(session.label).turns[0]
    log.assistant("c", text("Second."))
    log.save()
    import_paths(ledger, tmp_path / "logs")

    after = ledger.thread(session.label).turns[0]

    assert after.id == before.id
    assert [m.content for m in after.messages] == ["Begin.", "First.", "Second."]


def test_what_is_rolled_back_is_not_remembered(ledger: Ledger) -> None:
    from agents_ledger.ledger.turns import recording, threads

    def fail(tx: Transaction) -> None:
        fields = {"id": "chosen"}
        recording.record(tx, recording.recording("main", "One?", "One.", fields))
        assert threads.exact_turn(tx, "chosen").response is not None
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        ledger._core.db.write(fail)
    ledger.record("main", "Two?", "Two.", id="chosen")

    assert [message.content for message in ledger.get_turn("chosen").messages] == ["Two?", "Two."]


def test_a_turn_looked_at_alone_is_not_remembered(watched: tuple[Watched, Ledger]) -> None:
    statements, ledger = watched
    (turn_id,) = chain(ledger, "main", 1)
    for _ in range(2):
        ledger.get_turn(turn_id)
        assert _read(statements)["segment_messages"] == 2


def test_what_a_value_takes_itself_is_counted() -> None:
    block = MessageCodeblock("x" * 1000)
    steps = Steps((Message("user", "ok"), Message("assistant", "ok", codeblocks=(block,))))

    assert Steps().letters >= 400
    assert 1004 + 4 * 400 <= steps.letters <= 1004 + 5 * 400


def test_no_more_is_remembered_than_there_is_room_for() -> None:
    known = SealedCache(letters_max=80)
    for number in range(10):
        known.keep(f"turn {number}", number, 10)
        known.keep(f"turn {number}", number, 10)  # by two readers at once

    assert [known.get(f"turn {number}") for number in range(10)] == [None, None, *range(2, 10)]
    known.keep("long", "long", 11)
    assert known.get("long") is None
    assert known.get("turn 2") == 2
