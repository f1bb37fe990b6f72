"""Claude Code's records that neither ask nor answer, and those out of their order."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.claude_code.records import spill_names
from tests.importers.claude_log import SESSION, Log, text, tool, uid
from tests.importers.helping import import_paths, result

HOOK = {"type": "hook_success", "hookName": "SessionStart:startup", "content": "", "exitCode": 0}
EXIT = "<command-name>/exit</command-name>\n<command-message>exit</command-message>"
BYE = "<local-command-stdout>Bye!</local-command-stdout>"


def test_what_stands_before_the_first_prompt_belongs_to_its_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.add("attachment", "a1", attachment=HOOK)
    log.add("system", "a2", subtype="informational", content="Remote control is active.")
    log.clock += 600
    log.user("b1", "Begin.")
    log.assistant("b2", text("Begun."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"claude-code:{SESSION}").turns
    assert (turn.id, turn.status, turn.parent_turn_id) == (uid("b1"), "completed", None)
    assert [message.content for message in turn.query] == ["Begin."]
    assert turn.messages[0].content == "Remote control is active."
    assert turn.started_at == turn.query[0].created_at
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(1,)]


def test_a_session_that_only_began_has_no_turn_yet(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.add("attachment", "a1", attachment=HOOK)
    import_paths(ledger, log.save())

    assert ledger.head(f"claude-code:{SESSION}") is None
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(0,)]

    log.add("system", "a2", subtype="informational", content="Remote control is active.")
    import_paths(ledger, log.save())
    log.user("b1", "Begin.")
    import_paths(ledger, log.save())
    log.assistant("b2", text("Begun."))
    import_paths(ledger, log.save())

    assert ledger.query("SELECT id, parent_turn_id FROM turns")[1] == [(uid("b1"), None)]


def test_a_prompt_asked_twice_at_the_very_beginning_is_a_branch_of_what_was_told_before(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.add("attachment", "a1", attachment=HOOK)
    log.add("system", "a2", subtype="informational", content="Remote control is active.")
    log.user("b1", "Begin.")
    log.assistant("b2", text("Begun."))
    log.user("c1", "Begin anew.", parentUuid=uid("a2"))
    log.assistant("c2", text("Anew."))

    import_paths(ledger, log.save())

    assert {child.id for child in ledger.children(uid("a2"))} == {uid("b1"), uid("c1")}
    assert ledger.head(f"claude-code:{SESSION}") == uid("c1")


def test_leaving_and_coming_back_is_no_branch(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", EXIT)
    log.user("b2", BYE)
    log.user("c1", EXIT, parentUuid=uid("a2"))
    log.user("c2", BYE)
    log.user("d1", "Go on.", parentUuid=uid("a2"))
    log.assistant("d2", text("On."))
    grown = Log(tmp_path)
    for line in log.lines:  # as it was written, so it is watched
        grown.lines.append(line)
        import_paths(ledger, grown.save())

    assert [child.id for child in ledger.children(uid("a1"))] == [uid("d1")]
    first, second = ledger.thread(f"claude-code:{SESSION}").turns
    assert [message.content for message in second.query] == ["Go on."]
    assert {m.id for m in first.messages} >= {uid("b1"), uid("b2"), uid("c1"), uid("c2")}
    seen = result(ledger)
    with Ledger.open(str(tmp_path / "at-once.db")) as other:
        import_paths(other, log.save())
        assert result(other) == seen


def test_a_command_for_the_program_itself_is_no_part_of_what_was_asked_of_the_agent(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-name>/model</command-name>")
    log.user("a2", "<local-command-stdout>Set model to opus</local-command-stdout>")
    log.user("a3", "Begin.")
    log.assistant("a4", text("Begun."))
    log.user(
        "b1", "<command-message>review</command-message>\n<command-name>/review</command-name>"
    )
    log.user("b2", "Review the changes.", isMeta=True)
    log.assistant("b3", text("Reviewed."))

    import_paths(ledger, log.save())

    first, second = ledger.thread(f"claude-code:{SESSION}").turns
    assert [message.source for message in first.query] == ["event", "event", "human"]
    assert [message.source for message in second.query] == ["human", "event"]
    assert ledger.headlines([first.id])[0].text == "Begin."


def test_what_a_command_printed_may_stand_in_a_record_of_the_program(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "<command-name>/clear</command-name>")
    printed = "<local-command-stdout></local-command-stdout>"
    log.add("system", "a2", subtype="local_command", content=printed)
    log.user("a3", "Begin.")
    log.assistant("a4", text("Begun."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"claude-code:{SESSION}").turns
    assert [message.source for message in turn.messages] == ["event", "event", "human", None]


def refused(log: Log, name: str, tried: int) -> None:
    said = {"message": "outer", "error": {"error": {"message": "Rate limit reached"}}}
    error = {"status": 429, **said}
    more = {"retryAttempt": tried, "maxRetries": 2, "error": error}
    log.add("system", name, subtype="api_error", level="error", **more)


def test_what_the_provider_refused_is_told_and_fails_a_turn_that_it_never_answered(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    refused(log, "a2", 1)
    import_paths(ledger, log.save())
    assert ledger.get_turn(uid("a1")).status == "pending"
    refused(log, "a3", 2)
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert [m.content for m in turn.messages[1:]] == [
        "429 Rate limit reached (attempt 1 of 2)",
        "429 Rate limit reached (attempt 2 of 2)",
    ]
    assert (turn.status, turn.error) == ("failed", "429 Rate limit reached (attempt 2 of 2)")

    log.assistant("a4", text("Begun."))
    import_paths(ledger, log.save())

    turn = ledger.get_turn(uid("a1"))
    assert (turn.status, turn.error) == ("completed", None)


def test_a_prompt_after_a_refusal_waits_for_its_own_answer(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    refused(log, "a2", 2)
    log.user("a3", "Again.")

    import_paths(ledger, log.save())

    before, turn = (ledger.get_turn(uid(name)) for name in ("a1", "a3"))
    assert (before.status, turn.status, turn.error) == ("failed", "pending", None)
    assert turn.parent_turn_id == before.id


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("Connection error.", "Connection error. (attempt 1 of 2)"),
        ({"message": "Overloaded", "error": {"type": "x"}}, "Overloaded (attempt 1 of 2)"),
        ({"error": []}, "(attempt 1 of 2)"),
    ],
)
def test_a_refusal_is_told_in_whatever_words_there_are(
    error: object, words: str, ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    more = {"retryAttempt": 1, "maxRetries": 2, "error": error}
    log.add("system", "a2", subtype="api_error", **more)

    import_paths(ledger, log.save())

    assert ledger.get_turn(uid("a1")).messages[1].content == words


def test_a_command_given_last_waits_for_its_answer(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.user("b1", "<command-name>/review</command-name>")
    log.user("b2", "Review the changes.", isMeta=True)

    import_paths(ledger, log.save())

    assert ledger.get_turn(uid("b1")).status == "pending"


def test_a_result_written_before_its_call_is_that_calls(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Look twice.")
    log.assistant("a2", tool("t1", "Read", file_path="/home/dev/one"), api="m")
    log.result("a4", "t2", "two", parentUuid=uid("a3"))
    log.assistant(
        "a3", tool("t2", "Read", file_path="/home/dev/two"), api="m", parentUuid=uid("a2")
    )
    log.result("a5", "t1", "one", parentUuid=uid("a2"))
    log.assistant("a6", text("Seen."))

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"claude-code:{SESSION}").turns
    assert {call.id: call.result_json for call in turn.tool_calls} == {"t1": '"one"', "t2": '"two"'}
    assert {call.status for call in turn.tool_calls} == {"completed"}
    assert [message.role for message in turn.messages] == ["user", "assistant", "assistant"]


def compacted(folder: Path, name: str = SESSION) -> Log:
    log = Log(folder, name)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."))
    log.add(
        "system", "b1", subtype="compact_boundary", parentUuid=None, logicalParentUuid=uid("a2")
    )
    log.user("b2", "What came before.", isCompactSummary=True)
    return log


def test_what_is_asked_after_the_work_that_followed_a_compaction_stands_on_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = compacted(tmp_path)
    log.assistant("c1", text("I go on."))
    log.assistant("c2", text("And on."))
    log.add("system", "d1", subtype="stop_hook_summary", parentUuid=uid("b2"))  # told of late
    log.user("d2", "Go elsewhere.")
    log.assistant("d3", text("Gone."))

    import_paths(ledger, log.save())

    turns = ledger.thread(f"claude-code:{SESSION}").turns
    assert [turn.id for turn in turns] == [uid("a1"), uid("b1"), uid("c1"), uid("d2")]
    assert "forked_within" not in (ledger.session(f"claude-code:{SESSION}").metadata_json or "")


def test_a_session_that_was_forked_at_a_compaction_is_a_branch_of_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = compacted(tmp_path)
    other = compacted(tmp_path, "22222222-2222-4222-8222-222222222222")
    log.assistant("c1", text("I go on."))
    other.user("d1", "Go elsewhere.")
    other.assistant("d2", text("Gone."))

    import_paths(ledger, log.save(), other.save())

    assert {child.id for child in ledger.children(uid("b1"))} == {uid("c1"), uid("d1")}


def test_text_typed_after_a_compaction_belongs_to_the_work_that_goes_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = compacted(tmp_path)
    typed = {"operation": "enqueue", "content": "Well?", "timestamp": "2026-03-01T10:01:00.000Z"}
    log.add("queue-operation", sessionId=SESSION, **typed)
    log.assistant("c1", text("I go on."))

    import_paths(ledger, log.save())

    (last,) = ledger.children(uid("b1"))
    assert (last.id, last.status) == (uid("c1"), "completed")
    said = [message.content for message in ledger.get_turn(last.id).messages]
    assert said == ["Well?", "I go on."]


def test_records_of_qwen_code_are_recognised_as_such(ledger: Ledger, tmp_path: Path) -> None:
    said = {"sessionId": SESSION, "timestamp": "2026-03-01T10:00:00Z", "cwd": "/home/dev/shop"}
    records: list[dict[str, object]] = [
        {"type": "system", "systemPayload": {"uiEvent": {}}},
        {"type": "user", "message": {"role": "user", "parts": [{"text": "Begin."}]}},
        {"type": "assistant", "message": {"role": "model", "parts": [{"text": "Begun."}]}},
    ]
    lines = [{"uuid": uid(f"a{n}"), **said, **record} for n, record in enumerate(records)]
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))

    import_paths(ledger, path)

    assert [session.origin for session in ledger.sessions()] == ["qwen-code"]


def test_an_archive_among_the_outputs_of_a_session_is_kept_as_it_is(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Fetch it.")
    log.assistant("a2", text("Fetched."))
    log.save()
    fetched = tmp_path / SESSION / "tool-results" / "webfetch-1-a.zip"
    fetched.parent.mkdir(parents=True)
    other = Log(tmp_path / "other", "22222222-2222-4222-8222-222222222222")
    other.user("b1", "Somebody else's.")
    with zipfile.ZipFile(fetched, "w") as archive:
        archive.write(other.save(), "session.jsonl")
        archive.writestr("SKILL.md", "# Skill")

    report = import_paths(ledger, tmp_path / SESSION, log.path)

    assert (report.unrecognised, report.faults) == ([], [])
    kept = ledger.query("SELECT path, kept_bytes FROM source_files")[1]
    assert sorted(kept) == [(str(path), path.stat().st_size) for path in (log.path, fetched)]
    assert [session.label for session in ledger.sessions()] == [f"claude-code:{SESSION}"]
    again = import_paths(ledger, fetched)
    assert (again.written_turns, again.records) == (0, {})


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (rb'"/home/dev/one/tool-results/b1.txt"', {"one/b1.txt"}),
        (rb'"C:\\Users\\two\\tool-results\\b2.txt"', {"two/b2.txt"}),
        (b"tool-results/b3.txt in a text", set()),
        (b"a" * 2_000_000 + b" tool-results/b4.txt", set()),  # linear, or it takes hours
        (b"\\" * 2_000_000 + b"tool-results", set()),
    ],
    ids=["slashes", "backslashes", "no folder", "long", "many"],
)
def test_outputs_are_known_by_folder_and_name(data: bytes, named: set[str]) -> None:
    assert set(spill_names(data)) == named


def saved(tmp_path: Path, name: str, words: str) -> Path:
    path = tmp_path / SESSION / "tool-results" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words)
    return path


def test_a_session_that_looked_through_the_logs_does_not_depend_on_them(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    whole = saved(tmp_path, "t1.txt", "all of it")
    shown = f"<persisted-output>\nToo large. Full output saved to: {whole}\n"
    log.result("a3", "t1", shown)
    log.assistant("a4", text("Made."))
    log.save()
    other = Log(tmp_path, "00000000-2222-4222-8222-222222222222")
    other.user("b1", "Look.")
    other.assistant("b2", tool("t2", "Grep", pattern="make"), tool("t3", "Bash", command="cat"))
    other.result("b3", "t2", f"Found 1 file\n{whole}")
    other.result("b4", "t3", f"It says: {shown}")
    other.assistant("b5", text("Seen."))
    other.save()
    import_paths(ledger, tmp_path)

    log.user("a5", "Go on.")
    log.save()
    import_paths(ledger, tmp_path)

    seen = ledger.get_turn(uid("b1"))
    assert (seen.status, [m.content for m in seen.messages]) == (
        "completed",
        ["Look.", "", "Seen."],
    )
    assert ledger.get_turn(uid("a1")).tool_calls[0].result_json == '"all of it"'
    assert rederive(ledger).written_turns == 0


def test_a_fork_shows_the_outputs_that_were_saved_before_it(ledger: Ledger, tmp_path: Path) -> None:
    whole = saved(tmp_path, "t1.txt", "all of it")
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", tool("t1", "Bash", command="make"))
    log.result("a3", "t1", f"<persisted-output>\nToo large. Full output saved to: {whole}\n")
    own = f'"sessionId": "{SESSION}"'
    fork = "00000000-2222-4222-8222-222222222222"
    copies = [line.replace(own, f'"sessionId": "{fork}"') for line in log.lines]
    (tmp_path / f"{fork}.jsonl").write_text("".join(f"{line}\n" for line in copies))
    log.save()
    import_paths(ledger, tmp_path)

    assert ledger.get_turn(uid("a1")).tool_calls[0].result_json == '"all of it"'


def test_what_an_output_begins_with_may_name_others(ledger: Ledger, tmp_path: Path) -> None:
    first = saved(tmp_path, "a.txt", "another")
    whole = saved(tmp_path, "b.txt", "a list")
    log = Log(tmp_path)
    log.user("a1", "List them.")
    log.assistant("a2", tool("t1", "Bash", command="find"))
    log.result("a3", "t1", f"<persisted-output>\nsaved to: {whole}\n\nPreview:\n{first}\n")
    log.save()
    import_paths(ledger, tmp_path)

    assert ledger.get_turn(uid("a1")).tool_calls[0].result_json == '"a list"'


def test_a_session_whose_last_turn_grows_was_active_then(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Beginning."))
    import_paths(ledger, log.save())
    log.assistant("a3", text("Begun."))
    import_paths(ledger, log.save())

    session = ledger.session(f"claude-code:{SESSION}")
    assert session.updated_at == ledger.get_turn(uid("a1")).completed_at
    assert session.created_at == ledger.get_turn(uid("a1")).started_at
