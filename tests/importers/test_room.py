"""What an import keeps takes little room, and is all there."""

from __future__ import annotations

import contextlib
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.ledger.projection.archive_reader import pack, unpack
from agents_ledger.ledger.projection.source_records import Growth, Sources
from agents_ledger.model.imports.sources import SourceFile
from tests.importers.claude_log import Log, text
from tests.importers.helping import import_paths, result

TURNS = 20


def noise(seed: int, letters: int) -> str:
    return random.Random(seed).randbytes(letters // 2).hex()


def session(folder: Path, number: int, turns: int = TURNS) -> Log:
    """A log whose first turns every other has too, under a session id of its own."""
    log = Log(folder, f"{number:08}-1111-4111-8111-111111111111")
    for turn in range(turns):
        log.user(f"a{turn}", f"Question {noise(turn, 600)}")
        log.assistant(f"b{turn}", text(noise(turn + 1000, 600)))
    return log


def kept(ledger: Ledger) -> dict[str, int]:
    """How many bytes are kept of every file."""
    _, rows = ledger.query(
        "SELECT f.path, sum(length(b.data)) FROM source_blocks b"
        " JOIN source_files f ON f.id = b.file_id GROUP BY f.path"
    )
    return {Path(path).name: int(size) for path, size in rows}


def is_lossless(ledger: Ledger, *paths: Path) -> bool:
    sources = Sources(ledger._core)
    files = [(path, sources.file(str(path))) for path in paths]
    return all(
        file is not None and b"".join(sources.stream(file.id)) == path.read_bytes()
        for path, file in files
    )


def test_a_copy_is_packed_against_its_original_and_outlives_its_growth(
    ledger: Ledger, tmp_path: Path
) -> None:
    first, second = session(tmp_path, 1), session(tmp_path, 2)
    second.user("c1", "And now?")
    paths = [first.save(), second.save()]
    import_paths(ledger, tmp_path)

    sizes = kept(ledger)
    assert sizes[paths[1].name] * 4 < sizes[paths[0].name]
    first.user("d1", noise(7, 5000))
    first.assistant("d2", text(noise(8, 5000)))
    first.save()
    import_paths(ledger, tmp_path)
    assert is_lossless(ledger, *paths)
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_copies_made_later_are_packed_against_the_first_original(
    ledger: Ledger, tmp_path: Path
) -> None:
    paths = []
    for number in range(5):
        log = session(tmp_path, number)
        log.user(f"c{number}", "And now?")
        paths.append(log.save())
        import_paths(ledger, tmp_path)

    sizes = kept(ledger)
    assert [name for name in sizes if sizes[name] * 4 > sizes[paths[0].name]] == [paths[0].name]
    _, bases = ledger.query("SELECT DISTINCT base_file_id FROM source_blocks ORDER BY 1")
    assert [base for (base,) in bases if base is not None] == [1]  # a line of any is read at once
    assert is_lossless(ledger, *paths)


def test_a_file_that_only_looks_alike_stands_alone(ledger: Ledger, tmp_path: Path) -> None:
    for number in range(2):
        log = Log(tmp_path, f"{number:08}-1111-4111-8111-111111111111")
        for turn in range(TURNS):
            log.user(f"{number}a{turn}", noise(number * 5000 + turn, 600))
            log.assistant(f"{number}b{turn}", text(noise(number * 5000 + turn + 1000, 600)))
        log.save()
    import_paths(ledger, tmp_path)

    _, bases = ledger.query("SELECT base_file_id FROM source_blocks")
    assert bases == [(None,), (None,)]


def test_a_rewritten_log_is_packed_against_what_it_was(ledger: Ledger, tmp_path: Path) -> None:
    path = session(tmp_path, 1).save()
    import_paths(ledger, tmp_path)
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[2:]))
    import_paths(ledger, tmp_path)

    _, sizes = ledger.query("SELECT length(data) FROM source_blocks ORDER BY file_id")
    assert sizes[1][0] * 4 < sizes[0][0]
    assert is_lossless(ledger, path)


def test_copies_are_kept_together(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(6):
        session(tmp_path, number).save()
    together: list[int] = []
    keep = Sources.keep

    def counted(self: Sources, growths: Sequence[Growth]) -> list[SourceFile | None]:
        together.append(len(growths))
        return keep(self, growths)

    monkeypatch.setattr(Sources, "keep", counted)
    import_paths(ledger, tmp_path)

    assert together == [1, 5]


@pytest.mark.parametrize(
    ("base", "at_once", "patience"), [(b"known" * 1000, 1, 0.2), (None, 2, 10)]
)
def test_of_packs_against_a_base_there_is_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, base: bytes | None, at_once: int, patience: float
) -> None:
    inside: list[int] = []
    most: list[int] = []
    both = threading.Barrier(2)

    compressor = zstandard.ZstdCompressor

    class Packing:
        def __init__(self, **how: Any) -> None:
            self.packing = compressor(**how)

        def compress(self, data: bytes) -> bytes:
            inside.append(1)
            with contextlib.suppress(threading.BrokenBarrierError):
                both.wait(patience)
            most.append(len(inside))
            inside.pop()
            return self.packing.compress(data)

    monkeypatch.setattr(zstandard, "ZstdCompressor", Packing)
    with ThreadPoolExecutor(2) as packing:
        packed = list(packing.map(pack, [b"known and new"] * 2, [base] * 2))

    assert max(most) == at_once
    assert [unpack(each, 100, base) for each in packed] == [b"known and new"] * 2
