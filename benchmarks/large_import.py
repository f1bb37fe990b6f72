"""Importing a gigabyte of logs: the shapes of real files, each time with other ids."""

from __future__ import annotations

import hashlib
import re
import shutil
from collections.abc import Iterator
from functools import partial
from itertools import count
from pathlib import Path

from benchmarks import importing
from benchmarks.against import ROOT
from benchmarks.earlier import BEFORE, earlier_source
from benchmarks.measure import Goal, Line

SIZE = 1 << 30
PEAK_MB = 250
FASTER = 1.3
# UUIDs of sessions and records, and the ids of messages, requests and calls.
IDS = re.compile(
    rb"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
    rb"|\b(?:msg|req|toolu|call)_[A-Za-z0-9]{16,}"
)


def large_import(folder: Path) -> Iterator[Line]:
    """The memory and the rate of one import, and beside them those of an earlier commit."""
    home = folder / "large"
    size = _repeat(importing.histories(folder / "shapes"), folder / "shapes", home)
    try:
        now = _imported(home, folder / "now.db", ROOT / "src")
        peak = now.peak / 1e6
        goal = Goal("<=", PEAK_MB)
        yield Line(f"peak memory at {size / 1e6:,.0f} MB", f"{peak:.0f} MB", "", peak, goal)
        source = earlier_source(folder / "earlier")
        if source is None:
            yield Line(f"beside {BEFORE}", "not measured: this clone does not have it", rounds=0)
            return
        before = _imported(home, folder / "before.db", source)
        yield Line(f"peak memory / at {BEFORE}", f"{peak:.0f} MB", f"{before.peak / 1e6:.0f} MB")
        for clock in ("wall", "cpu"):
            ours, theirs = (size / 1e6 / getattr(ran, clock) for ran in (now, before))
            goal = Goal(">=", FASTER)
            values = f"{ours:.1f} MB/s", f"{theirs:.1f} MB/s", ours / theirs
            yield Line(f"import / at {BEFORE}, {clock}", *values, goal)
    finally:
        shutil.rmtree(home)


def _imported(home: Path, ledger: Path, source: Path) -> importing.Ran:
    ran = importing.ran([*importing.OURS, "--ledger", str(ledger), str(home)], home, source)
    for path in ledger.parent.glob(f"{ledger.name}*"):
        path.unlink()
    return ran


def _repeat(files: list[Path], shapes: Path, home: Path) -> int:
    """Copy the files until there is enough; returns the bytes."""
    size = 0
    for copy in count():
        other = partial(_other, copy=copy)
        for file in files:
            if size >= SIZE:
                return size
            data = IDS.sub(other, file.read_bytes())
            name = IDS.sub(other, str(file.relative_to(shapes)).encode()).decode()
            path = home / f"copy-{copy}" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            size += len(data)
    raise AssertionError


def _other(found: re.Match[bytes], copy: int) -> bytes:
    """Another id of the same shape, the same in every file of a copy."""
    old = found[0]
    new = hashlib.sha256(b"%d %b" % (copy, old)).hexdigest().encode()
    if b"_" in old:
        return old[:-16] + new[:16]
    return b"-".join((new[:8], new[8:12], b"4" + new[12:15], b"8" + new[15:18], new[18:30]))
