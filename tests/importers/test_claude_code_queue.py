"""What was typed into Claude Code before the agent was given it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, result

LABEL = f"claude-code:{SESSION}"
EARLY = "2026-03-01T09:00:00Z"


def typed(
    log: Log, words: str, at: str = "2026-03-01T11:00:00Z", operation: str = "enqueue"
) -> None:
    log.add("queue-operation", operation=operation, content=words, timestamp=at)


def test_text_typed_while_the_agent_worked_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    log.add(
        "queue-operation",
        operation="enqueue",
        content="And hurry.",
        timestamp="2026-03-01T11:00:00Z",
    )
    log.add("attachment", "a3", attachment={"type": "queued_command", "prompt": "Also test."})
    log.result("a4", "t1", "ok")
    log.assistant("a5", text("Done."))

    import_paths(ledger, log.save())

    said = [m.content for m in ledger.get_turn(uid("a1")).messages if m.source == "human"]
    assert sorted(said, key=str) == ["Also test.", "And hurry.", "Run it."]


def test_what_was_typed_stands_where_it_was_typed(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    typed(log, "Quicker.")
    log.result("a3", "t1", "made")
    log.assistant("a4", text("Made."))
    import_paths(ledger, log.save())

    said = [message.content for message in ledger.get_turn(uid("a1")).messages]
    assert said == ["Begin.", "", "Quicker.", "Made."]


def test_text_typed_while_the_agent_worked_stands_once(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    typed(log, "Go on.")
    log.add("attachment", "a3", attachment={"type": "queued_command", "prompt": "Go on."})
    typed(log, "Then stop.")
    log.result("a4", "t1", "ok")
    log.assistant("a5", text("Done."))
    typed(log, "Then stop.", operation="dequeue")
    log.user("b1", "Then stop.")
    log.assistant("b2", text("Stopped."))
    typed(log, "Go on.", "2026-03-01T12:00:00Z")  # the same words once more
    typed(log, "Now.", "2026-03-01T12:00:00Z")
    log.assistant("b3", text("On it."))

    import_paths(ledger, log.save())

    said = [
        [m.content for m in ledger.get_turn(uid(name)).messages if m.source == "human"]
        for name in ("a1", "b1")
    ]
    assert said == [["Run it.", "Go on."], ["Then stop.", "Go on.", "Now."]]


def test_what_the_program_puts_in_the_queue_was_not_typed(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Run it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    notice = json.dumps({"task_id": "b1", "task_type": "local_bash"}, separators=(",", ":"))
    log.add(
        "queue-operation", operation="enqueue", content=notice, timestamp="2026-03-01T11:00:00Z"
    )
    log.result("a3", "t1", "ok")
    log.assistant("a4", text("Done."))

    import_paths(ledger, log.save())

    told = [m for m in ledger.get_turn(uid("a1")).messages if m.content == notice]
    assert [message.source for message in told] == ["event"]


def test_what_was_planned_for_a_time_is_asked_then_and_by_nobody(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Report every morning.")
    log.assistant("a2", text("Planned."))
    typed(log, "Morning report.")
    log.user("b1", "Morning report.", isMeta=True)
    log.assistant("b2", text("Two commits."))
    log.user("b3", "A reminder.", isMeta=True)

    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert [message.content for message in first.messages] == ["Report every morning.", "Planned."]
    assert [(m.content, m.source) for m in second.messages if m.role == "user"] == [
        ("Morning report.", "event"),
        ("A reminder.", "event"),
    ]


def test_what_was_typed_into_a_session_that_never_began_is_a_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    typed(log, "Say hello.", EARLY)
    typed(log, "Or not.")

    report = import_paths(ledger, log.save())

    (name,) = ledger.query("SELECT id FROM turns")[1][0]
    turn = ledger.get_turn(name)
    assert (turn.status, [message.content for message in turn.query]) == (
        "pending",
        ["Say hello.", "Or not."],
    )
    assert ledger.session(LABEL).thread_id is None
    assert report.records == {("claude-code", "queue-operation", "derived"): 2}


def test_a_session_that_begins_later_says_it_itself(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    typed(log, "/init", EARLY)
    import_paths(ledger, log.save())
    log.user("a1", "<command-name>/init</command-name>")
    log.assistant("a2", text("Done."))

    report = import_paths(ledger, log.save())

    assert [turn.id for turn in ledger.thread(LABEL).turns] == [uid("a1")]
    assert len(ledger.query("SELECT id FROM turns")[1]) == 1
    assert report.records["claude-code", "queue-operation", "derived"] == 1
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, log.path)
        assert result(whole) == result(ledger)


def test_that_a_command_is_unknown_was_said_by_nobody(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Unknown skill: buddy")
    log.user("a2", "Unknown skill: what is it?")
    log.assistant("a3", text("A command."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    said = [(message.content, message.source) for message in turn.messages[:2]]
    assert said == [
        ("Unknown skill: buddy", "event"),
        ("Unknown skill: what is it?", "human"),
    ]


COMMAND = "<command-name>/buddy</command-name>\n<command-message>buddy</command-message>"


@pytest.mark.parametrize("words", [COMMAND, "/buddy", "/buddy wake up", None])
@pytest.mark.parametrize("is_system", [True, False])
@pytest.mark.parametrize("answer", ["Unknown skill: buddy", "Unknown slash command: buddy"])
def test_an_unknown_command_waits_for_nobody(
    ledger: Ledger, tmp_path: Path, words: str | None, is_system: bool, answer: str
) -> None:
    log = Log(tmp_path)
    if words is not None:
        log.user("a1", words)
    if is_system:
        log.add("system", "a2", subtype="local_command", content=answer, level="info")
    else:
        log.user("a2", answer)
    import_paths(ledger, log.save())
    assert ledger.query("SELECT status FROM turns")[1] == [("completed",)]
    log.user("b1", "Hello?")

    import_paths(ledger, log.save())

    assert {status for (status,) in ledger.query("SELECT status FROM turns")[1]} == {"pending"}
    log.assistant("b2", text("Hi."))
    import_paths(ledger, log.save())
    (turn,) = ledger.thread(LABEL).turns
    asked = [message.content for message in turn.messages if message.source == "human"]
    assert (turn.status, asked) == ("completed", ["Hello?"])


@pytest.mark.parametrize("words", ["/etc is full.", "/home/me/a.py fails.", "/review all of it"])
def test_a_prompt_may_begin_as_a_command_does(ledger: Ledger, tmp_path: Path, words: str) -> None:
    log = Log(tmp_path)
    log.user("a1", words)
    import_paths(ledger, log.save())
    assert ledger.query("SELECT status FROM turns")[1] == [("pending",)]
    log.assistant("a2", text("So it is."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    assert [(message.content, message.source) for message in turn.query] == [(words, "human")]


@pytest.mark.parametrize("tag", ["ci-monitor-event", "agent-notification", "bash-notification"])
def test_what_watches_work_elsewhere_is_nobody(ledger: Ledger, tmp_path: Path, tag: str) -> None:
    event = f"<{tag}>\nA check failed: fix it.\n</{tag}>"
    log = Log(tmp_path)
    log.user("a1", "Open the request.")
    log.assistant("a2", text("Opened."))
    log.user("b1", event)
    log.assistant("b2", text("Fixed."))
    typed(log, event)

    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    said = {message.content: message.source for turn in turns for message in turn.messages}
    assert (said[event], said["Open the request."]) == ("event", "human")
    assert len(turns) == 1


def test_what_another_session_says_is_an_agents_and_stands_once(
    ledger: Ledger, tmp_path: Path
) -> None:
    peer = {"kind": "peer", "name": "reviewer"}
    said = [f"<cross-session-message from={each}>\nDone.</cross-session-message>" for each in "xyz"]
    log = Log(tmp_path)
    log.user("a1", "Review it.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    typed(log, said[0].replace(">", " hop-chain=a>", 1))
    typed(log, said[1])
    attached = {"type": "queued_command", "commandMode": "prompt"}
    log.add("attachment", "a3", attachment=attached | {"prompt": said[1], "origin": peer})
    log.add("attachment", "a4", attachment=attached | {"prompt": "It is noon.", "origin": peer})
    log.result("a5", "t1", "made")
    log.assistant("a6", text("Made."))
    given = f"Another Claude session sent a message:\n{said[0]}"
    log.user("a7", given, isMeta=True, origin=peer)
    log.assistant("a8", text("Good."))
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(LABEL).turns
    asked = [(m.content, m.source) for m in turn.messages if m.role == "user"]
    others = [(words, "agent") for words in (said[1], "It is noon.", given)]
    assert asked == [("Review it.", "human"), *others]
