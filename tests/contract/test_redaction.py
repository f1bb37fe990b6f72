"""What is redacted is in no row, no index, no page of the file and no log; all else stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ask, Conflict, Ledger, Message, NotFound, Queue, Refused, ToolCall
from agents_ledger.ledger.maintenance.copying import backup, copy, restore
from agents_ledger.ledger.maintenance.redaction.redactions import Redactions
from agents_ledger.model.reports.redaction import Selection
from tests.raw import Raw

# Put together here, so that nobody takes this file for a leak.
TOKEN = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"
PHRASE = 'the heron flies\nat "dawn" 0417'


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "redaction.key"
    monkeypatch.setenv("AGENTS_LEDGER_REDACTION_KEY", str(path))
    return path


def left(address: str, value: str) -> list[str]:
    """Where a value still is: in files byte by byte, on a server in any column of any table."""
    if not address.startswith("postgresql"):
        words = [value.encode(), value.lower().encode(), value.replace('"', '\\"').encode()]
        return [
            path.name
            for path in sorted(Path(address).parent.iterdir())
            if path.is_file() and any(word in path.read_bytes() for word in words)
        ]
    with Raw(address) as raw:
        return raw.tables_with(value)


def test_a_text_is_removed_everywhere_and_nothing_else(ledger: Ledger, address: str) -> None:
    call = ToolCall.of("Bash", {"command": f"echo {TOKEN} twice {TOKEN}"}, {"out": TOKEN})
    turn = ledger.record("main", f"use {TOKEN} please", Message("assistant", "done"), steps=[call])
    ledger.record("main", "and then?", "nothing")
    ledger._core.index(least=1)

    done = ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")

    prompt, answer = ledger.thread("main").turns[0].messages
    assert prompt.content == f"use {'*' * len(TOKEN)} please"
    assert answer.content == "done"
    [call] = ledger.thread("main").turns[0].tool_calls
    assert "twice" in call.params_json
    assert TOKEN not in call.params_json + str(call.result_json)
    assert done.places == 4
    assert done.scrubbed_at is not None
    assert done.reason == "leaked"
    assert done.actor == "ada"
    assert ledger.search(TOKEN).hits == ()
    assert [hit.turn_id for hit in ledger.search("please").hits] == [turn.id]
    assert [r.id for r in ledger.redactions.of_turn(turn.id)] == [done.id]
    verification = ledger.verify()
    assert verification.findings == ()
    assert verification.redacted > 0
    ledger.close()
    assert left(address, TOKEN) == []


@pytest.mark.parametrize("scope", ["message", "call", "turn", "session", "project", "persona"])
def test_the_content_of_a_scope_goes_and_the_skeleton_stays(
    ledger: Ledger, address: str, scope: str
) -> None:
    call = ToolCall.of("Bash", {"command": "echo juniper"}, {"out": ["juniper", 3]}, id="c1")
    turn = ledger.record(
        "main",
        "say juniper",
        Message("assistant", "juniper", thinking="juniper?"),
        steps=[call],
        workspace_path="/home/dev/shop",
    )
    ledger.record("other", "a cedar", "cedars", workspace_path="/home/dev/else", persona_id="b")
    before = ledger.query("SELECT id, turn_id, sequence, created_at FROM messages ORDER BY id")
    selected = {
        "message": str(turn.response_message_id),
        "call": f"{turn.id}/c1",
        "turn": turn.id,
        "session": "main",
        "project": "/home/dev/shop",
        "persona": "main",
    }[scope]
    selection = Selection(**{scope: selected})

    preview = ledger.redactions.preview(selection)
    done = ledger.redactions.redact(selection, reason="asked for", actor="ada")

    assert done.selection == {scope: selected}
    assert preview.count == done.places
    rows = ledger.query("SELECT content, thinking FROM messages ORDER BY sequence")[1]
    calls = ledger.query("SELECT params_json, result_json, tool_name FROM tool_calls")[1]
    if scope == "call":
        assert calls == [('{"command":"************"}', '{"out":["*******",3]}', "Bash")]
        assert ("juniper", "juniper?") in rows
    elif scope == "message":
        assert calls[0][0] == '{"command":"echo juniper"}'
        assert ("*******", "********") in rows
        assert ("say juniper", None) in rows
    else:
        assert "juniper" not in repr((rows, calls))
        assert ledger.search("juniper").hits == ()
    assert ("cedars", None) in rows
    after = ledger.query("SELECT id, turn_id, sequence, created_at FROM messages ORDER BY id")
    assert after == before
    ledger.close()
    assert bool(left(address, "juniper")) == (scope in ("call", "message"))


def test_a_preview_shows_no_value_whole_and_changes_nothing(ledger: Ledger) -> None:
    ledger.record("main", f"use {TOKEN}", "done")

    preview = ledger.redactions.preview(Selection(kind="all"))

    assert TOKEN not in repr(preview)
    assert (preview.count, preview.turns, preview.sessions) == (1, 1, ("main",))
    assert preview.places[0].kind == "GitHub token"
    assert preview.places[0].shown.startswith("ghp_")
    assert ledger.redactions.latest() == ()


def test_every_table_with_text_is_searched(ledger: Ledger, address: str) -> None:
    ledger.record("main", "first", "answer", system_prompt=f"with {TOKEN}")
    ledger.annotate("main", title=TOKEN, note=f"a {TOKEN}")
    Queue(ledger).enqueue("main", Ask((Message("user", f"later {TOKEN}"),)))
    live = ledger.turn("live", f"now {TOKEN}")
    half = len(TOKEN) // 2
    live.stream("the " + TOKEN[:half])
    live.stream(TOKEN[half:] + " it is")

    ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")

    assert ledger.redactions.preview(Selection(text=TOKEN)).count == 0
    pieces = ledger.query("SELECT content FROM partial_texts ORDER BY piece")[1]
    assert "".join(row[0] for row in pieces) == f"the {'*' * len(TOKEN)} it is"
    live.respond("done")
    ledger.close()
    assert left(address, TOKEN) == []
    assert left(address, TOKEN[half:]) == []


def test_a_retry_of_what_was_redacted_is_refused_and_adds_nothing(ledger: Ledger) -> None:
    turn = ledger.record("main", f"use {TOKEN}", "done")
    ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")

    with pytest.raises(Conflict):
        ledger.record("main", f"use {TOKEN}", "done", id=turn.id)


def test_guards_let_nothing_else_through(ledger: Ledger, address: str) -> None:
    turn = ledger.record("main", f"use {TOKEN}", "done")
    ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")
    opened = (
        "INSERT INTO redactions (id, reason, actor, selection_json, started_at)"
        " VALUES ('x', 'r', 'a', '{}', 1)"
    )

    with Raw(address) as raw:
        for change in (
            f"UPDATE messages SET content = 'x' WHERE turn_id = '{turn.id}'",
            f"UPDATE turns SET error = 'x' WHERE id = '{turn.id}'",
        ):
            with pytest.raises(Exception, match="guard: "):
                raw.execute(change)
        for change in (
            f"UPDATE messages SET role = 'system' WHERE turn_id = '{turn.id}'",
            f"UPDATE turns SET model = 'x' WHERE id = '{turn.id}'",
            f"DELETE FROM messages WHERE turn_id = '{turn.id}'",
            f"DELETE FROM turns WHERE id = '{turn.id}'",
        ):
            raw.execute("BEGIN")
            raw.execute(opened)
            with pytest.raises(Exception, match="guard: "):
                raw.execute(change)
            raw.execute("ROLLBACK")
        for change in ("DELETE FROM redactions", "UPDATE redactions SET reason = 'x'"):
            with pytest.raises(Exception, match="guard: "):
                raw.execute(change)


def test_a_process_that_read_it_before_forgets_it(ledger: Ledger, address: str) -> None:
    for number in range(3):
        ledger.record("main", f"{number} {TOKEN}", "done")
    with Ledger.open(address) as other:
        assert TOKEN in repr(other.thread("main", last=3))
        ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")
        other._core._redactions_read_at = 0  # a second later

        assert TOKEN not in repr(other.thread("main", last=3))
        assert TOKEN not in repr(ledger.thread("main", last=3))


def test_copies_backups_and_restores_are_without_it(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    ledger.record("main", f"use {TOKEN}", "done")
    ledger._core.index(least=1)
    (tmp_path / "before").mkdir()
    before = backup(address, str(tmp_path / "before" / "b.db"))
    ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")

    for folder in ("after", "copy", "restored"):
        (tmp_path / folder).mkdir()
    saved = backup(address, str(tmp_path / "after" / "b.db"))
    copy(address, str(tmp_path / "copy" / "c.db"))
    restore(str(saved), str(tmp_path / "restored" / "r.db"))

    assert left(str(before), TOKEN)
    for folder in ("after", "copy", "restored"):
        [file] = [path for path in (tmp_path / folder).glob("*.db")]
        assert left(str(file), TOKEN) == []
        with Ledger.open(str(file)) as other:
            assert other.redactions.latest() == ledger.redactions.latest()
            assert other.audit() == ()


def test_what_a_process_left_half_done_is_finished_by_the_next(
    ledger: Ledger, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger.record("main", f"use {TOKEN}", "done")
    ledger._core.index(least=1)
    monkeypatch.setattr(Redactions, "finish", lambda self: False)
    done = ledger.redactions.redact(Selection(text=TOKEN), reason="leaked", actor="ada")
    ledger.close()
    monkeypatch.undo()
    assert done.scrubbed_at is None

    with Ledger.open(address) as other:
        other.record("main", "next", "done")

        assert other.redactions.latest()[0].scrubbed_at is not None
    assert left(address, TOKEN) == []


@pytest.mark.parametrize(
    "selection",
    [
        Selection(),
        Selection(text="a", pattern="b"),
        Selection(turn="a", session="b"),
        Selection(text=""),
        Selection(pattern="("),
        Selection(kind="no such kind"),
        Selection(call="without a turn"),
    ],
)
def test_a_selection_that_is_unclear_is_refused(ledger: Ledger, selection: Selection) -> None:
    ledger.record("main", "a", "b")

    with pytest.raises(Refused):
        ledger.redactions.redact(selection, reason="r", actor="ada")


def test_nothing_to_remove_leaves_no_record(ledger: Ledger) -> None:
    ledger.record("main", "a", "b")

    with pytest.raises(NotFound):
        ledger.redactions.redact(Selection(text=TOKEN), reason="r", actor="ada")
    with pytest.raises(Refused):
        ledger.redactions.redact(Selection(text="a"), reason=" ", actor="ada")
    assert ledger.redactions.latest() == ()
