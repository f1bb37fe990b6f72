"""What all harnesses share: how one is called, what it hands back, where it works.

Every harness is a program of its own, `python -m tests.trust.NAME --seed 7 --count 100`, so that
neither a killed process nor a second SQLite library can harm the caller. It prints its outcome as
one line of JSON.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
from msgspec import Struct

ROOT = Path(__file__).parent.parent.parent
ROOM = 4 << 30  # for all that a test run keeps at one time
LIMITS = {  # of a control group, by the name of its hierarchy; the new one has none
    "": ("memory.max", "memory.current"),
    "memory": ("memory.limit_in_bytes", "memory.usage_in_bytes"),
}
FINDINGS_MAX = 20  # of one run; one is enough to fail it


class Options(Struct):
    """What a harness is asked to do."""

    seed: int = 0
    count: int = 1
    plant: str = ""  # a bug to plant; the harness must find it
    engine: str = "sqlite"
    address: str = ""  # of a PostgreSQL server; empty: the harness starts its own
    keep: str = ""  # a folder for what reproduces a finding


class Outcome(Struct):
    """What a harness did and found. Notes are counts, or maxima where their name says so."""

    done: int = 0
    findings: list[str] = []
    notes: dict[str, float] = {}

    def found(self, finding: str) -> None:
        """Note a broken promise."""
        if len(self.findings) < FINDINGS_MAX:
            self.findings.append(finding)


Harness = Callable[[Options], Outcome]


def add_notes(total: dict[str, float], notes: dict[str, float]) -> None:
    """Add the notes of one more part of a run."""
    for name, value in notes.items():
        before = total.get(name, 0)
        total[name] = max(before, value) if name.startswith("longest") else before + value


def parser() -> argparse.ArgumentParser:
    """The options, as every harness takes them."""
    arguments = argparse.ArgumentParser()
    for field in msgspec.structs.fields(Options):
        arguments.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    return arguments


def main(harness: Harness) -> None:
    """Run a harness as a program. SIGTERM ends it like Ctrl-C: what it started is stopped."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    options = Options(**vars(parser().parse_args()))
    print(msgspec.json.encode(harness(options)).decode(), flush=True)


def call(name: str, options: Options, *, timeout: float = 600) -> Outcome:
    """Run a harness in a process of its own. One that dies is a finding too."""
    command = [sys.executable, "-m", f"tests.trust.{name}"]
    for field in Options.__struct_fields__:
        if value := getattr(options, field):
            command += [f"--{field}", str(value)]
    try:
        ran = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=timeout, check=False
        )
    except subprocess.TimeoutExpired:
        return Outcome(findings=[f"{name} did not end within {timeout} s"])
    if ran.returncode:
        return Outcome(findings=[f"{name} ended with {ran.returncode}: {ran.stderr[-4000:]}"])
    outcome = msgspec.json.decode(ran.stdout.splitlines()[-1], type=Outcome)
    if outcome.findings and ran.stderr:
        outcome.findings.append(ran.stderr[-4000:])
    return outcome


def python(name: str, *arguments: object) -> None:
    """Run one of our programs that a harness needs in a process of its own."""
    command = [sys.executable, "-m", f"tests.trust.{name}", *map(str, arguments)]
    subprocess.run(command, cwd=ROOT, check=True)


def memory() -> str | None:
    """A folder in memory, where the system has one with room: what is simulated needs no disk."""
    shared = "/dev/shm"  # noqa: S108
    if not os.access(shared, os.W_OK) or shutil.disk_usage(shared).free <= ROOM:
        return None
    return shared if all(left > ROOM for left in _left()) else None


def _left(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> Iterator[int]:
    """Bytes of memory that the system has left, then each control group with a limit."""
    told = (proc / "meminfo").read_text()
    yield int(told.partition("MemAvailable:")[2].split()[0]) << 10
    for line in (proc / "self" / "cgroup").read_text().splitlines():
        _, kind, path = line.split(":", 2)
        if kind in LIMITS:
            limit, used = LIMITS[kind]
            own = groups / kind / path.lstrip("/")
            for group in (own, *own.parents):
                most = (group / limit).read_text() if (group / limit).exists() else "max"
                if most.strip() != "max":
                    yield int(most) - int((group / used).read_text())


@contextmanager
def workplace(*, on_disk: bool = False) -> Iterator[Path]:
    """A folder for one run. Its name is short: sockets are made in it."""
    folder = Path(tempfile.mkdtemp(prefix="trust-", dir=None if on_disk else memory()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def keep(options: Options, folder: Path, name: str) -> None:
    """Save a folder that reproduces a finding."""
    if options.keep and folder.is_dir():
        sockets = shutil.ignore_patterns(".s.*")
        shutil.copytree(folder, Path(options.keep) / name, dirs_exist_ok=True, ignore=sockets)
