"""Files that Windows wrote another way: marked UTF-8, and UTF-16."""

from __future__ import annotations

import codecs
import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.discovery import Unrecognised, files_at
from agents_ledger.importers.parsing import encodings
from agents_ledger.importers.parsing.databases import MAGIC
from agents_ledger.importers.parsing.encodings import Utf8
from agents_ledger.importers.pipeline import import_paths
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from tests.importers.claude_log import SESSION, Log, text, uid
from tests.importers.helping import HOLDS_NOTHING, result
from tests.trust.shapes import write_all

LITTLE, BIG = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE


def marked(data: bytes) -> bytes:
    return codecs.BOM_UTF8 + data


def little(data: bytes) -> bytes:
    return LITTLE + data.decode().replace("\n", "\r\n").encode("utf-16-le")


def big(data: bytes) -> bytes:
    return BIG + data.decode().encode("utf-16-be")


def unmarked(data: bytes) -> bytes:
    return data.decode().encode("utf-16-le")


def unmarked_big(data: bytes) -> bytes:
    return data.decode().encode("utf-16-be")


def every_text(folder: Path) -> Iterator[Path]:
    for path in sorted(each for each in folder.rglob("*") if each.is_file()):
        data = path.read_bytes()
        if not data.startswith(MAGIC) and not path.name.endswith(("-wal", "-shm", ".zst", ".zip")):
            yield path


@pytest.mark.parametrize("change", [marked, little, big])
@pytest.mark.parametrize("limits", [LIMITS, HOLDS_NOTHING], ids=["held", "packed"])
def test_every_source_is_read_whatever_the_encoding(
    new_address: Callable[[], str],
    tmp_path: Path,
    change: Callable[[bytes], bytes],
    limits: ImportLimits,
) -> None:
    folder = tmp_path / "all"
    write_all(folder)
    with Ledger.open(new_address()) as plain:
        import_paths(plain, [folder], limits)
        expected = result(plain)
    paths = list(every_text(folder))
    for path in paths:
        status = path.stat()
        path.write_bytes(change(path.read_bytes()))
        # Cursor's text transcripts have no times of their own, and get the file's.
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    with Ledger.open(new_address()) as ledger:
        report = import_paths(ledger, [folder], limits)

        assert report.unrecognised == []
        found = result(ledger)
        assert {name: len(rows) for name, rows in found.items()} == {
            name: len(rows) for name, rows in expected.items()
        }
        assert found["messages"] == expected["messages"]
        assert not ledger.audit()
    told = {fault.path for fault in report.faults if "it is UTF-16" in fault.what}
    assert told == (set() if change is marked else {str(path) for path in paths})


@pytest.mark.parametrize("change", [unmarked, unmarked_big])
@pytest.mark.parametrize("begins", ["", "[", "[ {", "{}", '{"a"', "{\n"])
def test_json_in_utf_16_needs_no_mark(begins: str, change: Callable[[bytes], bytes]) -> None:
    data = change(begins.encode())

    assert encodings.as_utf8(data) == (begins.encode() if begins[1:] else data)
    assert b"".join(Utf8(Given(data, 3), lambda _: None).stream(1)) == encodings.as_utf8(data)


@pytest.mark.parametrize("data", [b"{\0\0\0", b"\0\0\0{", b"[\0\1\0", b"a\0b\0", b"{}", b"[]\0\0"])
def test_other_bytes_are_no_utf_16(data: bytes) -> None:
    assert encodings.as_utf8(data) == data


