"""What a statement that somebody typed may do."""

from __future__ import annotations

import sqlite3

_READING_PRAGMAS = frozenset(
    {
        "collation_list",
        "compile_options",
        "database_list",
        "foreign_key_check",
        "foreign_key_list",
        "function_list",
        "index_info",
        "index_list",
        "index_xinfo",
        "integrity_check",
        "module_list",
        "pragma_list",
        "quick_check",
        "table_info",
        "table_list",
        "table_xinfo",
    }
)
_ACTING_PRAGMAS = ("wal_checkpoint", "optimize", "incremental_vacuum", "shrink_memory")


def only_reading(action: int, name: str | None, value: str | None, *_: str | None) -> int:
    """Neither ATTACH nor VACUUM INTO: even a connection that only reads would make the file. No
    setting is changed: some, as temp_store_directory, are the whole process's."""
    is_denied = action == sqlite3.SQLITE_ATTACH
    if action == sqlite3.SQLITE_PRAGMA and name not in _READING_PRAGMAS:
        is_denied = value is not None or name in _ACTING_PRAGMAS
    return sqlite3.SQLITE_DENY if is_denied else sqlite3.SQLITE_OK
