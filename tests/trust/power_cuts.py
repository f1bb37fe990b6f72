"""Power cuts: what was acknowledged is there after the power was cut at any moment.

recorder.py runs a workload on a disk that writes everything down. This process replays the journal
up to random points, makes what a disk may hold at such a moment, opens it with the real Ledger and
looks. What was synced is there. Of what was not, each write, or each sector of it, may or may not
have arrived, or have become garbage; new and deleted files may or may not be in their folder until
the folder was synced.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import shutil
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from msgspec import Struct, field

from agents_ledger import Ledger, LedgerError
from tests.trust import harness
from tests.trust.harness import Options, Outcome
from tests.trust.picture import Fact, Picture, look
from tests.trust.recorder import FILE, Log

SECTOR = 512
STYLES = ("none", "all", "subset", "torn", "garbage")
IMAGES_PER_RECORDING = 1500
DEEP_EVERY = 16  # of images whose state is known already, every n-th is examined all the same

Image = dict[str, bytes]


# -- the disk ---------------------------------------------------------------------------------


class _File(Struct):
    """A file: what is certain, what is under way, and whether its name in the folder is certain."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[Any, ...]] = field(default_factory=list)
    linked: bool = False


class Disk:
    """What a disk may hold when the power is cut."""

    def __init__(self, files: Image | None = None) -> None:
        self.files = {
            name: _File(bytearray(data), linked=True) for name, data in (files or {}).items()
        }
        self.deleted: dict[str, _File] = {}  # the deletion is not certain yet

    def apply(self, op: tuple[Any, ...]) -> None:
        """Let one more thing happen."""
        kind, *rest = op
        if kind == "create":
            self.files[rest[0]] = _File()
        elif kind in ("write", "truncate"):
            self.files[rest[0]].pending.append((kind, *rest[1:]))
        elif kind == "sync":
            self._sync(rest[0])
        elif kind == "delete":
            self._delete(*rest)
        elif kind == "folder synced":
            self._sync_folder()

    def _sync(self, name: str) -> None:
        file = self.files[name]
        for op in file.pending:
            _do(file.durable, op)
        file.pending = []
        # SQLite syncs the folder with the first sync of a log or journal it created.
        if not file.linked and name.endswith(("-wal", "-journal")):
            self._sync_folder()

    def _delete(self, name: str, synced: bool) -> None:
        file = self.files.pop(name, None)
        if file is not None and file.linked:
            self.deleted[name] = file
        if synced:
            self._sync_folder()

    def _sync_folder(self) -> None:
        for file in self.files.values():
            file.linked = True
        self.deleted.clear()

    def crash(self, rng: Random, style: str) -> Image:
        """One of the things the disk may hold now."""
        chance = {"none": 0.0, "all": 1.0}.get(style, 0.5)
        image: Image = {}
        for name, file in self.deleted.items():
            if rng.random() >= chance:
                image[name] = _torn(file, rng, style)
        for name, file in self.files.items():
            if file.linked or rng.random() < chance:
                image[name] = _torn(file, rng, style)
        return image


def _do(data: bytearray, op: tuple[Any, ...]) -> None:
    if op[0] == "truncate":
        del data[op[1] :]
        return
    _, offset, written = op
    if offset > len(data):
        data.extend(bytes(offset - len(data)))
    data[offset : offset + len(written)] = written


def _torn(file: _File, rng: Random, style: str) -> bytes:
    data = bytearray(file.durable)
    for op in file.pending if style != "none" else ():
        if style == "all":
            _do(data, op)
        elif style == "subset" or op[0] == "truncate":
            if rng.random() < 0.5:
                _do(data, op)
        else:
            for piece in _sectors(op, rng, style):
                _do(data, piece)
    return bytes(data)


