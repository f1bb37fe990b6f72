"""What a PostgreSQL server says of itself, its standbys and its tables, and whether a pooler stands
before it."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING, Any

from agents_ledger.store import queries
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.postgres.pgvector import INDEX_PREFIX

if TYPE_CHECKING:
    from agents_ledger.store.postgres.server_watch import WatchedConnection as Connection

_SETTINGS = (
    "server_version",
    "data_checksums",
    "fsync",
    "synchronous_commit",
    "full_page_writes",
    "autovacuum",
)
# Of no interest, unless they are on.
_DANGEROUS = ("zero_damaged_pages", "ignore_checksum_failure")
# In milliseconds or seconds, as the server counts them; 0: none. Older servers lack some.
_TIMEOUTS = (
    "statement_timeout",
    "transaction_timeout",
    "idle_in_transaction_session_timeout",
    "wal_sender_timeout",
    "tcp_keepalives_idle",
)
_STANDBYS = """
    SELECT
        count(*), count(*) FILTER (WHERE sync_state IN ('async', 'potential')),
        count(*) FILTER (WHERE sync_state IS NULL),
        count(*) FILTER (WHERE sync_state IN ('sync', 'quorum')),
        CAST(max(pg_wal_lsn_diff(pg_current_wal_lsn(), replay_lsn)) AS BIGINT)
    FROM pg_stat_replication
"""
# How old the last transaction is that a standby has replayed, if it has received more.
_REPLAY = """
    SELECT CASE WHEN pg_last_wal_receive_lsn() = pg_last_wal_replay_lsn() THEN 0 ELSE
        CAST(extract(epoch FROM clock_timestamp() - pg_last_xact_replay_timestamp()) AS BIGINT) END
"""
_SLOTS = """
    SELECT CAST(COALESCE(max(pg_wal_lsn_diff(pg_current_wal_lsn(), restart_lsn)), 0) AS BIGINT)
    FROM pg_replication_slots WHERE NOT active AND restart_lsn IS NOT NULL
"""
_SIZE = """
    SELECT CAST(COALESCE(sum(pg_total_relation_size(c.oid)), 0) AS BIGINT) FROM pg_class c
    JOIN pg_namespace n ON n.oid = c.relnamespace
    WHERE n.nspname = current_schema() AND c.relkind = 'r'
"""
_AGE = "SELECT age(datfrozenxid) FROM pg_database WHERE datname = current_database()"
# Live and dead rows of each table, its size without what is stored out of line, and the size its
# rows would take, by the statistics: a row has 28 bytes beside its columns.
_TABLES = """
    SELECT
        c.relname, s.n_live_tup, s.n_dead_tup,
        CAST(c.relpages AS BIGINT) * CAST(current_setting('block_size') AS BIGINT),
        CAST(GREATEST(c.reltuples, 0) * (28 + w.width) AS BIGINT)
    FROM pg_class c
    JOIN pg_stat_user_tables s ON s.relid = c.oid
    CROSS JOIN LATERAL (
        SELECT sum(p.avg_width * (1 - p.null_frac)) AS width FROM pg_stats p
        WHERE p.schemaname = current_schema() AND p.tablename = c.relname
    ) w
    WHERE s.schemaname = current_schema()
    ORDER BY c.relname
"""
# Those that no constraint needs, and how often each was used.
_INDEXES = """
    SELECT s.indexrelname, s.idx_scan FROM pg_stat_user_indexes s
    JOIN pg_index i ON i.indexrelid = s.indexrelid
    WHERE s.schemaname = current_schema()
    AND NOT EXISTS (SELECT 1 FROM pg_constraint c WHERE c.conindid = s.indexrelid)
    ORDER BY s.indexrelname
