"""audit, doctor and salvage of a damaged ledger, as a user calls them."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.edges.conftest import Run
from tests.trust import specimen

PAGE = 4096


@pytest.fixture
def damaged(file: str, tmp_path: Path) -> str:
    """A ledger with a bad page in the table of messages."""
    specimen.make(Path(file), tmp_path)
    connection = sqlite3.connect(file)
    [[page]] = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'messages'")
    connection.close()
    with Path(file).open("r+b") as opened:
        opened.seek((page - 1) * PAGE)
        opened.write(b"\xa5" * PAGE)
    return file


def test_audit_says_which_check_of_the_database_ran(file: str, run: Run) -> None:
    Ledger.open(file).close()

    assert "database check: full, PRAGMA integrity_check" in run("audit").out
    assert "database check: quick, PRAGMA quick_check" in run("audit", "--quick").out
    told = run("audit", "--json").json["engine_check"]
    assert told == {"mode": "full", "ran": "PRAGMA integrity_check", "complete": True}


def test_doctor_runs_the_quick_check_by_default(file: str, run: Run) -> None:
    Ledger.open(file).close()

    for options, ran in (((), "quick: PRAGMA quick_check"), (("--full",), "full: PRAGMA integ")):
        facts = {fact["name"]: fact for fact in run("doctor", "--json", *options).json["facts"]}
        assert facts["engine_check"]["value"].startswith(ran)
        assert facts["engine_check"]["level"] == "ok"


def test_damage_is_reported_by_audit_and_doctor(damaged: str, run: Run) -> None:
    audit, doctor = run("audit", "--json"), run("doctor", "--json")

    assert audit.code == 1
    found = {finding["rule"] for finding in audit.json["findings"]}
    assert {"engine_check", "rule_unchecked"} <= found
    assert doctor.code != 0
    facts = {fact["name"]: fact for fact in doctor.json["facts"]}
    assert facts["engine_check"]["level"] == "problem"
    assert "agents-ledger salvage" in facts["engine_check"]["remark"]


@pytest.mark.parametrize(
    "words",
    [("show", "main"), ("search", "answer"), ("context", "main"), ("export", "main"), ("usage",)],
    ids=lambda words: words[0],
)
def test_a_command_on_a_damaged_ledger_ends_with_its_exit_code(
    damaged: str, run: Run, words: tuple[str, ...]
) -> None:
    answer = run(*words)

    assert answer.code in (0, 6)
    assert "Traceback" not in answer.err
    if answer.code:
        assert "damaged" in answer.err
        assert "agents-ledger salvage" in answer.err


def test_salvage_lists_what_is_missing_and_says_so_by_its_exit_code(
    damaged: str, run: Run, tmp_path: Path
) -> None:
    new = str(tmp_path / "new.db")

    answer = run("salvage", damaged, new, "--limit", "2")

    assert answer.code == 1
    assert "some rows are missing" in answer.out
    assert "lost" in answer.out.lower()
    with Ledger.open(new) as ledger:
        assert ledger.audit() == ()
        assert ledger.thread("main").depth > 40


def test_salvage_of_a_sound_ledger_exits_with_0(file: str, run: Run, tmp_path: Path) -> None:
    specimen.make(Path(file), tmp_path, turns=2)

    answer = run("salvage", file, str(tmp_path / "new.db"), "--json")

    assert answer.code == 0
    assert answer.json["complete"] is True
    assert answer.json["missing"] == answer.json["remarks"] == answer.json["findings"] == []
    tables = {rows["table"]: rows["read"] for rows in answer.json["tables"]}
    assert tables["turns"] > 2


def test_salvage_overwrites_nothing(file: str, run: Run, tmp_path: Path) -> None:
    Ledger.open(file).close()
    (tmp_path / "taken.db").write_text("mine")

    answer = run("salvage", file, str(tmp_path / "taken.db"))

    assert answer.code == 5
    assert "exists already" in answer.err


def test_audit_of_a_file_that_cannot_be_read_does_not_advise_an_audit(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "ledger.db"
    with Ledger.open(str(file)) as ledger:
        ledger.record("main", "q", "r")
    with file.open("r+b") as opened:
        opened.seek(100)
        opened.write(b"\xa5" * 4000)

    answer = run("audit", "--ledger", str(file))

    assert answer.code != 0
    assert "agents-ledger audit" not in answer.err
    assert "agents-ledger salvage" in answer.err


def test_salvage_of_a_file_without_a_ledger_does_not_advise_salvage(
    run: Run, tmp_path: Path
) -> None:
    file = tmp_path / "empty.db"
    file.write_bytes(b"")

    answer = run("salvage", str(file), str(tmp_path / "new.db"))

    assert "agents-ledger restore" in answer.err
    assert "agents-ledger salvage" not in answer.err
    assert "agents-ledger audit" not in answer.err


def test_salvage_says_that_it_reads_files_only(run: Run, tmp_path: Path) -> None:
    answer = run("salvage", "postgresql://somebody@127.0.0.1/x", str(tmp_path / "new.db"))

    assert "SQLite files only" in answer.err
