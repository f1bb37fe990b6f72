"""Derives new families in a process of its own, ahead of the one that writes them.

The other process is a fork made before the ledger was opened; it reads the kept records on a
connection of its own and never writes. Whatever it cannot do, or does not live to do, its parent
does itself.
"""

from __future__ import annotations

import gc
import io
import os
import pickle
import select
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from msgspec import structs

from agents_ledger.importers.discovery import Found
from agents_ledger.importers.port.source import Reader
from agents_ledger.importers.relations import (
    Apart,
    check_shared,
    derived,
    files_of,
    in_order,
    material,
)
from agents_ledger.importers.sources.registry import READERS
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.source_records import Sources, prepare
from agents_ledger.model.imports.sources import Derivation, SourceFile
from agents_ledger.model.turns import Turn

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

WORTH_BYTES = 4 << 20  # of files; a fork for less gains nothing
MOSTLY_NEW = 4  # times as many bytes were found as the ledger has: most of them are new to it
FAMILY_MAX = 6 << 20  # a larger one is built turn by turn where it is written, to spare memory
ASKED_BYTES = 16 << 20  # of files that are asked for at once
PIPE_BYTES = 4096  # that any pipe holds
SILENT_SECONDS = 1  # after which it is looked at
BROKEN = (OSError, EOFError, pickle.PickleError)


class Derived(NamedTuple):
    """What some files mean, with the content of every turn."""

    files: list[SourceFile]
    derivation: Derivation


class _Job(NamedTuple):
    families: tuple[str, ...]
    source: str
    size: int
    sent: bytes = b""  # what asks for it, once it is the next


class _Answers(io.RawIOBase):
    """What the other process sends. One that was stopped is as good as dead."""

    def __init__(self, fd: int, pid: int) -> None:
        self._fd = fd
        self._pid = pid

    def readable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._fd

    def readinto(self, buffer: WriteableBuffer) -> int:
        while not select.select([self._fd], [], [], SILENT_SECONDS)[0]:
            if os.waitid(os.P_PID, self._pid, os.WSTOPPED | os.WNOHANG | os.WNOWAIT) is not None:
                return 0
        return os.readv(self._fd, [buffer])

    def close(self) -> None:
        if not self.closed:
            os.close(self._fd)
        super().close()


class Ahead:
    """The other process, as its parent sees it."""

    def __init__(self, address: str) -> None:
        ends: list[int] = []
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
        try:
            ends += os.pipe()
            ends += os.pipe()
            self.pid = os.fork()
            if self.pid == 0:  # Ctrl-C stays blocked: the parent is told too, and ends this
                _serve(address, ends)
        except OSError:
            for end in ends:
                os.close(end)
            raise
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
        jobs, ours, results, theirs = ends
        os.close(jobs)
        os.close(theirs)
        self._jobs = os.fdopen(ours, "wb", buffering=0)
        self._results = io.BufferedReader(_Answers(results, self.pid))
        self._planned: deque[_Job] = deque()
        self._asked: deque[_Job] = deque()  # in the order of the answers

    def plan(self, families: Sequence[str], reader: Reader, size: int) -> None:
        """Say that families will be wanted together, after those planned before. `size`: how many
        bytes of them are kept."""
        if size <= FAMILY_MAX:
            self._planned.append(_Job(tuple(families), reader.name, size))
            self._ask()

    def _ask(self) -> None:
        """Ask for no more than a pipe is sure to hold, or both sides could come to wait, and for no
        more than memory should hold."""
        while self._planned:
            job = self._planned[0]
            if not job.sent:
                job = job._replace(sent=pickle.dumps((job.families, job.source)))
                self._planned[0] = job
            if not self._has_room(job):
                return
            self._planned.popleft()
            try:
                self._jobs.write(job.sent)
            except OSError:  # it died
                self._give_up()
                return
            self._asked.append(job)

    def _has_room(self, job: _Job) -> bool:
        asked = [*self._asked, job]
        return len(asked) == 1 or (
            sum(len(each.sent) for each in asked) <= PIPE_BYTES
            and sum(each.size for each in asked) <= ASKED_BYTES
        )

    def _give_up(self) -> None:
        """It is dead, or shall be: it would answer what nobody waits for."""
        self._planned.clear()
        self._asked.clear()
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)

    def gives_back(self, families: Sequence[str]) -> bool:
        """Whether families are better derived by who would only wait for others: nothing is there
        yet, and they, the last of all, were not asked for."""
        if not self._asked or select.select([self._results], [], [], 0)[0]:
            return False
        group = tuple(families)
        if any(job.families == group for job in self._asked):
            return False
        if self._planned and self._planned[-1].families == group:
            self._planned.pop()
        return True

    def derived(self, families: Sequence[str]) -> Derived | Apart | None:
        """What was asked for, once it is there. None: derive it here."""
        found: Derived | Apart | None = None
        group = tuple(families)
        if all(job.families != group for job in self._asked):
            return None
        try:
            while True:
                found = pickle.load(self._results)  # noqa: S301 - ours wrote it
                if self._asked.popleft().families == group:
                    break
        except BROKEN:
            self._give_up()
            return None
        self._ask()
        return found

    def close(self) -> None:
        """End it, whatever it is at, and wait until it has let go of the ledger."""
        if not self.pid:
            return
        self._give_up()
        self._jobs.close()
        self._results.close()
        with suppress(ChildProcessError):  # where nobody waits for children
            os.waitpid(self.pid, 0)
        self.pid = 0


