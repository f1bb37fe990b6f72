"""Another process derives ahead of the one that writes; nothing depends on it."""

from __future__ import annotations

import json
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from queue import SimpleQueue

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers import archive, derive_worker
from agents_ledger.importers.archive import Keeper
from agents_ledger.importers.derive_worker import Ahead, Derived
from agents_ledger.importers.discovery import Found, Unknown, found_at
from agents_ledger.importers.pipeline import Importer, Report, rederive
from agents_ledger.importers.port.source import Line, Material, Reader
from agents_ledger.importers.relations import Apart
from agents_ledger.importers.sources.registry import READERS
from agents_ledger.importers.transcript.copy_detection import REMEMBERED
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.imports.sources import Derivation, SourceFile
from tests.importers.claude_log import Log, text, tool
from tests.importers.helping import import_paths, result
from tests.importers.test_any_order import a_world
from tests.importers.test_room import session

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")

Meddle = Callable[[Ahead], None]


@pytest.fixture
def worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """A second core, and no thread but ours: what another test loaded may have left one."""
    monkeypatch.setattr(derive_worker, "WORTH_BYTES", 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    monkeypatch.setattr(threading, "active_count", lambda: 1)


def some_sessions(folder: Path, number: int = 12) -> Path:
    for each in range(number):
        log = Log(folder, f"{each:08}-0000-4000-8000-000000000000")
        log.user(f"{each}a", f"question {each} \ud800")
        log.assistant(f"{each}b", tool(f"call-{each}", "Read", file_path=f"/f{each}"))
        log.result(f"{each}c", f"call-{each}", "seen " * each)
        log.assistant(f"{each}d", text("answer"))
        log.save()
    return folder


def files(folder: Path) -> list[Found]:
    return list(found_at(folder, Unknown([], [])))


def is_gone(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    return False


def imported(address: str, folder: Path, meddle: Meddle = lambda _: None) -> Report:
    """Import with another process beside."""
    other = Ahead(address)
    pid = other.pid
    with Ledger.open(address) as ledger:
        meddle(other)
        report = Importer(ledger, ahead=other).run(files(folder))
    assert is_gone(pid)
    return report


def check_same(address: str, folder: Path, at: Path, meddle: Meddle = lambda _: None) -> None:
    report = imported(address, folder, meddle)
    with Ledger.open(str(at / "alone.db")) as ledger:
        expected, rows = import_paths(ledger, folder), result(ledger)
    with Ledger.open(address) as ledger:
        assert result(ledger) == rows
        assert ledger.audit() == ()
        assert rederive(ledger).written_turns == 0
    assert report.counts == expected.counts
    assert report.records == expected.records
    assert (report.faults, report.firsts) == (expected.faults, expected.firsts)
    assert report.written_turns == expected.written_turns


def count_lines(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The files that this process parses, as often as it does."""
    parsed: list[str] = []
    lines = Material.lines

    def counted(self: Material, file: SourceFile) -> Iterator[Line]:
        parsed.append(Path(file.path).name[:8])
        return lines(self, file)

    monkeypatch.setattr(Material, "lines", counted)
    return parsed


def test_what_is_derived_ahead_is_not_parsed_again(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    parsed: list[list[str]] = []

    imported(address, folder, lambda _: parsed.append(count_lines(monkeypatch)))

    assert parsed == [[]]
    with Ledger.open(address) as ledger:
        assert ledger.query("SELECT count(*) FROM turns")[1] == [(12,)]


def test_copies_are_derived_ahead_with_their_original(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    for number in range(4):
        log = session(folder, number)
        log.user(f"{number}more", f"{number} more")
        log.assistant(f"{number}said", text("said"))
        log.save()
    parsed: list[list[str]] = []

    check_same(address, folder, tmp_path, lambda _: parsed.append(count_lines(monkeypatch)))

    in_parent = parsed[0][: parsed[0].index("00000000")] if parsed[0] else []
    assert in_parent == []


def test_it_ends_in_the_same_ledger(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    for seed in range(3):  # forks, of which some are derived together by the parent
        a_world(random.Random(seed), folder / f"world-{seed}", 10_000 * (seed + 1))
    for name, turn in (("00", "5d"), ("zz", "7d")):  # titles of sessions in other files
        leaf = f"00000000-0000-4000-8000-{turn:0>12}"
        said = {"type": "summary", "summary": f"Called by {name}", "leafUuid": leaf}
        (folder / f"{name}.jsonl").write_text(json.dumps(said) + "\n")
    (folder / "broken.jsonl").write_text('{"type": "user", "uuid": "x"}\n{"type": "us\n')
    check_same(address, folder, tmp_path)
    called = "SELECT source_title FROM sessions WHERE source_title LIKE 'Called%'"
    with Ledger.open(address) as ledger:
        assert set(ledger.query(called)[1]) == {("Called by 00",), ("Called by zz",)}


def test_all_that_is_planned_is_used_or_given_back(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    for number in range(5):  # each goes on from the one before
        log = session(folder, number)
        for more in range(number):
            log.user(f"{number}{more}more", f"{number} {more} more")
            log.assistant(f"{number}{more}said", text("said"))
        log.save()
    monkeypatch.setattr(archive, "BATCH_FILES", 2)
    monkeypatch.setattr(derive_worker, "ASKED_BYTES", 3000)
    planned: list[tuple[str, ...]] = []
    used: list[tuple[str, ...]] = []
    given_back: list[tuple[str, ...]] = []

    def meddle(other: Ahead) -> None:
        plan, derived = other.plan, other.derived

        def planning(families: Sequence[str], reader: Reader, size: int) -> None:
            planned.append(tuple(families))
            plan(families, reader, size)

        def deriving(families: Sequence[str]) -> Derived | Apart | None:
            found = derived(families)
            (used if isinstance(found, Derived) else given_back).append(tuple(families))
            return found

        monkeypatch.setattr(other, "plan", planning)
        monkeypatch.setattr(other, "derived", deriving)

    imported(address, folder, meddle)
    assert used
    assert used + given_back[::-1] == planned
    assert len(planned) < 17  # copies are derived with their original


@pytest.mark.parametrize(("folders", "files_each"), [(1, 2 * REMEMBERED), (4, 5)])
def test_families_are_planned_while_others_are_still_kept(
    address: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    folders: int,
    files_each: int,
) -> None:
    for number in range(folders * files_each):
        folder = tmp_path / "logs" / f"p{number // files_each}"
        log = Log(folder, f"{number:08}-0000-4000-8000-000000000000")
        log.user(f"{number}a", f"question {number}")
        log.assistant(f"{number}b", text("answer"))
        log.save()
    monkeypatch.setattr(archive, "BATCH_FILES", 4)
    happened: list[str] = []
    add, plan = Keeper.add, Ahead.plan

    def adding(self: Keeper, found: Found) -> None:
        add(self, found)
        happened.append("kept")

    def planning(self: Ahead, families: Sequence[str], reader: Reader, size: int) -> None:
        happened.append(families[0])
        plan(self, families, reader, size)

    monkeypatch.setattr(Keeper, "add", adding)
    monkeypatch.setattr(Ahead, "plan", planning)
    imported(address, tmp_path / "logs")

    last = len(happened) - 1 - happened[::-1].index("kept")
    early = [each for each in happened[:last] if each != "kept"]
    planned = [each for each in happened if each != "kept"]
    assert folders * files_each // 3 < len(early) < len(planned)
    assert planned == sorted(planned)


def test_a_copy_in_another_folder_may_come_when_its_original_is_derived(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs" / "p0", 3)
    for number in range(3):
        log = session(folder.parent / f"p{number}", number)
        log.user(f"{number}more", f"{number} more")
        log.assistant(f"{number}said", text("said"))
        log.save()
    monkeypatch.setattr(archive, "BATCH_FILES", 1)

    imported(address, folder.parent)

    with Ledger.open(str(tmp_path / "alone.db")) as ledger:
        import_paths(ledger, folder.parent)
        rows = result(ledger)
    with Ledger.open(address) as ledger:
        assert result(ledger) == rows
        assert ledger.audit() == ()


def test_its_death_costs_time_only(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    check_same(address, folder, tmp_path, lambda other: os.kill(other.pid, signal.SIGKILL))


def test_its_death_half_way_costs_time_only(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    answer = derive_worker._answer

    def short_lived(sources: Sources, reader: Reader, families: Sequence[str]) -> bytes:
        if "00000008" in families[0]:
            os._exit(9)
        return answer(sources, reader, families)

    monkeypatch.setattr(derive_worker, "_answer", short_lived)
    check_same(address, folder, tmp_path)


def test_to_stop_it_costs_time_only(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    monkeypatch.setattr(derive_worker, "SILENT_SECONDS", 0.05)
    check_same(address, folder, tmp_path, lambda other: os.kill(other.pid, signal.SIGSTOP))


def test_to_stop_it_half_way_through_an_answer_costs_time_only(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    monkeypatch.setattr(derive_worker, "SILENT_SECONDS", 0.05)

    def send(ready: SimpleQueue[bytes], results: int) -> None:
        answer = ready.get()
        os.write(results, answer[: len(answer) // 2])
        os.kill(os.getpid(), signal.SIGSTOP)

    monkeypatch.setattr(derive_worker, "_send", send)
    check_same(address, folder, tmp_path)


def test_one_that_is_stopped_and_not_asked_is_ended_too(address: str) -> None:
    Ledger.open(address).close()
    other = Ahead(address)
    pid = other.pid
    os.kill(pid, signal.SIGSTOP)
    other.close()
    assert is_gone(pid)


def test_half_an_answer_is_none(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")

    def send(ready: SimpleQueue[bytes], results: int) -> None:
        for number in count():
            answer = ready.get()
            os.write(results, answer[: len(answer) // 2] if number == 5 else answer)
            if number == 5:
                os._exit(9)

    monkeypatch.setattr(derive_worker, "_send", send)
    check_same(address, folder, tmp_path)


def test_what_it_cannot_derive_is_derived_by_the_parent(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    parent, derived = os.getpid(), derive_worker._derived

    def broken(sources: Sources, reader: Reader, families: Sequence[str]) -> Derived | None:
        if os.getpid() != parent and "7" in Path(families[0]).name[:8]:
            raise ZeroDivisionError
        return derived(sources, reader, families)

    monkeypatch.setattr(derive_worker, "_derived", broken)
    check_same(address, folder, tmp_path)


def test_what_is_large_is_derived_where_it_is_written(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    large = folder / "rollout-2026-01-01T00-00-00-019d7e40-7150-7df3-b034-a8421746ef80.jsonl.zst"
    meta = {"type": "session_meta", "payload": {"id": "019d7e40-7150-7df3-b034-a8421746ef80"}}
    said = {"type": "event_msg", "payload": {"type": "user_message", "message": "word " * 2000}}
    plain = "".join(json.dumps({"timestamp": "", **each}) + "\n" for each in (meta, said))
    large.write_bytes(zstandard.compress(plain.encode()))
    monkeypatch.setattr(derive_worker, "FAMILY_MAX", 5000)
    assert large.stat().st_size < 1000  # what counts is how much it holds
    parsed: list[list[str]] = []

    imported(address, folder, lambda _: parsed.append(count_lines(monkeypatch)))

    assert set(parsed[0]) == {"rollout-"}


def test_what_was_derived_before_is_derived_where_it_is_written(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs", 2)
    imported(address, folder)
    for path in folder.glob("*.jsonl"):
        with path.open("a") as file:
            file.write(json.dumps({"type": "summary", "summary": "x", "leafUuid": "x"}) + "\n")
    parsed: list[list[str]] = []

    imported(address, folder, lambda _: parsed.append(count_lines(monkeypatch)))

    assert {*parsed[0]} == {"00000000", "00000001"}


def test_what_an_import_left_is_derived_ahead(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    with Ledger.open(address) as ledger, Keeper(Sources(ledger._core)) as keeper:
        for each in files(folder):
            keeper.add(each)
    parsed: list[list[str]] = []

    imported(address, tmp_path / "nothing", lambda _: parsed.append(count_lines(monkeypatch)))

    assert parsed == [[]]
    with Ledger.open(address) as ledger:
        assert ledger.query("SELECT count(*) FROM turns")[1] == [(12,)]


def test_ctrl_c_is_for_the_parent(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")
    parsed: list[list[str]] = []

    def meddle(other: Ahead) -> None:
        os.kill(other.pid, signal.SIGINT)
        parsed.append(count_lines(monkeypatch))

    imported(address, folder, meddle)
    assert parsed == [[]]


@pytest.mark.usefixtures("worth_it")
@pytest.mark.parametrize("call", ["fork", "pipe"])
def test_where_no_process_can_be_made_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    folder = some_sessions(tmp_path / "logs", 2)

    def fail() -> None:
        raise BlockingIOError(11, "none is left")

    before = len(os.listdir("/proc/self/fd"))
    monkeypatch.setattr(os, call, fail)
    with derive_worker.beside(str(tmp_path / "l.db"), files(folder)) as other:
        assert other is None
    assert len(os.listdir("/proc/self/fd")) == before
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_it_may_be_that_nobody_waits_for_children(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        imported(address, folder)
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_file_that_grew_since_is_derived_anew(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs")

    def outdated(sources: Sources, reader: Reader, families: Sequence[str]) -> Derived:
        return Derived([], Derivation(turns=(), sessions=()))

    monkeypatch.setattr(derive_worker, "_derived", outdated)
    check_same(address, folder, tmp_path)


def test_no_more_is_asked_for_than_memory_should_hold(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derive_worker, "ASKED_BYTES", 100)
    reader = READERS["claude-code"]
    Ledger.open(address).close()
    other = Ahead(address)
    for number in range(9):
        other.plan([f"family {number}"], reader, 30)
    assert (len(other._asked), len(other._planned)) == (3, 6)
    assert other.derived(["family 7"]) is None  # not asked for yet: its parent does not wait
    other.close()


def test_who_would_wait_takes_the_last_that_is_not_asked_for(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(derive_worker, "ASKED_BYTES", 60)
    Ledger.open(address).close()
    other = Ahead(address)
    os.kill(other.pid, signal.SIGSTOP)
    for number in range(4):
        other.plan([f"family {number}"], READERS["claude-code"], 30)

    given = [other.gives_back([f"family {number}"]) for number in (3, 2, 1, 0)]
    assert given == [True, True, False, False]
    os.kill(other.pid, signal.SIGCONT)
    select.select([other._results], [], [])
    assert not other.gives_back(["a family too large to be planned"])  # an answer is there
    other.close()


def test_a_job_that_waits_is_pickled_once(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(derive_worker, "ASKED_BYTES", 100)
    Ledger.open(address).close()
    other = Ahead(address)
    dumps = pickle.dumps
    pickled: list[object] = []

    def counted(value: object) -> bytes:
        pickled.append(value)
        return dumps(value)

    monkeypatch.setattr(pickle, "dumps", counted)
    for number in range(9):
        other.plan([f"family {number}"], READERS["claude-code"], 30)
    other.derived(["family 0"])
    other.close()

    names = [f"family {number}" for number in range(5)]
    assert pickled == [((name,), "claude-code") for name in names]


def test_no_more_is_asked_for_than_a_pipe_holds(address: str) -> None:
    Ledger.open(address).close()
    other = Ahead(address)
    for number in range(40):
        other.plan([f"family {number}" * 50], READERS["claude-code"], 1)
    assert 1 < len(other._asked) < 10
    assert sum(len(job.sent) for job in other._asked) <= derive_worker.PIPE_BYTES
    other.close()


def test_it_ends_when_nobody_wants_its_answers(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")
    with Ledger.open(address) as ledger:
        import_paths(ledger, folder)
    other = Ahead(address)
    pid = other.pid
    for each in files(folder):
        other.plan([each.reader.family(each.path)], each.reader, each.size)
    other.close()
    other.close()
    assert is_gone(pid)


@pytest.mark.usefixtures("worth_it")
def test_an_interrupted_import_leaves_no_process(address: str, tmp_path: Path) -> None:
    folder = some_sessions(tmp_path / "logs")

    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    pids: list[int] = []

    def run() -> None:
        with derive_worker.beside(address, files(folder)) as other, Ledger.open(address) as ledger:
            pids.append(other.pid if other else 0)
            Importer(ledger, ahead=other).run(files(folder), interrupt)

    with pytest.raises(KeyboardInterrupt):
        run()
    assert is_gone(*pids)


KILLED = """
import os, signal, sys
from pathlib import Path
from agents_ledger import Ledger
from agents_ledger.importers.derive_worker import Ahead
from agents_ledger.importers.discovery import Unknown, found_at
from agents_ledger.importers.pipeline import Importer

other = Ahead(sys.argv[1])
print(other.pid, flush=True)
with Ledger.open(sys.argv[1]) as ledger:
    derived = other.derived

    def killed(families):
        found = derived(families)
        if "00000005" in families[0]:
            os.kill(os.getpid(), signal.SIGKILL)
        return found

    other.derived = killed
    Importer(ledger, ahead=other).run(found_at(Path(sys.argv[2]), Unknown([], [])))
"""


def test_a_killed_import_leaves_no_process_and_the_next_one_goes_on(
    address: str, tmp_path: Path
) -> None:
    folder = some_sessions(tmp_path / "logs")
    ran = subprocess.run(
        [sys.executable, "-c", KILLED, address, str(folder)], capture_output=True, check=False
    )
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    until = time.monotonic() + 10
    while not is_gone(int(ran.stdout)) and time.monotonic() < until:
        time.sleep(0.01)
    assert is_gone(int(ran.stdout))

    imported(address, folder)
    with Ledger.open(str(tmp_path / "alone.db")) as ledger:
        import_paths(ledger, folder)
        rows = result(ledger)
    with Ledger.open(address) as ledger:
        assert result(ledger) == rows
        assert ledger.audit() == ()


@pytest.mark.usefixtures("worth_it")
def test_a_process_is_started_only_where_much_is_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = some_sessions(tmp_path / "logs", 2)
    address = str(tmp_path / "l.db")

    def is_started() -> bool:
        with derive_worker.beside(address, files(folder)) as other:
            return other is not None

    assert is_started()
    monkeypatch.setattr(derive_worker, "WORTH_BYTES", 1 << 20)
    assert not is_started()  # few files are not worth it
    monkeypatch.setattr(derive_worker, "WORTH_BYTES", 1)
    with Ledger.open(address) as ledger:
        import_paths(ledger, folder)
    assert not is_started()  # they are all in that ledger
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0})
    Path(address).unlink()
    assert not is_started()  # there is one core
