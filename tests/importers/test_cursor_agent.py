from __future__ import annotations

import hashlib
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.cursor.agent_sessions import (
    parse_text_message,
    read_transcript,
)
from agents_ledger.importers.sources.cursor.source import Cursor
from agents_ledger.model.imports.sources import SourceFile
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.helping import import_paths, result
from tests.importers.test_memory import Given

SESSION = "0e3f6a52-0000-4000-8000-000000000001"
PROJECT = Path(".cursor/projects/home-someone-app/agent-transcripts")


def said(role: str, *blocks: dict[str, Any]) -> dict[str, Any]:
    return {"role": role, "message": {"content": list(blocks)}}


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "text": words}


def transcript(path: Path, *lines: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return path


TALK = (
    said("user", text("<user_query>\nList files\n</user_query>")),
    said(
        "assistant",
        {"type": "thinking", "thinking": "I will list."},
        {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}},
    ),
    said("user", {"type": "tool_result", "tool_use_id": "t1", "content": [text("a.py")]}),
    said("assistant", text("One file.")),
    said("user", text("Thanks")),
)


def test_a_transcript_is_a_session_if_nothing_else_has_it(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, transcript(tmp_path / PROJECT / SESSION / f"{SESSION}.jsonl", *TALK))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns

    assert [(m.role, m.content) for m in turn.messages] == [
        ("user", "List files"),
        ("assistant", ""),
        ("assistant", "One file."),
    ]
    assert turn.messages[1].thinking == "I will list."
    (call,) = turn.tool_calls
    assert (call.tool_name, call.status, call.params_json) == (
        "Shell",
        "completed",
        '{"command":"ls"}',
    )
    assert json.loads(call.result_json or "")[0]["text"] == "a.py"
    assert ledger.query("SELECT status FROM turns WHERE parent_turn_id IS NOT NULL")[1] == [
        ("pending",)
    ]
    assert ledger.audit() == ()


def test_a_call_that_the_agent_continued_after_is_completed(ledger: Ledger, tmp_path: Path) -> None:
    look, run = (
        {"type": "tool_use", "name": name, "input": {"at": name}} for name in ("Glob", "Shell")
    )
    talk = (TALK[0], said("assistant", look, look), said("assistant", text("So."), run))

    import_paths(ledger, transcript(tmp_path / PROJECT / SESSION / f"{SESSION}.jsonl", *talk))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns
    assert [(c.tool_name, c.status) for c in turn.tool_calls] == [
        ("Glob", "completed"),
        ("Glob", "completed"),
        ("Shell", "cancelled"),
    ]


def test_the_database_is_preferred_to_the_transcript(ledger: Ledger, tmp_path: Path) -> None:
    transcript(tmp_path / PROJECT / SESSION / f"{SESSION}.jsonl", *TALK)
    rows = chat(SESSION, bubble("q1", 1, "List files", 1), bubble("a1", 2, "One file.", 2))
    state_db(tmp_path / ".config/Cursor/User/globalStorage/state.vscdb", rows)

    import_paths(ledger, tmp_path / ".cursor", tmp_path / ".config")

    assert ledger.query("SELECT id FROM turns")[1] == [("q1",)]


def test_a_subagent_transcript_belongs_to_its_parent(ledger: Ledger, tmp_path: Path) -> None:
    folder = tmp_path / PROJECT / SESSION
    transcript(folder / f"{SESSION}.jsonl", *TALK)
    transcript(folder / "subagents" / "child.jsonl", said("user", text("Go")), said("assistant"))

    import_paths(ledger, tmp_path / ".cursor")

    session = ledger.session("cursor:child")
    assert (session.is_subagent, session.parent_session_label) == (True, f"cursor:{SESSION}")


