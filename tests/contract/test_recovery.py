"""Recovery: turns of a writer that died are failed, those of one that lives never."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import pytest

from agents_ledger import Conflict, Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.store.database import Database, open_database
from agents_ledger.store.postgres.engine import PostgresDatabase
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.builders import chain
from tests.engines import on_sqlite
from tests.raw import Raw
from tests.waiting import PATIENCE_S, until

LEASE_MS = 200
WRITER = """
import sys
from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.store.postgres.engine import PostgresDatabase

address, lease_ms = sys.argv[1], int(sys.argv[2])
if address.startswith("postgres"):
    ledger = Ledger(Core(PostgresDatabase(address, lease_ms=lease_ms)))
else:
    ledger = Ledger.open(address)
turn = ledger.turn("main", "q", id="the-turn")
turn.tool_call("Bash", id="c")
turn.stream("half an ans")
print("writing", flush=True)
sys.stdin.readline()
turn.respond("whole answer")
ledger.close()
print("done", flush=True)
"""


@contextmanager
def writing(address: str) -> Iterator[subprocess.Popen[str]]:
    """Another process in the middle of a live turn."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, address, str(LEASE_MS)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "writing\n"
        yield process
        process.kill()


def database(address: str, limits: LedgerLimits = LIMITS) -> Database:
    """As `open_database`, with a lease that a test can wait for."""
    if address.startswith("postgres"):
        return PostgresDatabase(address, lease_ms=LEASE_MS, limits=limits)
    return open_database(address, limits=limits)


@pytest.fixture
def handle(address: str) -> Iterator[Callable[[], Ledger]]:
    """Handles that look for dead writers after a short lease."""
    with ExitStack() as handles:
        yield lambda: handles.enter_context(Ledger(Core(database(address))))


def kill(process: subprocess.Popen[str], address: str) -> None:
    """Kill a writer, and wait until everybody can know."""
    process.kill()
    process.wait()
    time.sleep(LEASE_MS / 1000 * 1.5)
    with Raw(address) as raw, closing(database(address)) as other:
        # Of all that are there, the one that has left something unfinished.
        writer_id = raw.one(
            "SELECT writer_id FROM live_turns UNION SELECT writer_id FROM bus_streams"
        )
        until(lambda: other.is_dead(writer_id, 1 << 40))


