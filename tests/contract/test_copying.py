"""Copies, backups and restores: whole ledgers moved, each verified."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import (
    Compaction,
    Damaged,
    Ledger,
    LedgerError,
    NotALedger,
    NotFound,
    Refused,
)
from agents_ledger.ledger.maintenance.copying import backup, copy, restore
from agents_ledger.store.tables.copying import DERIVED
from tests.builders import a_call, a_full_turn, chain
from tests.raw import Raw, Rows

ODD = "a\x00\ud800\x1a😀"
WRITE = """
import sys, time
from agents_ledger import Ledger

with Ledger.open(sys.argv[1]) as ledger:
    print("writing", flush=True)
    while True:
        ledger.record("main", "q", "r" * 2000)
"""


@pytest.fixture
def other_engine(address: str, new_schema: Callable[[], str], tmp_path: Path) -> Callable[[], str]:
    """Addresses on the engine the test's ledger is not on."""
    if address.startswith("postgres"):
        return lambda: str(tmp_path / "other.db")
    return new_schema


def fill(ledger: Ledger) -> None:
    """Something in every table."""
    first, second = chain(ledger, "main", 2)
    ledger.record("main", **a_full_turn(compaction=Compaction(ODD, first, second)))
    ledger.record("main", ODD, ODD, steps=[a_call("Task", spawned_session_label="child")])
    ledger.fork(first, label=ODD)
    ledger.record(ODD, "q", "r")
    ledger.alias("nick", "main")
    ledger.annotate("main", title=ODD)
    ledger.record("main", "q", status="failed", error="no")


def dump(address: str) -> dict[str, Rows]:
    with Raw(address) as raw:
        rows = raw.dump()
    for table in ("schema_migrations", *DERIVED):
        del rows[table]
    return {table: found for table, found in rows.items() if not table.startswith("search_")}


def test_a_ledger_moves_to_the_other_engine_and_back_unchanged(
    ledger: Ledger,
    address: str,
    other_engine: Callable[[], str],
    new_address: Callable[[], str],
) -> None:
    fill(ledger)
    there, back = other_engine(), new_address()

    counts = copy(address, there).rows
    copy(there, back)

    assert dump(there) == dump(address) == dump(back)
    assert counts == {table: len(rows) for table, rows in dump(address).items()}
    for copied in (there, back):
        with Ledger.open(copied) as other:
            assert other.audit() == ()
            assert other.thread("main") == ledger.thread("main")


def test_a_copy_can_be_written_on(
    ledger: Ledger, address: str, other_engine: Callable[[], str]
) -> None:
    fill(ledger)
    there = other_engine()
    copy(address, there)

    with Ledger.open(there) as other:
        chain(other, "main", 2)
        other.record("main", **a_full_turn())
        other.fork("main", label="new")
        other.record("new", "q", "r")
        assert other.audit() == ()
        with pytest.raises(Refused, match="does not change"):
            other._core.db.write(lambda tx: tx.execute("UPDATE turns SET model = 'x'"))


def test_turns_being_written_are_failed_in_the_copy_and_live_on_in_the_source(
    ledger: Ledger, address: str, other_engine: Callable[[], str]
) -> None:
    chain(ledger, "main", 1)
    turn = ledger.turn("main", "q")
    turn.tool_call("Read")
    turn.stream("half")
    there = other_engine()

    copy(address, there)

    with Ledger.open(there) as other:
        copied = other.get_turn(turn.id)
        assert (copied.status, copied.error) == (
            "failed",
            "the process that wrote this turn died",
        )
        assert [m.content for m in copied.messages] == ["q", "half"]
        assert other.live_turns() == ()
        assert other.audit() == ()
    turn.respond("whole")
    assert ledger.head("main") == turn.id


def test_a_copy_goes_only_into_an_empty_ledger(
    ledger: Ledger, address: str, new_address: Callable[[], str]
) -> None:
    fill(ledger)
    target = new_address()
    with Ledger.open(target) as taken:
        chain(taken, "mine", 1)
    before = dump(target)

    for into in (target, address):
        with pytest.raises(Refused, match="is not empty"):
            copy(address, into)

    assert dump(target) == before


