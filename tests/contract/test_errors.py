"""Errors: each says what happened, to which thing, and what to do next."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psycopg
import pytest

from agents_ledger import (
    Ambiguous,
    Damaged,
    DiskFull,
    Ledger,
    LedgerError,
    Locked,
    NewerLedger,
    NotALedger,
    NotFound,
    ReadOnly,
    Refused,
    StoreUnavailable,
    ToolCall,
    Unreachable,
    Usage,
    new_id,
)
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import chain
from tests.engines import on_postgres
from tests.raw import Raw
from tests.waiting import PATIENCE_S, until


@contextmanager
def said(kind: type[LedgerError], words: str) -> Iterator[None]:
    """An error of this very kind, one sentence long, with a hint."""
    with pytest.raises(kind, match=words) as caught:
        yield
    error = caught.value
    assert type(error) is kind
    assert error.hint.endswith("."), error.hint
    assert "\n" not in str(error)
    assert "Traceback" not in str(error)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A ledger file with a turn in it, closed."""
    path = tmp_path / "ledger.db"
    with Ledger.open(str(path)) as ledger:
        chain(ledger, "main", 3)
    return path


# -- what is not there ------------------------------------------------------------------------


def test_an_unknown_session_is_named(ledger: Ledger) -> None:
    with said(NotFound, "there is no session 'mian'"):
        ledger.session("mian")


def test_an_unknown_turn_is_named(ledger: Ledger) -> None:
    for target in ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01AR", "x"):
        with said(NotFound, f"there is no session or turn '{target}'"):
            ledger.get_turn(target)


def test_a_prefix_of_several_turns_is_ambiguous(ledger: Ledger) -> None:
    ledger.record("main", "q", "r", id="turn-one")
    ledger.record("main", "q", "r", id="turn-other")

    with said(Ambiguous, "several turns begin with 'turn-o': turn-one, turn-other"):
        ledger.get_turn("turn-o")

    ledger.record("main", "q", "r", id="turn-out")
    with said(Ambiguous, "several turns begin with 'turn-o': turn-one, turn-other, ..."):
        ledger.get_turn("turn-o")

    assert ledger.get_turn("turn-on").id == "turn-one"
    assert ledger.get_turn("turn-ot").id == "turn-other"


def test_a_prefix_is_found_in_small_letters_but_not_below_four(ledger: Ledger) -> None:
    turn = ledger.record("main", "q", "r", id=new_id())

    assert ledger.get_turn(turn.id[:12].lower()).id == turn.id
    with said(NotFound, "there is no session or turn"):
        ledger.get_turn(turn.id[:3])


def test_a_ledger_that_is_not_there_is_not_made_by_reading(address: str) -> None:
    for how in ({"create": False}, {"read_only": True}):
        with said(NotFound, "there is no ledger at"):
            Ledger.open(address, **how)

    assert address.startswith("postgres") or not Path(address).exists()


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with said(NotFound, f"there is no folder {tmp_path / 'none'}"):
        Ledger.open(str(tmp_path / "none" / "ledger.db"))


