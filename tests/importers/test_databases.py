"""Databases of other programs: read as far as they go, and left as they are."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.parsing import databases
from agents_ledger.importers.parsing.databases import snapshot
from agents_ledger.importers.parsing.table_scan import TableScan
from agents_ledger.importers.port.source import Table
from agents_ledger.importers.sources.cursor.source import TABLES, Cursor
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers.cursor_made import bubble, chat, headers, state_db
from tests.importers.helping import import_paths

GLOBAL = Path("Cursor/User/globalStorage/state.vscdb")
PAIR = (bubble("q1", 1, "What is new?", 1), bubble("a1", 2, "Two fixes.", 2))
NEXT = (bubble("q2", 1, "Which ones?", 3), bubble("a2", 2, "Those.", 4))
PAGE = 4096


def seen(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def opened_and(path: Path, *lines: str) -> str:
    """A program that has a database open."""
    return "; ".join(
        ["import os, signal, sqlite3, sys", f"made = sqlite3.connect({str(path)!r})", *lines]
    )


def test_a_database_that_is_open_elsewhere_stays_as_it_is(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR), wal=True)
    write = "made.execute('CREATE TABLE more (id)')"
    wait = "print('open', flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", opened_and(path, write, wait)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        before = seen(path)
        import_paths(ledger, path)
        assert seen(path) == before
        assert {"state.vscdb-wal", "state.vscdb-shm"} < before.keys()
        other.communicate()

    assert ledger.session("cursor:c").thread_id == "q1"


def test_a_database_that_is_put_away_stays_as_it_is(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR), wal=True)
    before = seen(path)
    import_paths(ledger, path)

    assert seen(path) == before
    assert list(before) == ["state.vscdb"]
    assert ledger.session("cursor:c").thread_id == "q1"


def test_a_database_taken_up_while_it_is_read_is_a_fault(tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR), wal=True)
    reading = ExitStack()
    reading.enter_context(snapshot(path))
    state_db(path, chat("d", *NEXT))

    with pytest.raises(sqlite3.OperationalError, match="written to while it was read"):
        reading.close()


def test_what_was_half_written_is_read_as_before(ledger: Ledger, tmp_path: Path) -> None:
    told = bubble("a1", 2, "Two fixes." * 1000, 2)
    path = state_db(tmp_path / GLOBAL, chat("c", PAIR[0], told))
    spill = "made.execute('PRAGMA cache_size = 1')"
    change = "made.execute('UPDATE cursorDiskKV SET value = zeroblob(length(value))')"
    end = "os.kill(os.getpid(), signal.SIGKILL)"
    subprocess.run([sys.executable, "-c", opened_and(path, spill, change, end)], check=False)
    before = seen(path)
    assert "state.vscdb-journal" in before
    import_paths(ledger, path)

    assert seen(path) == before
    assert ledger.get_turn("q1").messages[1].content == told["text"]


def damaged(data: bytes) -> bytes:
    """With pages in the middle that say nothing."""
    half = len(data) // PAGE // 2 * PAGE
    return data[:half] + bytes(2 * PAGE) + data[half + 2 * PAGE :]


def cut_off(data: bytes) -> bytes:
    return data[: len(data) // 2]


@pytest.mark.parametrize(("change", "least"), [(damaged, 90), (cut_off, 40)])
def test_what_is_damaged_is_told_and_the_rest_is_read(
    ledger: Ledger, tmp_path: Path, change: Callable[[bytes], bytes], least: int
) -> None:
    rows = {f"composerData:{n:03d}": "x" * 1000 for n in range(100)}
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR) | rows)
    whole = path.read_bytes()
    path.write_bytes(change(whole))

    report = import_paths(ledger, path)

    assert any("cursorDiskKV is damaged" in fault.what for fault in report.faults)
    assert report.counts.failed == 0
    assert ledger.session("cursor:c").thread_id == "q1"
    kept = sum(number for (_, kind, _), number in report.records.items() if kind == "composerData")
    assert least <= kept < 101

    path.write_bytes(whole + bytes(PAGE))  # mended
    report = import_paths(ledger, path)
    assert report.records["cursor", "composerData", "malformed"] == 100


@pytest.mark.parametrize("name", ["logs.jsonl", "export.json", "notes.txt"])
def test_a_database_under_another_name_is_not_kept_whole(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    items = {"cursorAuth/accessToken": "hush-hush"}
    import_paths(ledger, state_db(tmp_path / name, chat("c", *PAIR), items))

    assert ledger.session("cursor:c").thread_id == "q1"
    kept = b"".join(Sources(ledger._core).stream(1))
    assert b"What is new?" in kept
    assert b"hush-hush" not in kept


OLDER_OPENCODE = """CREATE TABLE sessions (id TEXT PRIMARY KEY, parent_session_id TEXT, title TEXT);
    CREATE TABLE messages (id TEXT PRIMARY KEY, session_id TEXT, role TEXT, parts TEXT);
    CREATE TABLE files (id TEXT PRIMARY KEY, session_id TEXT, path TEXT, content TEXT);
    INSERT INTO sessions VALUES ('s', NULL, 'Fix');
    INSERT INTO messages VALUES ('m', 's', 'user', '[]');"""
WITHOUT_SESSIONS = """CREATE TABLE cache_entries (scope TEXT, key TEXT, value_json TEXT);
    CREATE TABLE auth_profile_store (store_key TEXT, store_json TEXT);
    INSERT INTO auth_profile_store VALUES ('k', 'hush-hush');"""
FIRST_OPENCODE = """CREATE TABLE session (id TEXT PRIMARY KEY);
    CREATE TABLE message (id TEXT PRIMARY KEY); CREATE TABLE part (id TEXT PRIMARY KEY);"""
SECOND_OPENCODE = """CREATE TABLE session_v2 (id TEXT PRIMARY KEY);
    CREATE TABLE session_message (id TEXT PRIMARY KEY);"""
OPENCLAW = "CREATE TABLE transcript_events (session_id TEXT, seq INTEGER, event_json TEXT);"


def with_tables(path: Path, script: str, mode: str = "DELETE") -> sqlite3.Connection:
    """A database with these tables, still open."""
    path.parent.mkdir(parents=True, exist_ok=True)
    made = sqlite3.connect(path)
    made.execute("CREATE TABLE other (words TEXT)")
    made.execute(f"PRAGMA journal_mode = {mode}")
    made.executescript(script)
    return made


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize(
    ("name", "script"),
    [
        (".opencode/opencode.db", OLDER_OPENCODE),
        ("openclaw-agent.sqlite", WITHOUT_SESSIONS),
        ("aix.db", WITHOUT_SESSIONS),
        ("state.vscdb", OLDER_OPENCODE),
    ],
)
def test_a_database_with_the_name_of_a_source_s_and_none_of_its_tables_has_no_reader(
    ledger: Ledger, tmp_path: Path, name: str, script: str, mode: str
) -> None:
    path = tmp_path / "own" / name
    with closing(with_tables(path, script, mode)):
        reports = [import_paths(ledger, each) for each in (path, tmp_path / "own")]

    assert [report.unrecognised for report in reports] == [[str(path)]] * 2
    assert not any(report.faults or report.counts.failed for report in reports)
    assert not list(Sources(ledger._core).all_files())


@pytest.mark.parametrize("mode", ["DELETE", "WAL"])
@pytest.mark.parametrize(
    ("name", "script"),
    [
        ("opencode.db", FIRST_OPENCODE),
        ("opencode-dev.db", SECOND_OPENCODE),
        ("openclaw-agent.sqlite", OPENCLAW),
    ],
)
def test_a_source_s_database_that_is_empty_has_its_reader(
    ledger: Ledger, tmp_path: Path, name: str, script: str, mode: str
) -> None:
    path = tmp_path / name
    with closing(with_tables(path, script, mode)):  # with a log, the tables stand in that alone
        report = import_paths(ledger, path)

    assert (report.unrecognised, report.faults, report.counts.failed) == ([], [], 0)
    assert [file.path for file in Sources(ledger._core).all_files()] == [str(path)]


def overflowing(path: Path, broken: Collection[int], sizes: Mapping[int, int]) -> Path:
    """A table of rows by rowid; the long values of some lead nowhere."""
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, v TEXT)")
        for rowid, size in sizes.items():
            made.execute("INSERT INTO t VALUES (?, ?)", (rowid, f"<{rowid}>" * size))
        made.commit()
    data = bytearray(path.read_bytes())
    for rowid in broken:
        pages = (at for at in range(0, len(data), PAGE) if b"<%d>" % rowid in data[at : at + 40])
        first = next(pages)
        data[first : first + 4] = b"\xff" * 4  # where the next page is
    path.write_bytes(data)
    return path


def scanned(path: Path, table: str = "t") -> tuple[list[int], TableScan, int]:
    """The rowids that can be read, and how many statements that took."""
    statements: list[str] = []
    with snapshot(path) as connection:
        connection.set_trace_callback(statements.append)
        scan = TableScan(connection, Table(table, ("id",)), ("id", "v"))
        return [row[1] for row in scan.rows(None)], scan, len(statements)


def test_only_the_damaged_rows_are_lost(tmp_path: Path) -> None:
    broken = {5, 6, 40, 41, 99}
    sizes = {rowid: 5_000 if rowid in broken else 2 for rowid in range(-3, 101)}
    found, scan, _ = scanned(overflowing(tmp_path / "a.db", broken, sizes))

    assert set(range(-3, 101)) - set(found) == broken
    assert found == sorted(found)
    assert (scan.damages, scan.first_damage) == (len(broken), "database disk image is malformed")


def test_a_gap_before_a_damaged_row_costs_nothing(tmp_path: Path) -> None:
    far = 1_000_000_000
    path = overflowing(tmp_path / "a.db", {far}, {1: 1, far: 2_000, far + 1: 1})
    found, scan, statements = scanned(path)

    assert (found, scan.damages) == ([1, far + 1], 1)
    assert statements < 12


def test_behind_damage_in_a_table_without_rowids_nothing_is_said_to_be_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / GLOBAL
    path.parent.mkdir(parents=True)
    with closing(sqlite3.connect(path)) as made:
        made.execute("CREATE TABLE ItemTable (key, value)")
        made.execute("CREATE TABLE cursorDiskKV (key PRIMARY KEY, value) WITHOUT ROWID")
        for key, value in (chat("c", *PAIR) | {"composerData:z": {"x": "x" * 20_000}}).items():
            made.execute("INSERT INTO cursorDiskKV VALUES (?, ?)", (key, json.dumps(value)))
        made.commit()
    data = bytearray(path.read_bytes())
    leads_to = data.index(b"x" * (PAGE - 4)) - 4
    data[leads_to : leads_to + 4] = b"\xff" * 4
    path.write_bytes(data)

    report = import_paths(ledger, path)

    (fault,) = (each for each in report.faults if "cursorDiskKV" in each.what)
    assert "read only as far as that" in fault.what
    assert ledger.session("cursor:c").thread_id == "q1"


def test_what_cannot_be_read_now_is_read_by_the_next_import(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR) | chat("d", *NEXT))
    whole = TableScan._select

    def fails(
        self: TableScan, columns: Sequence[str], first: int, last: int
    ) -> Iterator[tuple[Any, ...]]:
        for number, row in enumerate(whole(self, columns, first, last)):
            if number == 3:
                error = sqlite3.OperationalError("disk I/O error")
                error.sqlite_errorcode = sqlite3.SQLITE_IOERR_READ
                raise error
            yield row

    with monkeypatch.context() as patched:
        patched.setattr(TableScan, "_select", fails)
        report = import_paths(ledger, path)
    assert report.counts.failed == 1
    assert any("disk I/O error" in fault.what for fault in report.faults)
    assert ledger.session("cursor:c").thread_id == "q1"  # what could be read is there

    report = import_paths(ledger, path)
    assert (report.counts.failed, report.faults) == (0, [])
    assert ledger.session("cursor:d").thread_id == "q2"


def test_what_is_new_is_read_though_what_was_read_last_is_damaged(
    ledger: Ledger, tmp_path: Path
) -> None:
    rows = {f"composerData:{n:03d}": "x" * 1000 for n in range(30)}
    path = state_db(tmp_path / GLOBAL, chat("c", *PAIR) | rows)
    import_paths(ledger, path)
    later = {f"composerData:{n:03d}": "y" * 1000 for n in range(100, 110)}
    data = bytearray(state_db(path, later | chat("d", *NEXT)).read_bytes())
    page = data.index(b"composerData:029xx") // PAGE * PAGE
    data[page : page + PAGE] = bytes(PAGE)
    path.write_bytes(data)

    report = import_paths(ledger, path)

    assert any("cursorDiskKV is damaged" in fault.what for fault in report.faults)
    assert ledger.session("cursor:d").thread_id == "q2"


def test_what_a_later_version_reads_is_read_of_a_database_that_did_not_change(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = chat("c", bubble("b1", 1, "?"), bubble("b2", 2, "!"))
    path = state_db(tmp_path / "state.vscdb", dict(reversed(rows.items())))
    headers(path, {"composerId": "c", "name": "The till"})
    items, disk, _, *rest = TABLES
    fewer = disk._replace(prefixes=("composerData:",))
    with monkeypatch.context() as earlier:
        earlier.setattr(Cursor, "tables", (items, fewer, *rest))
        import_paths(ledger, path)
        assert ledger.sessions() == ()

    import_paths(ledger, path)

    assert ledger.session("cursor:c").title == "The till"
    assert ledger.get_turn("b1").messages[1].content == "!"
    assert import_paths(ledger, path).read_bytes == 0


def test_to_tell_whose_a_database_is_nothing_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "logins.db"
    leave = "made.execute('PRAGMA journal_mode=WAL'); made.execute('CREATE TABLE logins (a)')"
    run = opened_and(path, leave, "made.execute('PRAGMA wal_checkpoint')", "made.commit()")
    more = "made.execute('INSERT INTO logins VALUES (1)'); made.commit()"
    subprocess.run([sys.executable, "-c", f"{run}; {more}; os._exit(0)"], check=True)
    path.with_name(f"{path.name}-shm").unlink()
    before = seen(path)

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no room"))

    assert b"CREATE TABLE logins" in databases.schema(path)
    assert seen(path) == before