"""
_OUR_INDEXES = re.compile(r"^CREATE (?:UNIQUE )?INDEX (\w+)", re.MULTILINE)

DEAD_ROWS = 10_000
DEAD_SHARE = 0.2  # of all rows; autovacuum keeps it below that
BLOAT_BYTES = 16 * 1024 * 1024
BLOAT_TIMES = 2  # the size that its rows would take
POOLER_TRIES = 5


def facts(tx: Transaction) -> dict[str, Any]:
    """All facts that one transaction can tell."""
    known: dict[str, Any] = {name: _setting(tx, name) for name in _SETTINGS}
    known |= {name: "on" for name in _DANGEROUS if _setting(tx, name) == "on"}
    rows = tx.execute(
        "SELECT name, CAST(setting AS BIGINT) FROM pg_settings"
        f" WHERE name IN ({', '.join('?' * len(_TIMEOUTS))})",
        _TIMEOUTS,
    )
    timeouts: dict[str, int] = dict(rows)
    known |= {name: timeouts[name] for name in _TIMEOUTS if name in timeouts}
    known |= _replication(tx)
    [(known["transaction_age"],)] = tx.execute(_AGE)
    known["bloated_tables"] = bloated(tx.execute(_TABLES))
    known |= _indexes(tx)
    [(known["bytes"],)] = tx.execute(_SIZE)
    return known


def _setting(tx: Transaction, name: str) -> str | None:
    value: str | None = tx.execute("SELECT current_setting(?, TRUE)", (name,))[0][0]
    return value


def _replication(tx: Transaction) -> dict[str, Any]:
    [(is_standby,)] = tx.execute("SELECT pg_is_in_recovery()")
    if is_standby:
        receives = tx.execute("SELECT 1 FROM pg_stat_wal_receiver")
        return {
            "server_role": "standby",
            "wal_receiver": "running" if receives else "none",
            "replay_delay_seconds": tx.execute(_REPLAY)[0][0],
        }
    [(standbys, asynchronous, hidden, synchronous, lag)] = tx.execute(_STANDBYS)
    known = {
        "server_role": "primary",
        "standbys": standbys,
        "asynchronous_standbys": None if hidden else asynchronous,
        "inactive_slot_bytes": tx.execute(_SLOTS)[0][0],
    }
    if standbys:
        known["standby_lag_bytes"] = None if hidden else lag
    awaited = _setting(tx, "synchronous_standby_names")
    if awaited and not hidden and not synchronous:
        known["awaited_standbys"] = awaited
    return known


def bloated(tables: list[Row]) -> list[str]:
    """The tables that are much larger than their rows, or have many dead ones."""
    found = []
    for name, live, dead, size, needed in tables:
        if dead > DEAD_ROWS and dead > DEAD_SHARE * (live + dead):
            found.append(f"{name}: {dead:,} dead rows, {live:,} live ones")
        elif needed and size - needed > BLOAT_BYTES and size > BLOAT_TIMES * needed:
            found.append(f"{name}: {size >> 20:,} MB, its rows take about {needed >> 20:,} MB")
    return found


def _indexes(tx: Transaction) -> dict[str, list[str]]:
    text = queries.read("schema.sql") + queries.pieces("search.postgres.sql")["words_lookup"]
    ours = set(_OUR_INDEXES.findall(text))
    present: dict[str, int] = dict(tx.execute(_INDEXES))
    return {
        "missing_indexes": sorted(ours - set(present)),
        # Ours serve statements that may be rare.
        "unused_indexes": [
            name
            for name, scans in present.items()
            if not scans and name not in ours and not name.startswith(INDEX_PREFIX)
        ],
    }


def pooler(connect: Callable[[], Connection]) -> str:
    """Whether a pooler stands before the server, and in which mode.

    In transaction mode it gives two clients one session of the server, or one client several. It
    gives its clients process ids of its own.
    """
    with ExitStack() as stack:
        first, second = (stack.enter_context(closing(connect())) for _ in range(2))
        if _session(first) == first.info.backend_pid:
            return "none"
        sessions: dict[Connection, set[int]] = {first: set(), second: set()}
        for _ in range(POOLER_TRIES):
            for connection, met in sessions.items():
                met.add(_session(connection))
            if sessions[first] & sessions[second] or len(sessions[first]) > 1:
                return "transaction mode"
        return "session mode"


def _session(connection: Connection) -> int:
    [(pid,)] = connection.execute("SELECT pg_backend_pid()").fetchall()
    return int(pid)