def _sectors(op: tuple[Any, ...], rng: Random, style: str) -> Iterator[tuple[Any, ...]]:
    """The sectors of a write that arrived. Bytes beside the write are never harmed."""
    _, offset, written = op
    start = 0
    while start < len(written):
        end = min(len(written), ((offset + start) // SECTOR + 1) * SECTOR - offset)
        fate = rng.random()
        if fate < 0.5:
            yield ("write", offset + start, written[start:end])
        elif style == "garbage" and fate < 0.75:
            yield ("write", offset + start, rng.randbytes(end - start))
        start = end


class Left(Struct):
    """What a cut left, for the next recording to begin with."""

    image: Image = {}
    facts: list[Fact] = []
    states: set[str] = set()


# -- looking at what is left ------------------------------------------------------------------


class Examiner:
    """Judges images. What follows from the recovered bytes alone is asked once for each of them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.file = folder / FILE
        self.pictures: dict[str, Picture] = {}
        self.states: set[str] = set()  # that some commit left
        self.deep = 0

    def put(self, image: Image, rng: Random) -> None:
        """Write an image out."""
        for old in os.scandir(self.folder):
            os.unlink(old)
        for name, data in image.items():
            with open(self.folder / name, "wb") as file:
                file.write(data)
        if rng.random() < 0.1:  # its index in memory may be left in any state
            (self.folder / f"{FILE}-shm").write_bytes(rng.randbytes(32768))

    def judge(self, image: Image, facts: list[Fact], rng: Random, *, ready: bool) -> str | None:
        """What is wrong with an image, if anything."""
        self.put(image, rng)
        if not ready or rng.randrange(DEEP_EVERY) == 0:
            return self.examine(facts, ready=ready)
        state = self.recovered_state()
        if state not in self.states:
            self.put(image, rng)
            return self.examine(facts) or "it recovers to what no commit left"
        if state not in self.pictures:
            self.put(image, rng)
            return self.examine(facts, state)
        missing = self.pictures[state].missing(facts)
        return f"lost: {missing}" if missing else None

    def recovered_state(self) -> str:
        """Let SQLite recover the file, and hash it: all else depends on its bytes alone."""
        try:
            connection = sqlite3.connect(self.file)
            connection.execute("PRAGMA user_version").fetchone()
            connection.close()
        except sqlite3.Error as error:
            return f"{error}"
        return hashlib.sha256(self.file.read_bytes()).hexdigest()

    def examine(self, facts: list[Fact], state: str = "", *, ready: bool = True) -> str | None:
        """Open the ledger as a user would, and ask everything of it."""
        self.deep += 1
        try:
            with Ledger.open(str(self.file), create=not ready) as ledger:
                picture = Picture(ledger)
                if state:
                    self.pictures[state] = picture
                return look(ledger, picture, facts)
        except LedgerError as error:
            return f"{type(error).__name__}: {error}"


# -- the harness ------------------------------------------------------------------------------


class Run:
    """Recordings, and images made of them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.rng = Random(options.seed)
        self.outcome = Outcome()
        self.recordings = 0

    def all(self) -> Outcome:
        """Judge as many images as are wanted."""
        start, wanted = Left(), self.options.count
        per_recording = min(IMAGES_PER_RECORDING, max(100, wanted // 3))
        while self.outcome.done < wanted:
            log = self.record(start.image)
            start = self.replay(log, start, min(per_recording, wanted - self.outcome.done))
            if self.rng.random() < 0.5:
                start = Left()  # else the next recording begins with what a cut left
        return self.outcome

    def record(self, start: Image) -> Log:
        """The journal of a workload."""
        self.recordings += 1
        folder = self.folder / f"recording-{self.recordings}"
        folder.mkdir()
        for name, data in start.items():
            (folder / name).write_bytes(data)
        seed = self.options.seed * 1000 + self.recordings
        log_file = folder.with_suffix(".log")
        harness.python("recorder", log_file, folder, seed, self.options.plant)
        log: Log = pickle.loads(log_file.read_bytes())  # noqa: S301
        shutil.rmtree(folder)
        return log

    def replay(self, log: Log, start: Left, count: int) -> Left:
        """Judge some images of one recording; one of them is returned."""
        folder = self.folder / f"images-{self.recordings}"
        folder.mkdir()
        examiner = Examiner(folder)
        examiner.states = start.states | {op[1] for op in log if op[0] == "commit"}
        disk, facts, ready, at = Disk(start.image), list(start.facts), bool(start.image), 0
        left = start
        for point in _points(log, self.rng, count):
            for op in log[at:point]:
                if op[0] == "ack":
                    facts += op[1]
                elif op[0] == "ready":
                    ready = True
                else:
                    disk.apply(op)
            at = point
            style = self.rng.choice(STYLES)
            image = disk.crash(self.rng, style)
            wrong = examiner.judge(image, facts, self.rng, ready=ready)
            self.outcome.done += 1
            if wrong:
                self._found(f"point {point} of {len(log)}, {style}: {wrong}", examiner, image)
            elif ready and self.rng.random() < 2 / count:
                left = Left(image, list(facts), examiner.states)
        notes = self.outcome.notes
        notes["examined in full"] = notes.get("examined in full", 0) + examiner.deep
        shutil.rmtree(folder)
        return left

    def _found(self, wrong: str, examiner: Examiner, image: Image) -> None:
        self.outcome.found(f"seed {self.options.seed}, recording {self.recordings}, {wrong}")
        examiner.put(image, Random(1))
        harness.keep(
            self.options, examiner.folder, f"power-{self.options.seed}-{self.outcome.done}"
        )


def _points(log: Log, rng: Random, count: int) -> list[int]:
    """Moments to cut the power at, a few of them while the ledger is being made."""
    made = next(at for at, op in enumerate(log) if op[0] == "ready")
    return sorted(
        rng.randrange(made + 1) if rng.random() < 0.05 else rng.randrange(made, len(log) + 1)
        for _ in range(count)
    )


def run(options: Options) -> Outcome:
    """Judge `count` images of several recordings."""
    with harness.workplace() as folder:
        return Run(options, folder).all()


if __name__ == "__main__":
    harness.main(run)
