"""Each command does what it says, for people and in JSON."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from agents_ledger import Compaction, Ledger, Message, Session, ToolCall, Turn, Usage
from agents_ledger.cli.main import COMMANDS
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.ledger.search import routing
from agents_ledger.model.installation import settings
from agents_ledger.model.turns import MessageFile
from tests.builders import a_full_turn, chain, grow
from tests.edges.conftest import Run, call


@pytest.fixture
def ledger(file: str) -> Any:
    with Ledger.open(file) as opened:
        yield opened


# -- up ---------------------------------------------------------------------------------------


def test_up_makes_a_ledger_with_a_sound_demonstration_once(run: Run, file: str) -> None:
    first = run("up", "--no-serve")

    assert first.code == 0
    assert "[demo] Write the changelog entry." in first.out
    assert "├─● " in first.out  # the fork
    assert "▬ " in first.out  # the compaction
    assert f"agents-ledger --ledger {file} show demo" in first.err
    assert Path(file).stat().st_mode & 0o777 == 0o600
    with Ledger.open(file, read_only=True) as ledger:
        turns = len(ledger.subtree(ledger.latest_roots()[0]))
        assert ledger.audit() == ()
        assert {session.origin for session in ledger.sessions()} == {"demo"}
        assert sum(turn.tool_call_count for turn in ledger.thread("demo").turns) > 3

    again = run("up", "--no-serve")

    assert "[demo] Write the changelog entry." in again.out
    with Ledger.open(file, read_only=True) as ledger:
        assert len(ledger.subtree(ledger.latest_roots()[0])) == turns
        assert len(ledger.sessions(status=None)) == 3


def test_up_adds_nothing_to_a_ledger_in_use(run: Run, ledger: Ledger) -> None:
    ledger.create_session("mine")

    answer = run("up", "--json")

    assert answer.json["demonstration"] is False
    assert answer.json["sessions"] == ["mine"]
    assert answer.json["schema_version"] == 1


def test_up_can_leave_it_empty_and_keeps_the_users_own_ledger_private() -> None:
    answer = call("up", "--no-demo", "--no-serve")

    assert answer.code == 0
    assert answer.out == ""
    file = settings.default_file()
    assert file.parent.stat().st_mode & 0o777 == 0o700
    assert call("sessions").code == 0


def test_the_ledger_is_the_one_named_last_or_the_environment_s(run: Run, tmp_path: Path) -> None:
    other = str(tmp_path / "other.db")
    run("up", "--no-demo", "--no-serve")

    assert call("up", "--no-serve", AGENTS_LEDGER=other).code == 0
    assert run("sessions", "--json").json["sessions"] == []
    assert run("sessions", "--ledger", other, "--json").json["sessions"]
    assert call("sessions", "--json", AGENTS_LEDGER=other).json["sessions"]


# -- sessions and fork ------------------------------------------------------------------------


@pytest.mark.usefixtures("ticking")
def test_sessions_are_listed_latest_first_with_their_titles(run: Run, ledger: Ledger) -> None:
    ledger.record("old", "first question", "answer", usage=Usage(1000, 234))
    ledger.record("new", "second\nquestion", "answer")
    ledger.annotate("old", title="The old one", starred=True)
    ledger.create_session("nothing-yet")

    answer = run("sessions")

    heads, *rows = [re.split(r"  +", line) for line in answer.out.splitlines()]
    assert heads == ["TITLE", "SESSION", "TURNS", "TOKENS", "AGE"]
    assert [row[:4] for row in rows] == [
        ["(untitled)", "nothing-yet", "0", "0"],
        ["second question", "new", "1", "0"],
        ["★ The old one", "old", "1", "1.2k"],
    ]


@pytest.mark.finding("users-21")
@pytest.mark.usefixtures("ticking")
def test_show_defaults_to_the_latest_session(run: Run, ledger: Ledger) -> None:
    assert run("show").code == 3
    ledger.record("old", "first question", "answer")
    with ledger.turn("new", "second question") as turn:
        turn.tool_call("Task", id="c").spawn("helper")
        turn.respond("answer")
    ledger.record("helper", "third question", "answer")

    assert run("show").out.startswith("new\n")
    assert "second question" in run("show", "--events").out
    assert run("show", "o").out.startswith("old\n")


def test_sessions_in_json_have_their_thread(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "a question", "answer", usage=Usage(1, 2), model="m")

    answer = run("sessions", "--json")

    assert answer.json["schema_version"] == 1
    assert answer.json["more"] is False
    [session] = answer.json["sessions"]
    assert session["label"] == "main"
    assert session["thread"]["depth"] == 1
    assert session["thread"]["total_tokens"] == 3
    assert session["prompt"] == "a question"


def test_sessions_can_be_filtered(run: Run, ledger: Ledger) -> None:
    ledger.record("one", "q", "a", persona_id="atlas")
    ledger.record("two", "q", "a")
    ledger.update_session("two", origin="cursor")
    ledger.record("three", "q", "a")
    ledger.archive("three")

    def labels(*words: str) -> list[str]:
        found = run("sessions", "--json", *words).json["sessions"]
        return sorted(session["label"] for session in found)

    assert labels() == ["one", "two"]
    assert labels("--persona", "atlas") == ["one"]
    assert labels("--origin", "cursor") == ["two"]
    assert labels("--status", "archived") == ["three"]
    assert labels("--status", "all") == ["one", "three", "two"]
    assert "archived" in run("sessions", "--status", "all").out
    limited = run("sessions", "--limit", "1")
    assert len(limited.out.splitlines()) == 2
    assert "--limit" in limited.err


def test_sessions_are_narrowed_by_folder_model_time_and_kind(
    run: Run, ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.record("here", "q", "r", workspace_path=str(tmp_path), model="big")
    ledger.record("there", "q", "r", workspace_path="/elsewhere", model="small")
    with ledger.turn("there", "q", workspace_path="/elsewhere") as turn:
        turn.tool_call("Task", id="c").spawn("helper")
        turn.respond("r")
    monkeypatch.chdir(tmp_path)

    def listed(*words: str) -> set[str]:
        return {s["label"] for s in run("sessions", *words, "--json").json["sessions"]}

    assert listed() == {"here", "there", "helper"}
    assert listed("--no-subagents") == {"here", "there"}
    assert listed("--project", ".") == listed("--project", str(tmp_path)) == {"here"}
    assert listed("--project", "/elsewhere") == listed("--model", "small") == {"there"}
    assert listed("--project", "elsewhere") == {"there"}
    assert listed("--until", "1h") == set()
    assert listed("--until", "2199-01-01") == {"here", "there", "helper"}
    assert listed("--since", "1h") == {"here", "there", "helper"}
    assert listed("--since", "2199-01-01") == set()
    assert run("sessions", "--since", "soon").code == 2


def test_that_nothing_matches_is_not_that_there_is_nothing(run: Run, ledger: Ledger) -> None:
    assert "record a demonstration" in run("sessions").err
    ledger.record("main", "q", "r")
    assert run("sessions", "--origin", "nowhere").err == "No session matches.\n"
    assert run("sessions", "--status", "archived").err == "No session matches.\n"


def test_an_empty_label_is_not_one_made_up(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "q", "r")

    answer = run("fork", "main", "--label", "")

    assert answer.code == 2
    assert "the label is empty" in answer.err
    assert [session.label for session in ledger.sessions()] == ["main"]


def test_a_token_is_not_made_to_expire_at_once(run: Run, ledger: Ledger) -> None:
    answer = run("token", "create", "x", "--expires", "0d")

    assert answer.code == 2
    assert "not a valid lifetime" in answer.err
    assert run("token", "list", "--json").json["tokens"] == []


def test_a_smart_fork_says_why_it_is_there(run: Run, ledger: Ledger) -> None:
    kept = ledger.record("notes", "The kestrel parser chokes on tabs", "r").id
    ledger.record("other", "Something else entirely", "r")

    told = run("fork", "smart:kestrel parser chokes on tabs", "--label", "try")

    assert f"because {kept} mentions" in told.out
    assert "kestrel" in told.out
    with patch.object(routing, "route", wraps=routing.route) as routed:
        made = run("fork", "smart:kestrel parser chokes on tabs", "--json").json
    assert made["reasons"][0]["turn_id"] == kept
    assert made["confidence"] >= 0.5
    assert f"confidence {made['confidence']:.2f}" in told.out
    assert routed.call_count == 1
    assert run("fork", "notes", "--json").json["reasons"] == []
    vague = run("fork", "smart:kestrel aubergines cucumbers melons pumpkins radishes")
    assert (vague.code, vague.out) != (0, "")
    assert "(confidence 0." in vague.err
    assert f"{kept}, which mentions kestrel" in vague.err


@pytest.mark.usefixtures("ticking")
def test_fork_makes_a_session_at_a_turn(run: Run, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    assert run("fork", "main", "--label", "idea").code == 0
    assert ledger.head("idea") == second

    made = run("fork", second[:16], "--before", "--persona", "atlas", "--json").json
    assert made["schema_version"] == 1
    assert made["session"]["thread_id"] == first
    assert made["session"]["persona_id"] == "atlas"
    assert made["depth"] == 1
    assert ledger.head(made["session"]["label"]) == first

    assert "empty" in run("fork", first, "--before", "--label", "anew").out


# -- show -------------------------------------------------------------------------------------


def test_show_prints_all_that_happened_in_a_turn_in_its_order(run: Run, ledger: Ledger) -> None:
    turn = ledger.record("main", **a_full_turn())

    answer = run("show", turn.id)

    words = ["first", "second", "third", "step, I think", "step", "▸ Read a", "▸ Bash a"]
    words += ["failed: exit 1", "answer, I think", "answer"]
    found = [answer.out.index(word) for word in words]
    assert found == sorted(found)
    assert "completed in 1.0 s · claude-opus-5 · 10 tokens in, 20 out" in answer.out
    assert "webhook" in answer.out
    assert "read first.py:1-9" in answer.out
    assert "\x1b" not in answer.out
    full = run("show", turn.id, "--full").out
    assert '"path": "a"' in full
    assert "workspace_path: /home/me/project" in full
    assert "print()" in full


def test_show_prints_one_line_for_a_call_that_reads_a_file(run: Run, ledger: Ledger) -> None:
    step = Message("assistant", "", files=(MessageFile("read", "/shop/a.py"),))
    own = Message("assistant", "", files=(MessageFile("referenced", "/shop/b.py"),))
    call = ToolCall.of("Read", {"file_path": "/shop/a.py"}, "x = 1")
    turn = ledger.record("main", "Look", "Done", steps=[step, call, own])

    lines = run("show", turn.id).out.splitlines()

    assert [line.strip() for line in lines if "/shop/" in line] == [
        "▸ Read /shop/a.py  7 B",
        "referenced /shop/b.py",
    ]
    assert lines.count("  assistant") == 2  # of the mention and of the answer
    assert not {"", "    "} & set(lines[:-1])


def test_show_prints_the_last_turns_of_a_session(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 8)

    assert run("show", "main").out.count("  turn ") == 5
    assert "3 earlier turns" in run("show", "main").err
    assert run("show", "main", "--last", "2").out.count("  turn ") == 2
    assert "question 8" in run("show", "main", "--last", "1").out
    answer = run("show", "main", "--last", "2", "--json").json
    assert answer["schema_version"] == 1
    assert answer["session"]["label"] == "main"
    assert answer["thread"]["depth"] == 8
    assert [turn["depth"] for turn in answer["turns"]] == [7, 8]


@pytest.mark.usefixtures("ticking")
def test_show_prints_a_session_as_it_was_at_a_time(run: Run, ledger: Ledger) -> None:
    chain(ledger, "main", 3)
    second = ledger.history("main")[1].changed_at
    moment = datetime.fromtimestamp(second / 1000, UTC).isoformat()

    answer = run("show", "main", "--at", moment, "--last", "1")

    assert "question 2" in answer.out
    assert "turn 2 of 2" in answer.out
    early = run("show", "main", "--at", "2001-02-03T04:05Z")
    assert early.code == 3
    assert "session 'main' had no turn at 2001-02-03 04:05 UTC" in early.err
    assert run("show", "main", "--at", "7d", "--events").code == 2


def test_show_passes_over_messages_without_anything_to_read(run: Run, ledger: Ledger) -> None:
    steps = [
        Message("assistant", ""),
        Message("system", " \n", "event"),
        Message("assistant", None, thinking="Hm."),
        Message("system", "Kept.", "event"),
    ]
    ledger.record("main", "q", "r", steps=steps)
    ledger.record("main", Message("user", ""), "A picture.")

    first, second = run("show", "main").out.split("turn 2 of 2")

    shown = [line.strip() for line in first.splitlines() if line.startswith("  ")]
    assert shown[1:] == ["user", "q", "thinking", "Hm.", "system  event", "Kept.", "assistant", "r"]
    assert "  user" in second


def test_show_truncates_long_texts_unless_full(run: Run, ledger: Ledger) -> None:
    ledger.record("main", "\n".join(f"line {number}" for number in range(100)), "x" * 9000)

    short, full = run("show", "main").out, run("show", "main", "--full").out

    assert "line 29" in short
    assert "line 30" not in short
    assert "(--full)" in short
    assert "line 99" in full
    assert "x" * 9000 in full


def test_show_reports_compactions_failures_and_subagents(run: Run, ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    record = Compaction("the gist", first, second, 1, tokens_before=150_000, tokens_after=12_000)
    ledger.record("main", compaction=record)
    failed = ledger.record("main", "again", status="failed", error="overloaded").id
    call = ToolCall("Task", '{"description": "look"}', spawned_session_label="helper")
    ledger.record("main", "delegate", "done", steps=[call])

    answer = run("show", "main")

    assert "compacted 1 turn → summary · 150k → 12.0k tokens" in answer.out
    assert "the gist" in answer.out
    assert "spawned helper" in answer.out
    assert "overloaded" in run("show", failed).out
    assert "subagent of main" in run("show", "helper").out


def test_show_prints_the_partial_text_of_a_live_turn(run: Run, ledger: Ledger) -> None:
    with ledger.turn("main", "tell me a story") as turn:
        turn.stream("Once upon ")
        turn.stream("a time")
        turn.tool_call("Bash", {"command": "sleep 9"})
        seen = run("show", "main")
        told = run("show", "main", "--json").json
        turn.respond()

    assert "streaming" in seen.out
    assert "Once upon a time" in seen.out
    assert "▸ Bash sleep 9  running" in seen.out
    assert told["partial"] == {turn.id: "Once upon a time"}


# -- audit, recover, sql ----------------------------------------------------------------------


def test_audit_groups_findings_by_rule_and_says_what_each_means(
    run: Run, ledger: Ledger, file: str
) -> None:
    import sqlite3

    chain(ledger, "main", 2)
    assert run("audit").out.startswith("sound: all ")
    assert run("audit", "--json").json["findings"] == []
    with sqlite3.connect(file) as connection:
        connection.execute("UPDATE places SET total_tokens = 7 * depth * depth")
    connection.close()

    answer = run("audit")
    told = run("audit", "--json")

    assert answer.code == 1
    assert "thread_totals  2 findings" in answer.out
    assert "violated rule: A thread's tokens are its parent's and the turn's own." in answer.out
    assert "hint: " in answer.err
    assert told.code == 1
    assert {finding["rule"] for finding in told.json["findings"]} == {"thread_totals"}
    assert told.json["findings"][0]["meaning"]


def test_recover_fails_the_turns_of_dead_writers(run: Run, file: str) -> None:
    turn_id = _left_by_a_dead_writer(file)

    assert run("doctor", "--json").json["facts"][-1]["name"] == "dead_writers"
    answer = run("recover")

    assert answer.out.splitlines() == [
        f"failed {turn_id}",
        "1 turn recovered, 0 still being written",
    ]
    assert run("recover", "--json").json == {"schema_version": 1, "failed": [], "live": []}


def _left_by_a_dead_writer(file: str) -> str:
    import subprocess
    import sys

    script = f"""