def test_a_rewritten_transcript_is_shown_in_its_latest_state(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / PROJECT / SESSION / f"{SESSION}.jsonl"
    for answer in ("First.", "Another.", "The last one."):
        talk = (said("user", text("Tell")), said("assistant", text(answer)))
        import_paths(ledger, transcript(path, *talk))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns

    assert [m.content for m in turn.messages] == ["Tell", "The last one."]
    assert rederive(ledger).written_turns == 0


def test_an_error_ends_a_turn(ledger: Ledger, tmp_path: Path) -> None:
    lines = (said("user", text("hi")), {"type": "error", "error": "upstream timeout"})
    import_paths(ledger, transcript(tmp_path / PROJECT / "s.jsonl", *lines))

    assert ledger.query("SELECT status, error FROM turns")[1] == [("failed", "upstream timeout")]


def store(
    path: Path, messages: list[dict[str, Any]], *, rooted: bool = True, session: str = SESSION
) -> Path:
    """Messages as blobs under a root: the first as it is, the others wrapped in nodes."""
    blobs: dict[str, bytes] = {}

    def put(data: bytes) -> bytes:
        name = hashlib.sha256(data)
        blobs[name.hexdigest()] = data
        return name.digest()

    root = b""
    for at, message in enumerate(messages):
        data = json.dumps(message).encode()
        assert len(data) < 16384
        size = bytes([len(data) & 0x7F | 0x80, len(data) >> 7])
        leaf = put(data if at == 0 else b"\x08\x01\x22" + size + data)
        root += b"\x0a\x20" + leaf
    top = put(b"\x12\x20" + put(root))
    put(json.dumps({"role": "user", "content": "abandoned"}).encode())
    meta = {"agentId": session, "name": "Listing", "createdAt": 1775522590321}
    meta |= {"lastUsedModel": "model-x", "latestRootBlobId": top.hex() if rooted else "none"}
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE IF NOT EXISTS blobs (id TEXT PRIMARY KEY, data BLOB)")
        made.execute("CREATE TABLE IF NOT EXISTS meta (key TEXT PRIMARY KEY, value TEXT)")
        made.execute("REPLACE INTO meta VALUES ('0', ?)", (json.dumps(meta).encode().hex(),))
        made.executemany("REPLACE INTO blobs VALUES (?, ?)", blobs.items())
        made.commit()
    return path


AGENT: list[dict[str, Any]] = [
    {"role": "system", "content": "You are an agent."},
    {"role": "user", "content": [{"type": "text", "text": "List files"}]},
    {
        "role": "assistant",
        "content": [
            {"type": "reasoning", "text": "I will list."},
            {"type": "tool-call", "toolCallId": "k", "toolName": "Shell", "args": {"c": "ls"}},
        ],
    },
    {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "k", "result": "a.py"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "One file."}]},
]


