"""Damage: what the engine, the audit and every reading verb say of a damaged ledger."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest

from agents_ledger import Damaged, Ledger, LedgerError, Refused
from agents_ledger.ledger.maintenance.copying import verify
from agents_ledger.store.database import Database
from tests.builders import a_full_turn, chain
from tests.engines import on_postgres, on_sqlite
from tests.raw import Raw
from tests.trust import specimen

pytestmark = pytest.mark.unsound

PAGE = 4096


def rules(ledger: Ledger, *, quick: bool = False) -> set[str]:
    return {finding.rule for finding in ledger.audit(quick=quick)}


def page_of(address: str, name: str) -> int:
    """The first page of a table or index."""
    with Raw(address) as raw:
        return int(raw.one("SELECT rootpage FROM sqlite_master WHERE name = ?", (name,)))


def overwrite(address: str, page: int, filling: bytes = b"\xa5") -> None:
    with Path(address).open("r+b") as file:
        file.seek((page - 1) * PAGE)
        file.write(filling * PAGE)


def store_oddly(address: str, table: str, change: str) -> None:
    """Store what a column would not take, as a flipped bit does."""
    connection = sqlite3.connect(address, isolation_level=None)
    guards = connection.execute("SELECT name, sql FROM sqlite_master WHERE type = 'trigger'")
    made = guards.fetchall()
    for name, _ in made:
        connection.execute(f"DROP TRIGGER {name}")
    connection.execute("PRAGMA ignore_check_constraints=ON")
    connection.execute(f"UPDATE {table} SET {change}")
    for _, sql in made:
        connection.execute(sql)
    connection.close()


# -- the engine's own check -------------------------------------------------------------------


@on_sqlite
def test_a_damaged_index_is_found_by_the_full_check_and_not_by_the_quick_one(address: str) -> None:
    with Ledger.open(address) as ledger:
        turn = ledger.record("main", "q", "r")
    start = (page_of(address, "idx_turns_started") - 1) * PAGE
    data = bytearray(Path(address).read_bytes())
    at = data.index(turn.started_at.to_bytes(6, "big"), start, start + PAGE)
    data[at + 5] ^= 1
    Path(address).write_bytes(data)

    with Ledger.open(address, read_only=True) as ledger:
        assert "engine_check" in rules(ledger)
        assert "engine_check" not in rules(ledger, quick=True)
        with pytest.raises(Damaged, match="engine_check"):
            verify(address)


@on_sqlite
def test_one_bad_page_does_not_hide_what_else_is_wrong(address: str) -> None:
    with Ledger.open(address) as ledger:
        turn = ledger.record("main", "q", "r")
    store_oddly(address, "turns", "has_children = 1")
    overwrite(address, page_of(address, "queue"))

    with Ledger.open(address, read_only=True) as ledger:
        findings = ledger.audit()

    assert ("children_flag", turn.id) in [(finding.rule, finding.id) for finding in findings]
    assert "engine_check" in {finding.rule for finding in findings}
    unchecked = {finding.id for finding in findings if finding.rule == "rule_unchecked"}
    assert "entry_unanswered" in unchecked
    assert "children_flag" not in unchecked


@on_sqlite
def test_an_audit_says_which_check_of_sqlite_it_runs(ledger: Ledger) -> None:
    full, quick = ledger.engine_check(), ledger.engine_check(quick=True)

    assert (full.mode, full.ran, full.complete) == ("full", "PRAGMA integrity_check", True)
    assert (quick.mode, quick.ran, quick.complete) == ("quick", "PRAGMA quick_check", False)


@on_postgres
def test_an_audit_says_what_a_server_can_check_of_itself(ledger: Ledger, raw: Raw) -> None:
    installed = raw.execute("SELECT 1 FROM pg_extension WHERE extname = 'amcheck'")
    full, quick = ledger.engine_check(), ledger.engine_check(quick=True)

    assert "data_checksums is" in quick.ran
    assert not quick.complete
    assert full.complete is bool(installed)
    assert "amcheck" in full.ran


@on_postgres
def test_amcheck_is_used_where_a_server_has_it(ledger: Ledger, raw: Raw) -> None:
    if not raw.execute("SELECT 1 FROM pg_available_extensions WHERE name = 'amcheck'"):
        pytest.skip("this server does not come with amcheck")
    raw.execute("CREATE EXTENSION amcheck SCHEMA public")
    chain(ledger, "main", 2)

    assert ledger.engine_check().complete
    assert ledger.audit() == ()

    raw.execute("REVOKE ALL ON FUNCTION public.verify_heapam FROM PUBLIC")
    raw.execute("SET enable_indexscan TO off")
    raw.execute(  # an index that no longer has what its table has
        "UPDATE pg_index SET indisready = FALSE WHERE indexrelid = 'idx_turns_started'::regclass"
    )
    chain(ledger, "other", 1)
    raw.execute(
        "UPDATE pg_index SET indisready = TRUE WHERE indexrelid = 'idx_turns_started'::regclass"
    )
    found = [finding for finding in ledger.audit() if finding.rule == "engine_check"]
    assert [finding.id for finding in found] == ["idx_turns_started"]


# -- guards -----------------------------------------------------------------------------------


@on_sqlite
def test_an_emptied_trigger_is_found(ledger: Ledger, raw: Raw) -> None:
    raw.execute("DROP TRIGGER turns_update")
    raw.execute("CREATE TRIGGER turns_update BEFORE UPDATE ON turns BEGIN SELECT 1; END")

    assert [(f.rule, f.id) for f in ledger.audit()] == [("guard_changed", "turns_update")]


@on_sqlite
def test_a_trigger_of_somebody_else_is_found(ledger: Ledger, raw: Raw) -> None:
    raw.execute(
        "CREATE TRIGGER sly AFTER INSERT ON messages"
        " BEGIN UPDATE messages SET content = 'x' WHERE id = NEW.id; END"
    )

    assert [(f.rule, f.id) for f in ledger.audit()] == [("guard_changed", "sly")]


@on_postgres
@pytest.mark.parametrize(
    ("sql", "named"),
    [
        (
            "CREATE OR REPLACE FUNCTION guard_turns() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RETURN NEW; END $$",
            "guard_turns",
        ),
        ("ALTER FUNCTION guard_refuse() SECURITY DEFINER", "guard_refuse"),
        ("ALTER TABLE turns DISABLE TRIGGER turns_delete", "turns_delete"),
        ("ALTER TABLE turns ENABLE REPLICA TRIGGER turns_delete", "turns_delete"),
        (
            "CREATE OR REPLACE TRIGGER turns_children BEFORE UPDATE OF has_children ON turns"
            " FOR EACH ROW WHEN (FALSE) EXECUTE FUNCTION guard_refuse('x')",
            "turns_children",
        ),
        (
            "CREATE OR REPLACE VIEW frozen_turns AS SELECT t.id FROM turns t WHERE FALSE",
            "frozen_turns",
        ),
        (
            "CREATE TRIGGER sly BEFORE INSERT ON messages"
            " FOR EACH ROW EXECUTE FUNCTION guard_refuse('x')",
            "sly",
        ),
    ],
)
def test_a_guard_of_a_server_that_guards_no_more_is_found(
    ledger: Ledger, raw: Raw, sql: str, named: str
) -> None:
    raw.execute(sql)

    assert [(f.rule, f.id) for f in ledger.audit()] == [("guard_changed", named)]


def test_the_guards_of_a_ledger_in_use_are_as_they_were_made(ledger: Ledger) -> None:
    chain(ledger, "main", 2)
    ledger.record("main", **a_full_turn())

    assert ledger.audit() == ()


# -- rows that make no sense ------------------------------------------------------------------

ODD = {
    "text that is no UTF-8": ("messages", "content = CAST(x'61ff62' AS TEXT)"),
    "bytes for a text": ("messages", "content = x'6162'"),
    "a text for a time": ("turns", "started_at = 'then'"),
    "an unknown role": ("messages", "role = 'usfr'"),
    "an unknown status": ("turns", "status = 'compleTed'"),
    "bytes for a title": ("annotations", "title = x'61'"),
    "bytes for a label": ("sessions", "agent_id = x'61'"),
    "half of a list": ("turns", "query_message_ids = '[\"'"),
    "bytes for a summary": ("compactions", "summary = x'61'"),
    "a segment that is gone": ("places", "segment_id = segment_id + 1000"),
    "a text for a depth": ("places", "depth = 'deep' || depth"),
    "a number for a path": ("message_files", "file_path = x'00'"),
}


@on_sqlite
@pytest.mark.parametrize("damage", ODD.values(), ids=ODD)
def test_no_verb_stumbles_over_a_row_that_makes_no_sense(
    address: str, tmp_path: Path, damage: tuple[str, str]
) -> None:
    specimen.make(Path(address), tmp_path, turns=3)
    store_oddly(address, *damage)

    with Ledger.open(address, read_only=True) as ledger:
        assert list(specimen.escapes(ledger)) == []
        assert ledger.audit() != ()


@on_sqlite
@pytest.mark.parametrize("change", ["content = x'6162'", "content = CAST(x'61ff' AS TEXT)"])
def test_an_error_names_the_row_that_cannot_be_read(address: str, change: str) -> None:
    with Ledger.open(address) as ledger:
        turn = ledger.record("main", "q", "r")
    damaged = turn.messages[-1].id
    store_oddly(address, "messages", f"{change} WHERE id = '{damaged}'")

    with Ledger.open(address) as ledger:
        with pytest.raises(Damaged, match=f"{damaged}.*content"):
            ledger.thread("main")
        wrong = [finding.id for finding in ledger.audit() if finding.rule == "value_wrong"]
        assert wrong == [f"messages:{damaged}"]


@on_sqlite
def test_a_schema_that_cannot_be_read_is_damage(address: str) -> None:
    Ledger.open(address).close()
    data = bytearray(Path(address).read_bytes())
    at = data.index(b"CREATE TABLE messages")
    data[at : at + 4] = b"\xff\xfe\xff\xfe"
    Path(address).write_bytes(data)

    with pytest.raises(LedgerError):
        Ledger.open(address)
    with pytest.raises(LedgerError):
        Ledger.open(address, read_only=True)


def test_an_error_of_the_caller_stays_what_it_is(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    def fail(text: str) -> int:
        raise KeyError(text)

    with pytest.raises(KeyError):
        ledger.context("main", budget=10, count=fail)
    with pytest.raises(Refused):
        ledger.thread("main", last=-1)


def test_reading_through_a_missing_row_is_damage(db: Database, ledger: Ledger, raw: Raw) -> None:
    first, second = chain(ledger, "main", 2)
    ledger.fork(first, label="side")
    third = ledger.record("side", "q", "r")
    with raw.unguarded():
        raw.execute("DELETE FROM segments WHERE id > 1")
    assert second != third.id

    with pytest.raises(LedgerError):
        ledger.get_turn(third.id)
    assert {"place_wrong"} <= rules(ledger)
