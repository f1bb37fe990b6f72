"""Signals and cancelled tasks at any moment of a call: the handle works on, nobody else waits.

A timer raises KeyboardInterrupt after a random time, once or again and again, while the main thread
writes or reads; tasks of asyncio are cancelled likewise. After each interrupt the same handle and
another one must be able to write at once, and no connection may be missing from the pool.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, nullcontext, suppress
from random import Random
from types import FrameType

from agents_ledger import AsyncLedger, Ledger, LedgerError
from agents_ledger.ledger.core import Core
from agents_ledger.model.ids import new_id
from agents_ledger.store.database import Database
from agents_ledger.store.postgres.engine import PostgresDatabase
from agents_ledger.store.sqlite.engine import SqliteDatabase
from tests.trust import harness, plants
from tests.trust.harness import Options, Outcome
from tests.trust.server import some_server, with_schema

POOL = 2  # connections: one that is lost shows at once
WAIT_SECONDS = 10.0
HANG_SECONDS = 20  # then a call hangs: the harness ends, with the stacks of all threads
SHORTEST, LONGEST = 0.00002, 0.004  # seconds from the start of a call to the signal
STORM = 0.0005  # seconds between the signals of a storm, at most
STORMS = 0.3  # of all interrupts
TASKS = 8
NEIGHBOURS = 2
CROWDED = 0.5  # of the time other threads write, too
FILES_MAX = 24  # descriptors that may be open more than at the start


class Timer:
    """Raises KeyboardInterrupt in the main thread, and counts how often it did."""

    def __init__(self, rng: Random) -> None:
        self.raised = 0
        self._rng = rng
        signal.signal(signal.SIGALRM, self._strike)

    def _strike(self, *_: object) -> None:
        frame: FrameType | None = sys._getframe()
        while frame is not None and frame.f_code is not _target.__code__:
            frame = frame.f_back
        if frame is not None:  # else the call is over
            self.raised += 1
            raise KeyboardInterrupt

    def around(self, call: Callable[[], object]) -> None:
        """Make a call that is interrupted, if it takes long enough."""
        delay = SHORTEST * (LONGEST / SHORTEST) ** self._rng.random()
        interval = STORM * self._rng.uniform(0.2, 1) if self._rng.random() < STORMS else 0
        signal.setitimer(signal.ITIMER_REAL, delay, interval)
        with suppress(KeyboardInterrupt):
            _target(call)
        signal.setitimer(signal.ITIMER_REAL, 0)


def _target(call: Callable[[], object]) -> None:
    """Signals strike while this is on the stack."""
    call()


class Calls:
    """What is interrupted: the turns that were acknowledged are kept in mind."""

    def __init__(self, ledger: Ledger, rng: Random) -> None:
        self.ledger = ledger
        self.acknowledged: list[str] = []
        self._rng = rng
        self._last = ledger.record("main", "q", "r").id

    def any(self) -> Callable[[], object]:
        """One of the calls."""
        return self._rng.choice((self.record, self.record, self.live, self.fork, self.read))

    def record(self) -> None:
        id = self.ledger.record("main", "q", "r", id=new_id()).id
        self.acknowledged.append(id)

    def live(self) -> None:
        with self.ledger.turn(new_id(), "q") as turn:
            with turn.tool_call("Bash", {"command": "ls"}) as call:
                call.complete("a b")
            turn.respond("r")
        self.acknowledged.append(turn.id)

    def fork(self) -> None:
        self.ledger.fork(self._last)

    def read(self) -> None:
        self.ledger.thread("main", last=3)
        self.ledger.search("q")


def database(address: str) -> Database:
    """A handle whose waits are short enough to be noticed."""
    if address.startswith("postgres"):
        return PostgresDatabase(address, pool_max=POOL, wait_seconds=WAIT_SECONDS)
    return SqliteDatabase(address, wait_seconds=WAIT_SECONDS)


def check(outcome: Outcome, when: str, *handles: Ledger) -> None:
    """Every handle writes and reads, at once."""
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    for number, handle in enumerate(handles):
        try:
            id = handle.record(f"check-{number}", "q", "r").id
            handle.get_turn(id)
        except Exception as error:
            outcome.found(f"{when}: handle {number} cannot write: {type(error).__name__}: {error}")


def check_pool(outcome: Outcome, ledger: Ledger) -> None:
    """As many can read at once as there are connections."""
    together = threading.Barrier(POOL, timeout=WAIT_SECONDS)

    def read() -> None:
        try:
            ledger._core.db.read(lambda tx: (tx.run("counts"), together.wait()))
        except (LedgerError, threading.BrokenBarrierError) as error:
            outcome.found(f"connections are missing: {type(error).__name__}: {error}")

    readers = [threading.Thread(target=read) for _ in range(POOL)]
    for reader in readers:
        reader.start()
    for reader in readers:
        reader.join()


@contextmanager
def watched(outcome: Outcome, address: str) -> Iterator[tuple[Ledger, Ledger]]:
    """A handle to be interrupted and another one; in the end the ledger must be sound."""
    with Ledger(Core(database(address))) as other:
        other._core.write(lambda tx: None)  # a server's handle has a thread from its first write on
        threads, files = threading.active_count(), _files()
        with Ledger(Core(database(address))) as ledger:
            yield ledger, other
            check_pool(outcome, ledger)
        if threading.active_count() > threads:
            outcome.found(f"{threading.active_count() - threads} threads are left")
        if _files() > files + FILES_MAX:
            outcome.found(f"{_files() - files} descriptors are left")
        if findings := other.audit():
            outcome.found(f"the audit finds {findings[:3]}")


def _files() -> int:
    return len(os.listdir("/proc/self/fd")) if os.path.isdir("/proc/self/fd") else 0


@contextmanager
def neighbours(outcome: Outcome, ledger: Ledger) -> Iterator[None]:
    """Other threads that write on the same handle: the main one waits for them, or leads them."""
    stop = threading.Event()

    def write(number: int) -> None:
        try:
            while not stop.is_set():
                ledger.record(f"neighbour-{number}", "q", "r")
        except Exception as error:
            outcome.found(f"another thread cannot write: {type(error).__name__}: {error}")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(NEIGHBOURS)]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def signals(outcome: Outcome, address: str, rng: Random, count: int) -> None:
    """Interrupt calls in the main thread until that happened `count` times."""
    timer = Timer(rng)
    with watched(outcome, address) as (ledger, other):
        calls = Calls(ledger, rng)
        while timer.raised < count and not outcome.findings:
            goal = min(count, timer.raised + count // 4 + 1)
            with neighbours(outcome, ledger) if rng.random() < CROWDED else nullcontext():
                while timer.raised < goal and not outcome.findings:
                    before = timer.raised
                    call = calls.any()
                    timer.around(call)
                    if timer.raised > before:
                        when = f"interrupt {timer.raised} in {call.__name__}"
                        check(outcome, when, ledger, other)
        for turn_id in calls.acknowledged:
            other.get_turn(turn_id)
    outcome.done += timer.raised


async def _cancelled(calls: list[Awaitable[object]], rng: Random) -> int:
    """Cancel some of the calls at random moments; how many."""
    loop = asyncio.get_running_loop()
    tasks = [asyncio.ensure_future(call) for call in calls]
    for task in tasks:
        loop.call_later(rng.random() * LONGEST * TASKS / 2, task.cancel)
    results = await asyncio.gather(*tasks, return_exceptions=True)
    errors = [r for r in results if isinstance(r, BaseException)]
    if broken := [r for r in errors if not isinstance(r, asyncio.CancelledError)]:
        raise broken[0]
    return len(errors)


def ctrl_c_after(seconds: float) -> None:
    """Let asyncio meet Ctrl-C: it cancels its main task, and raises when all have ended."""

    def press(*_: object) -> None:
        if asyncio_runs():
            signal.raise_signal(signal.SIGINT)

    signal.signal(signal.SIGALRM, press)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def asyncio_runs() -> bool:
    """Whether asyncio's own handler is installed."""
    return signal.getsignal(signal.SIGINT) is not signal.default_int_handler


