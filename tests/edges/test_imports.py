"""import, rederive and export, as a user calls them."""

from __future__ import annotations

import base64
import gzip
import json
import os
import pty
import sqlite3
import subprocess
import sys
import time
import zipfile
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import pipeline
from agents_ledger.importers.parsing import files
from agents_ledger.importers.port.material import Material
from agents_ledger.ledger.core import Core
from agents_ledger.model.installation import settings
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import open_database
from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, Log, a_log, text, uid
from tests.importers.codex_log import THREAD, Rollout, thread_id
from tests.importers.cursor_made import bubble, chat, state_db

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it is measured by /proc")
OTHER = "22222222-2222-4222-8222-222222222222"


# -- import -----------------------------------------------------------------------------------


def test_the_last_line_counts_sessions_by_what_came_of_them(run: Run, projects: Path) -> None:
    log = a_log(projects)
    a_log(projects, OTHER)

    assert run("import").out == "imported 2 upserted 0 skipped 0 failed 0\n"
    log.user("b1", "More.")
    log.assistant("b2", text("Said."))
    log.save()
    assert run("import").out == "imported 0 upserted 1 skipped 1 failed 0\n"
    assert run("import", "claude-code").out == "imported 0 upserted 0 skipped 2 failed 0\n"
    assert run("import", "codex").out == "imported 0 upserted 0 skipped 0 failed 0\n"


def test_a_file_is_the_same_by_whatever_path_it_is_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for folder, name in (("here", SESSION), ("there", OTHER)):
        log = a_log(tmp_path / folder, name)
        log.path.rename(log.path.with_name("same.jsonl"))
        monkeypatch.chdir(tmp_path / folder)
        assert run("import", "same.jsonl").out == "imported 1 upserted 0 skipped 0 failed 0\n"

    whole = run("import", str(tmp_path / "there" / "same.jsonl"))
    up = run("import", "../here/same.jsonl", "../there")

    assert whole.out == "imported 0 upserted 0 skipped 1 failed 0\n"
    assert up.out == "imported 0 upserted 0 skipped 2 failed 0\n"
    kept = run("sql", "SELECT path, generation FROM source_files ORDER BY path", "--json").json
    assert kept["rows"] == [[str(tmp_path / at / "same.jsonl"), 0] for at in ("here", "there")]


def test_a_prompt_that_its_source_never_answered_is_not_being_written(
    run: Run, projects: Path
) -> None:
    log = a_log(projects)
    log.user("b1", "And then?")
    log.save()
    run("import")

    for words in (("show", uid("b1")), ("tree",)):
        shown = run(*words).out
        assert "unanswered" in shown
        assert "pending" not in shown


