"""Events: what was said, a row for each side of a turn, without what tools did."""

from __future__ import annotations

import pytest

from agents_ledger import Event, Ledger, Message, Refused, ToolCall
from agents_ledger.ledger.reports.events import _BLOCKS, readable
from tests.builders import chain
from tests.raw import Raw

COLUMNS = [
    "id",
    "timestamp",
    "channel",
    "direction",
    "content",
    "thread_id",
    "source_adapter",
    "source_id",
    "metadata_json",
]


def said(events: tuple[Event, ...]) -> list[tuple[str, str]]:
    return [(event.direction, event.content) for event in events]


def test_the_view_has_the_columns_of_the_seed(ledger: Ledger, raw: Raw) -> None:
    turn = ledger.record(
        "main",
        ["First.", "Second."],
        "Answer.",
        steps=[
            Message("assistant", "I look."),
            ToolCall.of("Bash", {"command": "ls"}, {"out": "noise"}),
            Message("tool", "more noise"),
            Message("system", "a note"),
        ],
        started_at=1000,
        completed_at=3000,
        model="opus",
    )

    assert raw.columns("events") == COLUMNS
    asked = raw.row("events", "id = ?", f"{turn.id}:in")
    answered = raw.row("events", "id = ?", f"{turn.id}:out")
    assert asked["content"] == "First.\n\nSecond."
    assert answered["content"] == "I look.\n\nAnswer."
    assert (asked["timestamp"], answered["timestamp"]) == (1000, 3000)
    assert (asked["direction"], answered["direction"]) == ("inbound", "outbound")
    assert {asked["channel"], answered["channel"]} == {"native"}
    assert (asked["thread_id"], asked["source_id"]) == (turn.id, turn.messages[0].id)
    assert answered["source_id"] == turn.response_message_id
    assert '"opus"' in answered["metadata_json"]


def test_the_events_of_a_thread_come_in_its_order(ledger: Ledger) -> None:
    first, *_ = chain(ledger, "main", 3)
    ledger.fork(first, label="other")
    ledger.record("other", "Differently?", "Yes.")
    ledger.record("other", "<b>bold</b>", "")

    assert said(ledger.events("other")) == [
        ("inbound", "question 1"),
        ("outbound", "answer 1"),
        ("inbound", "Differently?"),
        ("outbound", "Yes."),
        ("inbound", "<b>bold</b>"),
    ]
    assert said(ledger.events("main", last=1)) == [
        ("inbound", "question 3"),
        ("outbound", "answer 3"),
    ]
    with pytest.raises(Refused):
        ledger.events("main", last=0)


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<system-reminder>be good</system-reminder>\nHello", "Hello"),
        ("a <system-reminder>x", "a <system-reminder>x"),
        ("see <div>x</div>", "see <div>x</div>"),
        ("<command-message>c</command-message>\n<command-name>/clear</command-name>", "/clear"),
        (
            "<command-name>/plan</command-name>\n <command-args>the parser</command-args>",
            "/plan the parser",
        ),
        (
            "<command-name>/a</command-name>\n<command-args></command-args>\n\n"
            "<command-name>/b</command-name>\n\nand then",
            "/a\n\n/b\n\nand then",
        ),
        ("1 < 2 </x>", "1 < 2 </x>"),
        (
            "System: [2026-03-01 10:00:00 PDT] Exec failed\nSystem: again\n\nSender (untrusted"
            ' metadata):\n```json\n{"id": "dev"}\n```\n\nHello',
            "Hello",
        ),
        ("[Bootstrap pending]\nRead BOOTSTRAP.md.\nAt once.\n\nHello", "Hello"),
        ("System: Linux\nIt crashes.", "System: Linux\nIt crashes."),
        ("System: [2026-03-01 10:00:00 PDT] Up", "System: [2026-03-01 10:00:00 PDT] Up"),
    ],
)
def test_only_the_blocks_of_harnesses_are_taken_out(text: str, left: str) -> None:
    assert readable(text) == left


@pytest.mark.parametrize(
    "opener",
    [
        "<command-name>",
        "<system-reminder>",
        "<ide_selection a='b'>",
        "<command-name>x</command-name><command-args>",
    ],
)
def test_tags_that_are_never_closed_are_looked_for_once(opener: str) -> None:
    text = f"{opener * 100_000}</"

    assert readable(text) == text.replace("<command-name>x</command-name>", "x")


