"""export --file and --list: source files that are kept, whether or not they are of a session."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.cursor_made import bubble, chat, state_db
from tests.importers.test_opencode import SAMPLE, storage

DIFF = Path("storage/session_diff/ses_1.json")


@pytest.fixture
def kept(run: Run, tmp_path: Path) -> Path:
    """A folder whose files were imported."""
    folder = tmp_path / "logs"
    storage(folder / "opencode", SAMPLE)
    diff = folder / "opencode" / DIFF
    diff.parent.mkdir(parents=True, exist_ok=True)
    diff.write_bytes(b'[{"file":  "b.txt",\r\n "before": "\\u00e4", "after": ""}]')
    log = Log(folder / "claude")
    log.user("a1", "Hello")
    log.assistant("a2", text("Hi."))
    log.save()
    state_db(folder / "cursor" / "state.vscdb", chat("c", bubble("q", 1, "?"), bubble("a", 2, "!")))
    assert run("import", str(folder)).code == 0
    return folder


def test_a_file_of_no_session_comes_back_as_it_was(run: Run, kept: Path, tmp_path: Path) -> None:
    path = kept / "opencode" / DIFF
    before = path.read_bytes()
    path.unlink()
    out = tmp_path / "out.json"

    answer = run("export", "--file", str(path), "-o", str(out))

    assert (answer.code, answer.out.strip()) == (0, str(out))
    assert out.read_bytes() == before
    printed = run("export", "--file", str(path), "--format", "source").out
    assert printed == before.decode().replace("\r\n", "\n")  # as a terminal shows it


def test_all_files_of_a_folder_come_back(run: Run, kept: Path, tmp_path: Path) -> None:
    folder, out = kept / "opencode", tmp_path / "out"

    assert run("export", "--file", str(folder), "-o", str(out)).code == 0

    def every(root: Path) -> dict[str, bytes]:
        paths = (path for path in root.rglob("*") if path.is_file())
        return {path.relative_to(root).as_posix(): path.read_bytes() for path in paths}

    assert every(out) == every(folder / "storage")


def test_all_files_of_a_source_come_back(run: Run, kept: Path, tmp_path: Path) -> None:
    """In a folder, also where there is one alone: what is made must not hang on how many."""
    out = tmp_path / "backup" / "state.vscdb"

    answer = run("export", "--file", "cursor", "-o", str(out.parent), "--json")

    assert answer.json["files"] == [str(out)]
    with closing(sqlite3.connect(out)) as made:
        assert made.execute("SELECT count(*) FROM cursorDiskKV").fetchone() == (3,)


def test_what_is_kept_is_listed(run: Run, kept: Path) -> None:
    listed = run("export", "--list", "--json").json["files"]

    assert {each["source"] for each in listed} == {"claude-code", "cursor", "opencode"}
    paths = [each["path"] for each in listed]
    assert str(kept / "opencode" / DIFF) in paths
    below = run("export", "--list", "--file", str(kept / "claude"), "--json").json["files"]
    log = kept / "claude" / f"{SESSION}.jsonl"
    size = log.stat().st_size
    whose = {"path": str(log), "generation": 0, "source": "claude-code"}
    assert below == [whose | {"kind": "lines", "bytes": size}]
    assert run("export", "--list", f"claude-code:{SESSION}", "--json").json["files"] == below
    assert str(log) in run("export", "--list").out


@pytest.mark.parametrize(
    ("given", "code", "told"),
    [
        (["--file", "nowhere.jsonl"], 3, "no archived file matches 'nowhere.jsonl'"),
        (["--file", "nowhere.jsonl"], 3, "`agents-ledger export --list` lists"),
        (["--file", "claude"], 3, "Did you mean claude-code?"),
        (["--file", "opncode"], 3, "Did you mean opencode?"),
        (["--file", ""], 5, "a path is empty"),
        (["--list", "--file", ""], 5, "a path is empty"),
        (["--file", "opencode"], 5, "cannot print"),
        (["--file", "cursor"], 5, "cannot print a database"),
        (
            ["--file", "cursor", "--format", "markdown"],
            2,
            "--format markdown does not apply to source files",
        ),
        (["--file", "cursor", "--review"], 2, "--review does not apply to source files"),
        (["--file", "cursor", "--last", "2"], 2, "--last does not apply to source files"),
        (
            ["--file", "cursor", "--full", "--no-mask"],
            2,
            "--full, --no-mask do not apply to source files",
        ),
        (
            ["--file", "cursor", "--no-subagents"],
            2,
            "--no-subagents does not apply to source files",
        ),
        (
            ["--file", "cursor", "--provider", "openai"],
            2,
            "--provider does not apply to source files",
        ),
        (["--list", "-o", "x.txt"], 2, "--list and --output cannot be combined"),
        (["main", "--file", "cursor"], 2, "TARGET and --file cannot be combined"),
        ([], 2, "Give a TARGET"),
    ],
)
def test_invalid_exports_are_refused_with_a_reason(
    run: Run, kept: Path, given: list[str], code: int, told: str
) -> None:
    answer = run("export", *given)

    assert answer.code == code
    assert told in answer.err


def test_a_former_state_of_a_log_comes_back_too(run: Run, kept: Path, tmp_path: Path) -> None:
    log = kept / "claude" / f"{SESSION}.jsonl"
    first = log.read_bytes()
    log.write_bytes(json.dumps(json.loads(first.split(b"\n")[0]) | {"more": 1}).encode() + b"\n")
    run("import", str(log))

    run("export", "--file", str(log), "-o", str(tmp_path / "out"))

    assert (tmp_path / "out" / log.name).read_bytes() == log.read_bytes()
    assert (tmp_path / "out" / f"{SESSION}~0.jsonl").read_bytes() == first


def written_anew(run: Run, log: Path) -> tuple[bytes, bytes]:
    """What a log held, and what it holds."""
    before = log.read_bytes()
    now = json.dumps(json.loads(before.split(b"\n")[0]) | {"more": 1}).encode() + b"\n"
    log.write_bytes(now)
    run("import", str(log))
    return before, now


def test_a_former_state_takes_no_other_files_place(run: Run, kept: Path, tmp_path: Path) -> None:
    log = kept / "claude" / f"{SESSION}.jsonl"
    beside = log.with_name(f"{SESSION}~0.jsonl")
    beside.write_bytes(log.read_bytes() + b"\n")
    run("import", str(beside))
    before, now = written_anew(run, log)

    answer = run("export", "--file", str(log.parent), "-o", str(tmp_path / "out"))

    assert answer.code == 0
    made = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}
    former = f"{SESSION}~1.jsonl"
    assert made == {log.name: now, beside.name: beside.read_bytes(), former: before}


def test_a_file_and_a_folder_of_one_name_both_come_back(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    log = kept / "claude" / f"{SESSION}.jsonl"
    data = log.read_bytes()
    log.unlink()
    within = log / log.name
    within.parent.mkdir()
    within.write_bytes(data)
    run("import", str(within))

    assert run("export", "--file", str(log.parent), "-o", str(tmp_path / "out")).code == 0

    made = [path for path in (tmp_path / "out").rglob("*") if path.is_file()]
    names = [path.relative_to(tmp_path / "out").as_posix() for path in made]
    assert sorted(names) == [f"{log.name}/{log.name}", f"{SESSION}~0.jsonl"]


def test_nothing_is_written_where_one_file_is_there_already(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    (tmp_path / "out").mkdir()
    there = tmp_path / "out" / "session_diff" / "ses_1.json"
    there.parent.mkdir()
    there.write_bytes(b"mine")

    answer = run("export", "--file", str(kept / "opencode"), "-o", str(tmp_path / "out"))

    assert (answer.code, f"{there} already exists" in answer.err) == (5, True)
    assert [path for path in (tmp_path / "out").rglob("*") if path.is_file()] == [there]
    assert there.read_bytes() == b"mine"
    answer = run("export", "--file", str(kept / "opencode"), "-o", str(there))
    assert (answer.code, f"{there} already exists" in answer.err) == (5, True)


def test_former_states_are_listed_with_the_path_they_have(run: Run, kept: Path) -> None:
    log = kept / "claude" / f"{SESSION}.jsonl"
    written_anew(run, log)

    lists = [
        run("export", "--list", *of, "--json").json["files"]
        for of in ([], ["--file", str(log)], [f"claude-code:{SESSION}"])
    ]

    states = [(str(log), 1), (str(log), 0)]
    for each in lists:
        of_log = [one for one in each if one["source"] == "claude-code"]
        assert [(one["path"], one["generation"]) for one in of_log] == states


@pytest.fixture
def open_umask() -> Iterator[None]:
    """A umask that hides nothing."""
    before = os.umask(0)
    yield
    os.umask(before)


@pytest.mark.finding("users-22")
@pytest.mark.usefixtures("open_umask")
def test_exports_and_backups_can_be_read_by_their_owner_alone(
    run: Run, kept: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for form in ("json", "md", "jsonl", "html"):
        assert run("export", SESSION, "-o", str(out / f"it.{form}")).code == 0
    assert run("export", SESSION, "--format", "source", "-o", str(out / "one")).code == 0
    assert run("export", "--file", str(kept), "-o", str(out / "all")).code == 0
    assert run("backup", str(out / "backup.db")).code == 0
    assert run("copy", str(out / "backup.db"), str(out / "copy.db")).code == 0

    modes = {path: path.stat().st_mode & 0o777 for path in out.rglob("*") if path.is_file()}
    assert len(modes) > 10
    assert {path: mode for path, mode in modes.items() if mode != 0o600} == {}
