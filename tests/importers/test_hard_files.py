"""Files that cannot be read as they should: a fault each, and the rest is imported."""

from __future__ import annotations

import errno
import json
import os
import random
import time
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest
import zstandard

from agents_ledger import Ledger, Refused
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.archive import Archiver
from agents_ledger.importers.discovery import Unrecognised, files_at
from agents_ledger.importers.parsing import files
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.pipeline import Report, import_paths, rederive
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.sources.pi.source import Pi
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.codex_log import Rollout, turn_id

OTHER = "22222222-2222-4222-8222-222222222222"
WORDS = "a question"
AT = "2026-03-01T10:00:00Z"


def a_log(folder: Path, name: str, letter: str) -> Log:
    log = Log(folder, name)
    log.user(f"{letter}1", WORDS)
    log.assistant(f"{letter}2", text("an answer"))
    return log


def good_and(folder: Path, path: Path) -> list[Path]:
    """The file, and one that is as it should be."""
    return [path, a_log(folder, OTHER, "f").save()]


def imported(ledger: Ledger, *paths: Path) -> Report:
    report = import_paths(ledger, paths)
    assert ledger.session(f"claude-code:{OTHER}").thread_id == uid("f1")  # the rest came in
    assert not ledger.audit()
    return report


def changed(change: Callable[[bytes], bytes]) -> Callable[[Path], Path]:
    def write(folder: Path) -> Path:
        path = a_log(folder, SESSION, "a").save()
        path.write_bytes(change(path.read_bytes()))
        return path

    return write


def _nested(data: bytes) -> bytes:
    return data + b'{"type": "user", "message": ' + b"[" * 100_000 + b"]" * 100_000 + b"}\n"


@pytest.mark.parametrize(
    ("write", "what", "line"),
    [
        (changed(lambda data: data[:-40]), "the last line is unfinished", 2),
        (changed(lambda data: data + bytes(range(256)) * 4 + b"\n{}\n"), "not a record", 3),
        (changed(_nested), "not a record", 3),
        (changed(lambda data: data.replace(b"answer", b"\xffnswer")), "not UTF-8", 2),
        (changed(lambda data: data + b"\x00" * 5000 + b"\n{}\n"), "not a record", 3),
    ],
    ids=["truncated", "binary", "nested", "encoding", "zeros"],
)
def test_a_fault_is_told_by_line_and_the_rest_of_the_file_is_read(
    ledger: Ledger, tmp_path: Path, write: Callable[[Path], Path], what: str, line: int
) -> None:
    path = write(tmp_path)
    before = path.read_bytes()

    report = imported(ledger, *good_and(tmp_path, path))

    assert report.counts.failed == 0
    told = [fault for fault in report.faults if fault.path == str(path)]
    assert what in told[0].what
    assert told[0].line == line
    asked, *answers = ledger.get_turn(uid("a1")).messages
    assert asked.content == WORDS
    assert [m.content for m in answers] in ([], ["an answer"], ["an \ufffdnswer"])
    kept = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "out")
    assert kept[0].read_bytes() == before


@pytest.mark.parametrize("levels", [300, 700])
def test_of_what_is_nested_deeply_only_that_is_not_shown(
    ledger: Ledger, tmp_path: Path, levels: int
) -> None:
    deep = json.loads("[" * levels + "]" * levels)
    path = tmp_path / "session.jsonl"
    head = {"type": "session", "version": 3, "id": SESSION, "timestamp": AT, "cwd": "/w"}
    asked = {"role": "user", "content": WORDS}
    call = {"type": "toolCall", "id": "t1", "name": "read", "arguments": {"path": deep}}
    done = {"role": "toolResult", "toolCallId": "t1", "toolName": "read", "details": deep}
    messages = [asked, {"role": "assistant", "model": "m", "content": [call]}, done]
    entries = [
        {"type": "message", "id": f"{number:08x}", "timestamp": AT, "message": message}
        for number, message in enumerate(messages)
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in [head, *entries]))

    report = imported(ledger, *good_and(tmp_path, path))

    assert report.counts.failed == 0
    (asked_once,) = ledger.query(
        f"SELECT turn_id FROM messages WHERE content = '{WORDS}' AND turn_id LIKE 'pi:%'"
    )[1]
    assert ledger.get_turn(asked_once[0]).tool_calls[0].tool_name == "read"
    assert rederive(ledger).counts.failed == 0