async def _live(ledger: AsyncLedger) -> None:
    async with ledger.turn(new_id(), "q") as turn:
        async with turn.tool_call("Bash", {}) as call:
            await call.complete("a")
        await turn.respond("r")


def _async_calls(ledger: AsyncLedger, rng: Random) -> list[Awaitable[object]]:
    kinds: tuple[Callable[[], Awaitable[object]], ...] = (
        lambda: ledger.record(new_id(), "q", "r"),
        lambda: _live(ledger),
        lambda: ledger.thread("main"),
    )
    return [rng.choice(kinds)() for _ in range(TASKS)]


def tasks(outcome: Outcome, address: str, rng: Random, count: int) -> None:
    """Cancel tasks until that happened `count` times, in loops that signals end now and then."""
    cancelled = 0
    with watched(outcome, address) as (_, other):
        other.record("main", "q", "r")
        ledger = AsyncLedger(lambda: Core(database(address)))

        async def work() -> None:
            nonlocal cancelled
            for _ in range(5):
                cancelled += await _cancelled(_async_calls(ledger, rng), rng)

        async def open() -> None:
            await ledger

        asyncio.run(open())
        while cancelled < count and not outcome.findings:
            if rng.random() < STORMS:
                ctrl_c_after(rng.random() * LONGEST * TASKS)
            with suppress(KeyboardInterrupt):
                asyncio.run(work())
                # On a busy machine the loop may end before the signal: it must not strike later.
                signal.setitimer(signal.ITIMER_REAL, 0)
            try:
                asyncio.run(asyncio.wait_for(ledger.record("main", "q", "r"), WAIT_SECONDS))
            except Exception as error:
                outcome.found(f"after {cancelled} cancelled tasks: {type(error).__name__}: {error}")
            check(outcome, f"cancelled task {cancelled}", other)
        signal.setitimer(signal.ITIMER_REAL, 0)
        asyncio.run(ledger.close())
    outcome.done += cancelled


def run(options: Options) -> Outcome:
    """`count` interrupts, a fifth of them cancelled tasks."""
    outcome = Outcome()
    rng = Random(options.seed)
    plants.plant(options.plant)
    started = time.monotonic()
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    with harness.workplace() as folder:
        if options.engine == "postgres":
            with some_server(options) as server:
                address = with_schema(server, f"interrupts_{new_id().lower()}")
                _both(outcome, address, rng, options.count)
        else:
            _both(outcome, str(folder / "ledger.db"), rng, options.count)
    outcome.notes["seconds"] = round(time.monotonic() - started)
    faulthandler.cancel_dump_traceback_later()
    return outcome


def _both(outcome: Outcome, address: str, rng: Random, count: int) -> None:
    signals(outcome, address, rng, count - count // 5)
    tasks(outcome, address, rng, count // 5)


if __name__ == "__main__":
    harness.main(run)