def test_a_store_is_walked_from_its_newest_root(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / ".cursor" / "chats" / "0a" / SESSION / "store.db"
    report = import_paths(ledger, store(path, AGENT))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns

    assert [m.role for m in turn.messages] == ["system", "user", "assistant", "assistant"]
    assert [m.content for m in turn.query] == ["List files"]
    assert (turn.model, turn.tool_calls[0].result_json) == ("model-x", '"a.py"')
    assert ledger.session(f"cursor:{SESSION}").title == "Listing"
    assert report.records["cursor", "blobs", "derived"] == 5
    assert report.records["cursor", "blobs", "unmapped"] == 3
    assert ledger.audit() == ()


def test_the_meta_file_of_a_store_gives_its_folder(ledger: Ledger, tmp_path: Path) -> None:
    chats = tmp_path / ".cursor" / "chats" / "0a"
    for name in (SESSION, "other"):
        store(chats / name / "store.db", AGENT, session=name)
    import_paths(ledger, tmp_path)

    beside = chats / SESSION / "meta.json"
    beside.write_text('{"schemaVersion":1,"hasConversation":true,"cwd":"/home/dev/shop"}')
    assert Cursor().wants(beside)
    report = import_paths(ledger, tmp_path)

    shown = "SELECT project, workspace_path FROM agent_sessions ORDER BY id = 'other'"
    assert ledger.query(shown)[1] == [("shop", "/home/dev/shop"), (None, None)]
    assert ledger.thread(f"cursor:{SESSION}").turns[0].workspace_path == "/home/dev/shop"
    assert report.written_turns == 1


def test_a_store_without_its_root_gives_all_messages(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, store(tmp_path / "chats" / SESSION / "store.db", AGENT, rooted=False))

    assert len(ledger.query("SELECT id FROM messages")[1]) == 5


def test_malformed_blobs_in_a_store_are_not_an_error(ledger: Ledger, tmp_path: Path) -> None:
    path = store(tmp_path / "chats" / SESSION / "store.db", AGENT)
    with closing(sqlite3.connect(path)) as made:
        made.execute("UPDATE blobs SET data = CAST('x' || substr(data, 2) AS BLOB) WHERE rowid % 2")
        made.execute("UPDATE meta SET value = 'zz'")
        made.commit()

    report = import_paths(ledger, path)

    assert report.counts.failed == 0


def test_a_file_of_another_agent_with_the_name_of_a_transcript_is_not_one(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked, answered = ({"role": role, "parts": [{"text": "Hi"}]} for role in ("user", "gemini"))
    other = tmp_path / "chats" / "talk.json"
    other.parent.mkdir()
    other.write_text(json.dumps({"history": [asked, answered, asked, answered]}))
    hello = said("assistant", text("Hello"))

    transcript(tmp_path / PROJECT / "more.jsonl", *TALK)
    transcript(tmp_path / PROJECT / "talk.jsonl", hello, *TALK)

    import_paths(ledger, tmp_path)

    depths = {session.label: ledger.thread(session.label).depth for session in ledger.sessions()}
    assert depths == {"cursor:more": 1, "cursor:talk": 2, "gemini-cli:talk": 2}


SPOKEN = """user:
<user_query>
List files
</user_query>

assistant:
[Thinking] I will
list.

Let me look.
[Tool call] Shell
  command: ls
  note: two
   lines

[Tool result] Shell
a.py

One file.

A:
Indeed.

user:
Thanks
"""


def spoken(path: Path, words: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words)
    return path


def test_the_oldest_transcripts_are_plain_text(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, spoken(tmp_path / PROJECT / f"{SESSION}.txt", SPOKEN))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns
    assert [(m.role, m.content) for m in turn.messages] == [
        ("user", "List files"),
        ("assistant", "Let me look.\n\nOne file."),
        ("assistant", "Indeed."),
    ]
    assert turn.messages[1].thinking == "I will\nlist."
    (call,) = turn.tool_calls
    given = {"command": "ls", "note": "two\n   lines"}
    assert (call.tool_name, call.status) == ("Shell", "completed")
    assert json.loads(str(call.params_json)) == given
    assert json.loads(str(call.result_json)) == "a.py"
    rest = f"SELECT content FROM messages WHERE turn_id <> '{turn.id}'"
    assert ledger.query(rest)[1] == [("Thanks",)]
    lines = sum(bool(line.strip()) for line in SPOKEN.splitlines())
    assert sum(report.records.values()) == lines
    assert {fate for _, _, fate in report.records} == {"derived"}


def test_a_text_transcript_grows_and_yields_to_a_better_record(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / PROJECT / f"{SESSION}.txt"
    import_paths(ledger, spoken(path, SPOKEN[: SPOKEN.index("One file.")]))
    import_paths(ledger, spoken(path, SPOKEN))
    whole = result(ledger)
    assert import_paths(ledger, path).written_turns == 0
    rederive(ledger)
    assert result(ledger) == whole

    import_paths(ledger, transcript(tmp_path / PROJECT / SESSION / f"{SESSION}.jsonl", *TALK))

    (turn,) = ledger.thread(f"cursor:{SESSION}").turns
    assert turn.messages[-1].content == "One file."
    assert ledger.query("SELECT count(*) FROM sessions")[1] == [(1,)]


@pytest.mark.parametrize("number", [3, 3000])
def test_the_fingerprint_of_a_text_message_is_as_short_for_a_long_one(number: int) -> None:
    lines = "some line\n" * number
    words = f"user:\nhello\n\nassistant:\n{lines}\nuser:\nnext\n"

    before = text_fingerprints(words)
    after = text_fingerprints(f"{words}And more.\n")

    assert [len(fingerprint) for fingerprint in before] == [16, 16, 16]
    assert before[:2] == after[:2]
    assert before[2] != after[2]


def text_fingerprints(words: str) -> list[bytes]:
    data = words.encode()
    file = SourceFile(1, "cursor", "/s/a.txt", 0, "f", "lines", len(data), 0, len(data))
    session = read_transcript(Material(Given(data), [file]), file, is_needed=True)
    return [message.print for message in session.messages]


def test_the_arguments_of_a_call_may_be_very_long() -> None:
    number = 300_000  # were each line joined to those before, this would take minutes
    lines = b"  more of it\n" * number
    said = parse_text_message(b"assistant:\n[Tool call] Shell\n  a: b\n" + lines)
    bare = parse_text_message(b"assistant:\n[Tool call] Shell -x\n" + lines)

    assert len(said["content"][-1]["input"]["a"].splitlines()) == number + 1
    assert len(bare["content"][-1]["input"]["arguments"].splitlines()) == number + 1


def test_a_note_with_a_similar_beginning_is_not_a_transcript(tmp_path: Path) -> None:
    assert not Cursor().recognises(tmp_path / "note.txt", b"user: dev\npassword: none\n")
    assert Cursor().recognises(tmp_path / "x.txt", SPOKEN.encode())
