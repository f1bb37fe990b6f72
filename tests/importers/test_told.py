"""Which source a file is of, where its beginning does not tell: by its place, or further on."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.discovery import Unrecognised, files_at
from agents_ledger.importers.parsing import files
from agents_ledger.importers.sources.claude_code.source import ClaudeCode
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.codex_log import Rollout
from tests.importers.copilot_log import Events
from tests.importers.helping import import_paths

MEGABYTE = 1 << 20
JUNK = random.Random(3).randbytes(MEGABYTE + 5000)
ROLLOUT = "rollout-2026-03-01T10-00-00-0195a000-0000-7000-8000-000000000001.jsonl"
# Another agent's first line, in which something else has the name that Cursor's records have.
OTHERS = b'{"role": "session_meta", "tools": [{"parameters": {"message": {}}}], "model": "%b"}\n'
TASK = "Code/User/globalStorage/saoudrizwan.claude-dev/tasks/1/api_conversation_history.json"


def a_log(folder: Path) -> Log:
    log = Log(folder)
    log.user("a1", "a question")
    log.assistant("a2", text("an answer"))
    return log


@pytest.mark.parametrize(
    "junk",
    [
        JUNK,
        bytes(2 * MEGABYTE),
        b"a" * (3 * MEGABYTE),
        b'{"type": "user", "message": "' + b"a" * (3 * MEGABYTE),
        b"\n".join([b"<<<<<<< half a record " * 20] * 3000),
    ],
    ids=["binary", "zeros", "a long line", "a long record", "lines"],
)
@pytest.mark.parametrize("more", [0, 50])
def test_a_log_that_is_damaged_where_it_begins_is_told_by_what_follows(
    ledger: Ledger, tmp_path: Path, junk: bytes, more: int
) -> None:
    log = a_log(tmp_path)
    for number in range(more):
        log.user(f"b{number}", "a question")
        log.assistant(f"c{number}", text("an answer " * 2000))
    path = log.save()
    path.write_bytes(junk + b"\n" + path.read_bytes())

    report = import_paths(ledger, path)

    assert report.unrecognised == []
    assert ledger.get_turn(uid("a1")).status == "completed"
    assert any("not a record" in fault.what for fault in report.faults)


def test_a_packed_log_is_looked_at_further_on_too(ledger: Ledger, tmp_path: Path) -> None:
    rollout = Rollout(tmp_path)
    rollout.start(1)
    rollout.ask("a question")
    rollout.say("an answer")
    saved = rollout.save()
    path = tmp_path / "log.jsonl.zst"
    path.write_bytes(zstandard.compress(JUNK + b"\n" + saved.read_bytes()))

    report = import_paths(ledger, path)

    assert report.unrecognised == []
    assert report.counts.imported == 1


@pytest.mark.parametrize(
    ("place", "source"),
    [
        (f".claude/projects/-home-me/{SESSION}.jsonl", "claude-code"),
        (ROLLOUT, "codex"),
        (f".codex/sessions/2026/03/01/{ROLLOUT}", "codex"),
        (".copilot/session-state/abc/events.jsonl", "copilot"),
        ("Library/Application Support/Cursor/User/globalStorage/state.vscdb", "cursor"),
        (f".config/{TASK}", "cline"),
        (f"Library/Application Support/{TASK}", "cline"),
        (f"AppData/Roaming/{TASK}", "cline"),
        (".gemini/tmp/abc/chats/session-1.json", "gemini-cli"),
        (".pi/agent/sessions/--me--/1.jsonl", "pi"),
    ],
)
def test_a_file_of_which_nothing_can_be_read_is_told_by_its_place(
    tmp_path: Path, place: str, source: str
) -> None:
    path = tmp_path / "saved" / place
    path.parent.mkdir(parents=True)
    path.write_bytes(JUNK)

    (found,) = files_at(tmp_path, Unrecognised([], []))

    assert (found.path, found.source.name) == (path, source)


def test_what_a_file_says_counts_before_the_name_of_a_rollout(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="a question")
    log.say("an answer")
    log.save().rename(tmp_path / ROLLOUT)

    report = import_paths(ledger, tmp_path / ROLLOUT)

    assert report.counts.imported == 1
    assert [session.origin for session in ledger.sessions()] == ["copilot"]


@pytest.mark.parametrize(
    ("said", "is_one"),
    [
        (b"", True),
        (b'{"timestamp": "2026-03-01T10:00:00Z", "type": "new", "payload": {}}\n', True),
        (b'{"type": "message", "role": "user", "content": []}\n', True),
        (b'"half": "a record"}}\n', True),
        (b'{"reward": 1}', False),
        (b'{"reward": 1}\n{"reward": 2}\n', False),
    ],
)
def test_the_name_of_a_rollout_tells_it_unless_it_says_something_else(
    tmp_path: Path, said: bytes, is_one: bool
) -> None:
    path = tmp_path / ROLLOUT
    path.write_bytes(said)
    unknown = Unrecognised([], [])

    found = files_at(path, unknown)

    assert [each.source.name for each in found] == ["codex"] * is_one
    assert unknown.paths == [str(path)] * (not is_one)


def test_what_only_speaks_of_records_is_of_no_source(tmp_path: Path) -> None:
    record = a_log(tmp_path).lines[0]
    prose = "How records look is told below.\n" * 4000
    kept = {
        "notes.md": (prose + record + "\n").encode(),
        "README.txt": prose.encode(),
        "odd.jsonl": b'{"price": 5}\n' * 100_000,
        "short.jsonl": OTHERS % b"" + b'{"role": "user", "content": "Hi."}\n',
        "long.jsonl": OTHERS % (b"a" * MEGABYTE),
        "image.png": b"\x89PNG" + JUNK,
        ".claude/projects/-x/notes.md": prose.encode(),
        ".claude/settings.json": b"{}",
        "other.db": b"SQLite format 3\0" + bytes(5000) + b"\n" + record.encode() + b"\n",
    }
    for name, data in kept.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    unknown = Unrecognised([], [])

    assert files_at(tmp_path, unknown) == []
    assert unknown.faults == []
    assert sorted(unknown.paths) == sorted(str(tmp_path / name) for name in kept)


def test_little_of_a_large_file_is_looked_at(tmp_path: Path) -> None:
    path = tmp_path / "film"
    path.write_bytes(JUNK * 20)

    looked = list(files.throughout(path))

    assert len(looked) <= files.SAMPLES + 1
    assert {len(each) for each in looked} == {files.HEAD_BYTES}
    assert looked[0] == path.read_bytes()[-files.HEAD_BYTES :]


def test_of_what_is_no_text_readers_are_given_only_its_beginning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: list[int] = []
    recognises = ClaudeCode.recognises

    def counting(self: ClaudeCode, path: Path, head: bytes) -> bool:
        given.append(len(head))
        return recognises(self, path, head)

    monkeypatch.setattr(ClaudeCode, "recognises", counting)
    (tmp_path / "photo.jpg").write_bytes(JUNK)

    assert files_at(tmp_path, Unrecognised([], [])) == []
    assert given == [files.HEAD_BYTES]
