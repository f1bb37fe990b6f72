"""Evidence: whatever is changed behind the ledger's back is named, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from agents_ledger import Compaction, Ledger, Message, Session
from agents_ledger.importers.pipeline import derived_findings
from agents_ledger.ledger.evidence.forgetting import Forgetting, purged
from agents_ledger.ledger.maintenance.copying import copy
from agents_ledger.model.evidence.verification import Verification
from agents_ledger.model.ids import now_ms
from agents_ledger.store.database import Transaction
from tests.builders import a_call, a_full_turn, chain
from tests.importers.claude_log import Log, text, tool
from tests.importers.helping import import_paths
from tests.migrations.earlier import downgrade
from tests.raw import Raw
from tests.waiting import until

ODD = 'NUL \x00, lone \ud800, escape \x1a, 日本 😀 "'


@pytest.fixture
def keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of this user's keys."""
    folder = tmp_path / "keys"
    monkeypatch.setenv("AGENTS_LEDGER_EVIDENCE", str(folder))
    return folder


@pytest.fixture
def other_engine(address: str, new_schema: Callable[[], str], tmp_path: Path) -> Callable[[], str]:
    """Addresses on the engine the test's ledger is not on."""
    if address.startswith("postgres"):
        return lambda: str(tmp_path / "other.db")
    return new_schema


def named(verified: Verification) -> list[tuple[str, str, str]]:
    return [(finding.what, finding.kind, finding.id) for finding in verified.findings]


def fill(ledger: Ledger) -> list[str]:
    """Turns of every kind; their ids."""
    first, second = chain(ledger, "main", 2)
    full = ledger.record("main", **a_full_turn(compaction=Compaction("short", first, second)))
    odd = ledger.record(ODD, ODD, ODD, steps=[a_call("Task", spawned_session_label="child")])
    failed = ledger.record("main", "q", status="failed", error="no")
    live = ledger.turn("main", "live", system_prompt="Be kind.")
    live.tool_call("Read", {"a": 1})
    live.stream("half ")
    live.stream("and half")
    live.respond(None)
    broken = ledger.turn("main", "breaks")
    broken.fail("it broke")
    return [first, second, full.id, odd.id, failed.id, live.id, broken.id]


def test_every_turn_and_every_move_is_covered(ledger: Ledger, raw: Raw) -> None:
    turns = fill(ledger)
    ledger.fork(turns[0], label="side")
    ledger.rename("side", "renamed")
    ledger.undo("main")

    verified = ledger.verify()

    assert verified.holds
    assert verified.turns == len(turns)
    assert verified.moves == raw.one("SELECT count(*) FROM session_history")
    assert verified.size + verified.waiting == raw.one("SELECT count(*) FROM evidence")
    assert (verified.redacted, verified.purged, verified.uncovered) == (0, 0, 0)


def test_leaves_are_sequenced_within_a_second(ledger: Ledger) -> None:
    fill(ledger)

    until(lambda: ledger.verify().waiting == 0)

    assert ledger.verify().size > 0


