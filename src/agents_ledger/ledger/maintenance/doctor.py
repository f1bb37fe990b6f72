"""Facts about a ledger's health that are known without an audit."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct

from agents_ledger.ledger.maintenance import server_health
from agents_ledger.ledger.maintenance.server_health import Level, Verdict
from agents_ledger.model.errors import LedgerError, ReadOnly
from agents_ledger.model.sessions import CheckMode
from agents_ledger.store import migrations
from agents_ledger.store.checks import integrity
from agents_ledger.store.database import Database, Transaction, open_database

# Older SQLite can corrupt its write-ahead log when a checkpoint races a write.
WAL_RESET_FIXED = ((3, 51, 3), (3, 50, 7), (3, 44, 6))
WAL_BYTES_MAX = 64 * 1024 * 1024
UNINDEXED_MAX = 2_000


class Fact(Struct, frozen=True):
    name: str
    value: Any
    level: Level = "ok"
    remark: str = ""


def examine(address: str, *, full: bool = False) -> tuple[list[Fact], LedgerError | None]:
    """The facts about a ledger, and the error if it cannot be read. The database engine runs its
    cheap check, unless `full`."""
    try:
        db = open_database(address, create=False, read_only=True)
    except LedgerError as error:
        return [Fact("address", address)], error
    facts = [Fact("address", db.address), Fact("engine", db.engine)]
    try:
        facts += _engine_facts(db)
        facts.append(db.read(partial(_engine_check, mode="full" if full else "quick")))
        facts += db.read(_content_facts)
        facts += _writer_facts(db)
    except LedgerError as error:
        return facts, error
    finally:
        db.close()
    return facts, None


def _engine_check(tx: Transaction, mode: CheckMode) -> Fact:
    check = integrity.describe(tx, mode)
    summary = f"{check.mode}: {check.ran}"
    try:
        problems = tx.attempt(lambda: list(integrity.problems(tx, mode)))
    except LedgerError as error:
        problems = [("file", str(error))]
    if not problems:
        return Fact("engine_check", summary)
    place, text = problems[0]
    first = text if place in text else f"{place}: {text}"
    remark = f"{first}; run `agents-ledger audit`, then restore a backup or `agents-ledger salvage`"
    return Fact("engine_check", summary, "problem", remark)


def _engine_facts(db: Database) -> list[Fact]:
    return [_judge(name, value) for name, value in db.facts().items()]


def _judge(name: str, value: Any) -> Fact:
    judge = _JUDGES.get(name)
    level, remark = judge(value) if judge else ("ok", "")
    return Fact(name, value, level, remark)


def _sqlite_version(value: str) -> Verdict:
    version = tuple(int(part) for part in value.split("."))
    for fixed in WAL_RESET_FIXED:
        if version >= fixed and (version[:2] == fixed[:2] or fixed == WAL_RESET_FIXED[0]):
            return "ok", ""
    return "note", (
        "can damage its log when a checkpoint races a write. Agents Ledger never lets that happen;"
        " do not write to the file with other programs."
    )


def _journal_mode(value: str) -> Verdict:
    return ("ok", "") if value == "wal" else ("problem", "should be wal")


def _file_mode(value: int) -> Verdict:
    return ("problem", "others can read it: chmod 600") if value & 0o077 else ("ok", "")


def _wal_bytes(value: int) -> Verdict:
    if value <= WAL_BYTES_MAX:
        return "ok", ""
    return "note", "a program that reads for long keeps the log from being shortened"


_JUDGES: dict[str, Callable[[Any], Verdict]] = {
    "sqlite_version": _sqlite_version,
    "journal_mode": _journal_mode,
    "file_mode": _file_mode,
    "wal_bytes": _wal_bytes,
    **server_health.JUDGES,
}


def _content_facts(tx: Transaction) -> list[Fact]:
    applied, newest = tx.run("migrations_applied")[-1][0], migrations.newest()
    older: Verdict = ("ok", "")
    if applied < newest:
        older = ("note", f"the next write brings it to {newest}")
    names = ("sessions", "turns", "messages", "tool_calls")
    counts = zip(names, tx.run("counts")[0], strict=True)
    facts = [Fact("schema_version", applied, *older), *(Fact(*count) for count in counts)]
    if applied == newest:
        facts.append(_unindexed(tx.run("unindexed_count", limit=UNINDEXED_MAX + 1)[0][0]))
    return facts


def _unindexed(value: int) -> Fact:
    if value <= UNINDEXED_MAX:
        return Fact("unindexed", value)
    return Fact(
        "unindexed",
        value,
        "note",
        "this many turns or more wait for the word index, and searches read them one by one:"
        " writing puts them in by and by, `agents-ledger rederive --index` at once",
    )


def _writer_facts(db: Database) -> list[Fact]:
    """The current writers. A turn whose writer died waits for the next write or `recover`."""
    live = len(db.read(lambda tx: tx.run("live_turns", label=None)))
    dead = 0
    writers = db.read(lambda tx: tx.run("other_writers", id=""))
    for writer_id, _, unseen_ms in writers:
        try:
            dead += db.is_dead(writer_id, unseen_ms)
        except ReadOnly:
            # In a folder that may only be read no lock can be taken, and nothing else shows whether
            # the writer lives.
            break
    facts = [Fact("live_turns", live), Fact("writers", len(writers))]
    if dead:
        facts.append(Fact("dead_writers", dead, "note", "run `agents-ledger recover`"))
    return facts
