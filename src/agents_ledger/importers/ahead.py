"""Derives new families in a process of its own, ahead of the one that writes them.

The other process is a fork made before the ledger was opened; it reads the kept records on a
connection of its own and never writes. Whatever it cannot do, or does not live to do, its parent
does itself.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from queue import Queue
from typing import IO, NamedTuple, NoReturn

from msgspec import structs

from agents_ledger.importers.discovery import Found
from agents_ledger.importers.reader import Material, Reader
from agents_ledger.importers.readers import READERS
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.sources import Sources
from agents_ledger.model.sources import SUPERSEDED, Derivation, SourceFile
from agents_ledger.model.turns import Turn

WORTH_BYTES = 4 << 20  # of files; a fork for less gains nothing
FAMILY_MAX = 6 << 20  # a larger one is built turn by turn where it is written, to spare memory
PIPE_BYTES = 4096  # that any pipe holds
READY = 10  # derivations that wait to be taken
BROKEN = (OSError, EOFError, pickle.PickleError)


class Derived(NamedTuple):
    """What some files mean, with the content of every turn."""

    files: list[SourceFile]
    derivation: Derivation


def files_of(sources: Sources, reader: Reader, family: str, *, again: bool) -> list[SourceFile]:
    """The files of a family to derive from. `again`: also those that later states say all of."""
    files = sources.files_of_family(family)
    known = {file.derived_version for file in files} <= {reader.version, SUPERSEDED, 0}
    if again or not known:
        return list(files)
    return [file for file in files if file.derived_version != SUPERSEDED]


def in_order(files: Iterable[SourceFile]) -> list[SourceFile]:
    """The order in which a reader is given files."""
    return sorted(files, key=lambda file: (file.path, file.generation))


class Ahead:
    """The other process, as its parent sees it."""

    def __init__(self, address: str) -> None:
        jobs, ours = os.pipe()
        results, theirs = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(ours)
            os.close(results)
            _serve(address, jobs, theirs)
        os.close(jobs)
        os.close(theirs)
        self._jobs = os.fdopen(ours, "wb", buffering=0)
        self._results = os.fdopen(results, "rb")
        self._known: set[str] = set()
        self._planned: deque[bytes] = deque()  # jobs
        self._asked: deque[bytes] = deque()

    def plan(self, families: Mapping[str, Reader]) -> None:
        """Which families will be wanted, in this order, beside those that are planned already."""
        for family, reader in families.items():
            if family not in self._known:
                self._known.add(family)
                self._planned.append(_job(family, reader))
        self._ask()

    def _ask(self) -> None:
        """Ask for as many as a pipe is sure to hold: with more, both sides could come to wait."""
        size = sum(map(len, self._asked))
        while self._planned and (not self._asked or size + len(self._planned[0]) <= PIPE_BYTES):
            job = self._planned.popleft()
            try:
                self._jobs.write(job)
            except OSError:  # it died
                self._planned.clear()
                return
            self._asked.append(job)
            size += len(job)

    def derived(self, family: str, reader: Reader) -> Derived | None:
        """What comes next in the plan, once it is there. None: derive it here."""
        if not self._asked or self._asked[0] != _job(family, reader):
            return None
        try:
            found: Derived | None = pickle.load(self._results)  # noqa: S301 - ours wrote it
        except BROKEN:
            self._planned.clear()
            self._asked.clear()
            return None
        self._asked.popleft()
        self._ask()
        return found

    def close(self) -> None:
        """End it, and wait until it has let go of the ledger."""
        self._jobs.close()
        self._results.close()
        self._asked.clear()
        if self._pid:
            os.waitpid(self._pid, 0)
            self._pid = 0


def _job(family: str, reader: Reader) -> bytes:
    return pickle.dumps((family, reader.name))


@contextmanager
def beside(address: str, found: Iterable[Found]) -> Iterator[Ahead | None]:
    """Another process for these files, where that is worth it. To be entered before the ledger is
    opened: a fork would share its locks."""
    other = None
    size = sum(each.size for each in found)
    if size >= WORTH_BYTES and sys.platform == "linux" and threading.active_count() == 1:
        other = Ahead(address) if len(os.sched_getaffinity(0)) > 1 else None
    try:
        yield other
    finally:
        if other is not None:
            other.close()


# -- the other process ------------------------------------------------------------------------


def _serve(address: str, jobs: int, results: int) -> NoReturn:
    """Derive what is asked for until nobody asks any more."""
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent is told too, and ends this
        ready: Queue[bytes | None] = Queue(READY)
        sender = threading.Thread(target=_send, args=(ready, os.fdopen(results, "wb")))
        sender.start()
        ledger: Ledger | None = None
        with os.fdopen(jobs, "rb") as asked, suppress(EOFError):
            while True:
                family, name = pickle.load(asked)  # noqa: S301 - as does this
                ledger = ledger or Ledger.open(address, create=False, read_only=True)
                ready.put(_answer(Sources(ledger._core), READERS[name], family))
        ready.put(None)
        sender.join()
        if ledger is not None:
            ledger.close()
    finally:
        os._exit(0)  # nothing of the parent's is flushed or closed here


def _send(ready: Queue[bytes | None], results: IO[bytes]) -> None:
    try:
        while (answer := ready.get()) is not None:
            results.write(answer)
            results.flush()
    except OSError:  # nobody reads any more
        os._exit(1)


def _answer(sources: Sources, reader: Reader, family: str) -> bytes:
    try:
        return pickle.dumps(_derived(sources, reader, family), pickle.HIGHEST_PROTOCOL)
    except Exception:  # the parent meets it too, and tells of it
        return pickle.dumps(None)


def _derived(sources: Sources, reader: Reader, family: str) -> Derived | None:
    files = in_order(files_of(sources, reader, family, again=False))
    known = any(file.derived_bytes >= 0 for file in files)  # hardly any turn would be new
    if known or sum(file.kept_bytes for file in files) > FAMILY_MAX:
        return None
    derivation = reader.derive(Material(sources, files, reader.version))
    turns = [structs.replace(turn, build=_built(turn.build)) for turn in derivation.turns]
    return Derived(files, structs.replace(derivation, turns=tuple(turns)))


def _built(build: Callable[[], Turn]) -> Callable[[], Turn]:
    return partial(_given, build())


def _given(turn: Turn) -> Turn:
    return turn
