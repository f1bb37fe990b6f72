"""Nothing from a ledger is obeyed by a terminal, whatever it holds and whoever prints it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from agents_ledger import (
    Compaction,
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    Session,
    ToolCall,
    Usage,
)
from agents_ledger.cli import terminal
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import to_json
from tests.edges.conftest import Run, call
from tests.edges.test_starting import PROGRAM
from tests.waiting import PATIENCE_S

HOSTILE = {
    "set the clipboard": "\x1b]52;c;ZXZpbA==\x07",
    "a link that lies": "\x1b]8;;https://evil.example\x1b\\click\x1b]8;;\x1b\\",
    "the window's title": "\x1b]0;owned\x07",
    "clear the screen": "\x1b[2J\x1b[H",
    "colours": "\x1b[31;5mred",
    "ask the terminal to answer": "\x1b[6n\x1b[c\x1bP$q\x22p\x1b\\",
    "one byte forms": "\x9b2J\x9d52;c;ZXZpbA==\x9c\x90q\x9c",
    "write over": "ok\rBAD\b\b\bBAD\x7f",
    "reset": "\x1bc\x0e\x0f",
    "turn the reading order": "abc\u202egnp.exe\u202c \u2066x\u2069 \u200f \u061c",
    "other line ends": "a\u2028b\u2029c\x0bd\x0ce\x85f",
    "what text cannot hold": "\x00\x1a \ud800 \udc80",
}
EVIL = "".join(HOSTILE.values())
OBEYED = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)

COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def hostile(file: str) -> str:
    """A ledger with something hostile in every field that can hold text."""
    files = (MessageFile("read", EVIL, 1, 2),)
    lints = (MessageLint(EVIL, EVIL, EVIL, severity="error"),)
    blocks = (MessageCodeblock(EVIL, EVIL, EVIL),)
    message = Message(
        "user", EVIL, "human", EVIL, to_json([EVIL]), to_json({EVIL: EVIL}), EVIL,
        files=files, lints=lints, codeblocks=blocks,
    )  # fmt: skip
    calls = [
        ToolCall(EVIL, EVIL, EVIL, status="completed"),
        ToolCall("Bash", to_json({"command": EVIL}), status="failed", error=EVIL),
        ToolCall("Task", "{}", spawned_session_label=f"helper {EVIL}", source_status=EVIL),
    ]
    fields = {
        "model": EVIL,
        "provider": EVIL,
        "toolset_name": EVIL,
        "tools_available": [EVIL],
        "permissions_granted": {"tools": [EVIL]},
        "source_event_id": EVIL,
        "workspace_path": EVIL,
        "system_prompt": EVIL,
        "thread_key": EVIL,
    }
    label = f"main {EVIL}"
    with Ledger.open(file) as ledger:
        first = ledger.record(
            label,
            [message, f"{EVIL}\n\t{EVIL}"],
            Message("assistant", EVIL, thinking=EVIL),
            steps=calls,
            usage=Usage(1, 2),
            persona_id=EVIL,
            **fields,  # type: ignore[arg-type]
        )
        record = Compaction(EVIL, first.id, compaction_type=EVIL, model=EVIL, trigger=EVIL)
        ledger.record(label, compaction=record)
        ledger.record(label, EVIL, status="failed", error=EVIL)
        ledger.annotate(label, title=EVIL, note=EVIL, starred=True)
        ledger.update_session(label, origin=EVIL, agent_id=EVIL, routing_key=EVIL)
        ledger.update_session(f"helper {EVIL}", task_description=EVIL, task_status="failed")
        ledger.create_session(Session(f"fork {EVIL}", first.id, EVIL, created_as="fork"))
        ledger.alias(f"alias {EVIL}", label)
    return label


def commands(label: str) -> list[list[str]]:
    """Every way to print something of it."""
    return [
        ["sessions"],
        ["sessions", "--status", "all", "--json"],
        ["show", label],
        ["show", label, "--full", "--last", "9"],
        ["show", label, "--json"],
        ["show", f"helper {EVIL}"],
        ["tree"],
        ["tree", label, "--all"],
        ["tree", "--json"],
        ["up", "--no-serve"],
        ["audit"],
        ["doctor"],
        ["sql", "SELECT * FROM messages"],
        ["sql", "SELECT * FROM sessions", "--csv"],
        ["sql", "SELECT * FROM tool_calls", "--json"],
        ["sql", 'SELECT label AS "\x1b[2J\x9b" FROM sessions'],
        ["sql", 'SELECT * FROM "\x1b[2J"'],
        ["show", EVIL],
        ["fork", label],
        ["fork", label, "--label", f"another {EVIL}"],
        ["fork", label, "--label", f"another {EVIL}"],
    ]


def test_no_field_reaches_a_pipe_as_it_is(run: Run, hostile: str) -> None:
    for words in commands(hostile):
        answer = run(*words)
        for text in (answer.out, answer.err):
            found = OBEYED.search(text)
            assert found is None, (words, found and text[max(0, found.start() - 40) :][:80])
        assert answer.code in (0, 3, 4, 5), answer.err


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_no_field_reaches_a_terminal_as_it_is(file: str, hostile: str) -> None:
    with Ledger.open(file) as ledger:
        turn_id = str(ledger.head(hostile))  # what cannot be typed cannot be passed to a process
    for words in (
        ["sessions"],
        ["show", turn_id, "--full", "--last", "9"],
        ["tree"],
        ["up", "--no-serve"],
    ):
        shown = on_a_terminal("--ledger", file, *words)
        assert COLOUR.search(shown)
        plain = COLOUR.sub("", shown).replace("\r\n", "\n")
        found = OBEYED.search(plain)
        assert found is None, (words, found and plain[max(0, found.start() - 40) :][:80])


def on_a_terminal(*words: str, columns: str = "80", **environment: str) -> str:
    """What a terminal is sent."""
    import pty

    ours, theirs = pty.openpty()
    env = {**os.environ, "COLUMNS": columns, "TERM": "xterm", **environment}
    process = subprocess.Popen(
        [*PROGRAM, *words], stdout=theirs, stderr=theirs, stdin=theirs, env=env
    )
    os.close(theirs)
    pieces = []
    while True:
        try:
            piece = os.read(ours, 65536)
        except OSError:  # Linux says so when the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(ours)
    process.wait(timeout=PATIENCE_S)
    return b"".join(pieces).decode()


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize("columns", [60, 80, 140])
def test_no_line_is_wider_than_the_terminal(file: str, columns: int) -> None:
    label = "claude-code:6b6f4218-0b12-4d55-b930-462903683bea"
    path = "/home/dev/projects/a-shop-with-a-long-name/frontend/src/components/App.tsx"
    call = ToolCall(f"mcp__{'browser_' * 6}click", "{}", status="completed")
    with Ledger.open(file) as ledger:
        ledger.record("main", "日本語のテキスト " * 30, "a long answer " * 50 + "x" * 300)
        ledger.record("main", "why? " * 40, status="failed", error="because " * 30)
        ledger.record(
            label,
            [Message("user", "Change the header. " * 9, files=(MessageFile("read", path),))],
            "Done, the header is another one. " * 9,
            steps=[call],
            usage=Usage(input_tokens=1_200_000, output_tokens=3_000),
            model="claude-opus-4-8-20260101",
        )
        ledger.annotate(label, title="A long title of a session " * 4)
        ledger.alias(f"{label}:{label}", label)
    env = {"columns": str(columns), "NO_COLOR": "1"}

    for words in (
        ["tree"],
        ["show", "main"],
        ["show", label],
        ["sessions"],
        ["doctor"],
        ["search", "header"],
        ["files", "App.tsx"],
        ["tools"],
        ["history", label],
        ["alias", label],
        ["compare", "main", label],
    ):
        shown = on_a_terminal("--ledger", file, *words, **env)
        lines = shown.replace("\r\n", "\n").split("\n")
        wide = [line for line in lines if terminal.width_of(line) > columns]
        if words == ["doctor"]:
            wide = [line for line in wide if str(Path(file).parent) not in line]
        assert wide == []


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_colour_is_for_terminals_that_want_it(file: str) -> None:
    assert COLOUR.search(on_a_terminal("--ledger", file, "up", "--no-serve"))
    assert not COLOUR.search(on_a_terminal("--ledger", file, "tree", NO_COLOR="1"))
    assert not COLOUR.search(on_a_terminal("--ledger", file, "tree", TERM="dumb"))
    assert COLOUR.search(call("--ledger", file, "tree", FORCE_COLOR="1").out)


def test_json_gives_back_what_was_recorded(run: Run, hostile: str) -> None:
    turns = run("show", hostile, "--json", "--last", "9").json["turns"]

    assert turns[0]["messages"][0]["content"] == EVIL
    assert turns[0]["tool_calls"][1]["error"] == EVIL


def test_an_output_without_these_characters_gets_others(file: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    with Ledger.open(file) as ledger:
        ledger.record("main", "日本", "ok")
        ledger.fork("main", label="other")
        ledger.record("other", "x", "y")
        ledger.record("main", "z", "y")

    done = subprocess.run(
        [*PROGRAM, "--ledger", file, "tree"], env=env, capture_output=True, check=True
    )

    lines = done.stdout.decode("ascii").splitlines()
    assert lines[1].startswith("* ")
    assert "\\u65e5\\u672c" in lines[1]
    assert lines[2].startswith("+-* ")


def test_only_one_module_prints() -> None:
    printing = re.compile(r"\b(print|echo|secho)\(|sys\.stdout\.write|sys\.stderr\.write")
    folder = Path(terminal.__file__).parent

    found = [path.name for path in folder.glob("*.py") if printing.search(path.read_text())]

    assert found == ["terminal.py"]


def test_text_is_fitted_by_cells() -> None:
    assert terminal.fit("plain", 5) == "plain"
    assert terminal.fit("plain text", 6) == "plain…"
    assert terminal.fit("日本語", 5) == "日本…"
    assert terminal.fit("a\n\tb  c", 9) == "a b c"
    assert terminal.fit("anything", 0) == ""
    assert list(terminal.wrap("one two  three", 8)) == ["one two", "three"]
    assert list(terminal.wrap("日本語テキスト", 5)) == ["日本", "語テ", "キス", "ト"]
    assert list(terminal.wrap("", 5)) == [""]


def test_amounts_are_humanized() -> None:
    assert [humanize.tokens(n) for n in (None, 0, 812, 2140, 150_000, 1_200_000)] == [
        "", "0", "812", "2.1k", "150k", "1.2M",
    ]  # fmt: skip
    assert [humanize.size(n) for n in (14, 1229, 3_600_000)] == ["14 B", "1.2 KB", "3.4 MB"]
    assert [humanize.duration(n) for n in (12, 4200, 200_000)] == ["12 ms", "4.2 s", "3 min"]
    spans = (7_140_000, 7_200_000, 172_799_999, 172_800_000, 1_767_225_600_000)
    assert [humanize.duration(n) for n in spans] == ["119 min", "2 h", "47 h", "2 d", "20,454 d"]
    assert [humanize.date(0), humanize.moment(60_000)] == ["undated", "1970-01-01 00:01 UTC"]
    now = 1_770_000_000_000
    ages = [humanize.age(now - n * 1000, now) for n in (1, 30, 300, 7200, 200_000, 10_000_000)]
    assert ages == ["now", "30 s ago", "5 min ago", "2 h ago", "2 d ago", "2025-10-09"]
    assert humanize.count(1, "turn") == "1 turn"
    assert humanize.count(2000, "branch", "branches") == "2,000 branches"


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_a_table_too_wide_becomes_a_line_for_each_value(file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "a question " * 20, "an answer")

    wide = on_a_terminal("--ledger", file, "sql", "SELECT * FROM messages", NO_COLOR="1")
    narrow = on_a_terminal("--ledger", file, "sql", "SELECT role FROM messages", NO_COLOR="1")

    assert "row 2\r\n" in wide
    assert "  role           assistant\r\n" in wide
    assert all(terminal.width_of(line) <= 80 for line in wide.split("\r\n"))
    assert narrow.startswith("role\r\nuser\r\nassistant\r\n")


@pytest.mark.finding("users-5")
@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize(("columns", "heads"), [(60, 3), (80, 5), (140, 6)])
def test_sessions_show_their_titles_first_at_any_width(file: str, columns: int, heads: int) -> None:
    with Ledger.open(file) as ledger:
        for number in range(3):
            key = f"6b6f421{number}-0b12-4d55-b930-462903683bea"
            label = f"claude-code:{key}"
            known = Session(label, origin="claude-code", origin_session_id=key)
            ledger.create_session(known)
            ledger.record(label, "q", "r")
            ledger.annotate(label, title=f"Parse durations without a unit as seconds, {number}")

    sent = on_a_terminal("--ledger", file, "sessions", columns=str(columns), NO_COLOR="1")

    first, *rows = sent.replace("\r", "").splitlines()
    assert all(terminal.width_of(line) <= columns for line in [first, *rows])
    names = first.split()
    assert names[:2] == ["TITLE", "SESSION"]
    assert len(names) >= heads
    assert all(row.startswith("Parse durations without") for row in rows)
    # What is shown of a label identifies its session.
    with Ledger.open(file) as ledger:
        shown = {ledger.lookup(re.split("  +", row)[1]) for row in rows}
        assert shown == {session.label for session in ledger.sessions()}


@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
@pytest.mark.parametrize(("columns", "wide_heads"), [(60, []), (80, []), (160, ["WHEN", "ACTION"])])
def test_files_keep_file_and_session_at_any_width(
    file: str, columns: int, wide_heads: list[str]
) -> None:
    path = "/home/dev/shop/apps/dashboard/src/components/ResultTable.tsx"
    with Ledger.open(file) as ledger:
        edit = ToolCall.of("Edit", {"path": path}, "ok")
        ledger.record("codex:019f36b8-7808-7b53-b256-85144c802798", "q", "r", steps=[edit])

    sent = on_a_terminal(
        "--ledger", file, "files", "ResultTable.tsx", columns=str(columns), NO_COLOR="1"
    )

    lines = sent.replace("\r", "").splitlines()
    assert all(terminal.width_of(line) <= columns for line in lines)
    assert lines[0].split() == ["TURN", *wide_heads, "FILE", "SESSION"]
    assert "ResultTable.tsx" in lines[1]
    assert "codex:019f" in lines[1]


@pytest.mark.finding("users-21")
@pytest.mark.skipif(os.name == "nt", reason="terminals of POSIX")
def test_long_output_is_paged_on_a_terminal(file: str, tmp_path: Path) -> None:
    pager = tmp_path / "pager"
    pager.write_text("#!/bin/sh\necho PAGED\ncat\n")
    pager.chmod(0o755)
    with Ledger.open(file) as ledger:
        ledger.record("short", "q", "r")
        ledger.record("long", "q", "\n".join(f"line {number}" for number in range(29)))
    screen = {"LINES": "24", "PAGER": str(pager), "NO_COLOR": "1"}

    long = on_a_terminal("--ledger", file, "show", "long", **screen)
    short = on_a_terminal("--ledger", file, "show", "short", **screen)

    assert long.startswith("PAGED")
    assert "line 28" in long
    assert "\x1b" not in long
    assert "PAGED" not in short