def test_an_empty_path_is_not_this_folder(
    run: Run, projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(projects)
    monkeypatch.chdir(projects)

    answer = run("import", "")

    assert answer.code == 5
    assert "a path is empty" in answer.err
    assert run("sessions").code != 0


def test_faults_are_reported_by_file_and_line(run: Run, projects: Path) -> None:
    log = a_log(projects)
    log.add("hologram", beam="blue")
    log.lines.append('{"type": "user", "uuid": "bro')
    log.user("c1", "Lost.", parentUuid="00000000-0000-4000-8000-00000000dead")
    log.save()

    answer = run("import")

    assert answer.code == 0
    assert answer.out == "imported 1 upserted 0 skipped 0 failed 0\n"
    said = " ".join(answer.err.split())
    assert f"kept, not shown: claude-code: hologram 1 ({SESSION}.jsonl:3)" in said
    assert f"{SESSION}.jsonl:4 not a record" in said
    assert f"{SESSION}.jsonl:5 the record it follows is missing" in said


def test_of_each_type_of_records_that_make_no_rows_one_is_named(run: Run, projects: Path) -> None:
    log = a_log(projects)
    for _ in range(9):
        log.add("hologram", beam="blue")
    path = log.save()

    answer = run("import", "--json")

    told = {"source": "claude-code", "type": "hologram", "fate": "unmapped", "count": 9}
    assert told | {"first": f"{path}:3"} in answer.json["records"]


def test_if_nothing_is_found_the_searched_locations_are_listed(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    assert str(projects.parent) in run("import", "claude-code").err
    assert "nothing found in the agents' default locations" in " ".join(run("import").err.split())
    (tmp_path / "empty").mkdir()
    said = "".join(run("import", str(tmp_path / "empty")).err.split())
    assert f"{tmp_path / 'empty'};giveafile" in said
    a_log(projects)
    assert "nothing" not in run("import").err


def test_paths_are_imported_and_answered_in_json(run: Run, tmp_path: Path) -> None:
    a_log(tmp_path / "logs").lines.append("")
    (tmp_path / "logs" / "notes.txt").write_text("Buy milk.")
    (tmp_path / "link.jsonl").symlink_to(tmp_path / "logs" / f"{SESSION}.jsonl")

    answer = run("import", str(tmp_path / "logs"), str(tmp_path / "link.jsonl"), "--json")

    assert answer.code == 1
    counts = {name: answer.json[name] for name in ("imported", "upserted", "skipped", "failed")}
    assert counts == {"imported": 1, "upserted": 0, "skipped": 0, "failed": 1}
    assert [fault["path"] for fault in answer.json["faults"]] == [str(tmp_path / "link.jsonl")]
    assert "name that file itself" in answer.json["faults"][0]["what"]
    assert answer.json["unrecognised"] == [str(tmp_path / "logs" / "notes.txt")]
    assert {"source": "claude-code", "type": "user", "fate": "derived", "count": 1} in answer.json[
        "records"
    ]
    assert answer.json["schema_version"] == 1


def test_a_file_without_a_reader_is_reported_and_not_failed(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Buy milk.")

    answer = run("import", str(tmp_path))

    assert answer.code == 0
    assert answer.out == "imported 0 upserted 0 skipped 0 failed 0\n"
    assert "unknown format" in answer.err


def test_a_source_or_path_that_is_not_there_is_named(run: Run, file: str) -> None:
    answer = run("import", "no-such-source")

    assert answer.code == 3
    assert "no source or path 'no-such-source'" in answer.err
    assert "claude-code, codex" in answer.err
    assert "request" not in answer.err
    assert "Did you mean claude-code or claude-ai?" in run("import", "claude").err
    assert "Did you mean gemini-cli?" in run("import", "gemini-cil").err
    assert not Path(file).exists()


def test_a_dry_run_changes_nothing(run: Run, projects: Path, file: str) -> None:
    a_log(projects)

    answer = run("import", "--dry-run")

    assert "claude-code  1 file" in answer.out
    assert answer.out.endswith("1 file would be read\n")
    assert run("import", "--dry-run", "--json").json["files"] == {"claude-code": 1}
    assert not Path(file).exists()


def test_a_dry_run_reports_imported_and_unreadable_files(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    a_log(projects)
    run("import")
    a_log(projects, OTHER)
    (projects / "link.jsonl").symlink_to(tmp_path)

    answer = run("import", "--dry-run", str(projects))

    assert "2 files" in answer.out
    assert "1 not imported yet" in answer.out
    assert answer.out.endswith("1 file would be read\n")
    assert answer.err.count("link.jsonl") == 1
    said = run("import", "--dry-run", "--json", str(projects)).json
    assert said["not_imported"] == {"claude-code": 1}
    assert len(said["faults"]) == 1


def test_a_dry_run_knows_what_is_kept_of_an_archive(run: Run, tmp_path: Path) -> None:
    path = tmp_path / "logs.zip"

    def pack(*names: str) -> None:
        with zipfile.ZipFile(path, "w") as archive:
            for name in names:
                archive.writestr(f"{name}.jsonl", a_log(tmp_path / "logs", name).path.read_bytes())

    pack(SESSION)
    run("import", str(path))

    assert run("import", "--dry-run", str(path)).out.endswith("0 files would be read\n")
    pack(SESSION, OTHER)
    assert run("import", "--dry-run", str(path)).out.endswith("2 files would be read\n")


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes in folders here")
@pytest.mark.parametrize("what", [(), ("{projects}",)])
def test_a_pipe_among_the_files_is_reported_and_never_opened(
    run: Run, projects: Path, what: tuple[str, ...]
) -> None:
    a_log(projects)
    pipe = projects / "pipe.jsonl"
    os.mkfifo(pipe)
    writer = subprocess.Popen(["sh", "-c", f"exec 3> '{pipe}'"])  # it waits for a reader
    try:
        answer = run("import", *(each.format(projects=projects) for each in what))

        assert answer.out == f"imported 1 upserted 0 skipped 0 failed {len(what)}\n"
        assert "it is not a file" in answer.err.replace("\n", " ")
        assert writer.poll() is None
    finally:
        writer.kill()
        writer.wait()


def test_a_linked_folder_outside_of_given_paths_is_no_failure(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    a_log(projects)
    (projects.parent / "linked").symlink_to(tmp_path)

    answers = [run("import"), run("import", "claude-code")]

    assert [answer.code for answer in answers] == [0, 0]
    assert all("it is a link to a folder" in " ".join(each.err.split()) for each in answers)
    assert run("import", str(projects.parent)).code == 1


def test_only_what_changed_since_is_read(run: Run, projects: Path) -> None:
    a_log(projects)
    old = a_log(projects, OTHER).path
    os.utime(old, (time.time() - 10 * 86400,) * 2)

    assert run("import", "--since", "7d").out == "imported 1 upserted 0 skipped 0 failed 0\n"
    assert run("import", "--since", "nonsense").code == 2
    assert run("import", "--since", "2w").out == "imported 1 upserted 0 skipped 1 failed 0\n"


def test_paths_and_projects_are_excluded_by_flag_and_setting(
    run: Run, projects: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(projects)

    none = "imported 0 upserted 0 skipped 0 failed 0\n"
    assert run("import", "--exclude", "*/-home-dev-*").out == none
    assert run("import", "--exclude", "/home/dev/shop").out == none  # by the folder it is about
    assert run("import", "--exclude", "/home/dev").out == none
    assert run("import", "--exclude", "~/.claude/projects").out == none
    monkeypatch.chdir(projects.parent)
    assert run("import", "--exclude", projects.name).out == none
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    settings.settings_file().parent.mkdir(parents=True)
    settings.settings_file().write_text('exclude = ["/home/dev/shop"]')
    assert run("import").out == none
    assert "1 excluded" in run("doctor").out
    settings.settings_file().write_text('exclude = ["~/.claude"]')
    assert run("import").out == none
    settings.settings_file().write_text('exclude = ["/home//dev/x/../shop/"]')
    assert run("import").out == none
    settings.settings_file().write_text('exclude = ["dev/shop"]')
    refused = run("import")
    assert "'dev/shop', which is no whole path" in refused.err
    settings.settings_file().write_text('exclude = ["/home/dev/sho"]')
    assert run("import").out == "imported 1 upserted 0 skipped 0 failed 0\n"


def test_exclusions_are_counted_and_unmatched_patterns_reported(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    windows = a_log(projects)
    windows.lines = [line.replace("/home/dev/shop", "C:/Users/dev/shop") for line in windows.lines]
    windows.save()
    place = {"workspaceIdentifier": {"uri": {"fsPath": "/home/dev/till"}}}
    made = chat("a", bubble("a1", 1, "Hello"), bubble("a2", 2, "Hi"), **place)
    state_db(tmp_path / "home/.config/Cursor/User/globalStorage/state.vscdb", made)
    without = (
        "--exclude",
        "c:\\users\\dev",
        "--exclude",
        "/home/dev/till",
        "--exclude",
        "/home/typo",
    )

    for command in (("import", "--dry-run"), ("import",), ("import",)):
        answer = run(*command, *without)
        assert "excluded 1 file, 1 session\n" in answer.err
        assert "excluded nothing: /home/typo\n" in answer.err
        assert answer.err.count("excluded nothing") == 1
        told = {"files": 1, "sessions": 1, "unmatched": ["/home/typo"]}
        assert run(*command, *without, "--json").json["excluded"] == told


def test_the_files_of_an_excluded_session_are_excluded_too(run: Run, projects: Path) -> None:
    folder = Path("/home/dév/a shop")
    log = a_log(projects)
    log.lines = [
        json.dumps({"type": "summary", "summary": "long " * 50_000}),
        *(line.replace("/home/dev/shop", str(folder)) for line in log.lines),
    ]
    log.save()
    output = projects / SESSION / "tool-results" / "secret.txt"
    output.parent.mkdir(parents=True)
    output.write_text("a secret")

    answer = run("import", "--dry-run", "--exclude", str(folder), "--json")

    assert answer.json["files"] == {}


def test_a_session_is_excluded_by_the_project_in_a_sibling_file(run: Run, tmp_path: Path) -> None:
    said = {"type": "user.message", "id": "m1", "data": {"content": "Hello."}}
    for name, folder in (("a", "/home/dev/shop"), ("b", '"/home/dev/shop/cart"'), ("c", "/other")):
        session = tmp_path / "home" / ".copilot" / "session-state" / name
        session.mkdir(parents=True)
        (session / "events.jsonl").write_text(json.dumps(said) + "\n")
        (session / "workspace.yaml").write_text(f"id: {name}\ncwd: {folder}\n")

    answer = run("import", "--dry-run", "--json", "--exclude", "/home/dev/shop")

    assert answer.json["files"] == {"copilot": 2}


def test_a_file_is_looked_at_once_for_all_projects_excluded_until_it_changes(
    run: Run, projects: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(projects)
    outputs = projects / SESSION / "tool-results"
    outputs.mkdir(parents=True)
    for number in range(5):
        (outputs / f"{number}.txt").write_text("an output")
    looked = []
    head = files.head

    def counted(path: Path, *size: int) -> bytes:
        looked.append((path, *size))
        return head(path, *size)

    monkeypatch.setattr(files, "head", counted)
    without = ("import", "--dry-run", "--exclude", "/nowhere", "--exclude", "/home/dev/shop")

    assert run(*without).out == "0 files would be read\n"

    assert [given for given in looked if given[0] == log.path] == [(log.path, files.HEAD_BYTES)]
    log.lines = [line.replace("/home/dev/shop", "/home/dev/other") for line in log.lines]
    log.save()
    assert run(*without).out.endswith("6 files would be read\n")


def test_a_bar_shows_rate_and_time_left_on_a_terminal(projects: Path, file: str) -> None:
    for number in range(40):
        a_log(projects, f"{number:08}-0000-4000-8000-000000000000", "Begin. " * 20_000)
    leader, follower = pty.openpty()
    command = [sys.executable, "-m", "agents_ledger.cli.main", "--ledger", file, "import"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=follower) as process:
        os.close(follower)
        seen = b""
        with suppress(OSError):  # the terminal ends with the program
            while data := os.read(leader, 1 << 16):
                seen += data
        out = process.stdout.read() if process.stdout else b""

    assert out == b"imported 40 upserted 0 skipped 0 failed 0\n"
    assert b"importing" in seen
    assert b"MB" in seen  # of how much
    assert b"/s" in seen  # how fast
    assert b"0:00:" in seen  # how long


def test_a_request_is_imported_from_a_file(run: Run, tmp_path: Path) -> None:
    request = tmp_path / "request.json"
    request.write_text("{")
    assert run("import", "--request", str(request)).code == 5
    item = {
        "sourceProvider": "cursor",
        "sourceSessionId": "s1",
        "sourceSessionFingerprint": "f1",
        "session": {},
        "turns": [],
        "messages": [],
        "toolCalls": [],
    }
    asked = {"source": "aix", "mode": "backfill", "idempotencyKey": "k", "items": [item]}
    request.write_text(json.dumps(asked))

    answer = run("import", "--request", str(request))

    assert answer.code == 0
    assert [each["status"] for each in answer.json["results"]] == ["imported"]

    data = base64.b64encode(gzip.compress(json.dumps({**item, "sourceSessionId": "s2"}).encode()))
    part: dict[str, Any] = {
        **asked,
        **item,
        "sourceSessionId": "s2",
        "encoding": "gzip+base64",
        "uploadId": "u",
    }
    part |= {"idempotencyKey": "k2", "chunkIndex": 0, "chunkTotal": 1, "data": data.decode()}
    request.write_text("\ufeff" + json.dumps(part), encoding="utf-8")
    answer = run("import", "--request", str(request))
    assert (answer.code, answer.json["status"]) == (0, "completed")


@pytest.mark.parametrize(
    "more", [["--dry-run"], ["--since", "7d"], ["--exclude", "/secret"], ["claude-code"]]
)
def test_a_request_goes_with_no_other_choice(
    run: Run, tmp_path: Path, file: str, more: list[str]
) -> None:
    request = tmp_path / "request.json"
    request.write_text("{}")

    answer = run("import", "--request", str(request), *more)

    assert answer.code == 2
    assert not Path(file).exists()


# -- interrupted, and two at once --------------------------------------------------------------


def test_a_killed_import_resumes(
    run: Run, projects: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(12):
        a_log(projects, f"{number:08}-0000-4000-8000-000000000000")
    calls = []

    class Interrupted(Material):
        def __init__(self, *what: Any) -> None:
            calls.append(what)
            if len(calls) > 7:
                raise KeyboardInterrupt
            super().__init__(*what)

    few = LedgerLimits(batch_derivations=5)
    with monkeypatch.context() as patched, Ledger(Core(open_database(file, limits=few))) as ledger:
        patched.setattr(pipeline, "Material", Interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipeline.import_paths(ledger, [projects])
    for path in projects.iterdir():
        path.unlink()  # what was kept is derived all the same

    answer = run("import")

    assert answer.out == "imported 7 upserted 0 skipped 0 failed 0\n"
    with Ledger.open(file, read_only=True) as ledger:
        assert len(ledger.sessions(limit=100)) == 12
        assert ledger.audit() == ()


def test_two_imports_at_once_end_as_one_would(run: Run, projects: Path, file: str) -> None:
    for number in range(30):
        a_log(projects, f"{number:08}-0000-4000-8000-000000000000")
    command = [sys.executable, "-m", "agents_ledger.cli.main", "--ledger", file, "import", "--json"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) for _ in "12"]
    answers = [process.communicate() for process in both]

    assert [process.returncode for process in both] == [0, 0], answers
    counts = [json.loads(out) for out, _ in answers]
    assert all(each["failed"] == 0 for each in counts)
    assert sum(each["imported"] for each in counts) == 30  # each by whoever was first
    with Ledger.open(file, read_only=True) as ledger:
        assert len(ledger.sessions(limit=100)) == 30
        assert ledger.query("SELECT count(*) FROM turns")[1] == [(30,)]
        assert ledger.query("SELECT count(*) FROM source_files")[1] == [(30,)]
        assert ledger.audit() == ()
    assert run("import").out == "imported 0 upserted 0 skipped 30 failed 0\n"


# -- export and rederive ----------------------------------------------------------------------


def test_a_session_is_exported_as_its_source_wrote_it(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    log = a_log(projects)
    log.lines.append('{"type": "broken')
    before = log.save().read_bytes()
    run("import")
    log.path.unlink()

    export = ("export", f"claude-code:{SESSION}", "--format", "source")
    assert run(*export).out.encode() == before
    target = tmp_path / "back.jsonl"
    assert run(*export, "--output", str(target), "--json").json["files"] == [str(target)]
    assert target.read_bytes() == before
    assert run(*export, "--output", str(target)).code == 5  # it is there already
    assert run("export", "no-such-session", "--format", "source").code == 3
    assert run(*export, "--last", "1").code == 2  # records come whole
    assert run(*export[:2], "--last", "1", "--format", "markdown").code == 0


def test_exporting_a_subagent_without_files_names_its_parent(
    run: Run, projects: Path, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Let somebody look.")
    log.call("s1", "spawn_agent", output=json.dumps({"agent_id": thread_id(5)}))
    run("import", str(log.save()))

    answer = run("export", f"codex:{thread_id(5)}", "--format", "source")

    assert answer.code == 3
    assert "recorded here" not in answer.err
    assert f"Only the call that started it was recorded: export its parent, 'codex:{THREAD}'" in (
        answer.err.replace("\n", " ")
    )


def test_all_is_derived_again_from_what_is_kept(run: Run, projects: Path) -> None:
    log = a_log(projects)
    run("import")
    log.path.unlink()

    assert run("rederive").out == "derived 2 records, 0 turns changed\n"
    again = run("rederive", "--json").json
    assert (again["records"], again["turns"], again["faults"]) == (2, 0, 0)


@LINUX
def test_memory_does_not_grow_with_a_file(tmp_path: Path, file: str) -> None:
    log = Log(tmp_path, SESSION)
    for number in range(300):
        log.user(f"{number}a", "question")
        log.assistant(f"{number}b", text(f"{number} " + "answer " * 28_000))
    path = log.save()
    assert path.stat().st_size > 55 << 20
    program = (
        "import atexit; from agents_ledger.cli.main import main;"
        " atexit.register(lambda: print(open('/proc/self/status').read()));"
        f" main(['--ledger', {file!r}, 'import', {str(path)!r}])"
    )

    done = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True)

    most = next(x for x in done.stdout.decode().splitlines() if x.startswith("VmHWM:"))
    assert int(most.split()[1]) < 120 << 10  # KB: twice what it takes for a small one


@pytest.mark.finding("users-17")
def test_a_named_file_that_no_importer_reads_is_an_error(run: Run, tmp_path: Path) -> None:
    unknown = tmp_path / "goose.db"
    with closing(sqlite3.connect(unknown)) as database:
        database.execute("CREATE TABLE sessions (id TEXT)")
    log = Log(tmp_path / "claude")
    log.user("a1", "Hello")
    known = str(log.save())

    for words in ((str(unknown),), (str(unknown), "--dry-run"), (known, str(unknown))):
        answer = run("import", *words)
        assert answer.code == 5
        assert f"error: no importer reads {unknown}" in answer.err
        assert "claude-code" in answer.err
    assert len(run("sessions", "--json").json["sessions"]) == 1
    # A folder may contain other files too.
    assert run("import", str(tmp_path)).code == 0
