"""Every family of errors has its exit code, and says what happened and what to do next."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.cli.errors import EXIT_CODES
from agents_ledger.cli.main import COMMANDS, OTHER_NAMES
from agents_ledger.model import errors
from tests.builders import chain
from tests.edges.conftest import Answer, Run, call


def told(answer: Answer, code: int, what: str) -> None:
    """It failed with this code, nothing on stdout, and two lines of words on stderr."""
    assert answer.code == code
    assert answer.out == ""
    first, *others = answer.err.splitlines()
    assert first.startswith("error: ")
    assert what in first
    assert any(line.startswith("hint: ") for line in others)


def test_every_error_belongs_to_a_family_with_a_code() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type)]
    ours = [k for k in kinds if issubclass(k, errors.LedgerError) and k is not errors.LedgerError]

    assert ours
    assert all(issubclass(kind, tuple(EXIT_CODES)) for kind in ours)
    assert sorted(EXIT_CODES.values()) == [3, 4, 5, 6, 7]


@pytest.mark.parametrize(
    "words",
    [
        ["sessions"],
        ["show", "main"],
        ["tree"],
        ["fork", "main"],
        ["audit"],
        ["recover"],
        ["sql", "SELECT 1"],
        ["backup", "b.db"],
    ],
)
def test_without_a_ledger_nothing_is_made(run: Run, file: str, words: list[str]) -> None:
    told(run(*words), 3, "there is no ledger at")

    assert not list(Path(file).parent.glob("ledger*"))
    assert not Path("b.db").exists()


def test_the_users_own_folder_is_not_made_by_looking(tmp_path: Path) -> None:
    told(call("sessions"), 3, "there is no ledger at")

    assert not (tmp_path / "home").exists()


def test_what_is_not_there(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "one")

    told(run("show", "nobody"), 3, "there is no session or turn 'nobody'")
    told(run("tree", "nobody"), 3, "there is no session or turn 'nobody'")
    told(run("fork", "nobody"), 3, "there is no session or turn 'nobody'")
    told(run("backup", "no/such/folder/b.db"), 3, "there is no folder")
    told(call("copy", "no.db", "copy.db"), 3, "there is no ledger at")


def test_a_name_that_is_taken(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "one")

    told(run("fork", "main", "--label", "main"), 4, "there is a session 'main' already")


def test_what_the_rules_refuse(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 2)
        ledger.create_session("empty")

    told(run("show", "01"), 5, "several turns begin with '01'")
    told(run("show", ledger_prefix(file)), 5, "several turns begin with")
    told(run("fork", "empty"), 5, "session 'empty' is empty")
    told(run("tree", "empty"), 5, "session 'empty' is empty")
    told(run("backup", file), 5, "exists already")
    told(run("copy", file, file), 5, "is not empty")
    for query in (
        "DELETE FROM turns",
        "SELEC 1",
        "SELECT 1; SELECT 2",
        "VACUUM INTO 'stolen.db'",
        "ATTACH 'other.db' AS other",
    ):
        told(run("sql", query), 5, "the query failed")
    told(run("sql", " "), 5, "the query is empty")
    assert not Path("stolen.db").exists()
    assert not Path("other.db").exists()


def test_numbers_and_times_that_cannot_be(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 1)

    told(run("sessions", "--limit", "9" * 20), 5, "a number is too large")
    told(
        run("usage", "--since", "2026-03-02T12:00Z", "--until", "2026-03-01T12:00Z"),
        5,
        "the time from 2026-03-02 12:00 UTC to 2026-03-01 12:00 UTC is empty",
    )


def test_what_was_refused_says_what_to_do_instead(run: Run, file: str, tmp_path: Path) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 1)
    request = tmp_path / "request.json"

    request.write_text("{")
    told(run("import", "--request", str(request)), 5, "is not valid JSON")
    request.write_text('{"source": "nowhere"}')
    told(run("import", "--request", str(request)), 5, "idempotency_key_required")
    told(run("search", "a" * 10_001), 5, "at most 10,000 characters")
    told(run("search", "a " * 101), 5, "at most 100 words")
    told(run("search", '"' + "a " * 1001 + '"'), 5, "words with those of phrases")
    told(run("search", "model:+"), 5, "has no word to search for")
    told(run("export", "main", "--output", "d/x.md"), 5, "cannot be written")


def test_a_lock_file_that_cannot_be_made_says_what_to_check(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 1)
    Path(f"{file}.lock").unlink(missing_ok=True)
    Path(f"{file}.lock").mkdir()

    told(run("fork", "main"), 6, "cannot create the lock file")


def test_an_empty_address_is_not_the_default_one(tmp_path: Path) -> None:
    told(call("sessions", "--ledger", ""), 5, "the ledger's address is empty")
    told(call("--ledger", "", "sessions"), 5, "the ledger's address is empty")
    told(call("sessions", "--ledger", ":memory:"), 5, "a ledger is not kept in memory")

    assert not (tmp_path / "home").exists()


def ledger_prefix(file: str) -> str:
    """The first letters that the ids of two turns share."""
    with Ledger.open(file) as ledger:
        first, second = ledger.ancestry("main")
    return first[:4] if first[:4] == second[:4] else ""


def test_what_is_no_ledger(run: Run, file: str, tmp_path: Path) -> None:
    Path(file).write_text("Dear diary, " * 500)
    told(run("sessions"), 6, "is not a database")
    told(call("--ledger", str(tmp_path), "sessions"), 6, "is a folder")

    (tmp_path / "empty.db").touch()
    told(call("--ledger", str(tmp_path / "empty.db"), "sessions"), 3, "there is no ledger")


def test_a_server_that_does_not_answer() -> None:
    address = "postgresql://someone:secret@127.0.0.1:1/db"

    answer = call("--ledger", address, "sessions")

    told(answer, 6, "cannot be reached")
    assert "secret" not in answer.err
    told(
        call("--ledger", f"{address}?schema=A-B", "sessions"), 5, "cannot name a PostgreSQL schema"
    )


@pytest.mark.parametrize("words", [["--version"], ["sessions"], []])
def test_without_click_the_command_names_it(words: list[str]) -> None:
    script = (
        "import sys; sys.modules['click'] = None; from agents_ledger.__main__ import main; main()"
    )
    command = [sys.executable, "-c", script, *words]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (5, "")
    error, hint = done.stderr.splitlines()
    assert error == "error: the command requires the package click, which is not installed"
    assert hint.startswith("hint: Install it with: ")
    assert "[web]" in hint


def test_without_the_driver_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    monkeypatch.delitem(sys.modules, "agents_ledger.store.postgres.engine", raising=False)

    answer = call("--ledger", "postgresql://localhost/db", "sessions")

    told(answer, 5, "PostgreSQL requires the package psycopg")
    assert "[postgres]" in answer.err


@pytest.mark.finding("users-29")
@pytest.mark.parametrize(
    ("words", "what"),
    [
        (["frok"], "No such command 'frok'. Did you mean 'fork'?"),
        (["xyzzy"], "No such command 'xyzzy'."),
        (["compare", "a"], "Missing argument 'B'"),
        (["list"], "No such command 'list'. Did you mean 'sessions'?"),
        (["ses"], "No such command 'ses'. Did you mean 'sessions'?"),
        (["sessions", "--agent", "codex"], "No such option '--agent'. Did you mean '--origin'?"),
        (["usage", "--blocks"], "No such option '--blocks'. Did you mean '--by block'?"),
        (["show", "--blocks"], "No such option '--blocks'."),
        (["show", "a", "b"], "unexpected extra argument"),
        (["show", "a", "--last", "0"], "Invalid value for '--last'"),
        (["sessions", "--bogus"], "No such option '--bogus'"),
        (["sessions", "--status", "lost"], "Invalid value for '--status'"),
        (["tree", "--below"], "--below requires a TARGET"),
        (["sessions", "--since", "soon"], "Invalid value for '--since': 'soon' is not a date."),
        (["copy", "a"], "Missing argument 'TO'"),
        (["fork", "a", "--label"], "Option '--label' requires an argument."),
        (["--ledger"], "Option '--ledger' requires an argument."),
    ],
)
def test_what_was_typed_wrongly(run: Run, words: list[str], what: str) -> None:
    told(run(*words), 2, what)


@pytest.mark.finding("users-29")
@pytest.mark.parametrize(
    ("words", "code", "name"),
    [
        (["show", "nobody"], 3, "not_found"),
        (["fork", "main", "--label", "main"], 4, "name_taken"),
        (["sql", "DELETE FROM turns"], 5, "refused"),
        (["usage", "--since", "never"], 2, "usage"),
        (["sql", "SELECT 1", "--csv"], 2, "usage"),
        (["frok"], 2, "usage"),
    ],
)
def test_with_json_an_error_is_one_json_object(
    run: Run, file: str, words: list[str], code: int, name: str
) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "one")

    answer = run(*words, "--json")

    assert (answer.code, answer.out) == (code, "")
    error = json.loads(answer.err)
    assert error.pop("message") in run(*words).err or name == "usage"
    assert error.pop("hint")
    assert error == {"schema_version": 1, "code": name}


def test_json_after_two_dashes_is_an_argument(run: Run, file: str) -> None:
    Ledger.open(file).close()

    told(run("show", "--", "--json"), 3, "there is no session or turn '--json'")


@pytest.mark.finding("users-20")
@pytest.mark.parametrize("name", OTHER_NAMES)
def test_what_others_call_a_command_is_suggested(name: str) -> None:
    assert name not in COMMANDS
    suggestion = OTHER_NAMES[name]
    assert suggestion in {*COMMANDS, "--help", "--version"}
    assert f"Did you mean '{suggestion}'?" in call(name).err


def test_the_hint_names_the_command_that_was_typed_wrongly() -> None:
    assert "hint: See `agents-ledger fork --help`." in call("fork", "a", "--label").err


@pytest.mark.finding("users-33")
def test_no_command_at_all_shows_the_help_in_groups() -> None:
    answer = call()

    assert answer.code == 2
    for group in ("Start", "Explore", "Sessions", "Transfer", "Health", "Servers"):
        assert f"\n{group}:\n" in answer.err