def test_the_turns_of_a_killed_process_are_failed_and_keep_what_was_recorded(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with writing(address) as process:
        kill(process, address)

    ledger = handle()
    assert ledger.recover() == ("the-turn",)

    turn = ledger.get_turn("the-turn")
    assert (turn.status, turn.error) == ("failed", "the process that wrote this turn died")
    assert [(m.content, m.metadata_json) for m in turn.messages] == [
        ("q", None),
        ("half an ans", '{"partial":true}'),
    ]
    assert [(c.status, c.error) for c in turn.tool_calls] == [("cancelled", "no result recorded")]
    assert ledger.head("main") is None
    assert ledger.live_turns() == ()
    assert ledger.recover() == ()


def test_a_handle_recovers_by_itself_before_its_first_write(
    address: str, handle: Callable[[], Ledger], raw: Raw
) -> None:
    with writing(address) as process:
        kill(process, address)

    ledger = handle()
    ledger.record("other", "q", "r")

    assert ledger.get_turn("the-turn").status == "failed"
    assert raw.one("SELECT count(*) FROM writers WHERE id <> ''") <= 1
    if raw.engine == "sqlite":
        ledger.close()
        assert not list(Path(address).parent.glob("*.writer-*"))


@pytest.mark.parametrize("pause_ms", [0, 3_600_000])
def test_a_handle_that_stays_open_recovers_from_time_to_time(address: str, pause_ms: int) -> None:
    """A server that is started again at once finds the lease of the one before still valid."""
    limits = LedgerLimits(recovery_pause_ms=pause_ms)
    with Ledger(Core(database(address, limits))) as ledger:
        with writing(address) as process:
            ledger.record("other", "q", "r")
            assert ledger.get_turn("the-turn").status == "streaming"
            kill(process, address)

        ledger.record("other", "q", "r")

        expected = "failed" if pause_ms == 0 else "streaming"
        assert ledger.get_turn("the-turn").status == expected


def test_a_reader_recovers_nothing(address: str, handle: Callable[[], Ledger], raw: Raw) -> None:
    with writing(address) as process:
        kill(process, address)
    before = raw.dump()

    ledger = handle()
    assert ledger.get_turn("the-turn").status == "streaming"
    assert ledger.live_turns() == ("the-turn",)
    assert ledger.audit() == ()
    with Ledger.open(address, read_only=True) as reader:
        assert reader.partial_text("the-turn") == "half an ans"

    assert raw.dump() == before


def test_a_turn_whose_process_lives_is_left_alone(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with writing(address) as process:
        time.sleep(LEASE_MS / 1000 * 1.5)
        ledger = handle()
        assert ledger.recover() == ()
        ledger.record("other", "q", "r")
        assert ledger.get_turn("the-turn").status == "streaming"

        out, _ = process.communicate("go on\n", timeout=PATIENCE_S)

    assert out == "done\n"
    turn = ledger.get_turn("the-turn")
    assert turn.status == "completed"
    assert ledger.head("main") == "the-turn"


def test_two_handles_of_one_process_leave_each_others_turns_alone(
    address: str, handle: Callable[[], Ledger]
) -> None:
    first, second = handle(), handle()
    ours = first.turn("a", "q")
    theirs = second.turn("b", "q")
    time.sleep(LEASE_MS / 1000 * 1.5)

    assert first.recover() == ()
    assert second.recover() == ()
    assert handle().recover() == ()

    ours.respond("r")
    theirs.respond("r")
    assert first.head("b") == theirs.id


def test_a_turn_left_open_by_a_closed_handle_is_failed_by_the_next(
    address: str, handle: Callable[[], Ledger]
) -> None:
    left = Ledger(Core(database(address)))
    turn = left.turn("main", "q")
    left.close()
    time.sleep(LEASE_MS / 1000 * 1.5)

    ledger = handle()
    assert ledger.recover() == (turn.id,)

    assert ledger.get_turn(turn.id).status == "failed"


def test_a_handle_without_open_turns_leaves_no_writer_behind(
    address: str, handle: Callable[[], Ledger], raw: Raw
) -> None:
    ledger = handle()
    with ledger.turn("main", "q") as turn:
        turn.respond("r")
    ledger.close()

    assert raw.execute("SELECT id FROM writers") == []
    if raw.engine == "sqlite":
        assert not list(Path(address).parent.glob("*.writer-*"))


def test_a_writer_that_was_taken_for_dead_is_told(
    address: str, db: Database, ledger: Ledger, handle: Callable[[], Ledger], raw: Raw
) -> None:
    turn = ledger.turn("main", "q")
    if isinstance(db, SqliteDatabase):
        # Somebody cleaned up its lock: only time can tell that it is dead.
        [lock] = Path(address).parent.glob("*.writer-*")
        lock.unlink()
    assert handle().recover() == ()

    raw.execute("UPDATE writers SET seen_at = 0")
    assert handle().recover() == (turn.id,)

    with pytest.raises(Conflict, match="is sealed"):
        turn.respond("too late")
    with pytest.raises(Conflict, match="is sealed"), turn:
        pass
    assert ledger.get_turn(turn.id).status == "failed"


IDLE_WRITER = """
import sys
from agents_ledger.model.limits import LIMITS, LedgerLimits
from agents_ledger.store.database import open_database

print(open_database(sys.argv[1]).writer().id, flush=True)
sys.stdin.readline()
"""


@contextmanager
def idle_writer(address: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """Another process that made itself a writer and wrote nothing yet, and its file."""
    process = subprocess.Popen(
        [sys.executable, "-c", IDLE_WRITER, address],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with process:
        assert process.stdout is not None
        yield process, Path(f"{address}.writer-{process.stdout.readline().strip()}")
        process.kill()


@on_sqlite
def test_the_files_of_writers_that_died_before_they_wrote_are_removed_at_the_first_write(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with idle_writer(address) as (alive, file_of_alive):
        with idle_writer(address) as (killed, file_of_killed):
            killed.kill()
        assert file_of_killed.exists()

        handle().record("main", "q", "r")

        assert not file_of_killed.exists()
        assert file_of_alive.exists()
        alive.kill()
    handle().record("main", "q", "r")
    assert not file_of_alive.exists()


@on_sqlite
def test_the_file_of_a_dead_writer_with_turns_stays_until_they_are_failed(
    address: str, handle: Callable[[], Ledger]
) -> None:
    with writing(address) as process:
        process.kill()
    with closing(database(address)) as other:
        other.remove_dead_writers()
    assert len(list(Path(address).parent.glob("*.writer-*"))) == 1
    assert handle().recover() == ("the-turn",)


@pytest.mark.unsound  # the turn has no source
def test_open_turns_without_a_writer_are_left_alone(
    address: str, handle: Callable[[], Ledger], raw: Raw
) -> None:
    ledger = handle()
    [turn_id] = chain(ledger, "main", 1)
    failed = ledger.record("main", "q", status="failed", error="no")
    with raw.unguarded():  # as an import leaves a prompt that was not answered yet
        raw.execute(
            "UPDATE turns SET status = 'pending', projected = 1, completed_at = NULL, error = NULL"
            " WHERE id = ?",
            (failed.id,),
        )

    assert handle().recover() == ()

    assert ledger.get_turn(failed.id).status == "pending"
    assert ledger.head("main") == turn_id