@contextmanager
def beside(address: str, found: Iterable[Found]) -> Iterator[Ahead | None]:
    """Another process for these files, where that is worth it. To be entered before the ledger is
    opened: a fork would share its locks."""
    other = None
    if _is_worth_it(address, sum(each.size for each in found)):
        prepare()
        with suppress(OSError):  # no process is left for us
            other = Ahead(address)
    try:
        yield other
    finally:
        if other is not None:
            other.close()


def _is_worth_it(address: str, size: int) -> bool:
    """Whether there seems to be much to derive, and is a core that could do it. How much a server
    has already nobody knows yet."""
    if sys.platform != "linux" or threading.active_count() > 1 or size < WORTH_BYTES:
        return False
    with suppress(OSError):  # there is no such file
        if Path(address.removeprefix("sqlite:///")).stat().st_size * MOSTLY_NEW > size:
            return False
    return len(os.sched_getaffinity(0)) > 1


# -- the other process ------------------------------------------------------------------------


def _serve(address: str, ends: Sequence[int]) -> NoReturn:
    """Derive what is asked for until nobody asks any more."""
    try:
        jobs, ours, theirs, results = ends
        os.close(ours)
        os.close(theirs)
        gc.freeze()  # what the parent made stays shared
        ready: SimpleQueue[bytes] = SimpleQueue()
        threading.Thread(target=_send, args=(ready, results), daemon=True).start()
        ledger: Ledger | None = None
        asked = os.fdopen(jobs, "rb")
        while True:
            families, name = pickle.load(asked)  # noqa: S301 - as does this
            ledger = ledger or Ledger.open(address, create=False, read_only=True)
            ready.put(_answer(ledger.sources, READERS[name], families))
    finally:
        os._exit(0)  # nothing of the parent's is flushed or closed here


def _send(ready: SimpleQueue[bytes], results: int) -> None:
    try:
        while True:
            left = memoryview(ready.get())
            while left:
                left = left[os.write(results, left) :]
    except OSError:  # nobody reads any more
        os._exit(1)


def _answer(sources: Sources, reader: Reader, families: Sequence[str]) -> bytes:
    try:
        return pickle.dumps(_derived(sources, reader, families), pickle.HIGHEST_PROTOCOL)
    except Apart as apart:
        return pickle.dumps(apart)
    except Exception:  # the parent meets it too, and tells of it
        return pickle.dumps(None)


def _derived(sources: Sources, reader: Reader, families: Sequence[str]) -> Derived | None:
    each = (files_of(sources, reader, family, again=False) for family in families)
    files = in_order(file for files in each for file in files)
    if any(file.derived_bytes >= 0 for file in files):  # hardly any turn would be new
        return None
    derivation = derived(reader, material(sources, files, reader.version))
    check_shared(families, derivation.turns, {file.id: file for file in files})
    turns = [
        structs.replace(
            turn,
            build=_built(turn.build),
            record_ids=tuple(turn.record_ids),
            repeated_ids=tuple(turn.repeated_ids),
        )
        for turn in derivation.turns
    ]
    return Derived(files, structs.replace(derivation, turns=tuple(turns)))


def _built(build: Callable[[], Turn]) -> Callable[[], Turn]:
    """The same, done already, in a form that can be pickled."""
    return partial(_given, build())


def _given(turn: Turn) -> Turn:
    return turn
