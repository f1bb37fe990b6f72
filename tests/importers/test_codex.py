"""Codex: rollouts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.codex.source import Codex
from tests.importers.codex_log import THREAD, Rollout, thread_id, turn_id
from tests.importers.helping import import_paths, result

LABEL = f"codex:{THREAD}"


def test_a_turn_has_the_source_s_turn_id(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path, git={"branch": "main", "commit_hash": "abc"})
    log.start(1)
    log.item("message", role="developer", content=[{"type": "input_text", "text": "Be brief."}])
    log.user("<environment_context>\n  <cwd>/home/dev/shop</cwd>\n</environment_context>")
    log.ask("What does the cart do?")
    log.item("reasoning", summary=[{"type": "summary_text", "text": "Look."}], content=None)
    log.call("c1", cmd="cat cart.py", output="Process exited with code 0\nclass Cart: ...")
    log.item("reasoning", summary=[], encrypted_content="gAAAA")
    log.say("It adds things up.")
    log.tokens(120)
    log.end(1)
    log.exchange(2, "Thanks.", "You are welcome.")

    report = import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    assert (first.id, second.id) == (turn_id(1), turn_id(2))
    assert [(m.role, m.source) for m in first.messages[:3]] == [
        ("system", "event"),
        ("user", "event"),
        ("user", "human"),
    ]
    assert first.messages[3].thinking == "Look."
    assert first.response is not None
    assert first.response.content == "It adds things up."
    assert '"thinking_withheld":true' in (first.response.metadata_json or "")
    assert [(c.tool_name, c.status) for c in first.tool_calls] == [("exec_command", "completed")]
    assert (first.model, first.provider) == ("gpt-5.5", "openai")
    assert first.workspace_path == "/home/dev/shop"
    assert (first.total_tokens, second.total_tokens) == (120, 100)
    assert sum(report.records.values()) == len(log.lines)
    metadata = json.loads(ledger.session(LABEL).metadata_json or "{}")
    assert metadata["git_branch"] == "main"
    assert (metadata["version"], metadata["project"]) == ("0.142.0", "shop")
    assert not ledger.audit()


@pytest.mark.parametrize(
    "said",
    [
        "<recommended_plugins>\nHere is a list.\n</recommended_plugins>",
        '<codex_internal_context source="goal">\nGo on.\n</codex_internal_context>',
        "<goal_context>Go on.</goal_context>",
        '<hook_prompt hook_run_id="h1">Run the tests.</hook_prompt>',
        "<external_editor>cart.py is open</external_editor>",
        "<node_repl_review_evidence>{}</node_repl_review_evidence>",
        "Warning: The maximum number of unified exec processes you can keep open is 60.",
        "Warning: Your account was flagged for potentially high-risk cyber activity.",
        "Warning: apply_patch was requested via exec_command. Use the apply_patch tool instead of"
        " exec_command.",
    ],
)
def test_user_messages_written_by_the_client_are_events(
    ledger: Ledger, tmp_path: Path, said: str
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.user(said)
    log.ask("Go on.")
    log.say("Gone on.")
    log.user(said)
    log.say("It is done.")
    log.end(1)
    log.exchange(2, said, "As you say.")  # somebody typed just that

    import_paths(ledger, log.save())

    first, second = ledger.thread(LABEL).turns
    sources = [message.source for message in first.messages if message.role == "user"]
    assert sources == ["event", "human", "event"]
    assert [message.source for message in second.query] == ["human"]


def test_repeated_totals_count_once_and_fallen_totals_start_over(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Count.")
    log.event("token_count", info=None, rate_limits={})
    for total in (100, 100, 250, 250):
        log.tokens(total)
    log.say("Counted.")
    log.tokens(40, last=40)

    import_paths(ledger, log.save())

    assert ledger.get_turn(turn_id(1)).total_tokens == 290


def test_a_fork_shares_the_turns_it_replays(ledger: Ledger, tmp_path: Path) -> None:
    parent = Rollout(tmp_path)
    parent.exchange(1, "One.")
    parent.exchange(2, "Two.")
    kept = len(parent.lines)
    parent.exchange(3, "Three.")
    fork = parent.fork(tmp_path, thread_id(9), kept)
    fork.total = 200
    fork.exchange(10, "Other.")

    import_paths(ledger, parent.save(), fork.save())

    assert [turn.id for turn in ledger.thread(LABEL).turns] == [turn_id(n) for n in (1, 2, 3)]
    forked = ledger.thread(f"codex:{thread_id(9)}").turns
    assert [turn.id for turn in forked] == [turn_id(n) for n in (1, 2, 10)]
    assert [turn.total_tokens for turn in forked] == [100, 100, 100]
    assert forked[0].messages[0].created_at < forked[2].messages[0].created_at
    assert len(ledger.query("SELECT id FROM turns")[1]) == 4


def test_the_order_of_a_fork_and_its_parent_does_not_matter(tmp_path: Path) -> None:
    parent = Rollout(tmp_path)
    parent.exchange(1, "One.")
    parent.exchange(2, "Two.")
    fork = parent.fork(tmp_path, thread_id(9), len(parent.lines) - 2)
    fork.exchange(10, "Other.")
    paths = [parent.save(), fork.save()]
    found = []
    for number, order in enumerate((paths, paths[::-1])):
        with Ledger.open(str(tmp_path / f"{number}.db")) as ledger:
            for path in order:
                import_paths(ledger, path)
            found.append(result(ledger))
            assert not ledger.audit()

    assert found[0] == found[1]


def test_a_parent_without_a_file_is_a_session_as_far_as_its_forks_replay_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    parent = Rollout(tmp_path)
    parent.exchange(1, "One.")
    fork = parent.fork(tmp_path, thread_id(9), len(parent.lines))
    fork.exchange(10, "Other.")

    import_paths(ledger, fork.save())

    assert [turn.id for turn in ledger.thread(LABEL).turns] == [turn_id(1)]
    assert '"only_in_forks":true' in (ledger.session(LABEL).metadata_json or "")


def test_a_fork_without_turn_ids_shares_turns_of_equal_content(
    ledger: Ledger, tmp_path: Path
) -> None:
    parent = Rollout(tmp_path)
    for text in ("One.", "Two."):
        parent.ask(text)
        parent.say(f"Answer to {text}")
    fork = parent.fork(tmp_path, thread_id(9), len(parent.lines))
    fork.ask("Three.")
    fork.say("Answer to three.")

    import_paths(ledger, parent.save(), fork.save())

    assert len(ledger.query("SELECT id FROM turns")[1]) == 3
    assert ledger.thread(f"codex:{thread_id(9)}").turns[:2] == ledger.thread(LABEL).turns


def test_a_compaction_cuts_a_turn_in_two(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.start(2)
    log.ask("Long work.")
    log.say("Half way.")
    log.tokens(300)
    log.add("compacted", message="What came before.", replacement_history=[{}, {}])
    log.add("turn_context", turn_id=turn_id(2), model="gpt-5.5")
    log.say("All the way.")

    import_paths(ledger, log.save())

    turns = ledger.thread(LABEL).turns
    compaction = f"{turn_id(2)}:compaction:1"
    assert [turn.id for turn in turns] == [turn_id(1), turn_id(2), compaction, f"{turn_id(2)}:2"]
    record = turns[2].compaction
    assert record is not None
    assert (record.summary, record.summarized_through_turn_id) == ("What came before.", turn_id(2))
    assert (record.tokens_before, record.trigger) == (200, "context_limit")
    assert turns[3].model == "gpt-5.5"
    assert not ledger.audit()


def test_an_encrypted_summary_is_marked_as_withheld(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.start(2)
    log.add("compacted", message="", replacement_history=[{"type": "compaction"}], window_id=7)
    log.ask("Go on.")
    log.say("Going on.")

    import_paths(ledger, log.save())

    first, compaction, last = ledger.thread(LABEL).turns
    assert (first.id, last.id) == (turn_id(1), turn_id(2))
    assert compaction.compaction is not None
    assert '"summary_withheld":true' in (compaction.compaction.metadata_json or "")


def test_turns_that_were_rolled_back_are_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.exchange(2, "Two.")
    log.event("thread_rolled_back", num_turns=1)
    log.exchange(3, "Two, but better.")

    import_paths(ledger, log.save())

    assert [turn.id for turn in ledger.thread(LABEL).turns] == [turn_id(1), turn_id(3)]
    assert ledger.get_turn(turn_id(2)).parent_turn_id == turn_id(1)


def test_a_prompt_without_an_answer_is_never_a_head(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.exchange(2, "Two.", answer=None)
    path = log.save()

    import_paths(ledger, path)

    assert ledger.head(LABEL) == turn_id(1)
    assert ledger.get_turn(turn_id(2)).status == "pending"

    log.event("turn_aborted", turn_id=turn_id(2), reason="interrupted")
    log.exchange(3, "Three.")
    import_paths(ledger, log.save())

    aborted = ledger.get_turn(turn_id(2))
    assert (aborted.status, aborted.error) == ("failed", "interrupted")
    assert ledger.head(LABEL) == turn_id(3)
    assert not ledger.audit()


def test_prompts_while_the_agent_works_belong_to_the_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Begin.")
    log.say("Begun.")
    log.ask("And this too.")
    log.user("<subagent_notification>\n{}")
    log.say("Both.")

    import_paths(ledger, log.save())

    turn = ledger.get_turn(turn_id(1))
    assert [m.source for m in turn.messages if m.role == "user"] == ["human", "human", "event"]


def test_the_prompt_of_a_review_is_only_in_events(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.event("user_message", message="Review it.")
    log.event("user_message", message="Review it.")
    log.say("Fine.")

    import_paths(ledger, log.save())

    assert [m.content for m in ledger.get_turn(turn_id(1)).query] == ["Review it."]


def test_results_say_how_a_call_ended(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Try things.")
    log.call("ok", output='{"output":"fine","metadata":{"exit_code":0}}', cmd="a")
    log.call("bad", output="Chunk ID: 1\nProcess exited with code 2\nno such file", cmd="b")
    log.call("no", output="exec command rejected by user", cmd="c")
    log.call("cut", output="aborted by user after 3.1s", cmd="d")
    log.call("patch", output="apply_patch verification failed: no such line", cmd="e")
    log.call("late", cmd="f")
    log.event("exec_command_end", call_id="late", exit_code=1, status="failed")
    log.call("open", cmd="g")
    log.say("Tried.")
    log.exchange(2, "Next.")
    log.item("function_call_output", call_id="late", output="too late")

    import_paths(ledger, log.save())

    calls = {call.id: call for call in ledger.get_turn(turn_id(1)).tool_calls}
    assert {name: call.status for name, call in calls.items()} == {
        "ok": "completed",
        "bad": "failed",
        "no": "rejected",
        "cut": "cancelled",
        "patch": "failed",
        "late": "failed",
        "open": "cancelled",
    }
    assert calls["ok"].result_json == '"fine"'
    assert (calls["bad"].error, calls["bad"].source_status) == ("exit code 2", "exit 2")
    assert calls["late"].result_json == '"too late"'


def test_files_come_from_patches_and_views(ledger: Ledger, tmp_path: Path) -> None:
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-x\n+y\n*** Add File: b.py\n*** End Patch"
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Change it.")
    log.item("custom_tool_call", name="apply_patch", input=patch, call_id="p1")
    log.item("custom_tool_call_output", call_id="p1", output="Done.")
    inside = patch.replace("a.py", "c d.py").replace("Add File", "Delete File")
    log.call(
        "p2", "shell", command=["bash", "-lc", f"apply_patch <<'E'\n{inside}\nE"], output="Done."
    )
    log.call("v0", "read_file", file_path="notes.md", output="Notes.")
    log.call("v1", "view_image", path="shot.png", output=[{"type": "input_image"}])

    import_paths(ledger, log.save())

    files = ledger.query("SELECT DISTINCT kind, file_path FROM message_files ORDER BY 1, 2")[1]
    assert [tuple(row) for row in files] == [
        ("read", "notes.md"),
        ("read", "shot.png"),
        ("written", "a.py"),
        ("written", "b.py"),
        ("written", "c d.py"),
    ]


def test_a_turn_has_the_folder_of_its_thread_by_default(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)  # version 0.34 writes no context of a turn
    log.ask("One.")
    log.say("Done.")

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"codex:{THREAD}").turns
    assert turn.workspace_path == "/home/dev/shop"


def test_a_task_that_ended_without_an_answer_failed(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.start(2)
    log.ask("Two.")
    log.event("task_complete", turn_id=turn_id(2), last_agent_message=None)

    import_paths(ledger, log.save())

    turn = ledger.get_turn(turn_id(2))
    assert (turn.status, turn.error) == ("failed", "no answer recorded")
    assert ledger.head(f"codex:{THREAD}") == turn_id(2)


@pytest.mark.parametrize(
    ("last", "ended"), [(None, ("failed", "429 Too Many")), ("Done.", ("completed", None))]
)
def test_a_task_that_ended_with_an_error_failed(
    ledger: Ledger, tmp_path: Path, last: str | None, ended: tuple[str, str | None]
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("One.")
    log.call("c1", output="ok", cmd="ls")
    log.event("error", message="429 Too Many")
    if last is not None:
        log.say(last)
    log.event("task_complete", turn_id=turn_id(1), last_agent_message=last)

    import_paths(ledger, log.save())

    turn = ledger.get_turn(turn_id(1))
    assert (turn.status, turn.error) == ended
    assert ledger.head(f"codex:{THREAD}") == turn_id(1)


@pytest.mark.parametrize("told", ["Be brief.", None])
def test_the_old_format_without_envelopes_is_imported(
    ledger: Ledger, tmp_path: Path, told: str | None
) -> None:
    head = {"id": "old-1", "timestamp": "2025-08-01T10:00:00Z", "instructions": told}
    context = "<environment_context>\n<cwd>/home/dev/till</cwd>\n</environment_context>"
    lines: list[dict[str, Any]] = [
        head,
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": context}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {"record_type": "state"},
        {"type": "message", "role": "assistant", "content": [{"text": "Hello."}]},
    ]
    path = tmp_path / "anything.jsonl"
    path.write_text("\n\n".join(json.dumps(line) for line in lines))

    report = import_paths(ledger, path)

    (turn,) = ledger.thread("codex:old-1").turns
    assert turn.workspace_path == "/home/dev/till"
    assert turn.started_at == 1754042400000  # of the file: no record says its own
    assert [m.source for m in turn.messages] == ["event", "human", None]
    assert '"cwd":"/home/dev/till"' in (ledger.session("codex:old-1").metadata_json or "")
    assert sum(report.records.values()) == len(lines)


def test_a_compressed_file_continues_the_plain_one(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    plain = log.save()
    import_paths(ledger, plain)
    log.exchange(2, "Two.")
    packed = plain.with_name(plain.name + ".zst")
    packed.write_bytes(zstandard.compress("".join(f"{x}\n" for x in log.lines).encode()))
    plain.unlink()

    import_paths(ledger, packed)

    assert len(ledger.thread(LABEL).turns) == 2
    assert len(ledger.query("SELECT id FROM source_files")[1]) == 1


def test_an_archived_copy_is_the_same_thread(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path / "sessions")
    log.exchange(1, "One.")
    path = log.save()
    import_paths(ledger, path)
    moved = tmp_path / "archived_sessions" / path.name
    moved.parent.mkdir()
    path.rename(moved)

    import_paths(ledger, moved)

    assert len(ledger.query("SELECT label FROM sessions")[1]) == 1
    assert len(ledger.query("SELECT id FROM turns")[1]) == 1


def test_invalid_records_do_not_prevent_the_import_of_the_rest(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.lines += ["not json", "[]", "null", '{"type": 3}', '{"type":"event_msg","payload":[]}']
    log.lines += ['{"type":"response_item","payload":' + "[" * 5000 + "]" * 5000 + "}"]
    log.item("message", role="user", content={"text": 1})
    log.exchange(1, "One.")
    log.lines.append(
        '{"type":"response_item","payload":{"type":"message","role":"assistant",'
        '"content":[{"type":"output_text","text":"half \\ud800"}]}}'
    )
    log.event("token_count", info={"total_token_usage": {"total_tokens": 1 << 70}})
    log.meta(THREAD)  # resumed
    path = log.save()
    path.write_text(path.read_text() + '{"timestamp":"2026-0')

    report = import_paths(ledger, path)

    assert ledger.head(LABEL) == turn_id(1)
    assert report.counts.failed == 0
    assert sum(report.records.values()) == len(log.lines) + 1
    assert report.faults[-1].what == "the last line is unfinished"
    assert not ledger.audit()


def test_the_last_title_counts_and_repeated_metadata_is_ignored(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    log.event("thread_name_updated", thread_id=THREAD, thread_name="First name")
    log.meta(THREAD, git={"branch": "later"})
    log.event("thread_name_updated", thread_id="another", thread_name="Not mine")
    log.event("thread_name_updated", thread_id=THREAD, thread_name="Second name")

    import_paths(ledger, log.save())

    assert ledger.query("SELECT source_title FROM sessions")[1] == [("Second name",)]


def test_a_second_import_writes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "One.")
    path = log.save()
    import_paths(ledger, path)

    report = import_paths(ledger, path)

    assert (report.derived_records, report.written_turns, report.counts.skipped) == (0, 0, 1)


def test_the_default_locations(tmp_path: Path) -> None:
    reader = Codex()
    plain = reader.roots(Home(tmp_path, {}, "linux"))
    chosen = reader.roots(Home(tmp_path, {"CODEX_HOME": "/data/codex"}, "win32"))

    names = ("sessions", "archived_sessions", "session_index.jsonl")
    assert plain == [tmp_path / ".codex" / name for name in names]
    assert chosen[0] == Path("/data/codex/sessions")
    assert reader.wants(Path("rollout-x.jsonl.zst"))


def test_with_events_only_a_prompt_after_an_answer_opens_a_turn(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    for answer in ("One.", "Two."):
        log.event("user_message", message="Go on.")
        log.event("agent_message", message=answer)
    import_paths(ledger, log.save())

    said = [[m.content for m in turn.messages] for turn in ledger.thread(LABEL).turns]
    assert said == [["Go on.", "One."], ["Go on.", "Two."]]


def test_a_file_of_one_compaction_is_a_completed_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path, thread_id(1))
    log.add("compacted", message="So far.", replacement_history=[])
    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"codex:{thread_id(1)}").turns
    assert (turn.status, turn.messages[0].content) == ("completed", "So far.")

    log.start(5)
    log.ask("And now?")
    log.say("Now this.")
    import_paths(ledger, log.save())

    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, log.path)
        assert result(ledger) == result(whole)
    assert ledger.query("SELECT count(*) FROM turns WHERE status = 'pending'")[1] == [(0,)]


def test_a_child_forked_within_a_turn_names_its_last_record_of_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path, thread_id(1))
    log.start(4)
    log.ask("Look.")
    log.call("c1", output="Exit code: 0", cmd="ls")
    child = log.fork(tmp_path, thread_id(7), len(log.lines))
    log.say("One file.")
    child.start(10)
    child.ask("And there?")
    child.say("Nothing.")
    for path in (child.save(), log.save()):
        import_paths(ledger, path)

    said = json.loads(str(ledger.session(f"codex:{thread_id(7)}").metadata_json))
    shared = ledger.thread(f"codex:{thread_id(7)}").turns[0]
    assert said["forked_within"] == {shared.id: f"{shared.id}:2"}  # prompt, call, output
    assert [m.content for m in shared.messages][-1] == "One file."
    assert "forked_within" not in str(ledger.session(f"codex:{thread_id(1)}").metadata_json)
