"""Makes of a ledger what an earlier version had made of it, by undoing its latest migrations."""

from __future__ import annotations

from collections.abc import Callable

from tests.raw import Raw


def downgrade(address: str, *, to: int) -> None:
    """Undo the migrations after `to`, the last one first.

    The guards are gone as well: they name columns that are dropped, and are made anew by the next
    migration.
    """
    with Raw(address) as raw:
        if raw.engine == "sqlite":
            for (name,) in raw.execute("SELECT name FROM sqlite_master WHERE type = 'trigger'"):
                raw.execute(f"DROP TRIGGER {name}")
        else:
            raw.execute("SET session_replication_role TO replica")
        for number in sorted(UNDO, reverse=True):
            if number > to:
                UNDO[number](raw)
        raw.execute(f"DELETE FROM schema_migrations WHERE number > {to}")


def _evidence(raw: Raw) -> None:
    raw.execute("DROP TABLE evidence")
    raw.execute("DROP TABLE evidence_checkpoints")


def _settings_and_deleted_sessions(raw: Raw) -> None:
    raw.execute("DROP INDEX idx_sessions_deleted")
    raw.execute("DROP TABLE ledger_settings")


def _long_cache_writes(raw: Raw) -> None:
    cascade = "" if raw.engine == "sqlite" else "CASCADE"
    for table in ("turns", "usage_sums"):
        raw.execute(f"ALTER TABLE {table} DROP COLUMN long_cache_write_tokens {cascade}")


def _import_requests_by_run(raw: Raw) -> None:
    raw.execute("DROP INDEX idx_session_import_requests_run")


def _native_origin_and_task_messages(raw: Raw) -> None:
    raw.execute("UPDATE sessions SET origin = NULL WHERE origin = 'native'")
    raw.execute("UPDATE sessions SET origin = NULL WHERE origin_session_id IS NULL")
    raw.execute("DROP INDEX idx_messages_task")
    raw.execute("ALTER TABLE messages DROP COLUMN task_id")
    raw.execute("ALTER TABLE messages DROP COLUMN timestamp")


def _redaction(raw: Raw) -> None:
    for table in (
        "retention_runs",
        "redacted_ids",
        "redacted_values",
        "redacted_spans",
        "redacted_places",
        "redactions",
    ):
        raw.execute(f"DROP TABLE {table} {'' if raw.engine == 'sqlite' else 'CASCADE'}")


# Migrations that only replace functions of the server need no undoing.
UNDO: dict[int, Callable[[Raw], None]] = {
    22: _native_origin_and_task_messages,
    23: _import_requests_by_run,
    25: _long_cache_writes,
    27: _settings_and_deleted_sessions,
    29: _evidence,
    31: _redaction,
}