def test_an_empty_file_holds_no_ledger_for_a_reader(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()

    with said(NotFound, "there is no ledger at"):
        Ledger.open(str(tmp_path / "empty.db"), read_only=True)


# -- locked -----------------------------------------------------------------------------------

HOLD = """
import sqlite3, sys
connection = sqlite3.connect(sys.argv[1], isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
print("held", flush=True)
sys.stdin.readline()
"""
HOLD_QUEUE = """
import sys
from pathlib import Path
from agents_ledger.store.concurrency.locks import WriteQueue
with WriteQueue(Path(sys.argv[1]), 5):
    print("held", flush=True)
    sys.stdin.readline()
"""


@contextmanager
def held(script: str, file: Path) -> Iterator[int]:
    """Another process holds the ledger."""
    command = [sys.executable, "-c", script, str(file)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.kill()


def test_a_ledger_held_by_another_program_is_locked(file: Path) -> None:
    with (
        held(HOLD, file),
        Ledger(Core(SqliteDatabase(str(file), wait_seconds=0.2))) as ledger,
    ):
        assert ledger.head("main")
        with said(Locked, f"{file} is locked by another program"):
            ledger.record("main", "q", "r")

    with Ledger.open(str(file)) as ledger:
        assert ledger.record("main", "q", "r").depth == 4


def test_a_ledger_held_by_another_writer_of_ours_names_its_process(file: Path) -> None:
    with (
        held(HOLD_QUEUE, file) as pid,
        Ledger(Core(SqliteDatabase(str(file), wait_seconds=0.2))) as ledger,
    ):
        with said(Locked, rf"ledger\.db\.lock is held by another process \(process {pid}\)"):
            ledger.record("main", "q", "r")
        assert len(ledger.thread("main").turns) == 3


def test_a_writer_waits_for_its_turn(file: Path) -> None:
    with Ledger.open(str(file)) as ledger:
        writer = threading.Thread(target=ledger.record, args=("main", "q", "r"))
        with held(HOLD, file):
            writer.start()
            writer.join(0.3)
            assert writer.is_alive()
        writer.join(PATIENCE_S)

        assert ledger.thread("main").depth == 4


# -- read-only --------------------------------------------------------------------------------

WITHOUT_RIGHTS = """
import os, sys, tempfile
from agents_ledger import Ledger, LedgerError

file, verb = sys.argv[1:]
with tempfile.TemporaryDirectory() as own, Ledger.open(f"{own}/ledger.db") as ledger:
    ledger.record("main", "q", "r")  # whatever is imported on use is imported with all rights
    ledger.thread("main")
if os.geteuid() == 0:  # nothing is forbidden to root
    os.setgid(65534)
    os.setuid(65534)
try:
    with Ledger.open(file, read_only=verb == "read") as ledger:
        if verb == "read":
            print("read", len(ledger.thread("main").turns))
        else:
            ledger.record("main", "q", "r")
            print("written")
except LedgerError as error:
    print(type(error).__name__, "|", error, "|", error.hint)
"""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder others may enter: that of a test is private."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


def without_rights(file: Path, verb: str) -> str:
    """What a user without special rights gets."""
    command = [sys.executable, "-c", WITHOUT_RIGHTS, str(file), verb]
    run = subprocess.run(command, capture_output=True, text=True, check=True, timeout=PATIENCE_S)
    return run.stdout.strip()


@pytest.mark.parametrize(
    ("file_mode", "folder_mode"),
    [(0o444, 0o555), (0o666, 0o555), (0o444, 0o777)],
    ids=["file and folder", "folder", "file"],
)
def test_a_ledger_that_may_not_be_written_is_read_only(
    open_folder: Path, file_mode: int, folder_mode: int
) -> None:
    file = open_folder / "ledger.db"
    with Ledger.open(str(file)) as ledger:
        chain(ledger, "main", 2)
    for lock in open_folder.glob("ledger.db.*"):
        lock.unlink()
    file.chmod(file_mode)
    open_folder.chmod(folder_mode)

    refused = without_rights(file, "write")
    read = without_rights(file, "read")

    kind, what, hint = refused.split(" | ")
    assert kind == "ReadOnly"
    assert str(file) in what
    assert hint == "Check the permissions of the file, its folder and the file system."
    assert read == "read 2"


def test_a_new_ledger_in_a_folder_that_may_not_be_written_is_refused(open_folder: Path) -> None:
    open_folder.chmod(0o555)

    refused = without_rights(open_folder / "new.db", "write")

    assert refused.startswith("ReadOnly | cannot create")


def test_a_ledger_opened_for_reading_is_not_written(ledger: Ledger, address: str, raw: Raw) -> None:
    chain(ledger, "main", 1)
    ledger.turn("other", "left open")
    before = raw.dump()
    beside = sorted(Path(address).parent.iterdir()) if raw.engine == "sqlite" else []

    with Ledger.open(address, read_only=True) as reader:
        assert len(reader.thread("main").turns) == 1
        for write in (
            lambda: reader.record("main", "q", "r"),
            lambda: reader.turn("main", "q"),
            lambda: reader.clear("main"),
            reader.recover,
        ):
            with said(ReadOnly, "was opened for reading only"):
                write()

    assert raw.dump() == before
    if raw.engine == "sqlite":
        assert sorted(Path(address).parent.iterdir()) == beside


@on_postgres
def test_a_user_of_a_server_without_rights_is_told(ledger: Ledger, address: str, raw: Raw) -> None:
    chain(ledger, "main", 1)
    schema = raw.one("SELECT current_schema()")
    role = f"reader_{uuid.uuid4().hex[:12]}"
    raw.execute(f"CREATE ROLE {role} LOGIN")
    theirs = re.sub(r"//[^@]*@", f"//{role}@", address)

    try:
        with said(ReadOnly, "forbids this: permission denied"):
            Ledger.open(theirs)
        raw.execute(f"GRANT USAGE ON SCHEMA {schema} TO {role}")
        raw.execute(f"GRANT SELECT ON ALL TABLES IN SCHEMA {schema} TO {role}")
        with Ledger.open(theirs) as reader:
            assert len(reader.thread("main").turns) == 1
            with said(ReadOnly, "forbids this: permission denied"):
                reader.record("main", "q", "r")
    finally:
        raw.execute(f"DROP OWNED BY {role}")
        raw.execute(f"DROP ROLE {role}")


# -- not a sound ledger -----------------------------------------------------------------------


def test_a_damaged_file_is_named(file: Path) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(4096)
        damaged.write(os.urandom(file.stat().st_size - 4096))

    def use() -> None:
        with Ledger.open(str(file)) as ledger:
            ledger.thread("main")
            ledger.audit()

    with said(Damaged, f"{file} is damaged"):
        use()


def test_a_file_cut_short_is_damaged(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 4096 // 2 * 4096)

    def use() -> None:
        with Ledger.open(str(file)) as ledger:
            ledger.audit()

    with said(Damaged, "is damaged"):
        use()


def test_a_database_of_something_else_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "other.db"
    with sqlite3.connect(file) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    connection.close()
    before = file.read_bytes()

    for how in ({}, {"read_only": True}):
        with said(NotALedger, "is a database of something else"):
            Ledger.open(str(file), **how)

    assert file.read_bytes() == before


def test_a_text_file_is_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("Dear diary, " * 100)

    for how in ({}, {"read_only": True}):
        with said(NotALedger, "is not a database"):
            Ledger.open(str(file), **how)

    assert file.read_text() == "Dear diary, " * 100


def test_a_folder_is_not_a_ledger(tmp_path: Path) -> None:
    with said(NotALedger, "is a folder"):
        Ledger.open(str(tmp_path))


def test_a_schema_of_something_else_is_left_alone(
    new_schema: Callable[[], str], postgres_server: str
) -> None:
    address = new_schema()
    schema = address.rpartition("=")[2]
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.songs (title TEXT)")

        with said(NotALedger, "holds the tables of something else"):
            Ledger.open(address)

        tables = connection.execute(
            "SELECT tablename FROM pg_tables WHERE schemaname = %s", (schema,)
        ).fetchall()
    assert tables == [("songs",)]


def test_a_newer_ledger_is_refused(ledger: Ledger, address: str, raw: Raw) -> None:
    raw.execute("INSERT INTO schema_migrations (number, name, applied_at) VALUES (999, 'x', 1)")

    for how in ({}, {"read_only": True}):
        with said(NewerLedger, r"has schema 999; this version of agents-ledger knows \d+"):
            Ledger.open(address, **how)

    raw.execute("DELETE FROM schema_migrations WHERE number = 999")


# -- no room, no ground -----------------------------------------------------------------------


def test_a_file_system_without_shared_memory_is_refused(tmp_path: Path) -> None:
    def without(address: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(f"{address}&vfs=unix-none", **options)
        return connection

    file = str(tmp_path / "ledger.db")
    with said(StoreUnavailable, "this file system cannot hold a ledger"):
        SqliteDatabase(file, connect=without)

    with Ledger.open(file) as ledger:
        assert ledger.audit() == ()


def test_a_full_disk_is_said_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    file = str(tmp_path / "ledger.db")
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 1)

    def small(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        pages = connection.execute("PRAGMA page_count").fetchone()[0]
        connection.execute(f"PRAGMA max_page_count={pages + 20}")
        return connection

    with Ledger(Core(SqliteDatabase(file, connect=small))) as ledger:
        acknowledged = ledger.record("main", "q", "small enough").id
        with said(DiskFull, f"there is no room left for {file}"):
            ledger.record("main", "q", "x" * 1_000_000)
        assert ledger.head("main") == acknowledged
        again = ledger.record("main", "q", "small again")

    with Ledger.open(file) as ledger:
        assert ledger.ancestry("main")[1:] == (acknowledged, again.id)
        assert ledger.record("main", "q", "x" * 1_000_000).depth == 4
        assert ledger.audit() == ()


def test_a_value_too_large_to_store_is_refused(ledger: Ledger, raw: Raw) -> None:
    before = raw.dump()

    with pytest.raises(Refused, match=r"too large|cannot be stored"):
        ledger.record("main", "q", "r", steps=[ToolCall("Read", tool_number=1 << 64)])

    assert raw.dump() == before


# -- servers ----------------------------------------------------------------------------------


def test_a_server_that_does_not_answer_is_unreachable() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]

    with said(Unreachable, f"postgresql://me@127.0.0.1:{port}/db cannot be reached: .*refused"):
        Ledger.open(f"postgresql://me:secret@127.0.0.1:{port}/db")


def test_a_database_a_server_does_not_have_is_named(postgres_server: str) -> None:
    with said(Unreachable, 'database "no_such_database" does not exist'):
        Ledger.open(urlsplit(postgres_server)._replace(path="/no_such_database").geturl())


def _is_refused(address: str) -> bool:
    try:
        psycopg.connect(address).close()
    except psycopg.OperationalError:
        return True
    return False


def test_a_wrong_password_is_said_without_saying_the_password(
    new_schema: Callable[[], str], postgres_server: str
) -> None:
    with psycopg.connect(postgres_server, autocommit=True) as connection:
        [[rules]] = connection.execute("SHOW hba_file").fetchall()
        if not os.access(rules, os.W_OK):
            pytest.skip("the server's rules of access are not ours to change")
        role = f"guest_{os.getpid()}"
        connection.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'right'")
        before = Path(rules).read_text()
        Path(rules).write_text(f"local all {role} scram-sha-256\n{before}")
        connection.execute("SELECT pg_reload_conf()")
        wrong = f"//{role}:wr0ng@"
        until(lambda: _is_refused(re.sub(r"//[^@]*@", wrong, postgres_server)))
        address = re.sub(r"//[^@]*@", wrong, new_schema())

        try:
            with said(Unreachable, f"//{role}@/.* refuses the user or password"):
                Ledger.open(address)
            with pytest.raises(Unreachable) as caught:
                Ledger.open(address.replace(":wr0ng@", "@") + "&password=wr0ng")
            assert "wr0ng" not in str(caught.value)
        finally:
            Path(rules).write_text(before)
            connection.execute("SELECT pg_reload_conf()")
            connection.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("schema", ["With-Capitals", "a b", "x;DROP", "1st", ""])
def test_a_schema_that_cannot_be_one_is_refused(schema: str) -> None:
    with said(Refused, "cannot name a PostgreSQL schema"):
        Ledger.open(f"postgresql://me@localhost/db?schema={schema}")


def test_an_address_may_leave_out_what_the_driver_knows(new_schema: Callable[[], str]) -> None:
    found = re.match(r"postgresql://([^@:]*):?[^@]*@([^/]*)/(\w+)\?(.*)", new_schema())
    if found is None or found[2]:
        pytest.skip("the server is not reached by a socket")
    user, _, database, options = found.groups()

    address = f"postgresql:///{database}?user={user}&{options}&options=-c%20statement_timeout%3D5s"
    with Ledger.open(address) as ledger:
        assert ledger.query("SHOW statement_timeout")[1] == [("5s",)]
        chain(ledger, "main", 1)


# -- handles ----------------------------------------------------------------------------------


def test_a_closed_ledger_says_so_and_closes_twice(ledger: Ledger) -> None:
    turn = ledger.turn("main", "q")
    ledger.close()
    ledger.close()

    for use in (
        lambda: ledger.record("main", "q", "r"),
        lambda: ledger.session("main"),
        lambda: turn.respond("r"),
        lambda: ledger.query("SELECT 1"),
    ):
        with said(Refused, "this ledger is closed"):
            use()


# -- typed queries ----------------------------------------------------------------------------


def test_a_typed_query_reads_and_does_nothing_else(ledger: Ledger, address: str, raw: Raw) -> None:
    chain(ledger, "main", 1)
    before = raw.dump()
    other = str(Path(tempfile.gettempdir()) / f"{new_id()}.db")

    assert ledger.query("SELECT label, status FROM sessions") == (
        ["label", "status"],
        [("main", "active")],
    )
    for statement in (
        "DELETE FROM names",
        "UPDATE sessions SET status = 'archived'",
        "CREATE TABLE mine (x TEXT)",
        "SELECT 1; DELETE FROM names",
        "COMMIT; DELETE FROM names",
        "ROLLBACK; DROP TABLE annotations",
        "SELECT nonsense",
        *(
            (f"ATTACH '{other}' AS mine", f"VACUUM INTO '{other}'")
            if raw.engine == "sqlite"
            else ()
        ),
    ):
        with said(Refused, "."):
            ledger.query(statement)

    assert raw.dump() == before
    assert not Path(other).exists()
    assert "mine" not in raw.tables()


def test_a_typed_query_changes_nothing_for_those_that_follow(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 1)
    quirks = {
        "sqlite": ("BEGIN", "PRAGMA query_only=OFF", "SAVEPOINT a", "PRAGMA case_sensitive_like=1"),
        "postgresql": ("SET search_path TO public", "BEGIN", "SAVEPOINT a", "DISCARD ALL",
                       "SELECT set_config('search_path', 'public', false)"),
    }  # fmt: skip
    for statement in quirks[raw.engine]:
        with suppress(Refused):
            ledger.query(statement)
        assert ledger.query("SELECT label FROM sessions")[1] == [("main",)]
        assert len(ledger.thread("main").turns) == 1
    assert ledger.record("main", "q", "r").depth == 2
    with pytest.raises(Refused):
        ledger.query("DELETE FROM names")


def test_a_number_beyond_64_bits_is_refused(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    for asking in (
        lambda: ledger.sessions(limit=10**30),
        lambda: ledger.history("main", limit=10**30),
        lambda: ledger.record("main", "q", "r", usage=Usage(input_tokens=10**30)),
    ):
        with pytest.raises(Refused, match=r"too large|out of range"):
            asking()
    assert len(ledger.sessions()) == 1