def test_a_value_that_is_no_word_harms_no_other_file(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "odd.jsonl"
    path.write_text('{"type": [], "message": {"role": {}}, "timestamp": []}\n')

    report = imported(ledger, *good_and(tmp_path, path))

    assert report.unrecognised == [str(path)]


def test_a_source_that_fails_to_identify_a_file_harms_no_other(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(self: Pi, path: Path, head: bytes) -> bool:
        if path.name == "odd.jsonl":
            raise TypeError("unhashable")
        return False

    monkeypatch.setattr(Pi, "recognises", fails)
    path = tmp_path / "odd.jsonl"
    path.write_text("{}\n")

    report = imported(ledger, *good_and(tmp_path, path))

    told = [fault.what for fault in report.faults if fault.path == str(path)]
    assert told == ["its source could not be determined: TypeError: unhashable"]


def test_of_duplicate_keys_the_last_one_counts(ledger: Ledger, tmp_path: Path) -> None:
    path = a_log(tmp_path, SESSION, "a").save()
    path.write_bytes(path.read_bytes().replace(b'{"type"', b'{"type": "mode", "type"'))

    report = imported(ledger, *good_and(tmp_path, path))

    assert report.faults == []
    assert ledger.get_turn(uid("a1")).status == "completed"


def test_a_line_too_long_to_parse_is_kept_and_told(ledger: Ledger, tmp_path: Path) -> None:
    path = a_log(tmp_path, SESSION, "a").save()
    with path.open("ab") as opened:
        opened.write(b'{"type": "user", "x": "')
        for _ in range(LIMITS.record_bytes // (1 << 20) + 1):
            opened.write(b"a" * (1 << 20))
        opened.write(b'"}\n')
        opened.write(json.dumps({"type": "custom-title", "customTitle": "After it"}).encode())

    report = imported(ledger, *good_and(tmp_path, path))

    assert ledger.session(f"claude-code:{SESSION}").title == "After it"
    (fault,) = report.faults
    assert (fault.line, "too long to read" in fault.what) == (3, True)
    (out,) = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "out")
    assert out.stat().st_size == path.stat().st_size


@pytest.mark.parametrize("size", [70_000, 1_100_000])
def test_a_file_is_known_though_its_first_line_is_long(
    ledger: Ledger, tmp_path: Path, size: int
) -> None:
    log = Log(tmp_path)
    log.user("a1", "a" * size)

    report = imported(ledger, *good_and(tmp_path, log.save()))

    assert report.unrecognised == []
    assert ledger.get_turn(uid("a1")).status == "pending"


def test_no_more_is_looked_at_than_may_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []
    head = files.head

    def counted(path: Path, size: int) -> bytes:
        seen.append(size)
        return head(path, size)

    monkeypatch.setattr(files, "head", counted)
    (tmp_path / "image").write_bytes(b"\x89PNG" + b"a" * (2 << 20))
    (tmp_path / "lines").write_bytes(b"{\n" + b"a" * (2 << 20))
    unknown = Unrecognised([], [])

    assert files_at(tmp_path, unknown) == []
    assert seen == [files.HEAD_BYTES] * 2


@pytest.mark.skipif(not hasattr(os, "geteuid"), reason="there are no such files here")
def test_links_pipes_and_files_that_may_not_be_read_are_faults(
    ledger: Ledger, tmp_path: Path
) -> None:
    good = a_log(tmp_path / "good", SESSION, "a").save()
    folder = tmp_path / "bad"
    folder.mkdir()
    (folder / "link.jsonl").symlink_to(good)
    (folder / "broken.jsonl").symlink_to(tmp_path / "nowhere")
    os.mkfifo(folder / "pipe.jsonl")
    hidden = a_log(folder, "hidden", "b").save()
    hidden.chmod(0)
    (folder / "linked").symlink_to(good.parent)
    (folder / "loop").symlink_to(folder)

    report = imported(ledger, *good_and(tmp_path / "good", folder))

    bad = {Path(fault.path).name for fault in report.faults}
    assert {"link.jsonl", "broken.jsonl", "pipe.jsonl", "linked", "loop"} <= bad
    if os.geteuid():  # root may read anything
        assert "hidden.jsonl" in bad
    assert report.counts.failed == len(report.faults)


def test_a_folder_that_may_not_be_read_is_a_fault_and_the_others_are_read(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "logs"
    hidden = a_log(folder / "hidden", SESSION, "a").save().parent
    a_log(folder / "open", OTHER, "f").save()
    scan = os.scandir

    def closed(path: str) -> object:
        if str(path) == str(hidden):
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", closed)

    report = imported(ledger, folder)

    assert [fault.path for fault in report.faults] == [str(hidden)]
    assert "Permission denied" in report.faults[0].what
    assert report.counts.failed == 1


def damaged_half(folder: Path) -> Path:
    """A compressed file of which about half can be read."""
    rollout = Rollout(folder)
    for number in range(1, 200):
        rollout.exchange(number, f"question {random.Random(number).random()}", "answer")
    packed = bytearray(zstandard.compress(rollout.save().read_bytes()))
    rollout.path.unlink()
    packed[len(packed) // 2 :] = b"\xff" * (len(packed) // 2)
    damaged = rollout.path.with_suffix(".jsonl.zst")
    damaged.write_bytes(packed)
    return damaged


def test_of_a_damaged_compressed_file_what_can_be_read_is(ledger: Ledger, tmp_path: Path) -> None:
    damaged = damaged_half(tmp_path)
    garbage = tmp_path / "rollout-garbage.jsonl.zst"
    garbage.write_bytes(b"not compressed at all")

    report = imported(ledger, *good_and(tmp_path, damaged), garbage)

    assert ledger.get_turn(turn_id(1)).response is not None
    said = {fault.path: fault.what for fault in report.faults if fault.line is None}
    assert said.keys() == {str(damaged), str(garbage)}
    assert all("it is damaged" in what for what in said.values())
    assert report.counts.failed == 1


def test_a_file_that_vanishes_while_it_is_imported_is_a_fault(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from agents_ledger.importers import pipeline

    path = a_log(tmp_path, SESSION, "a").save()

    def found_then_gone(*where: object) -> object:
        found = files_at(*where)  # type: ignore[arg-type]
        path.unlink(missing_ok=True)
        return found

    monkeypatch.setattr(pipeline, "files_at", found_then_gone)

    report = imported(ledger, *good_and(tmp_path, path))

    assert [fault.path for fault in report.faults] == [str(path)]
    assert report.counts.failed == 1


@pytest.mark.parametrize(
    ("data", "failed"),
    [(b"", 0), (b"\n\n\n", 0), (b"\x00\x01\x02", 0), (b"SQLite format 3\x00" + b"\xff" * 200, 0)],
    ids=["empty", "blank", "binary", "no database"],
)
def test_a_file_without_a_record_is_no_failure(
    ledger: Ledger, tmp_path: Path, data: bytes, failed: int
) -> None:
    path = tmp_path / f"{SESSION}.jsonl"
    path.write_bytes(data)

    report = imported(ledger, *good_and(tmp_path, path))

    assert report.counts.failed == failed
    assert str(path) in report.unrecognised


@pytest.mark.parametrize(
    "said",
    [
        "+20000-01-01T00:00:00Z",
        "9999-12-31T23:59:59.999Z",
        "1950-01-01T00:00:00Z",
        999_999_999_999_999,
        -5_000_000_000_000,
        1e300,
        {"$date": 1},
        True,
    ],
)
def test_a_time_nobody_can_have_been_at_is_reported_and_harms_no_reader(
    tmp_path: Path, said: object
) -> None:
    log = Log(tmp_path / "logs", SESSION)
    log.user("a1", WORDS, timestamp=said)
    log.assistant("a2", text("an answer"), timestamp=said)
    paths = good_and(tmp_path / "logs", log.save())
    ledger = Ledger.open(str(tmp_path / "ledger.db"))

    with ledger:
        report = imported(ledger, *paths)

        assert [(f.what[:11], f.line) for f in report.faults] == [("not a time:", 1)]
        ledger.summarise()
        for by in ("day", "week", "month", "session"):
            assert sum(line.spent.turns for line in ledger.usage(by).lines) == 2
        assert len(ledger.search("question after:2026-02-01 before:2026-04-01").hits) == 1
        assert len(ledger.search("question").hits) == 2
        assert len(ledger.digest(since=0, until=2**45).sessions) == 2
        ledger.tools()


@pytest.mark.skipif(not hasattr(time, "tzset"), reason="the zone cannot be set here")
def test_a_time_without_a_zone_is_the_same_on_every_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    time.tzset()
    try:
        assert milliseconds("2026-03-01T10:00:00.123") == milliseconds("2026-03-01T10:00:00.123Z")
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize("name", ["a.jsonl.zst", "a.zip"])
def test_what_cannot_be_unpacked_is_a_fault_and_the_rest_is_imported(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    (tmp_path / name).write_bytes(b"PK nothing of the kind")

    report = imported(ledger, *good_and(tmp_path, tmp_path / name))

    assert [Path(fault.path).name for fault in report.faults] == [name]
    assert "it is damaged" in report.faults[0].what
    assert (report.counts.imported, report.counts.failed) == (1, 1)


def packed(path: Path, *named: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, data in named:
            archive.writestr(name, data)
    return path


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_an_archive_that_is_damaged_anywhere_is_a_fault(tmp_path: Path, method: int) -> None:
    chosen = random.Random(3)
    path = packed(
        tmp_path / "export.zip",
        ("conversations.json", chosen.randbytes(2000).hex().encode()),
        ("b/c.txt", b"hello" * 100),
        method=method,
    )
    whole = path.read_bytes()
    told: Counter[str] = Counter()
    for _ in range(150):
        data = bytearray(whole)
        for _ in range(chosen.randint(1, 4)):
            data[chosen.randrange(len(data))] = chosen.randrange(256)
        path.write_bytes(data)
        unknown = Unrecognised([], [])
        files_at(path, unknown)
        told.update(fault.what[:13] for fault in unknown.faults)

    assert told.keys() <= {"it is damaged", "cannot be rea"}  # where it points out of the file
    assert told["it is damaged"] > 0


def test_a_file_without_a_name_in_an_archive_is_passed_over(ledger: Ledger, tmp_path: Path) -> None:
    log = a_log(tmp_path, OTHER, "f").save()
    path = packed(tmp_path / "a.zip", ("?none", b"x"), (f"//logs/{OTHER}.jsonl", log.read_bytes()))
    log.unlink()
    path.write_bytes(path.read_bytes().replace(b"?none", b"\0none"))

    report = imported(ledger, path)

    assert (report.faults, report.unrecognised) == ([], [])


def test_a_compressed_file_in_an_archive_is_unpacked_twice(ledger: Ledger, tmp_path: Path) -> None:
    log = a_log(tmp_path, OTHER, "f").save()
    path = packed(tmp_path / "a.zip", (f"{OTHER}.jsonl.zst", zstandard.compress(log.read_bytes())))

    report = imported(ledger, path)

    assert report.faults == []
    (out,) = export_source(ledger, f"claude-code:{OTHER}", tmp_path / "out")
    assert out.read_bytes() == log.read_bytes()


def test_the_directory_of_an_archive_is_read_once_while_it_does_not_change(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = a_log(tmp_path, OTHER, "f").save()
    others = [(f"{number}.png", b"\x89PNG") for number in range(20)]
    path = packed(tmp_path / "a.zip", (f"{OTHER}.jsonl", log.read_bytes()), *others)
    read = []
    listed = zipfile.ZipFile.infolist

    def counted(self: zipfile.ZipFile) -> list[zipfile.ZipInfo]:
        read.append(self)
        return listed(self)

    monkeypatch.setattr(zipfile.ZipFile, "infolist", counted)

    report = imported(ledger, path)

    assert len(report.unrecognised) == 20
    assert len(read) == 1
    packed(path, ("new.txt", b"other"))
    assert [each.name for each in files.members(path)] == ["new.txt"]
    assert files.head(path / "new.txt") == b"other"
    with pytest.raises(Refused, match="not in the archive any more"):
        files.head(path / "0.png")


def test_of_a_packed_file_no_more_is_unpacked_than_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = packed(tmp_path / "a.zip", ("large.json", b"[" * (1 << 20)))
    unpacked = []
    read = zipfile.ZipExtFile.read

    def counted(self: zipfile.ZipExtFile, size: int) -> bytes:
        unpacked.append(size)
        return read(self, size)

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)

    assert files.head(path / "large.json", 20_000) == b"[" * 20_000
    assert sum(unpacked) < 40_000


def test_a_former_state_of_a_file_without_an_ending_stays_in_its_folder(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / ".hidden" / "transcript"
    path.parent.mkdir()
    for letter in "ab":
        a_log(tmp_path, SESSION, letter).save().rename(path)
        import_paths(ledger, [path])

    written = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "given")

    given = [each.relative_to(tmp_path / "given").as_posix() for each in written]
    assert given == ["transcript", "transcript~0"]


def test_a_file_that_cannot_be_read_to_its_end_now_is_read_on_later(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log(tmp_path)
    for number in range(20):
        log.user(f"a{number}", WORDS)
        log.assistant(f"b{number}", text("an answer"))
    path = log.save()
    whole = files.chunks

    def fails(path: Path, file: BinaryIO, start: int, chunk_bytes: int) -> Iterator[bytes]:
        pieces = whole(path, file, start, chunk_bytes)
        yield next(pieces)
        yield next(pieces)
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(files, "chunks", fails)
        report = import_paths(ledger, [path], ImportLimits(chunk_bytes=1000))
    assert report.counts.failed == 1
    assert report.read_bytes == 2000
    assert ledger.get_turn(uid("a0")).response is not None

    report = import_paths(ledger, [path])
    assert (report.counts.failed, report.faults) == (0, [])
    assert report.read_bytes == path.stat().st_size - 2000
    assert ledger.get_turn(uid("a19")).response is not None


def test_a_damaged_file_that_was_only_touched_is_not_read_each_time(
    ledger: Ledger, tmp_path: Path
) -> None:
    packed = damaged_half(tmp_path)
    import_paths(ledger, [packed])
    os.utime(packed, ns=(1, 1))

    report = import_paths(ledger, [packed])
    assert "it is damaged" in report.faults[0].what
    assert (report.counts.failed, report.counts.skipped) == (0, 1)
    report = import_paths(ledger, [packed])
    assert (report.counts.failed, report.faults) == (0, [])  # as it looked before


@pytest.mark.skipif(os.name == "nt", reason="names are text")
@pytest.mark.parametrize("name", [b"caf\xe9.jsonl", b"a\x1a.jsonl"])
def test_a_file_whose_name_no_database_holds_is_skipped_like_others(
    ledger: Ledger, tmp_path: Path, name: bytes
) -> None:
    path = tmp_path / os.fsdecode(name)
    try:
        a_log(tmp_path, SESSION, "a").save().rename(path)
    except OSError:
        pytest.skip("this system takes no such names")
    import_paths(ledger, [path])

    report = import_paths(ledger, [path])

    assert (report.counts.skipped, report.counts.failed) == (1, 0)
    assert (report.read_bytes, report.derived_records) == (0, 0)


def test_imports_that_keep_a_large_file_at_once_end_as_one_would(
    ledger: Ledger, tmp_path: Path
) -> None:
    limits = ImportLimits(chunk_bytes=1000)
    log = Log(tmp_path)
    for number in range(100, 300, 2):
        log.user(f"{number:x}", WORDS)
        log.assistant(f"{number + 1:x}", text("an answer"))
    path = log.save()
    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(lambda _: import_paths(ledger, [path], limits), range(4)))

    assert [fault for report in reports for fault in report.faults] == []
    assert sum(report.counts.imported for report in reports) == 1
    assert ledger.thread(f"claude-code:{SESSION}", last=0).depth == 100
    (out,) = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "out")
    assert out.read_bytes() == path.read_bytes()


def test_what_a_file_grew_by_while_another_import_kept_it_is_kept(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = a_log(tmp_path, SESSION, "a")
    log.save()
    with Archiver(Sources(ledger._core)) as keeper:
        for each in files_at(log.path, Unrecognised([], [])):
            keeper.add(each)  # it waits for more
        import_paths(ledger, [log.path])
        log.user("b1", "Go on.")
        log.save()

    kept = ledger.query("SELECT kept_bytes FROM source_files")[1]
    assert kept == [(log.path.stat().st_size,)]
