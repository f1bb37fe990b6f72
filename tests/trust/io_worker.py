"""Runs workloads on a disk that fails at a chosen call; for io_faults.py.

`python -m tests.trust.io_worker FOLDER SEED COUNT PLANT`, in a process of its own. Each case leaves
its ledger in a folder, with the facts that must hold and what was found beside it.
"""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger import Ledger, LedgerError, OutcomeUnknown, StoreUnavailable
from agents_ledger.ledger.core import Core
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.store.sqlite.log import LogLimits
from tests.trust.faulty_sqlite import Disk, Fault, install
from tests.trust.picture import Fact, Picture
from tests.trust.recorder import FILE
from tests.trust.workload import Workload

LOG_LIMITS = LogLimits(192 << 10, 384 << 10)
STEPS = 16
TRIES_MAX = 8
KINDS: tuple[tuple[str, ...], ...] = (
    ("write",),
    ("write",),
    ("sync",),
    ("sync",),
    ("read",),
    ("read",),
    ("truncate",),
    ("delete",),
    ("open",),
    ("lockfile",),
    ("read", "write", "sync"),
    ("read", "write", "sync"),
    ("open", "read", "write", "sync", "truncate", "delete", "lockfile"),
)
PHASES = ("making", "opening", *["writing"] * 8, "closing")


class Broken(Exception):
    """A promise was broken."""


class Case:
    """One workload and one fault."""

    def __init__(self, folder: Path, disk: Disk, rng: Random, fault: Fault) -> None:
        self.folder = folder
        self.disk = disk
        self.rng = rng
        self.fault = fault
        self.heal_after = rng.randint(1, 3)  # errors; then the disk works again
        self.facts: list[Fact] = []
        self.errors: dict[str, int] = {}
        self.ledger: Ledger | None = None

    def run(self, phase: str) -> None:
        """Open, write and close, with the fault armed in one of these phases."""
        if phase in ("making", "opening"):
            self.disk.fault = self.fault
        self.ledger = self._insist(self._open)
        if phase == "writing":
            self.disk.fault = self.fault
        workload = Workload(self.ledger, self.rng, self.perform, "w", big=False)
        for _ in range(STEPS):
            workload.step()
            if workload.heads and self.rng.random() < 0.3:
                self._insist(lambda: workload.ledger.thread(next(iter(workload.heads)), last=5))
        self._check_recovered(dead_before=phase != "making")
        self.disk.fault = self.fault if phase == "closing" else None
        self._insist(self.ledger.close)
        self.disk.fault = None

    def _open(self) -> Ledger:
        db = SqliteDatabase(
            str(self.folder / FILE),
            connect=self.disk.connect,
            wait_seconds=2,
            log_limits=LOG_LIMITS,
        )
        return Ledger(Core(db))

    def _check_recovered(self, *, dead_before: bool) -> None:
        """The turn that a dead writer left must be failed by now, whatever failed meanwhile."""
        self.disk.fault = None
        assert self.ledger is not None
        if dead_before and self.facts and "dead" in self.ledger.live_turns():
            raise Broken("recovery was given up after an error")

    def _note(self, error: LedgerError) -> None:
        name = type(error).__name__
        self.errors[name] = self.errors.get(name, 0) + 1
        if sum(self.errors.values()) >= self.heal_after:
            self.disk.fault = None

    def _try(self, action: Callable[[], Any]) -> tuple[Any, StoreUnavailable | None]:
        try:
            return action(), None
        except StoreUnavailable as error:
            self._note(error)
            return None, error
        except Exception as error:
            raise Broken(f"raised {type(error).__name__}: {error}") from error

    def _insist(self, action: Callable[[], Any]) -> Any:
        """Until it works: for what changes nothing."""
        for _ in range(TRIES_MAX):
            result, error = self._try(action)
            if error is None:
                return result
        raise Broken(f"does not work although the disk does: {error}") from error

    def perform(self, action: Callable[[], Any], *facts: Fact) -> Any:
        """Until it works, looking after each error whether it told the truth."""
        for _ in range(TRIES_MAX):
            result, error = self._try(action)
            if error is None:
                self.facts += facts
                return result
            stored = self._stored(facts)
            if stored and not isinstance(error, OutcomeUnknown):
                raise Broken(f"stored, though it raised {type(error).__name__}: {error}")
            if stored and facts[0][0] != "turn":
                self.facts += facts
                return None
        raise Broken(f"does not work although the disk does: {error}") from error

    def _stored(self, facts: tuple[Fact, ...]) -> bool:
        assert self.ledger is not None
        armed, self.disk.fault = self.disk.fault, None
        ledger = self.ledger
        picture: Picture = self._insist(lambda: Picture(ledger))
        self.disk.fault = armed
        if missing := picture.missing(self.facts):
            raise Broken(f"lost after an error: {missing}")
        held = [picture.holds(fact) for fact in facts]
        if any(held) != all(held):
            raise Broken(f"stored by half: {facts}")
        return all(held)


def make_template(folder: Path) -> None:
    """A ledger with some turns, and one that a writer left unfinished."""
    database = SqliteDatabase(str(folder / FILE), connect=Disk().connect, log_limits=LOG_LIMITS)
    with Ledger(Core(database)) as ledger:
        ledger.record("before", "Hello", "Hi")
        ledger.turn("before", "Are you there?", id="dead").stream("I am ")


def count_calls(folder: Path, disk: Disk, phase: str) -> dict[str, int]:
    """How many calls of each kind a workload makes in a phase."""
    fault = Fault(KINDS[-1], at=0)
    if phase == "making":
        (folder / "dry").mkdir()
    else:
        shutil.copytree(folder / "template", folder / "dry")
    Case(folder / "dry", disk, Random(1), fault).run(phase)
    shutil.rmtree(folder / "dry")
    return fault.counts


def draw(rng: Random, counts: dict[str, dict[str, int]]) -> tuple[str, Fault]:
    """A phase and a fault that has a chance to strike in it."""
    while True:
        phase, kinds = rng.choice(PHASES), rng.choice(KINDS)
        calls = sum(counts[phase].get(kind, 0) for kind in kinds)
        if calls:
            full = kinds in (("write",), ("lockfile",)) and rng.random() < 0.5
            return phase, Fault(kinds, rng.randint(1, calls), full, rng.random() < 0.5)


def main(folder: Path, seed: int, count: int, plant: str) -> None:
    """Run `count` cases whose fault has struck."""
    disk = Disk()
    disk.commits_lie = plant == "early acknowledgement"
    install(disk, folder)
    (folder / "template").mkdir()
    make_template(folder / "template")
    counts = {phase: count_calls(folder, disk, phase) for phase in dict.fromkeys(PHASES)}
    rng = Random(seed)
    done = 0
    while done < count:
        own_seed = rng.randrange(1 << 40)
        phase, fault = draw(Random(own_seed), counts)
        place = folder / f"case-{done}"
        shutil.rmtree(place, ignore_errors=True)
        if phase == "making":
            place.mkdir()
        else:
            shutil.copytree(folder / "template", place)
        case = Case(place, disk, Random(own_seed), fault)
        found = ""
        try:
            case.run(phase)
        except Broken as broken:
            found = str(broken)
        disk.fault = None
        if not fault.hits and not found:
            continue
        said = {
            "case": f"{own_seed}: {phase}, call {fault.at} of {'/'.join(fault.kinds)} fails"
            f"{' for ever' if fault.sticky else ''}{', full' if fault.full else ''}",
            "facts": case.facts,
            "found": found,
            "errors": case.errors,
        }
        (place / "said.json").write_text(json.dumps(said), encoding="utf-8")
        done += 1


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
