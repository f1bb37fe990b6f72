"""Compressed files and archives that unpack to far more than their size."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import zstandard

from agents_ledger import Ledger, Refused
from agents_ledger.importers.parsing import files
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers.codex_log import Rollout
from tests.importers.test_hard_files import OTHER, good_and, imported, packed


def compressed(folder: Path, content: bytes) -> Path:
    path = folder / f"rollout-{OTHER}.jsonl.zst"
    path.write_bytes(zstandard.compress(content))
    return path


def archived(folder: Path, content: bytes) -> Path:
    return packed(folder / "a.zip", ("rollout.jsonl", content))


@pytest.mark.parametrize("pack", [compressed, archived])
def test_a_file_that_unpacks_to_far_more_than_it_is_is_a_fault_and_not_kept(
    ledger: Ledger, tmp_path: Path, pack: Callable[[Path, bytes], Path]
) -> None:
    rollout = Rollout(tmp_path / "plain")
    rollout.exchange(1, "question", "answer")
    bomb = pack(tmp_path, rollout.save().read_bytes() + b"\n" * (files.UNPACKED_MAX + 1))
    assert bomb.stat().st_size < 1 << 20

    report = imported(ledger, *good_and(tmp_path, bomb))

    [fault] = report.faults
    assert fault.path.startswith(str(bomb))
    assert "it unpacks to over 64 MB" in fault.what
    assert report.counts.failed == 1
    assert not [kept for kept in Sources(ledger._core).all_files() if "rollout" in kept.path]


@pytest.mark.parametrize("pack", [compressed, archived])
def test_how_far_a_file_may_unpack_depends_on_its_size(
    tmp_path: Path, pack: Callable[[Path, bytes], Path]
) -> None:
    path = pack(tmp_path, random.Random(1).randbytes(5_000) + bytes(45_000))
    [path] = files.members(path) if path.suffix == files.ARCHIVE else [path]
    with files.open_regular(path) as file:
        files.check_unpacked(path, file, at_least=0, ratio=12)
        files.check_unpacked(path, file, at_least=50_000, ratio=1)
        with pytest.raises(Refused, match="it unpacks to over"):
            files.check_unpacked(path, file, at_least=49_999, ratio=9)