def test_a_copy_needs_a_ledger_to_copy(new_address: Callable[[], str]) -> None:
    missing, target = new_address(), new_address()

    with pytest.raises(NotFound, match="there is no ledger at"):
        copy(missing, target)

    with pytest.raises(NotFound):
        Ledger.open(target, create=False)


def test_a_backup_is_one_private_file_that_can_be_restored(
    ledger: Ledger, address: str, new_address: Callable[[], str], tmp_path: Path
) -> None:
    fill(ledger)
    folder = tmp_path / "backups"
    folder.mkdir()

    file = backup(address, str(folder / "today.db"))

    assert [path.name for path in folder.iterdir()] == ["today.db"]
    assert file.stat().st_mode & 0o777 == 0o600
    restored = new_address()
    restore(str(file), restored)
    assert dump(restored) == dump(address)
    with Ledger.open(restored) as other:
        chain(other, "main", 1)
        assert other.audit() == ()


def test_a_backup_is_a_ledger_itself(ledger: Ledger, address: str, tmp_path: Path) -> None:
    fill(ledger)

    file = backup(address, str(tmp_path / "backup.db"))

    with Ledger.open(str(file), read_only=True) as saved:
        assert saved.thread("main") == ledger.thread("main")
        assert saved.audit() == ()


def test_a_backup_made_while_others_write_is_a_moment_of_the_ledger(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    chain(ledger, "main", 1)
    chain(ledger, "here", 1)
    command = [sys.executable, "-c", WRITE, address]
    stop = threading.Event()

    def write() -> None:
        while not stop.is_set():
            ledger.record("here", "q", "r" * 2000)

    thread = threading.Thread(target=write)
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        thread.start()
        files = [backup(address, str(tmp_path / f"{number}.db")) for number in range(3)]
        stop.set()
        thread.join()
        process.kill()

    depths = []
    for file in files:
        with Ledger.open(str(file), read_only=True) as saved:
            assert saved.audit() == ()
            moves = len(saved.history("main", limit=10**6))
            assert saved.thread("main", last=0).depth == moves
            depths.append((moves, saved.thread("here", last=0).depth))
    assert depths == sorted(depths)
    assert depths[0] < depths[-1]
    assert ledger.thread("main", last=0).depth >= depths[-1][0]


def test_a_backup_overwrites_nothing(ledger: Ledger, address: str, tmp_path: Path) -> None:
    (tmp_path / "taken.db").write_text("mine")

    with pytest.raises(Refused, match="exists already"):
        backup(address, str(tmp_path / "taken.db"))
    with pytest.raises(NotFound, match="there is no folder"):
        backup(address, str(tmp_path / "none" / "backup.db"))

    assert (tmp_path / "taken.db").read_text() == "mine"


def test_a_backup_that_fails_leaves_nothing_behind(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    folder = tmp_path / "backups"
    folder.mkdir()

    with pytest.raises(NotFound):
        backup(new_address(), str(folder / "backup.db"))

    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, file.stat().st_size // 2),
        lambda file: overwrite(file, 4096 * 5, 4096 * 40),
        lambda file: overwrite(file, 0, 4096),
    ],
    ids=["cut short", "overwritten", "no header"],
)
def test_a_damaged_backup_is_not_restored(
    ledger: Ledger,
    address: str,
    new_address: Callable[[], str],
    tmp_path: Path,
    damage: Callable[[Path], None],
) -> None:
    fill(ledger)
    chain(ledger, "main", 30)
    file = backup(address, str(tmp_path / "backup.db"))
    damage(file)
    target = new_address()

    with pytest.raises((Damaged, NotALedger)):
        restore(str(file), target)

    with pytest.raises(LedgerError):
        Ledger.open(target, create=False)


def overwrite(file: Path, start: int, size: int) -> None:
    with file.open("r+b") as damaged:
        damaged.seek(start)
        damaged.write(b"\xa5" * size)


def test_a_backup_that_breaks_a_rule_is_not_restored(
    ledger: Ledger, address: str, new_address: Callable[[], str], tmp_path: Path
) -> None:
    fill(ledger)
    file = backup(address, str(tmp_path / "backup.db"))
    with Raw(str(file)) as raw, raw.unguarded():
        raw.execute("UPDATE turns SET tool_call_count = 9")

    with pytest.raises(Damaged, match=r"is damaged, 6 findings: call_count"):
        restore(str(file), new_address())
