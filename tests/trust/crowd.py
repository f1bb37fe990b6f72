"""Sixteen processes on one session: one chain, no turn lost, no fork that nobody asked for.

Some record on whatever the head is, some on the head they saw and again when it moved, some live.
Then one process does the same with threads and asyncio at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import traceback
from collections.abc import Callable
from contextlib import ExitStack

from msgspec import Struct, field

from agents_ledger import AsyncLedger, HeadMoved, Ledger, NotFound
from agents_ledger.model.ids import new_id
from tests.trust import harness, plants
from tests.trust.harness import Options, Outcome
from tests.trust.server import some_server, with_schema

PROCESSES = 16
THREADS = 4
TASKS = 12
KEY = "one"


class Told(Struct):
    """What a writer was told: turns on the session, and turns kept beside its head."""

    chain: list[str] = field(default_factory=list)
    beside: list[str] = field(default_factory=list)


def head(ledger: Ledger) -> str | None:
    """Where the session stands; nobody may have made it yet."""
    try:
        return ledger.head(KEY)
    except NotFound:
        return None


def write_plainly(ledger: Ledger, count: int, told: Told) -> None:
    """On whatever the head is."""
    for _ in range(count):
        if plants.seen_heads:
            plants.seen_heads[KEY] = head(ledger)
        id = new_id()
        ledger.record(KEY, id, "yes", id=id)
        told.chain.append(id)


def write_on_head(ledger: Ledger, count: int, told: Told) -> None:
    """On the head that was seen; again, when somebody was faster."""
    for _ in range(count):
        id = new_id()
        while True:
            try:
                ledger.record(KEY, id, "yes", id=id, parent=head(ledger))
            except HeadMoved:
                continue
            break
        told.chain.append(id)


def write_live(ledger: Ledger, count: int, told: Told) -> None:
    """In two steps; when somebody was faster, the turn is kept beside the head."""
    done = 0
    while done < count:
        turn = ledger.turn(KEY, "live")
        try:
            turn.respond("yes")
        except HeadMoved:
            told.beside.append(turn.id)
            write_plainly(ledger, 1, told)
        else:
            told.chain.append(turn.id)
        done += 1


WAYS = (write_plainly, write_on_head, write_plainly, write_live)


def run_processes(address: str, options: Options) -> Told:
    """All write as soon as all are ready."""
    go_read, go_write = os.pipe()
    children = []
    for number in range(PROCESSES):
        told_read, told_write = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(go_write)
            _child(address, WAYS[number % len(WAYS)], options, go_read, told_write)
        os.close(told_write)
        children.append((pid, told_read))
    os.close(go_read)
    os.close(go_write)
    told, failed = Told(), 0
    for pid, pipe in children:
        with open(pipe, "rb") as said:
            text = said.read()
        _, status = os.waitpid(pid, 0)
        chain, beside = json.loads(text) if not status else ([], [])
        told.chain += chain
        told.beside += beside
        failed += bool(status)
    if failed:
        raise RuntimeError(f"{failed} writers ended by an error")
    return told


def _child(
    address: str,
    write: Callable[[Ledger, int, Told], None],
    options: Options,
    go: int,
    pipe: int,
) -> None:
    try:
        if options.plant:
            write = write_plainly
            plants.seen_heads[KEY] = None
            plants.plant(options.plant)
        told = Told()
        with Ledger.open(address) as ledger:
            os.read(go, 1)  # until the parent closes it
            write(ledger, options.count, told)
        with open(pipe, "w") as out:
            json.dump((told.chain, told.beside), out)
        os._exit(0)
    except BaseException:
        traceback.print_exc()
        os._exit(1)


def run_mixed(address: str, count: int) -> Told:
    """Threads and asyncio tasks in one process."""
    told = Told()

    async def task(ledger: AsyncLedger) -> None:
        for _ in range(count):
            id = new_id()
            await ledger.record(KEY, id, "yes", id=id)
            told.chain.append(id)

    async def tasks() -> None:
        async with AsyncLedger.open(address) as ledger:
            await asyncio.gather(*(task(ledger) for _ in range(TASKS)))

    with Ledger.open(address) as ledger:
        threads = [
            threading.Thread(target=WAYS[number % len(WAYS)], args=(ledger, count, told))
            for number in range(THREADS)
        ]
        for thread in threads:
            thread.start()
        asyncio.run(tasks())
        for thread in threads:
            thread.join()
    return told


def judge(address: str, told: Told) -> list[str]:
    """Whether the session is one chain of just these turns."""
    with Ledger.open(address) as ledger:
        chain = ledger.ancestry(KEY)
        findings = []
        if len(set(told.chain)) != len(told.chain):
            findings.append("an id was given twice")
        if lost := set(told.chain) - set(chain):
            findings.append(
                f"{len(lost)} of {len(told.chain)} turns are not on the session's thread"
            )
        if extra := set(chain) - set(told.chain):
            findings.append(f"{len(extra)} turns on the thread were never acknowledged")
        moves = [move.thread_id for move in ledger.history(KEY, limit=1 << 30)][::-1]
        if moves != list(chain):
            findings.append("the history is not the thread")
        [[turns]] = ledger.query("SELECT count(*) FROM turns")[1]
        if turns != len(told.chain) + len(told.beside):
            findings.append(f"there are {turns} turns instead of {len(told.chain)}")
        findings += [f"audit: {broken}" for broken in ledger.audit()[:3]]
    return findings


def run(options: Options) -> Outcome:
    """`count` turns by each of sixteen processes; then by each thread and task of one process."""
    outcome = Outcome()
    with ExitStack() as stack:
        folder = stack.enter_context(harness.workplace())
        server = ""
        if options.engine == "postgres":
            server = stack.enter_context(some_server(options))

        def new_address() -> str:
            name = f"crowd_{new_id().lower()}"
            return with_schema(server, name) if server else str(folder / f"{name}.db")

        parts: list[tuple[str, Callable[[str], Told]]] = [
            ("processes", lambda address: run_processes(address, options)),
            ("threads and tasks", lambda address: run_mixed(address, options.count)),
        ]
        for part, write in parts[: 1 if options.plant else 2]:
            address = new_address()
            told = write(address)
            for finding in judge(address, told):
                outcome.found(f"seed {options.seed}, {part}: {finding}")
            outcome.notes[f"turns by {part}"] = len(told.chain)
            outcome.notes[f"kept beside, {part}"] = len(told.beside)
    outcome.done = options.count
    return outcome


if __name__ == "__main__":
    harness.main(run)