import os
from agents_ledger import Ledger
print(Ledger.open({file!r}).turn("main", "never answered").id, flush=True)
os._exit(1)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )
    return done.stdout.strip()


def test_sql_answers_in_a_table_in_json_and_in_csv(run: Run, ledger: Ledger) -> None:
    query = "SELECT 'a,b' AS text, 12 AS number, NULL AS missing, x'00ff' AS bytes"

    table = run("sql", query)
    assert table.out.splitlines() == [
        "text  number  missing  bytes",
        "a,b       12     NULL  00ff",
    ]
    assert table.err.strip() == "1 row"
    answer = run("sql", query, "--json").json
    assert answer == {
        "schema_version": 1,
        "columns": ["text", "number", "missing", "bytes"],
        "rows": [["a,b", 12, None, "00ff"]],
    }
    assert run("sql", query, "--csv").out == 'text,number,missing,bytes\n"a,b",12,,00ff\n'
    assert run("sql", "-", "--csv", input="SELECT 1 AS one").out == "one\n1\n"


def test_csv_holds_no_formulas(run: Run, ledger: Ledger) -> None:
    query = "SELECT '=1+1' AS a, '+1' AS b, '-1' AS c, '@x' AS d, char(9)||'=x' AS e, -5 AS f"

    line = run("sql", query, "--csv").out.splitlines()[1]

    assert line.startswith("'=1+1,'+1,'-1,'@x,'")
    assert line.endswith(",-5")


