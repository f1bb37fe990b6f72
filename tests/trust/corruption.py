"""Damages ledger files at random places: nothing fails but with an error of ours, damage is
reported or changes no turn, and salvage brings every turn that can be read into a sound ledger.

Two kinds of damage change turns and are not found by the audit; they are counted in the notes:

- `silent`: a text or number of a row is another one. Only hashes of content would tell.
- `log`: SQLite takes a damaged page of the write-ahead log for one that a crash cut short, and
  forgets what was committed behind it. Salvage says so.
"""

from __future__ import annotations

import random
import shutil
import traceback
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct, structs

from agents_ledger import Ledger, LedgerError, Turn
from agents_ledger.ledger.maintenance.salvage import salvage
from tests.trust import harness, specimen
from tests.trust.harness import Options, Outcome

PAGE = 4096
TURNS = 12
READ = 4  # further verbs tried on each damaged ledger
NO_AUDIT = "audit finds nothing"


class Specimen(Struct):
    """A ledger to be damaged: its files by suffix, and the turns they hold."""

    files: dict[str, bytes]
    turns: dict[str, Turn]

    def put(self, path: Path) -> None:
        """Write the files."""
        for suffix, data in self.files.items():
            Path(f"{path}{suffix}").write_bytes(data)


def specimens(folder: Path) -> list[Specimen]:
    """One whose log was moved into the file, and one whose log was not."""
    path = folder / "whole.db"
    turns = specimen.make(path, folder, turns=TURNS)
    closed = Specimen({"": path.read_bytes()}, turns)
    with Ledger.open(str(path)) as ledger:
        for number in range(TURNS):
            ledger.record("main", f"logged {number}", specimen.LONG * number)
        shutil.copy(path, folder / "open.db")  # of a file that SQLite does not have open
        shutil.copy(f"{path}-wal", folder / "open.db-wal")
        logged = specimen.whole(ledger)
    files = {suffix: (folder / f"open.db{suffix}").read_bytes() for suffix in ("", "-wal")}
    return [closed, Specimen(files, logged)]


def damage(chance: random.Random, data: bytes) -> tuple[bytes, str]:
    """The data with something wrong, and what."""
    changed = bytearray(data)
    at = chance.randrange(len(data))
    way = chance.randrange(12)
    if way < 6:
        bit = chance.randrange(8)
        changed[at] ^= 1 << bit
        return bytes(changed), f"bit {bit} of byte {at}"
    if way < 9:
        length = min(chance.choice((1, 16, 300, 4096, 20_000)), len(data) - at)
        filled = chance.choice((bytes(length), b"\xa5" * length, chance.randbytes(length)))
        changed[at : at + length] = filled
        return bytes(changed), f"{length} bytes at {at}"
    if way < 11:
        return _misplace(chance, changed, swap=way == 10)
    return data[:at], f"cut at byte {at}"


def _misplace(chance: random.Random, data: bytearray, *, swap: bool) -> tuple[bytes, str]:
    """One page written where another belongs, or two in the place of each other."""
    pages = len(data) // PAGE
    source, target = chance.randrange(pages), chance.randrange(pages)
    first, second = (
        slice(source * PAGE, (source + 1) * PAGE),
        slice(target * PAGE, (target + 1) * PAGE),
    )
    kept = data[second]
    data[second] = data[first]
    if swap:
        data[first] = kept
    return bytes(data), f"page {source + 1} {'swapped with' if swap else 'over'} page {target + 1}"


class Damaging:
    """Damages one specimen after the other."""

    def __init__(self, options: Options, folder: Path) -> None:
        self._options = options
        self._folder = folder
        self._chance = random.Random(options.seed)
        self._specimens = specimens(folder)
        self._outcome = Outcome(notes={"reported": 0, "harmless": 0, "silent": 0, "log": 0})

    def run(self, count: int) -> Outcome:
        """Damage a ledger so many times."""
        for number in range(count):
            whole = self._chance.choice(self._specimens)
            suffix = self._chance.choice(list(whole.files))
            data, what = damage(self._chance, whole.files[suffix])
            case = f"case {number}: ledger{suffix}, {what}"
            folder = self._folder / "case"
            folder.mkdir()
            structs.replace(whole, files={**whole.files, suffix: data}).put(folder / "l.db")
            before = len(self._outcome.findings)
            try:
                self._look(folder, whole, case, in_log=suffix == "-wal")
            except Exception:
                self._outcome.found(f"{case}: {traceback.format_exc()[-1500:]}")
            if len(self._outcome.findings) > before:
                harness.keep(self._options, folder, f"corruption-{self._options.seed}-{number}")
            shutil.rmtree(folder)
            self._outcome.done += 1
        return self._outcome

    def _look(self, folder: Path, whole: Specimen, case: str, *, in_log: bool) -> None:
        shutil.copytree(folder, folder / "read")
        readable: dict[str, Turn] = {}
        try:
            with Ledger.open(str(folder / "read" / "l.db"), read_only=True) as ledger:
                reported = self._read(ledger, case)
                readable = dict(self._readable(ledger, whole))
        except LedgerError:
            reported = True
        if reported and self._options.plant != NO_AUDIT:
            self._outcome.notes["reported"] += 1
        elif readable == whole.turns:
            self._outcome.notes["harmless"] += 1
        elif readable.keys() == whole.turns.keys() and not self._options.plant:
            self._outcome.notes["silent"] += 1
        elif in_log and not self._options.plant:
            self._outcome.notes["log"] += 1
        else:
            self._outcome.found(f"{case}: turns are lost, and nothing says so")
        self._salvage(folder, readable, case)

    def _read(self, ledger: Ledger, case: str) -> bool:
        """Whether a verb reports damage; one that fails otherwise is a finding."""
        reported = bool(ledger.audit())
        verbs = dict(specimen.readings(ledger))
        chosen = {"thread", "search", "export json", *self._chance.sample(sorted(verbs), READ)}
        for name in sorted(chosen):
            try:
                verbs[name]()
            except LedgerError:
                reported = True
            except Exception:
                self._outcome.found(f"{case}: {name}: {traceback.format_exc()[-1500:]}")
        return reported

    def _readable(self, ledger: Ledger, whole: Specimen) -> Iterator[tuple[str, Turn]]:
        for turn_id in whole.turns:
            try:
                yield turn_id, ledger.get_turn(turn_id)
            except LedgerError:
                continue

    def _salvage(self, folder: Path, readable: dict[str, Turn], case: str) -> None:
        before = {path: path.read_bytes() for path in folder.glob("l.db*")}
        try:
            salvaged = salvage(str(folder / "l.db"), str(folder / "new.db"))
        except LedgerError as error:
            if readable:
                self._outcome.found(f"{case}: {len(readable)} turns, but salvage: {error}")
            return
        if before != {path: path.read_bytes() for path in folder.glob("l.db*")}:
            self._outcome.found(f"{case}: salvage wrote to the damaged file")
        if salvaged.findings:
            self._outcome.found(f"{case}: after salvage {salvaged.findings[:5]}")
        with Ledger.open(str(folder / "new.db"), create=False) as ledger:
            kept = specimen.whole(ledger)
            lost = [turn_id for turn_id in readable if turn_id not in kept]
            if lost:
                self._outcome.found(f"{case}: salvage lost {lost[:5]}")
            ledger.record("main", "and on it goes", "r")


def run(options: Options) -> Outcome:
    """Damage ledgers."""
    with harness.workplace() as folder:
        return Damaging(options, folder).run(options.count)


if __name__ == "__main__":
    harness.main(run)
