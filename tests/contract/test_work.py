"""Work that must not grow with the ledger, counted by SQLite itself and by the disk: no timer."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agents_ledger import Ledger
from agents_ledger.integrations.openai_agents import LedgerSession
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.search.documents import SearchDocument, of_turn
from agents_ledger.ledger.search.index import _numbers, forget
from agents_ledger.ledger.turns import contents
from agents_ledger.store.database import Transaction
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.conftest import ticking_clock
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths
from tests.waiting import PATIENCE_S

SMALL, LARGE = 30, 600
SYNCS = """
import json, sys
from pathlib import Path
from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite import engine as store
from tests.trust.faulty_sqlite import Disk, install

folder, disk = Path(sys.argv[1]), Disk()
disk.journal = []
install(disk, folder)
with Ledger(Core(store.SqliteDatabase(str(folder / "l.db"), connect=disk.connect))) as ledger:
    ledger.record("main", "q", "r")
    disk.journal.clear()
    for _ in range(20):
        ledger.record("main", "q", "r")
    print(json.dumps([str(op[0]) for op in disk.journal]))
"""


class Counted:
    """A ledger whose steps SQLite counts: every row it looks at takes some."""

    def __init__(self, file: Path, turns: int) -> None:
        self.steps = 0
        self.commits = 0
        self.file = str(file)
        self.database = SqliteDatabase(self.file, connect=self._connect)
        self.ledger = Ledger(Core(self.database))
        for number in range(turns):
            self.ledger.record("main", f"q{number}", f"r{number}")
            if number % 3 == 0:
                self.ledger.fork("main", label=f"fork-{number}")

    def _connect(self, *args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        connection.set_progress_handler(self._step, 1)
        connection.set_trace_callback(self._note)
        return connection

    def _step(self) -> None:
        self.steps += 1

    def _note(self, sql: str) -> None:
        self.commits += sql == "COMMIT"

    def cost(self, act: Callable[[Ledger], object]) -> int:
        """Steps, once everything needed is in memory but a turn that came since."""
        act(self.ledger)
        self.ledger.record("main", "q", "r")
        before = self.steps
        act(self.ledger)
        return self.steps - before

    def first_cost(self, act: Callable[[Ledger], object]) -> int:
        """Steps of a handle that has read no message yet."""
        with Ledger(Core(SqliteDatabase(self.file, connect=self._connect))) as ledger:
            ledger.head("main")
            before = self.steps
            act(ledger)
            return self.steps - before


Count = Callable[[Counted, Callable[[Ledger], object]], int]
COUNTS = pytest.mark.parametrize(
    "count",
    [
        pytest.param(Counted.cost, id="after one more turn"),
        pytest.param(Counted.first_cost, id="at first"),
    ],
)


@pytest.fixture(scope="module")
def ledgers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Counted, Counted]]:
    folder = tmp_path_factory.mktemp("work")
    with ticking_clock():
        made = Counted(folder / "small.db", SMALL), Counted(folder / "large.db", LARGE)
    yield made
    for each in made:
        each.ledger.close()


def last_20(ledger: Ledger) -> None:
    assert len(ledger.thread("main", last=20).turns) == 20


def latest_items(ledger: Ledger) -> None:
    assert len(asyncio.run(LedgerSession("main", ledger).get_items(20))) == 20


@COUNTS
@pytest.mark.parametrize(
    "act",
    [
        pytest.param(lambda ledger: ledger.record("main", "q", "r"), id="record"),
        pytest.param(lambda ledger: ledger.fork("main"), id="fork"),
        pytest.param(last_20, id="last 20"),
        pytest.param(latest_items, id="latest items of the Agents SDK"),
        pytest.param(lambda ledger: ledger.thread("main", from_depth=5, to_depth=15), id="page"),
        pytest.param(lambda ledger: ledger.sessions(limit=8), id="sessions"),
        pytest.param(lambda ledger: ledger.history("main", limit=20), id="history"),
        pytest.param(lambda ledger: ledger.head("main"), id="head"),
        pytest.param(lambda ledger: ledger.recover(), id="recover"),
    ],
)
def test_a_verb_looks_at_as_many_rows_in_a_ledger_twenty_times_as_large(
    ledgers: tuple[Counted, Counted], act: Callable[[Ledger], object], count: Count
) -> None:
    small, large = (count(each, act) for each in ledgers)

    assert large <= small * 1.15 + 20, f"{small} steps, then {large}"


def test_one_more_turn_of_a_moment_is_numbered_without_a_look_at_the_others(tmp_path: Path) -> None:
    def numbered(turns: int) -> int:
        counted = Counted(tmp_path / f"{turns}.db", 0)
        with counted.ledger as ledger:
            for _ in range(turns):
                ledger.record("main", "q", "r", started_at=5)
            ledger._core.index(least=1)
            document = of_turn(ledger.thread("main", last=1).turns[0])
            before = counted.steps
            counted.database.write(partial(number_again, document))
            return counted.steps - before

    def number_again(document: SearchDocument, tx: Transaction) -> None:
        forget(tx, [document.turn_id])
        _numbers(tx, [document])

    small, large = numbered(40), numbered(800)

    assert large <= small + 500, f"{small} steps, then {large}"


def test_the_count_notices_a_verb_that_reads_everything(
    ledgers: tuple[Counted, Counted],
) -> None:
    small, large = (each.first_cost(lambda ledger: ledger.thread("main")) for each in ledgers)

    assert large > small * 5


@COUNTS
def test_the_count_notices_messages_that_are_read_from_the_root(
    ledgers: tuple[Counted, Counted], count: Count, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = contents._read

    def from_the_root(tx: Transaction, stretch: contents.Stretch) -> dict[str, contents.Steps]:
        return read(tx, structs.replace(stretch, from_depth=1))

    monkeypatch.setattr(contents, "_read", from_the_root)
    small, large = (count(each, last_20) for each in ledgers)

    assert large > small * 5


def test_writers_that_wait_together_share_a_commit(tmp_path: Path) -> None:
    counted = Counted(tmp_path / "ledger.db", 1)
    with counted.ledger as ledger:
        held, go_on = threading.Event(), threading.Event()

        def hold(_: object) -> None:
            held.set()
            assert go_on.wait(PATIENCE_S)

        def queued() -> int:
            return len(counted.database._group._queue)

        first = threading.Thread(target=counted.database.write, args=(hold,))
        first.start()
        assert held.wait(PATIENCE_S)
        writers = [
            threading.Thread(target=ledger.record, args=(f"s{number}", "q", "r"))
            for number in range(40)
        ]
        for writer in writers:
            writer.start()
        while queued() < len(writers):
            held.wait(0.01)
        before = counted.commits
        go_on.set()
        for writer in (first, *writers):
            writer.join()

        assert counted.commits - before <= 2  # the one that held, with all that queued up meanwhile


def test_a_turn_is_made_durable_by_one_sync(tmp_path: Path) -> None:
    """In a process of its own: a second SQLite library must not open a ledger of this one."""
    done = subprocess.run(
        [sys.executable, "-c", SYNCS, str(tmp_path)], capture_output=True, text=True, check=True
    )

    operations = json.loads(done.stdout)
    assert operations.count("commit") == 20
    assert operations.count("sync") == 20, operations[:40]


def test_importing_again_reads_and_parses_only_what_is_new(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    for number in range(20):
        log.user(f"q{number}", f"question {number}")
        log.assistant(f"a{number}", text(f"answer {number}"))
    path = log.save()
    first = import_paths(ledger, path)
    size = path.stat().st_size

    again = import_paths(ledger, path)
    log.user("more", "one more")
    log.assistant("answer", text("indeed"))
    grown = import_paths(ledger, log.save())

    assert first.written_turns == 20
    assert (sum(again.records.values()), again.read_bytes, again.written_turns) == (0, 0, 0)
    assert grown.written_turns == 1
    assert grown.read_bytes < size / 2


def test_a_leader_waits_for_callers_that_were_just_answered(tmp_path: Path) -> None:
    counted = Counted(tmp_path / "ledger.db", 1)
    with counted.ledger as ledger:
        group = counted.database._group
        group._expected, group._until = 2, time.monotonic() + 20
        before = counted.commits
        writers = [threading.Thread(target=ledger.record, args=(s, "q", "r")) for s in "ab"]
        writers[0].start()
        while not group._awaited:
            writers[0].join(0.01)
        alone = counted.commits - before
        writers[1].start()
        for writer in writers:
            writer.join(PATIENCE_S)

        assert not any(writer.is_alive() for writer in writers)
        assert (alone, counted.commits - before) == (0, 1)


def test_a_leader_does_not_wait_for_ever(tmp_path: Path) -> None:
    counted = Counted(tmp_path / "ledger.db", 1)
    with counted.ledger as ledger:
        counted.database._group._expected = 5
        counted.database._group._until = time.monotonic() + 0.01

        assert ledger.record("main", "q", "r").depth == 2
        assert counted.database._group._expected == 1