# -- copies -----------------------------------------------------------------------------------


def test_backup_and_restore_give_the_same_ledger(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    grow(ledger, "1-2-3, 2-4")
    saved, back = str(tmp_path / "saved.db"), str(tmp_path / "back.db")

    assert "saved and verified" in run("backup", saved).out
    assert Path(saved).stat().st_mode & 0o777 == 0o600
    told = run("restore", saved, back, "--json").json
    assert told["rows"]["turns"] == 4
    assert call("--ledger", back, "tree").out == run("tree").out
    assert call("--ledger", str(tmp_path / "third.db"), "restore", saved).code == 0
    assert (tmp_path / "third.db").exists()
    assert run("backup", str(tmp_path / "more.db"), "--json").json["bytes"] > 0


def test_copy_prints_what_was_copied(ledger: Ledger, file: str, tmp_path: Path) -> None:
    chain(ledger, "main", 3)

    answer = call("copy", file, str(tmp_path / "copy.db"))

    assert answer.code == 0
    assert any(line.split() == ["turns", "3"] for line in answer.out.splitlines())
    assert "copied and verified" in answer.out
    assert "token" not in answer.err


def test_copy_and_restore_say_that_tokens_are_revoked(
    ledger: Ledger, file: str, tmp_path: Path
) -> None:
    tokens = Tokens(ledger._core)
    tokens.create("laptop")
    tokens.revoke(tokens.create("revoked before")[0].id)

    answer = call("copy", file, str(tmp_path / "copy.db"))
    told = call("restore", file, str(tmp_path / "back.db"), "--json").json

    assert "1 access token revoked in the copy" in answer.err
    assert told["tokens_revoked"] == 1


# -- all --------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(COMMANDS.keys() - {"hook"}))  # answers agents, not people
def test_every_command_has_help_and_json(name: str) -> None:
    answer = call(name, "--help")

    assert answer.code == 0
    assert "--json" in answer.out
    assert "--ledger" in answer.out


def test_commands_work_on_both_engines(new_address: Any, tmp_path: Path) -> None:
    address, other = new_address(), new_address()

    def ask(*words: str) -> Any:
        answer = call("--ledger", address, *words)
        assert answer.code == 0, answer.err
        return answer

    assert "[demo]" in ask("up", "--no-serve").out
    assert "demo-strict" in ask("sessions").out
    assert "completed" in ask("show", "demo", "--full").out
    head = ask("sql", "SELECT thread_id FROM sessions WHERE label = 'demo'", "--json")
    [[turn_id]] = head.json["rows"]
    assert ask("tree", turn_id).out == ask("tree", "demo").out
    assert "at turn" in ask("fork", "demo", "--label", "idea").out
    assert "sound" in ask("audit").out
    assert "0 turns recovered" in ask("recover").out
    assert call("--ledger", other, "sessions").code == 3
    assert ask("copy", address, other).code == 0
    assert ask("backup", str(tmp_path / "saved.db")).code == 0
    assert call("--ledger", other, "tree").out == ask("tree").out


def test_a_query_on_a_server_cannot_leave_its_transaction(new_schema: Any) -> None:
    address = new_schema()
    assert call("--ledger", address, "up", "--no-serve").code == 0

    for query in ("COMMIT; CREATE TABLE evil (x INT)", "CREATE TABLE evil (x INT)", "SELECT 1/0"):
        answer = call("--ledger", address, "sql", query)
        assert answer.code == 5
        assert "the query failed" in answer.err
    found = call("--ledger", address, "sql", "SELECT * FROM pg_tables WHERE tablename = 'evil'")
    assert "0 rows" in found.err
    with Ledger.open(address) as ledger:
        ledger.record("demo", Message("user", "still there?"), "yes")
        assert isinstance(ledger.get_turn("demo"), Turn)
        ledger.create_session(Session("also"))


# -- names ------------------------------------------------------------------------------------


@pytest.mark.finding("users-32")
def test_a_session_is_renamed_and_its_alias_removed(run: Run, ledger: Ledger) -> None:
    ledger.record("draft", "q", "r")

    assert run("rename", "draf", "release").out == "release is the new label of draft\n"
    assert ledger.session("draft").label == "release"
    assert run("alias", "release", "other", "--remove").code == 3
    assert run("alias", "release", "draft", "--remove").err == "Session release has no aliases.\n"
    assert run("show", "draft").code == 3
    assert run("alias", "release", "--remove").code == 2
    ledger.record("taken", "q", "r")
    assert run("rename", "release", "taken").code == 4


@pytest.mark.finding("users-32")
def test_sessions_are_merged_and_made_their_own_again(run: Run, ledger: Ledger) -> None:
    chain(ledger, "long", 2)
    chain(ledger, "short", 1)

    for typed in ("short", "sho", "long"):
        merged = run("merge", "sho", "long")
        assert merged.out == "long now includes short\n"
        assert merged.err == "To undo it: `agents-ledger merge --undo short`.\n"
        assert ledger.session("short").label == "long"
        undone = run("merge", typed, "--undo")
        assert undone.out == "short is a session of its own again\n"
        assert ledger.session("short").label == "short"
    for words in (["short"], ["short", "long", "--undo"]):
        assert run("merge", *words).code == 2


def test_a_merge_of_one_session_or_of_several_is_not_guessed(run: Run, ledger: Ledger) -> None:
    chain(ledger, "long", 3)
    chain(ledger, "a", 1)
    chain(ledger, "b", 1)
    ledger.alias("other", "long")

    alone = run("merge", "long", "other")
    assert (alone.code, alone.out) == (5, "")
    assert "'long' and 'other' are one session: 'long'" in alone.err
    assert "session 'long' is not merged" in run("merge", "--undo", "other").err
    run("merge", "a", "long")
    run("merge", "b", "long")
    both = run("merge", "--undo", "long")
    assert both.code == 5
    assert "several sessions are merged into 'long': a, b" in both.err
    assert run("merge", "--undo", "b").code == 0
