"""The engine's own check of its pages and indexes, in a cheap and a full mode."""

from __future__ import annotations

import re
from collections.abc import Iterator

from agents_ledger.model.errors import Damaged, StoreUnavailable
from agents_ledger.model.sessions import CheckMode, EngineCheck
from agents_ledger.store.database import Transaction

Problem = tuple[str, str]  # where, and what is wrong there

# That SQLite reports. One bad page can make many.
MESSAGES_MAX = 100
_PAGE = re.compile(r"\bpage (\d+)", re.IGNORECASE)
_NAMED = re.compile(r"(?:in index|from index|constraint failed in|value in) ([\w.]+)")

_CHECKSUM_FAILURES = """
    SELECT COALESCE(checksum_failures, 0), checksum_last_failure FROM pg_stat_database
    WHERE datname = current_database()
"""
_INVALID_INDEXES = """
    SELECT c.relname FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.relnamespace = CAST(quote_ident(current_schema()) AS regnamespace)
    AND NOT (i.indisvalid AND i.indisready AND i.indislive)
    ORDER BY c.relname
"""
# Where the extension is, and whether this role may execute what we call of it.
_AMCHECK = """
    SELECT quote_ident(n.nspname), bool_and(has_function_privilege(p.oid, 'EXECUTE'))
    FROM pg_extension e
    JOIN pg_namespace n ON n.oid = e.extnamespace
    JOIN pg_proc p ON p.pronamespace = n.oid
    WHERE e.extname = 'amcheck' AND p.proname IN ('bt_index_check', 'verify_heapam')
    GROUP BY n.nspname
"""
_RELATIONS = """
    SELECT c.relname, c.oid FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam
    WHERE c.relnamespace = CAST(quote_ident(current_schema()) AS regnamespace)
    AND c.relkind = ? AND a.amname = ?
    ORDER BY c.relname
"""


def describe(tx: Transaction, mode: CheckMode) -> EngineCheck:
    """What problems() does on this engine."""
    if tx.engine == "sqlite":
        name = "quick_check" if mode == "quick" else "integrity_check"
        return EngineCheck(mode, f"PRAGMA {name}", complete=mode == "full")
    checksums = tx.execute("SELECT current_setting('data_checksums')")[0][0]
    ran = f"checksum failures (data_checksums is {checksums}) and invalid indexes"
    if mode == "quick":
        return EngineCheck(mode, ran, complete=False)
    amcheck = tx.execute(_AMCHECK)
    if not amcheck:
        hint = "the extension amcheck is not installed (CREATE EXTENSION amcheck)"
        return EngineCheck(mode, f"{ran}; pages were not read: {hint}", complete=False)
    if not amcheck[0][1]:
        hint = "this role may not execute the functions of amcheck"
        return EngineCheck(mode, f"{ran}; pages were not read: {hint}", complete=False)
    return EngineCheck(mode, f"{ran}; bt_index_check and verify_heapam of amcheck", complete=True)


def problems(tx: Transaction, mode: CheckMode) -> Iterator[Problem]:
    """What the engine finds wrong; nothing, if it is content."""
    if tx.engine == "sqlite":
        yield from _sqlite(tx, mode)
    else:
        yield from _server(tx)
        if mode == "full":
            yield from _amcheck(tx)


def _sqlite(tx: Transaction, mode: CheckMode) -> Iterator[Problem]:
    name = "quick_check" if mode == "quick" else "integrity_check"
    try:
        texts = tx.attempt(lambda: tx.execute(f"PRAGMA {name}({MESSAGES_MAX})"))
    except Damaged as error:
        # The file is damaged so much that the check itself fails.
        yield "file", str(error)
        return
    for (text,) in texts:
        for line in text.splitlines():
            if line != "ok" and not line.startswith("***"):
                yield _place(line), line


def _place(line: str) -> str:
    if page := _PAGE.search(line):
        return f"page {page[1]}"
    named = _NAMED.search(line)
    return named[1] if named else "file"


def _server(tx: Transaction) -> Iterator[Problem]:
    for failures, last in tx.execute(_CHECKSUM_FAILURES):
        if failures:
            yield "database", f"{failures} pages failed their checksum, the last one at {last}"
    for (name,) in tx.execute(_INVALID_INDEXES):
        yield name, "the index is not valid: REINDEX it"


def _amcheck(tx: Transaction) -> Iterator[Problem]:
    installed = tx.execute(_AMCHECK)
    if not installed or not installed[0][1]:
        return
    schema = installed[0][0]
    for name, oid in tx.execute(_RELATIONS, ("r", "heap")):
        verify = f"SELECT blkno, msg FROM {schema}.verify_heapam(CAST(? AS oid))"
        yield from (
            (place if place == name else f"{name}:{place}", text)
            for place, text in _checked(tx, name, verify, oid)
        )
    for name, oid in tx.execute(_RELATIONS, ("i", "btree")):
        check = f"SELECT {schema}.bt_index_check(CAST(? AS oid), TRUE)"
        yield from _checked(tx, name, check, oid)


def _checked(tx: Transaction, name: str, sql: str, oid: int) -> list[Problem]:
    """The rows of a check. bt_index_check has none to tell: it raises."""
    try:
        rows = tx.attempt(lambda: tx.execute(sql, (oid,)))
    except StoreUnavailable as error:
        return [(name, str(error))]
    return [(str(row[0]), row[1]) for row in rows if len(row) > 1]
