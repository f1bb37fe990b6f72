"""Databases with an empty ledger in them, one for each test that asks for one.

To copy and drop a database costs more than most tests do. So a database is cleaned and used again,
unless the test changed its schema.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import psycopg

from agents_ledger import Ledger
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance import audit
from agents_ledger.model.evidence.verification import EvidenceFinding
from agents_ledger.model.sessions import Finding
from agents_ledger.store.database import Database, Transaction, open_database

END_SECONDS = 10
LARGE_BYTES = 1 << 17  # a larger table is truncated: the next test would scan its dead rows

# The definitions that a test could change. A row of a catalog has another xmin after an update;
# those of pg_class also count pages, so their other columns are compared.
SCHEMA = """
    SELECT sum(hashtextextended(definition, 0)) FROM (
        SELECT concat_ws(',', 'class', oid, relname, relkind, relnamespace, relnatts, relchecks,
            relhasrules, relhastriggers, relrowsecurity, relacl, reloptions)
        FROM pg_class WHERE oid >= 16384
        UNION ALL SELECT concat_ws(',', 'column', attrelid, attnum, xmin)
        FROM pg_attribute WHERE attrelid >= 16384
        UNION ALL SELECT concat_ws(',', 'constraint', oid, xmin)
        FROM pg_constraint WHERE oid >= 16384
        UNION ALL SELECT concat_ws(',', 'trigger', oid, xmin) FROM pg_trigger
        UNION ALL SELECT concat_ws(',', 'rule', oid, xmin) FROM pg_rewrite WHERE oid >= 16384
        UNION ALL SELECT concat_ws(',', 'function', oid, xmin) FROM pg_proc WHERE oid >= 16384
        UNION ALL SELECT concat_ws(',', 'schema', oid, nspacl)
        FROM pg_namespace WHERE nspname NOT LIKE 'pg_%'
        UNION ALL SELECT concat_ws(',', 'extension', oid, xmin) FROM pg_extension
        UNION ALL SELECT concat_ws(',', 'setting', setconfig) FROM pg_db_role_setting
        UNION ALL SELECT concat_ws(',', 'migration', number, name, applied_at)
        FROM ledger.schema_migrations
    ) AS definitions (definition)
"""
FILLED = """
    SELECT relname, pg_relation_size(oid) FROM pg_class
    WHERE relkind = 'r' AND relnamespace = CAST('ledger' AS regnamespace)
    AND relname <> 'schema_migrations' AND pg_relation_size(oid) > 0
"""
SEQUENCES = """
    SELECT c.relname, s.seqstart FROM pg_class c JOIN pg_sequence s ON s.seqrelid = c.oid
    WHERE c.relnamespace = CAST('ledger' AS regnamespace)
"""
# The connection that audits began before the test. A time limit for pg_terminate_backend would make
# the server look only every 100 ms, once for each connection.
END_CONNECTIONS = """
    SELECT pg_terminate_backend(pid) FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_start > %s
"""
RULES = frozenset(audit.rules()) - {"guard_changed"}  # a test that changes one gives it away


def in_schema(server: str, schema: str) -> str:
    """The address of a ledger in a schema."""
    return f"{server}{'&' if '?' in server else '?'}schema={schema}"


def in_database(server: str, database: str) -> str:
    """The address of another database of a server."""
    return urlsplit(server)._replace(path=f"/{database}").geturl()


class CleanDatabases:
    """Copies of one database that has an empty ledger in the schema `ledger`."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._template = f"empty_{uuid.uuid4().hex}"
        self._connection = psycopg.connect(server, autocommit=True)
        self._connection.execute(f"CREATE DATABASE {self._template}")
        open_database(self._address(self._template)).close()
        self._idle: list[_CleanDatabase] = []
        self._lent: dict[str, _CleanDatabase] = {}

    def close(self) -> None:
        """Drop them all."""
        while self._idle:
            self._drop(self._idle.pop())
        self._connection.execute(f"DROP DATABASE {self._template}")
        self._connection.close()

    @contextmanager
    def lend(self) -> Iterator[str]:
        """The address of an empty ledger."""
        database = self._idle.pop() if self._idle else self._copy()
        address = self._address(database.name)
        self._lent[address] = database
        yield address
        del self._lent[address]
        if database.clean():
            self._idle.append(database)
        else:
            self._drop(database)

    def audit(self, address: str) -> tuple[Finding | EvidenceFinding, ...]:
        """What breaks a rule in a ledger that is lent, and what is not as it was recorded."""
        return self._lent[address].audit(address)

    def _address(self, name: str) -> str:
        return in_schema(in_database(self._server, name), "ledger")

    def _copy(self) -> _CleanDatabase:
        name = f"test_{uuid.uuid4().hex}"
        self._connection.execute(
            f"CREATE DATABASE {name} TEMPLATE {self._template} STRATEGY FILE_COPY"
        )
        return _CleanDatabase(name, in_database(self._server, name))

    def _drop(self, database: _CleanDatabase) -> None:
        database.close()
        self._connection.execute(f"DROP DATABASE IF EXISTS {database.name} WITH (FORCE)")


class _CleanDatabase:
    """One copy, with a connection that cleans it and one that audits it. Both are kept: what a
    server knows of the tables it learns anew on each connection."""

    def __init__(self, name: str, address: str) -> None:
        self.name = name
        self._connection = psycopg.connect(address, autocommit=True)
        self._sequences = self._rows(SEQUENCES)
        self._schema = self._rows(SCHEMA)
        self._lent_at = self._now()
        self._audited: Database | None = None

    def clean(self) -> bool:
        """Empty the ledger; False: it is not as it was made."""
        try:
            self._end_connections()
            if self._rows(SCHEMA) != self._schema:
                return False
            self._empty()
            self._lent_at = self._now()
        except psycopg.Error:  # the test ended this connection, or locked a row for good
            return False
        return True

    def audit(self, address: str) -> tuple[Finding | EvidenceFinding, ...]:
        if self._audited is None:
            self._audited = open_database(address, create=False, read_only=True)
            self._lent_at = self._now()

        def findings(tx: Transaction) -> tuple[Finding, ...]:
            return audit.audit(tx, "postgresql", rules=RULES)

        verified = Ledger(Core(self._audited)).verify()
        return (*self._audited.read(findings), *verified.findings)

    def close(self) -> None:
        if self._audited is not None:
            self._audited.close()
        self._connection.close()

    def _end_connections(self) -> None:
        deadline = time.monotonic() + END_SECONDS
        while self._rows(END_CONNECTIONS, self._lent_at) and time.monotonic() < deadline:
            time.sleep(0.001)

    def _empty(self) -> None:
        sizes = self._rows(FILLED)
        large = [table for table, size in sizes if size > LARGE_BYTES]
        statements = ["SET LOCAL search_path = ledger", "SET LOCAL lock_timeout = '10s'"]
        # Neither guards nor references are asked.
        statements.append("SET LOCAL session_replication_role = replica")
        if large:
            statements.append(f"TRUNCATE {', '.join(large)} CASCADE")
        statements += [f"DELETE FROM {table}" for table, _ in sizes if table not in large]
        statements += [
            f"SELECT setval('{name}', {start}, FALSE)" for name, start in self._sequences
        ]
        with self._connection.transaction():
            self._connection.execute("; ".join(statements))

    def _now(self) -> object:
        return self._rows("SELECT clock_timestamp()")[0][0]

    def _rows(self, sql: str, *values: object) -> list[tuple[Any, ...]]:
        return self._connection.execute(sql, values or None).fetchall()