def test_what_was_imported_is_covered_by_its_records(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Question?")
    log.assistant("a2", text("Answer."))
    import_paths(ledger, log.save())

    verified = ledger.verify()

    assert verified.holds
    assert (verified.turns, verified.sources) == (0, 1)


@pytest.mark.unsound
@pytest.mark.parametrize(
    ("statement", "what"),
    [
        ("UPDATE messages SET content = content || '.' WHERE turn_id = :turn", "changed"),
        ("UPDATE turns SET completed_at = completed_at + 1 WHERE id = :turn", "changed"),
        ("UPDATE tool_calls SET status = 'rejected' WHERE turn_id = :turn", "changed"),
        ("UPDATE places SET persona_id = 'admin' WHERE turn_id = :turn", "changed"),
        ("UPDATE message_files SET file_path = 'x'", "changed"),
        ("DELETE FROM message_lints", "changed"),
        ("DELETE FROM evidence WHERE subject = :turn", "inserted"),
    ],
)
def test_a_turn_that_was_changed_is_named(
    ledger: Ledger, raw: Raw, statement: str, what: str
) -> None:
    turn = ledger.record("main", **a_full_turn())
    until(lambda: ledger.verify().waiting == 0)
    with raw.unguarded():
        raw.execute(statement.replace(":turn", f"'{turn.id}'"))

    assert (what, "turn", turn.id) in named(ledger.verify())


@pytest.mark.unsound
def test_a_turn_that_was_inserted_is_named(ledger: Ledger, raw: Raw) -> None:
    chain(ledger, "main", 1)
    with raw.unguarded():
        raw.execute(
            "INSERT INTO turns (id, status, started_at, completed_at)"
            " VALUES ('forged', 'completed', 1, 2)"
        )

    assert named(ledger.verify()) == [("inserted", "turn", "forged")]


@pytest.mark.unsound
def test_a_move_that_was_removed_or_changed_is_named(ledger: Ledger, raw: Raw) -> None:
    turns = chain(ledger, "main", 3)
    _, second, third = (move.id for move in reversed(ledger.history("main")))
    with raw.unguarded():
        raw.execute(f"DELETE FROM session_history WHERE id = {second}")
        raw.execute(f"UPDATE session_history SET changed_at = 1 WHERE id = {third}")

    assert sorted(named(ledger.verify())) == [
        ("changed", "turn", turns[2]),
        ("removed", "move", str(second)),
    ]


@pytest.mark.unsound
def test_a_source_record_that_was_rewritten_is_named(
    ledger: Ledger, raw: Raw, tmp_path: Path
) -> None:
    import zstandard

    log = Log(tmp_path)
    log.user("a1", "Question?")
    log.assistant("a2", text("Answer."))
    import_paths(ledger, log.save())
    data, length = raw.execute("SELECT data, length FROM source_blocks")[0]
    plain = zstandard.ZstdDecompressor().decompress(bytes(data), max_output_size=length)
    forged = zstandard.ZstdCompressor().compress(plain.replace(b"Answer.", b"Forged."))
    with raw.unguarded():
        raw.execute("UPDATE source_blocks SET data = ?", (forged,))

    assert named(ledger.verify()) == [("changed", "source", "1/0")]


@pytest.mark.unsound
def test_an_imported_turn_that_is_not_what_its_records_give_is_named(
    ledger: Ledger, raw: Raw, tmp_path: Path
) -> None:
    log = Log(tmp_path)
    for number in range(4):
        log.user(f"a{number}", f"Question {number}?")
        log.assistant(f"b{number}", text(f"Answer {number}."), tool(f"t{number}", "Read"))
        log.result(f"c{number}", f"t{number}", "Seen.")
    import_paths(ledger, log.save())
    assert derived_findings(ledger) == ()
    first, second, third, _ = (
        row[0] for row in raw.execute("SELECT id FROM turns ORDER BY started_at, id")
    )
    with raw.unguarded():
        raw.execute(f"UPDATE messages SET content = 'forged' WHERE turn_id = '{first}'")
        raw.execute(f"UPDATE tool_calls SET status = 'failed' WHERE turn_id = '{second}'")
        raw.execute(f"UPDATE turns SET id = 'forged' WHERE id = '{third}'")
        raw.execute(f"UPDATE turn_sources SET turn_id = 'forged' WHERE turn_id = '{third}'")

    found = {(finding.what, finding.id) for finding in derived_findings(ledger)}
    assert found == {
        ("changed", first),
        ("changed", second),
        ("inserted", "forged"),
        ("removed", third),
    }


def test_a_renamed_session_holds_also_without_its_former_names(ledger: Ledger) -> None:
    chain(ledger, "one", 2)
    ledger.rename("one", "two")
    chain(ledger, "two", 1)
    ledger.rename("two", ODD)
    chain(ledger, ODD, 1)
    for former in ("one", "two"):
        ledger.remove_alias(former)

    assert ledger.verify().holds


# -- checkpoints --------------------------------------------------------------------------------


@pytest.mark.unsound  # its session is as old as it was
def test_a_ledger_that_was_rolled_back_is_named(
    ledger: Ledger, raw: Raw, keys: Path, tmp_path: Path
) -> None:
    chain(ledger, "main", 2)
    kept = tmp_path / "checkpoints"
    ledger.evidence.set_up(str(kept))
    assert ledger.evidence.checkpoint()
    assert ledger.verify(str(kept)).checkpoints == 1
    last = chain(ledger, "main", 1)[0]
    ledger.evidence.checkpoint()
    assert ledger.verify(str(kept)).checkpoints == 2
    with raw.unguarded():
        move = raw.one(f"SELECT move_id FROM evidence WHERE subject = '{last}'")
        raw.execute(f"DELETE FROM evidence WHERE subject = '{last}'")
        raw.execute("DELETE FROM evidence_checkpoints")
        parent = raw.one(f"SELECT parent_turn_id FROM turns WHERE id = '{last}'")
        raw.execute(f"UPDATE sessions SET thread_id = '{parent}'")
        raw.execute(f"DELETE FROM session_history WHERE id = {move}")
        for table in ("messages", "places", "search_docs", "search_waiting"):
            raw.execute(f"DELETE FROM {table} WHERE turn_id = '{last}'")
        raw.execute(f"UPDATE turns SET has_children = 0 WHERE id = '{parent}'")
        raw.execute(f"DELETE FROM turns WHERE id = '{last}'")

    # Without what was kept elsewhere, nothing tells.
    (keys / next(keys.iterdir())).unlink()
    assert ledger.verify().holds
    [(what, kind, _)] = named(ledger.verify(str(kept)))
    assert (what, kind) == ("rolled back", "checkpoint")


# -- what was removed ---------------------------------------------------------------------------


@pytest.mark.unsound
def test_a_redacted_value_is_named_so_and_the_rest_still_proves_itself(
    ledger: Ledger, raw: Raw
) -> None:
    turn = ledger.record("main", "the code is 1234", "fine", steps=[a_call(id="c")])

    def redact(old: str, new: str) -> tuple[str, ...]:
        statement = f"UPDATE messages SET content = '{new}' WHERE content = '{old}'"
        return ledger._core.db.restore(lambda tx: _redacted(tx, turn.id, statement))

    assert redact("the code is 1234", "the code is [gone]") == ("m0.content",)
    verified = ledger.verify()
    assert verified.holds
    assert verified.redacted == 1
    assert redact("the code is [gone]", "[gone]") == ("m0.content",)
    assert redact("fine", "[gone]") == ("m2.content",)
    verified = ledger.verify()
    assert verified.holds
    assert verified.redacted == 2
    # No seed is left from which the salt of a removed value could be derived.
    openings = raw.execute(f"SELECT kind, opening FROM evidence WHERE subject = '{turn.id}'")
    assert [len(opening) for _, opening in openings if opening and len(opening) == 16] == [16]
    [opening] = [bytes(opening) for kind, opening in openings if kind == "turn"]
    assert b'"m0.content"' not in opening.partition(b'"removed"')[0]

    with raw.unguarded():
        raw.execute("UPDATE messages SET content = '[forged]' WHERE sequence = 0")
    assert named(ledger.verify()) == [("changed", "turn", turn.id)]


def _redacted(tx: Transaction, turn_id: str, statement: str) -> tuple[str, ...]:
    forgetting = Forgetting(tx, "turn", turn_id)
    tx.execute(statement)
    return forgetting.finish(reason="a secret", at=now_ms())


def test_what_was_purged_is_named_so(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record("main", "q", "r")
    chain(ledger, "other", 1)
    with raw.unguarded():
        for table in ("messages", "search_docs", "search_waiting"):
            raw.execute(f"DELETE FROM {table} WHERE turn_id = '{turn.id}'")
        raw.execute("UPDATE sessions SET thread_id = NULL WHERE label = 'main'")
        raw.execute("DELETE FROM session_history WHERE session_label = 'main'")
        raw.execute(f"DELETE FROM places WHERE turn_id = '{turn.id}'")
        raw.execute(f"DELETE FROM turns WHERE id = '{turn.id}'")
        raw.execute("DELETE FROM segments WHERE id NOT IN (SELECT segment_id FROM places)")
        raw.execute("DELETE FROM names WHERE name = 'main'")
        raw.execute("DELETE FROM sessions WHERE label = 'main'")
    assert named(ledger.verify())

    ledger._core.db.write(lambda tx: purged(tx, [("turn", turn.id)], reason="old", at=1))

    verified = ledger.verify()
    assert verified.holds
    assert (verified.turns, verified.purged) == (1, 1)


# -- older ledgers, copies ----------------------------------------------------------------------


def test_an_older_ledger_is_sealed_in_the_background(
    new_address: Callable[[], str], tmp_path: Path
) -> None:
    address = new_address()
    log = Log(tmp_path)
    log.user("a1", "Question?")
    log.assistant("a2", text("Answer."))
    with Ledger.open(address) as ledger:
        turns = fill(ledger)
        ledger.fork(turns[0], label="side")
        import_paths(ledger, log.save())
    downgrade(address, to=28)

    with Ledger.open(address) as ledger:
        before = ledger.verify()
        assert before.holds
        assert before.uncovered > len(turns)
        new = ledger.record("main", "new", "r")
        until(lambda: ledger.verify().uncovered == 0 and ledger.verify().covered_since)
        verified = ledger.verify()
        assert verified.holds
        assert (verified.turns, verified.sources) == (len(turns) + 1, 1)
        assert verified.covered_since is not None
        assert verified.covered_since >= new.started_at
    with Raw(address) as raw, raw.unguarded():
        raw.execute(f"UPDATE messages SET content = 'forged' WHERE turn_id = '{turns[0]}'")
    with Ledger.open(address) as ledger:
        assert named(ledger.verify()) == [("changed", "turn", turns[0])]


def test_a_copy_has_the_evidence_and_goes_on_with_it(
    ledger: Ledger, address: str, other_engine: Callable[[], str]
) -> None:
    turns = fill(ledger)
    until(lambda: ledger.verify().waiting == 0)
    root = ledger.verify().root
    there = other_engine()

    copy(address, there)

    with Ledger.open(there) as other:
        assert other.verify().root == root
        other.record("main", "new", "r")
        until(lambda: other.verify().waiting == 0)
        verified = other.verify()
        assert verified.holds
        assert verified.turns == len(turns) + 1


def test_a_session_made_at_a_turn_and_a_message_with_its_time_hold(ledger: Ledger) -> None:
    turn = ledger.record("main", Message("user", "q", created_at=1_700_000_000_000), "r")
    ledger.create_session(Session("at", turn.id))

    assert ledger.verify().holds
