"""What the facts about a database server mean for the promises of a ledger."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

Level = Literal["ok", "note", "problem"]
Verdict = tuple[Level, str]

OK: Verdict = ("ok", "")
STATEMENT_MS_MIN = 600_000
KEEPALIVE_SECONDS_MAX = 600
LAG_BYTES_MAX = 64 * 1024 * 1024
SLOT_BYTES_MAX = 1024 * 1024 * 1024
DELAY_SECONDS_MAX = 10
# The server stops at about two thousand million transactions.
AGE_MAX = 1_000_000_000


def _durable(value: str) -> Verdict:
    return OK if value != "off" else ("problem", "a crash can lose acknowledged turns")


def _synchronous_commit(value: str) -> Verdict:
    if value == "local":
        return (
            "note",
            "a commit does not wait for a standby: a failover can lose acknowledged turns",
        )
    if value == "remote_write":
        return "note", (
            "a standby acknowledges what its disk may not have yet: if primary and standby crash"
            " together, acknowledged turns are lost"
        )
    return _durable(value)


def _dangerous(value: str) -> Verdict:
    return "problem", "the server hides damaged pages: set it to off, and restore a backup"


def _data_checksums(value: str) -> Verdict:
    if value == "on":
        return OK
    return (
        "note",
        "damaged pages are not noticed: enable them with pg_checksums while it is stopped",
    )


def _autovacuum(value: str) -> Verdict:
    return OK if value == "on" else ("note", "dead rows are kept, and tables grow: set it to on")


def _statement_timeout(value: int) -> Verdict:
    if not 0 < value < STATEMENT_MS_MIN:
        return OK
    return "note", (
        "audits, backups and imports of large ledgers take longer and will fail:"
        " ALTER ROLE name SET it to 0 for the role of the ledger"
    )


def _idle_in_transaction(value: int) -> Verdict:
    if value:
        return OK
    return "note", (
        "another program that stops within a transaction keeps its locks forever (those of Agents"
        " Ledger end after 60 seconds): set it, for example to 10min"
    )


def _wal_sender_timeout(value: int) -> Verdict:
    return OK if value else ("note", "a standby that hangs holds up every commit: set it to 60s")


def _keepalives(value: int) -> Verdict:
    if value <= KEEPALIVE_SECONDS_MAX:
        return OK
    return "note", (
        "a client whose machine vanished keeps its connection and its locks this long, in seconds:"
        " set it to 60"
    )


def _asynchronous_standbys(value: int | None) -> Verdict:
    if value is None:
        return "note", "this role may not see them: GRANT pg_read_all_stats to it"
    if not value:
        return OK
    return "note", (
        "a failover to one of them loses the turns acknowledged last: set"
        " synchronous_standby_names, and let only a synchronous standby take over"
    )


def _awaited_standbys(value: str) -> Verdict:
    return "problem", (
        "none of synchronous_standby_names is connected, and every commit waits for one: start it,"
        " or change the setting"
    )


def _standby_lag(value: int | None) -> Verdict:
    if value is None or value <= LAG_BYTES_MAX:
        return OK
    return "note", "a standby is behind by this much: what is read there is old"


def _replay_delay(value: int | None) -> Verdict:
    if value is None or value <= DELAY_SECONDS_MAX:
        return OK
    return "note", "this standby is behind its primary: what is read here is old"


def _wal_receiver(value: str) -> Verdict:
    if value == "running":
        return OK
    return "note", "this standby is not connected to a primary: what is read here is old"


def _inactive_slots(value: int) -> Verdict:
    if value <= SLOT_BYTES_MAX:
        return OK
    return "note", (
        "a replication slot that nobody uses keeps this much of the log, until the disk is full:"
        " let its standby connect, or drop it with pg_drop_replication_slot()"
    )


def _transaction_age(value: int) -> Verdict:
    if value <= AGE_MAX:
        return OK
    return "problem", (
        "the oldest unfrozen transaction of the database is this many transactions old, and the"
        " server stops writing at two thousand million:"
        " VACUUM it, and end old transactions and unused replication slots"
    )


def _bloated_tables(value: list[str]) -> Verdict:
    if not value:
        return OK
    return "note", (
        "autovacuum does not keep up, or an old transaction or replication slot holds it up:"
        " VACUUM (ANALYZE) makes the room usable again"
    )


def _missing_indexes(value: list[str]) -> Verdict:
    if not value:
        return OK
    return "problem", (
        "reads and writes take longer as the ledger grows: `agents-ledger copy` into a new schema"
        " makes them"
    )


def _unused_indexes(value: list[str]) -> Verdict:
    if not value:
        return OK
    return "note", "not made by Agents Ledger and never used; every write keeps them: DROP INDEX"


JUDGES: dict[str, Callable[[Any], Verdict]] = {
    "fsync": _durable,
    "full_page_writes": _durable,
    "synchronous_commit": _synchronous_commit,
    "zero_damaged_pages": _dangerous,
    "ignore_checksum_failure": _dangerous,
    "data_checksums": _data_checksums,
    "autovacuum": _autovacuum,
    "statement_timeout": _statement_timeout,
    "transaction_timeout": _statement_timeout,
    "idle_in_transaction_session_timeout": _idle_in_transaction,
    "wal_sender_timeout": _wal_sender_timeout,
    "tcp_keepalives_idle": _keepalives,
    "asynchronous_standbys": _asynchronous_standbys,
    "awaited_standbys": _awaited_standbys,
    "standby_lag_bytes": _standby_lag,
    "replay_delay_seconds": _replay_delay,
    "wal_receiver": _wal_receiver,
    "inactive_slot_bytes": _inactive_slots,
    "transaction_age": _transaction_age,
    "bloated_tables": _bloated_tables,
    "missing_indexes": _missing_indexes,
    "unused_indexes": _unused_indexes,
}
