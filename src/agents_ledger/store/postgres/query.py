"""Runs a statement that somebody typed on a PostgreSQL server, so that it can only read tables.

READ ONLY alone is not enough: in such a transaction a privileged role can still run programs (COPY
... TO PROGRAM), read files of the server and end other sessions. The caller begins and ends a
READ ONLY transaction; nothing stays set on the connection after it, as a pooler requires.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg

from agents_ledger.model.errors import Refused
from agents_ledger.store.database import Row
from agents_ledger.store.text import unescape_rows

HINT = "One statement that only reads: SELECT, WITH, VALUES, TABLE, EXPLAIN or SHOW."
# A role of every server since version 14: it reads all tables, and does nothing else.
READER = "pg_read_all_data"

# Anybody may call these, and they do more than read tables: run text as SQL, which would not be
# checked, change settings, wait for locks that writers take, reach other sessions or servers.
_DENIED = frozenset(
    {
        "connectby",
        "crosstab",
        "crosstab2",
        "crosstab3",
        "crosstab4",
        "crosstabn",
        "cursor_to_xml",
        "cursor_to_xmlschema",
        "pg_cancel_backend",
        "pg_export_snapshot",
        "pg_logical_emit_message",
        "pg_notify",
        "pg_terminate_backend",
        "query_to_xml",
        "query_to_xml_and_xmlschema",
        "query_to_xmlschema",
        "set_config",
        "ts_rewrite",
        "ts_stat",
        "xpath_table",
    }
)
_DENIED_PREFIXES = ("dblink", "lo_", "pg_advisory_", "pg_try_advisory_")
_RESTRICTED = """
    SELECT DISTINCT proname FROM pg_proc
    WHERE pronamespace = 'pg_catalog'::regnamespace AND proacl IS NOT NULL
    AND NOT has_function_privilege('public', oid, 'EXECUTE')
"""
_SHOW = re.compile(r"\s*SHOW\s+(ALL|TIME\s+ZONE|[\w.]+)\s*;?\s*", re.IGNORECASE)
_EXPLAIN = re.compile(
    r"\s*EXPLAIN\b\s*(\(\s*\w+(\s+\w+)?(\s*,\s*\w+(\s+\w+)?)*\s*\)|((ANALYZE|VERBOSE)\b\s*)*)"
    r"(?P<statement>.*)",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(r"""(?P<name>"(?:[^"]|"")*")|'(?:[^']|'')*'""")


def run_query(cursor: psycopg.Cursor[Any], sql: str) -> tuple[list[str], list[Row]]:
    """Column names and rows of one statement, within a READ ONLY transaction of the caller."""
    _check_functions(cursor, sql)
    _drop_privileges(cursor)
    try:
        _run(cursor, sql)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        reason = next(iter(str(error).strip().splitlines()), type(error).__name__)
        raise Refused(f"the query failed: {reason}", HINT) from error
    columns = [column.name for column in cursor.description or ()]
    return columns, unescape_rows(cursor.fetchall()) if columns else []


def _run(cursor: psycopg.Cursor[Any], sql: str) -> None:
    if _SHOW.fullmatch(sql):
        cursor.execute(sql)
        return
    explained = _EXPLAIN.fullmatch(sql)
    # A cursor takes a query and nothing else: no COPY, no SET, no change of data in a WITH.
    _run_one(
        cursor,
        "DECLARE agents_ledger_query NO SCROLL CURSOR FOR "
        + (explained["statement"] if explained else sql),
    )
    if explained:
        _run_one(cursor, sql)
    else:
        cursor.execute("FETCH ALL FROM agents_ledger_query")


def _run_one(cursor: psycopg.Cursor[Any], sql: str) -> None:
    # Binary results take the extended protocol, in which a server refuses a second statement, such
    # as a COMMIT behind the first.
    cursor.execute(sql, binary=True)


def _drop_privileges(cursor: psycopg.Cursor[Any]) -> None:
    [(is_superuser,)] = cursor.execute("SELECT current_setting('is_superuser')").fetchall()
    if is_superuser == "on":
        cursor.execute(f"SET LOCAL ROLE {READER}")


def _check_functions(cursor: psycopg.Cursor[Any], sql: str) -> None:
    """Refuse what names a function that does more than read tables."""
    # Where quotes may be escaped in other ways, string literals are searched too.
    is_plain = not any(mark in sql for mark in ("\\", "$", "--", "/*"))
    code = _QUOTED.sub(lambda quoted: quoted["name"] or "''", sql) if is_plain else sql
    # Escapes in such a name could spell any function past the search for denied ones.
    if re.search(r'\bU&"', code, re.IGNORECASE):
        raise Refused('the query has a name in U&"...", which could be any', HINT)
    words = set(re.findall(r"\w+", code.lower()))
    denied = {name for name in words if name in _DENIED or name.startswith(_DENIED_PREFIXES)}
    denied |= words & {name for (name,) in cursor.execute(_RESTRICTED).fetchall()}
    if denied:
        raise Refused(
            f"a query may not call {', '.join(sorted(denied))}: it does more than read tables",
            "Use psql for that.",
        )
