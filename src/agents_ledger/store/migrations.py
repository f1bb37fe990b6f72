"""Brings a ledger to the newest schema: numbered files, each in one transaction with its number. A
new ledger is made from schema.sql, which is their sum.

Views and guards are not migrated: they are dropped and made anew from their own files every time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from agents_ledger.model.errors import NewerLedger, NotALedger
from agents_ledger.model.ids import now_ms
from agents_ledger.store import queries
from agents_ledger.store.database import Engine, Transaction

_COMMENT = re.compile(r" *--.*")
_CHECK = re.compile(r"CHECK \((\w+) IN \(([^)]+)\)\)")
_MADE = re.compile(r"^CREATE (VIEW|TRIGGER|FUNCTION) (\w+)", re.MULTILINE)
_MADE_BY: dict[Engine, tuple[str, ...]] = {
    "sqlite": ("views.sqlite.sql", "guards.sqlite.sql"),
    "postgresql": ("views.postgres.sql", "guards.postgres.sql", "functions.postgres.sql"),
}
# Of migrations after 0.1.0: table, column and its value.
_ADDED_COLUMNS = (
    ("turns", "long_cache_write_tokens", "NULL"),
    ("usage_sums", "long_cache_write_tokens", "0"),
)
# And tables that readers may ask for.
_ADDED_TABLES = {
    "ledger_settings": "name TEXT, value TEXT, changed_at BIGINT",
    "evidence": "position BIGINT, kind TEXT, subject TEXT, move_id BIGINT, opening BLOB, hash BLOB,"
    " payload TEXT",
    "evidence_checkpoints": "size BIGINT, peaks BLOB, note TEXT, taken_at BIGINT",
    "redactions": (
        "id TEXT, reason TEXT, actor TEXT, selection_json TEXT, started_at BIGINT,"
        " finished_at BIGINT, scrubbed_at BIGINT, purges BIGINT, places BIGINT, spans BIGINT,"
        " turns BIGINT"
    ),
    "redacted_places": (
        "redaction_id TEXT, table_name TEXT, row_key TEXT, column_name TEXT, turn_id TEXT"
    ),
    "retention_runs": (
        "id TEXT, started_at BIGINT, finished_at BIGINT, actor TEXT, report_json TEXT"
    ),
}
_TABLES: dict[Engine, str] = {
    "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table'",
    "postgresql": "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()",
}
_MADE_NOW: dict[Engine, str] = {
    "sqlite": "SELECT type, name, tbl_name FROM sqlite_master WHERE type IN ('view', 'trigger')",
    "postgresql": """
        SELECT 'view', viewname, '' FROM pg_views WHERE schemaname = current_schema()
        UNION ALL
        SELECT 'trigger', t.tgname, c.relname FROM pg_trigger t
        JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
        WHERE n.nspname = current_schema() AND NOT t.tgisinternal
        UNION ALL
        SELECT 'function', p.proname, '' FROM pg_proc p
        JOIN pg_namespace n ON n.oid = p.pronamespace
        WHERE n.nspname = current_schema()
    """,
}


def _number(path: Path) -> int:
    return int(path.name.split("_", 1)[0])


def newest() -> int:
    """The number of the newest migration this program knows."""
    return max(_number(path) for path in queries.migration_files())


def version(tx: Transaction, engine: Engine, address: str) -> int:
    """The number of the newest migration applied; 0 for an empty database."""
    tables = {row[0] for row in tx.execute(_TABLES[engine])}
    if not tables:
        return 0
    if "schema_migrations" not in tables:
        raise NotALedger(f"{address} holds the tables of something else")
    applied = max((row[0] or 0 for row in tx.run("migrations_applied")), default=0)
    if applied > newest():
        raise NewerLedger(
            f"{address} has schema {applied}; this version of agents-ledger knows {newest()}"
        )
    return int(applied)


def is_newest(tx: Transaction) -> bool:
    """Whether the ledger is of the newest schema; a file that is only read may be older."""
    return max((row[0] for row in tx.run("migrations_applied")), default=0) == newest()


def newer(address: str, number: int) -> NewerLedger:
    """A newer program has migrated the ledger since this one opened it."""
    return NewerLedger(
        f"{address} was brought to schema {number} while this program had it open; this version of"
        f" agents-ledger knows {newest()}",
        "Restart this program with the newer version of agents-ledger.",
    )


def refuse_upgraded(tx: Transaction, address: str) -> None:
    """For a handle that writes: refuse what a newer program has migrated since it was opened."""
    applied = max((row[0] for row in tx.run("migrations_applied")), default=0)
    if applied > newest():
        raise newer(address, applied)


def stand_in(execute: Callable[[str], Iterable[Any]]) -> None:
    """Let a connection that only reads select columns that the tables of its SQLite file lack,
    because nobody has upgraded it yet."""
    tables = {row[0] for row in execute("SELECT name FROM main.sqlite_master")}
    for table, columns in _ADDED_TABLES.items():
        if tables and table not in tables:
            execute("PRAGMA temp_store=MEMORY")
            execute(f"CREATE TEMP TABLE {table} ({columns})")
    for table, column, value in _ADDED_COLUMNS:
        present = [row[1] for row in execute(f"PRAGMA main.table_info({table})")]
        if present and column not in present:
            execute("PRAGMA temp_store=MEMORY")
            execute(f"CREATE TEMP VIEW {table} AS SELECT *, {value} AS {column} FROM main.{table}")


def migrate_step(tx: Transaction, engine: Engine, words: Mapping[str, str], address: str) -> bool:
    """Apply the next migration that is missing, or make the tables of an empty database; whether
    there is another. The caller keeps everyone else out, and commits."""
    current = version(tx, engine, address)
    if not current:
        _create(tx, engine, words)
        return False
    pending = [path for path in queries.migration_files() if _number(path) > current]
    if not pending:
        return False
    # Views and guards refer to the old tables, and guards would refuse what a migration changes.
    drop_made(tx, engine)
    _apply(tx, pending[0], engine, words)
    if len(pending) > 1:
        return True
    # Only after the last step: views and guards fit the newest tables alone.
    make(tx, engine)
    return False


def _create(tx: Transaction, engine: Engine, words: Mapping[str, str]) -> None:
    # SQLite keeps the text of a table and parses it whenever the file is opened: no comments.
    script = spelled(_COMMENT.sub("", queries.read("schema.sql")), engine, words)
    for statement in queries.split(script):
        tx.execute(statement)
    for path in queries.migration_files():
        _note_applied(tx, path)
    make(tx, engine)


def _apply(tx: Transaction, path: Path, engine: Engine, words: Mapping[str, str]) -> None:
    for statement in queries.split(path.read_text(encoding="utf-8")):
        tx.execute(spelled(statement, engine, words))
    _note_applied(tx, path)


def _note_applied(tx: Transaction, path: Path) -> None:
    tx.run("insert_migration", number=_number(path), name=path.stem, applied_at=now_ms())


def spelled(statement: str, engine: Engine, words: Mapping[str, str]) -> str:
    """The statement for one engine. On a server text is compared byte by byte, as SQLite does;
    SQLite would make a table of the words a column may have, anew for every row it checks."""
    filled = queries.fill(statement, words)
    if engine == "postgresql":
        return re.sub(r"\bTEXT\b", 'TEXT COLLATE "C"', filled)
    return _CHECK.sub(_one_by_one, filled)


def _one_by_one(check: re.Match[str]) -> str:
    column, words = check.groups()
    return f"CHECK ({' OR '.join(f'{column} = {word}' for word in words.split(', '))})"


def _files(engine: Engine) -> list[str]:
    return [queries.read(file) for file in _MADE_BY[engine]]


def make(tx: Transaction, engine: Engine) -> None:
    for statement in made_by(engine):
        tx.execute(statement)


def made_by(engine: Engine) -> Iterator[str]:
    for script in _files(engine):
        yield from queries.split(script)


def expected(engine: Engine) -> set[tuple[str, str]]:
    """Kind and name of every view, guard and function a ledger must have."""
    definitions = (match for script in _files(engine) for match in _MADE.findall(script))
    return {(kind.lower(), name) for kind, name in definitions}


def made(tx: Transaction, engine: Engine) -> set[tuple[str, str]]:
    """Kind and name of every view, guard and function this ledger has."""
    return {(kind, name) for kind, name, _ in tx.execute(_MADE_NOW[engine])}


def drop_made(tx: Transaction, engine: Engine, *, kinds: tuple[str, ...] = ()) -> None:
    """Drop the views and the guards, or only some kinds of them."""
    rows = tx.execute(_MADE_NOW[engine])
    for kind in kinds or ("trigger", "function", "view"):
        for object_kind, name, table in rows:
            if object_kind == kind:
                on_table = f" ON {table}" if kind == "trigger" and engine == "postgresql" else ""
                cascade = " CASCADE" if engine == "postgresql" else ""
                tx.execute(f"DROP {kind.upper()} IF EXISTS {name}{on_table}{cascade}")