@pytest.mark.parametrize("change", [marked, little, big, unmarked, unmarked_big])
def test_it_is_kept_as_it_is_and_faults_stand_where_they_are_kept(
    ledger: Ledger, tmp_path: Path, change: Callable[[bytes], bytes]
) -> None:
    log = Log(tmp_path)
    log.user("a1", "What does „größer“ \U0001f600 mean?")
    log.assistant("a2", text("“Larger”."))
    log.lines.append("no record")
    log.user("a3", "Thanks.")
    path = log.save()
    path.write_bytes(change(path.read_bytes()))

    report = import_paths(ledger, [path])

    assert ledger.get_turn(uid("a1")).messages[0].content == "What does „größer“ \U0001f600 mean?"
    (out,) = export_source(ledger, f"claude-code:{SESSION}", tmp_path / "out")
    assert out.read_bytes() == path.read_bytes()
    (fault,) = (each for each in report.faults if each.line is not None)
    kept = path.read_bytes()[fault.offset :]
    encoding = encodings.encoding_of(path.read_bytes()) or "utf-8"
    assert (fault.line, kept.decode(encoding)[:9]) == (3, "no record")


def test_a_log_in_utf_16_that_grows_goes_on(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Hello")
    path = log.save()
    path.write_bytes(little(path.read_bytes()))
    import_paths(ledger, [path])
    log.assistant("a2", text("Hi."))
    with path.open("ab") as opened:
        opened.write((log.lines[-1] + "\r\n").encode("utf-16-le"))

    report = import_paths(ledger, [path])

    assert report.counts.upserted == 1
    assert ledger.get_turn(uid("a1")).status == "completed"


@pytest.mark.parametrize("change", [marked, little, big, unmarked, unmarked_big])
@pytest.mark.parametrize("kept", [1, 2, 3, 5])
def test_a_file_may_come_with_a_part_of_its_mark_first(
    ledger: Ledger, tmp_path: Path, change: Callable[[bytes], bytes], kept: int
) -> None:
    log = Log(tmp_path / ".claude" / "projects" / "-home-me")
    log.user("a1", "Hello")
    log.assistant("a2", text("Hi."))
    path = log.save()
    data = change(path.read_bytes())
    path.write_bytes(data[:kept])
    import_paths(ledger, [path])
    path.write_bytes(data)

    report = import_paths(ledger, [path])

    assert ledger.get_turn(uid("a1")).status == "completed"
    assert not any(fault.line for fault in report.faults)


def test_a_first_line_in_utf_16_may_be_long(tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "a" * 100_000)
    path = log.save()
    path.write_bytes(little(path.read_bytes()))

    assert [each.source.name for each in files_at(path, Unrecognised([], []))] == ["claude-code"]


class Given:
    """The bytes of one file, in blocks."""

    def __init__(self, data: bytes, size: int) -> None:
        self.data = data
        self.size = size

    def stream(self, _: int) -> Iterator[bytes]:
        return (self.data[at : at + self.size] for at in range(0, len(self.data), self.size))

    def read(self, _: int, start: int, length: int) -> bytes:
        return self.data[start : start + length]


@pytest.mark.parametrize("size", [1, 3, 7, 64, 10_000])
@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_any_piece_of_it_can_be_read(size: int, encoding: str) -> None:
    said = random.Random(2)
    letters = "".join(said.choices("ab\nä中\U0001f600\U0010ffff", k=2000))
    mark = LITTLE if encoding == "utf-16-le" else BIG
    noticed: list[int] = []
    data = letters.encode()
    bytes_ = Utf8(Given(mark + letters.encode(encoding), size), noticed.append, 50)

    for _ in range(300):
        start, length = said.randrange(len(data) + 5), said.randrange(300)
        assert bytes_.read(1, start, length) == data[start : start + length]
        at = len(letters[: said.randrange(2000)].encode())
        assert bytes_.archived_offset(1, at) == 2 + len(data[:at].decode().encode(encoding))
    assert b"".join(bytes_.stream(1)) == data
    assert noticed == [1]


def test_what_is_broken_in_it_harms_nothing() -> None:
    broken = LITTLE + "a".encode("utf-16-le") + b"\x00\xd8" + "b".encode("utf-16-le") + b"x"

    given = Utf8(Given(broken, 3), lambda _: None)
    found = b"".join(given.stream(1))

    assert found.decode() == "a\ufffdb\ufffd"
    assert given.read(1, 0, len(found)) == found
    assert given.read(1, len(found) - 3, 3) == "\ufffd".encode()
    assert given.archived_offset(1, len(found) - 3) == len(broken) - 1