def test_what_a_harness_marked_as_its_own_was_not_said(ledger: Ledger, raw: Raw) -> None:
    marked = Message("user", "Base directory for this skill", metadata_json='{"meta":true}')
    odd = [
        Message("user", "nested", metadata_json='{"blocks":[{"meta":true}]}'),
        Message("user", "denied", metadata_json='{"meta":false}'),
        Message("user", "other", metadata_json='{"queued":true}'),
    ]
    turn = ledger.record("main", [marked, Message("user", "Plan it."), *odd], "Planned.")
    alone = ledger.record("main", [marked], "Done.")

    said_in = "Plan it.\n\nnested\n\ndenied\n\nother"
    assert said(ledger.events("main")) == [
        ("inbound", said_in),
        ("outbound", "Planned."),
        ("outbound", "Done."),
    ]
    asked = raw.row("events", "id = ?", f"{turn.id}:in")
    assert (asked["content"], asked["source_id"]) == (said_in, turn.messages[1].id)
    assert raw.execute("SELECT 1 FROM events WHERE id = ?", (f"{alone.id}:in",)) == []
    digest = ledger.digest(since=0, until=1 << 60)
    assert [event.content for event in digest.sessions[0].events] == [said_in, "Planned.", "Done."]


def test_a_digest_tells_what_was_discussed_in_each_session(ledger: Ledger) -> None:
    ledger.record("one", "early", "r", started_at=999, completed_at=999)
    ledger.record("one", "a", "b", started_at=1000, completed_at=5000)
    ledger.record("two", "c", "d", started_at=1500, completed_at=1600)
    ledger.record("one", "e", status="failed", error="x", started_at=1999, completed_at=2000)
    ledger.record("one", "late", "r", started_at=2000, completed_at=2000)

    digest = ledger.digest(since=1000, until=2000)

    assert [(part.label, [event.content for event in part.events]) for part in digest.sessions] == [
        ("one", ["a", "b", "e"]),
        ("two", ["c", "d"]),
    ]
    assert not digest.left_out
    with pytest.raises(Refused):
        ledger.digest(since=5, until=5)


def xml(name: str, text: str) -> str:
    return f"<{name}>{text}</{name}>"


CALLS = xml("function_calls", '\n<invoke name="Read">\n<parameter name="path">a</parameter>\n')
COMMAND = (
    "<command-name>/plan</command-name>\n   <command-message>plan</command-message>\n"
    "   <command-args>the parser</command-args>"
)


@pytest.mark.finding("spec-L")
@pytest.mark.parametrize(
    ("text", "left"),
    [
        (f"I look.\n\n{CALLS}\n\nDone.", "I look.\n\nDone."),
        (f"{CALLS}{CALLS} {xml('antml:function_calls', 'x')}Done.", "Done."),
        (f"Go on.\n{xml('system-reminder', 'Be good.')}", "Go on."),
        (f"{xml('function_results', xml('system-reminder', 'x'))} Go.", "Go."),
        ("<ide_selection path='a' lines='1'>x</ide_selection>Why?", "Why?"),
        (COMMAND, "/plan the parser"),
        (
            "<command-name>/a</command-name>\n<command-args></command-args>\n\n"
            "<command-name>/b</command-name>\n\nand then",
            "/a\n\n/b\n\nand then",
        ),
        ("a <system-reminder>x", "a <system-reminder>x"),
        (
            "a <system-reminders>x</system-reminders> b",
            "a <system-reminders>x</system-reminders> b",
        ),
        ('see <div class="x">\t"é\\n"</div>', 'see <div class="x">\t"é\\n"</div>'),
        (f'"\\ é\x1a\U0001f600\n{CALLS}"', '"\\ é\x1a\U0001f600\n"'),
    ],
)
def test_events_are_free_of_tool_xml_and_reminders_also_in_sql(
    ledger: Ledger, raw: Raw, text: str, left: str
) -> None:
    turn = ledger.record("main", text, text)

    assert said(ledger.events("main")) == [("inbound", left), ("outbound", left)]
    contents = raw.execute("SELECT content FROM events WHERE thread_id = ?", (turn.id,))
    stored = [content.replace("\x1a001a", "\x1a") for (content,) in contents]
    assert stored == [left, left]


@pytest.mark.finding("spec-L")
def test_a_message_of_nothing_but_blocks_is_no_event(ledger: Ledger, raw: Raw) -> None:
    ledger.record("main", [xml("system-reminder", "x"), "Go."], CALLS)

    assert said(ledger.events("main")) == [("inbound", "Go.")]
    assert raw.one("SELECT content FROM events") == "Go."


def test_the_view_removes_the_blocks_that_headlines_are_free_of(raw: Raw) -> None:
    rows = raw.execute("SELECT name FROM harness_tags WHERE treatment = 'remove'")

    assert {name for (name,) in rows} == {*_BLOCKS}


def test_many_blocks_are_removed_in_time(ledger: Ledger) -> None:
    ledger.record(
        "main", xml("system-reminder", "x") * 20_000 + "Go.", "<system-reminder>" * 20_000
    )

    assert said(ledger.events("main"))[0] == ("inbound", "Go.")
