"""A ledger's tables behind its back: a connection that knows nothing of the ledger's rules."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import psycopg

Rows = list[tuple[Any, ...]]


class Raw:
    """A plain connection of the driver, with SQLite's question marks on both engines."""

    def __init__(self, address: str) -> None:
        self.engine = "postgresql" if address.startswith("postgres") else "sqlite"
        self._connection: Any
        if self.engine == "sqlite":
            self._connection = sqlite3.connect(address, isolation_level=None)
            self._connection.execute("PRAGMA foreign_keys=ON")
            self._connection.execute("PRAGMA recursive_triggers=ON")
        else:
            plain, schema = re.subn(r"[?&]schema=(\w+)", "", address)
            assert schema == 1
            name = re.findall(r"schema=(\w+)", address)[0]
            self._connection = psycopg.connect(plain, autocommit=True)
            self._connection.execute(f"SET search_path TO {name}")

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def execute(self, sql: str, values: Sequence[object] = ()) -> Rows:
        """Run one statement; its rows, if it has any."""
        if self.engine == "postgresql":
            sql = sql.replace("?", "%s") if values else sql
            cursor = self._connection.execute(sql, values or None)
            return list(cursor.fetchall()) if cursor.description else []
        return list(self._connection.execute(sql, values).fetchall())

    def one(self, sql: str, values: Sequence[object] = ()) -> Any:
        """The only value of a statement's only row."""
        [[value]] = self.execute(sql, values)
        return value

    def tables(self) -> list[str]:
        """The names of all tables."""
        catalogue = {
            "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
            "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
        }
        return sorted(name for (name,) in self.execute(catalogue[self.engine]))

    def columns(self, table: str) -> list[str]:
        """The names of a table's or view's columns."""
        catalogue = {
            "sqlite": "SELECT name FROM pragma_table_info(?)",
            "postgresql": "SELECT column_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position",
        }
        return [name for (name,) in self.execute(catalogue[self.engine], (table,))]

    def row(self, table: str, where: str, *values: object) -> dict[str, Any]:
        """The only row of a table or view that fits, by column."""
        columns = self.columns(table)
        [row] = self.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {where}", values)
        return dict(zip(columns, row, strict=True))

    def tables_with(self, value: str) -> list[str]:
        """The tables that have a text in some column, whatever it is made of, or in an index."""
        found = [table for table, rows in self.dump().items() if value in repr(rows)]
        words = value.lower()
        found += [
            f"{table} (lower case)" for table, rows in self.dump().items() if words in repr(rows)
        ]
        return found

    def dump(self) -> dict[str, Rows]:
        """Every row of every table. A server gives leaves their positions some time later."""
        rows = {}
        for table in self.tables():
            later = ("position",) if table == "evidence" else ()
            columns = [name for name in self.columns(table) if name not in later]
            rows[table] = sorted(
                self.execute(f"SELECT {', '.join(columns)} FROM {table}"), key=repr
            )
        return rows

    def count(self) -> int:
        """The number of rows in all tables."""
        return sum(len(rows) for rows in self.dump().values())

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Several statements, all or nothing."""
        self.execute("BEGIN")
        try:
            yield
        except BaseException:
            self.execute("ROLLBACK")
            raise
        try:
            self.execute("COMMIT")
        except BaseException:
            if self.engine == "sqlite":
                self.execute("ROLLBACK")
            raise

    @contextmanager
    def unguarded(self) -> Iterator[None]:
        """No guards, no foreign keys and, on SQLite, no CHECKs; all are there again afterwards."""
        if self.engine == "postgresql":
            self.execute("SET session_replication_role TO replica")
            yield
            self.execute("SET session_replication_role TO origin")
            return
        guards = self.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
        self.execute("PRAGMA foreign_keys=OFF")
        self.execute("PRAGMA ignore_check_constraints=ON")
        for name, _ in guards:
            self.execute(f"DROP TRIGGER {name}")
        yield
        for _, sql in guards:
            self.execute(sql)
        self.execute("PRAGMA ignore_check_constraints=OFF")
        self.execute("PRAGMA foreign_keys=ON")
