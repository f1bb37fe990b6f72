"""Families derived ahead, in other processes, while this one writes.

A helper is given the bytes of a family and gives back what a reader makes of them. It knows no
ledger. Whatever goes wrong with one, the family is derived here.
"""

from __future__ import annotations

import struct
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import IO

from msgspec import Struct, msgpack

from agents_ledger.importers.reader import Material
from agents_ledger.importers.readers import READERS
from agents_ledger.model.sources import (
    Derivation,
    DerivedSession,
    DerivedTurn,
    Fate,
    Fault,
    SourceFile,
)
from agents_ledger.model.turns import Turn

FAMILY_MAX = 8 << 20  # bytes; a larger one is derived here, to spare memory
MODULE = "agents_ledger.importers.ahead"
_LENGTH = struct.Struct(">I")


class Given:
    """Bytes in the place of a ledger's."""

    def __init__(self, files: Sequence[SourceFile], data: Sequence[bytes]) -> None:
        self._data = {file.id: each for file, each in zip(files, data, strict=True)}

    def stream(self, file_id: int) -> Iterator[bytes]:
        """A file's bytes."""
        yield self._data[file_id]

    def read(self, file_id: int, start: int, length: int) -> bytes:
        """Some bytes of a file."""
        return self._data[file_id][start : start + length]


class Job(Struct, array_like=True):
    """A family to derive."""

    source: str
    files: list[SourceFile]
    data: list[bytes]


class _Turn(Struct, array_like=True):
    id: str
    parent_id: str | None
    fingerprint: bytes
    file_ids: list[int]
    record_ids: list[str]
    turn: Turn


class _Answer(Struct, array_like=True):
    turns: list[_Turn]
    sessions: list[DerivedSession]
    with_kin: bool
    faults: list[Fault]
    counts: list[tuple[str, Fate, int]]
    superseded: list[int]


_JOB = msgpack.Decoder(Job)
_ANSWER = msgpack.Decoder(_Answer)
_encode = msgpack.Encoder().encode


def answer(asked: bytes) -> bytes:
    """What a helper makes of a job."""
    job = _JOB.decode(asked)
    material = Material(Given(job.files, job.data), job.files)
    found = READERS[job.source].derive(material)
    turns = [
        _Turn(
            turn.id,
            turn.parent_id,
            turn.fingerprint,
            sorted(turn.file_ids),
            list(turn.record_ids),
            turn.build(),
        )
        for turn in found.turns
    ]
    counts = [(kind, fate, number) for (kind, fate), number in found.counts.items()]
    return _encode(
        _Answer(
            turns,
            list(found.sessions),
            found.with_kin,
            list(found.faults),
            counts,
            sorted(found.superseded),
        )
    )


def _derivation(given: bytes) -> Derivation:
    found = _ANSWER.decode(given)
    return Derivation(
        turns=tuple(
            DerivedTurn(
                turn.id,
                turn.parent_id,
                turn.fingerprint,
                frozenset(turn.file_ids),
                tuple(turn.record_ids),
                _Made(turn.turn),
            )
            for turn in found.turns
        ),
        sessions=tuple(found.sessions),
        with_kin=found.with_kin,
        faults=tuple(found.faults),
        counts={(kind, fate): number for kind, fate, number in found.counts},
        superseded=frozenset(found.superseded),
    )


class _Made(Struct, frozen=True):
    """A turn that is built already."""

    turn: Turn

    def __call__(self) -> Turn:
        return self.turn


def derived(
    sizes: Mapping[str, int], job: Callable[[str], Job], number: int
) -> Iterator[tuple[str, Derivation | None]]:
    """Every family, with what a helper made of it; None: it is for the caller to derive.

    Helpers get the largest first; while they work, the caller gets the smallest.
    """
    here = [family for family in sizes if sizes[family] > FAMILY_MAX]
    waiting = deque(sorted(set(sizes) - set(here), key=lambda family: (-sizes[family], family)))
    asked: dict[Future[Derivation | None], str] = {}
    with Helpers(number) as some:
        while waiting or asked or here:
            while waiting and len(asked) <= number:
                family = waiting.popleft()
                asked[some.derive(job(family))] = family
            made = {future for future in asked if future.done()}
            if not made and (here or waiting):
                yield here.pop() if here else waiting.pop(), None
                continue
            for future in made or wait(asked, return_when=FIRST_COMPLETED).done:
                yield asked.pop(future), future.result()


class Helpers:
    """Some helpers, each with a thread here that talks to it."""

    def __init__(self, number: int) -> None:
        self._threads = ThreadPoolExecutor(number, "ahead")
        self._own = threading.local()
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Helpers:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes:
            process.kill()
        self._threads.shutdown(cancel_futures=True)
        for process in self._processes:
            process.communicate()

    def derive(self, job: Job) -> Future[Derivation | None]:
        """What a helper makes of a family; None if it made nothing."""
        return self._threads.submit(self._ask, _encode(job))

    def _ask(self, asked: bytes) -> Derivation | None:
        try:
            to, from_ = self._pipes()
            _send(to, asked)
            given = _receive(from_)
            return _derivation(given) if given else None
        except (OSError, ValueError):  # it died, or said something else
            return None

    def _pipes(self) -> tuple[IO[bytes], IO[bytes]]:
        """To this thread's helper, and from it."""
        if not hasattr(self._own, "pipes"):
            process = subprocess.Popen(  # noqa: S603 (this very program)
                [sys.executable, "-m", MODULE],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._processes.append(process)
            self._own.pipes = (process.stdin, process.stdout)
        pipes: tuple[IO[bytes], IO[bytes]] = self._own.pipes
        return pipes


def _send(pipe: IO[bytes], data: bytes) -> None:
    pipe.write(_LENGTH.pack(len(data)))
    pipe.write(data)
    pipe.flush()


def _receive(pipe: IO[bytes]) -> bytes:
    head = pipe.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        return b""
    return pipe.read(_LENGTH.unpack(head)[0])


def main() -> None:
    """Answer jobs until there are no more."""
    while asked := _receive(sys.stdin.buffer):
        try:
            given = answer(asked)
        except Exception:  # it is derived again where it can be told
            given = b""
        _send(sys.stdout.buffer, given)


if __name__ == "__main__":
    main()
