"""Turns as items: order, repairs, thinking and images."""

from __future__ import annotations

import json
from typing import Any

from agents_ledger import (
    CallItem,
    ImageItem,
    Message,
    MessageFile,
    Repair,
    ResultItem,
    TextItem,
    ThinkingItem,
    ToolCall,
    Turn,
)
from agents_ledger.context import anthropic
from agents_ledger.context.items import ItemBuilder


def a_turn(*steps: Message | ToolCall, asked: int = 1, **fields: Any) -> Turn:
    placed = [
        _with(step, turn_id="t", sequence=n, id=step.id or f"m{n}") for n, step in enumerate(steps)
    ]
    messages = tuple(step for step in placed if isinstance(step, Message))
    return Turn(
        "t",
        query_message_ids=json.dumps([message.id for message in messages[:asked]]),
        messages=messages,
        tool_calls=tuple(step for step in placed if isinstance(step, ToolCall)),
        **fields,
    )


def _with(step: Any, **changes: Any) -> Any:
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return type(step)(**{**fields, **changes})


def items_of(turn: Turn) -> list[Any]:
    """Its items, without where they come from."""
    return [_with(item, turn_id=None, part="since") for item in ItemBuilder().turn(turn, "kept")]


def test_what_was_said_and_done_stands_in_its_order_and_names_its_turn() -> None:
    turn = a_turn(
        Message("user", "Read it."),
        Message("assistant", "I will."),
        ToolCall("Read", '{"path":"a"}', '"text of a"', id="c1", message_id="m1"),
        Message("assistant", "Done."),
    )

    made = ItemBuilder().turn(turn, "kept")

    assert made == [
        TextItem("user", "Read it.", "t", "kept"),
        TextItem("assistant", "I will.", "t", "kept"),
        CallItem("c1", "Read", '{"path":"a"}', "t", "kept"),
        ResultItem("c1", "text of a", False, (), "t", "kept"),
        TextItem("assistant", "Done.", "t", "kept"),
    ]


def test_calls_of_one_message_stand_together_and_others_one_after_the_other() -> None:
    turn = a_turn(
        ToolCall("A", id="1", result_json='"a"', message_id="m"),
        ToolCall("B", id="2", result_json='"b"', message_id="m"),
        ToolCall("C", id="3", result_json='"c"', message_id="n"),
        ToolCall("D", id="4", result_json='"d"'),
        ToolCall("E", id="5", result_json='"e"'),
    )

    order = [getattr(item, "id", None) or item.text for item in items_of(turn)]

    assert order == ["1", "2", "a", "b", "3", "c", "4", "d", "5", "e"]


def test_a_call_without_a_result_gets_one_that_says_so() -> None:
    row = ItemBuilder()
    turn = a_turn(
        ToolCall("A", id="1", status="running"),
        ToolCall("B", id="2", status="cancelled", error="no result recorded"),
        ToolCall("C", id="3", status="rejected", error="not allowed"),
        ToolCall("D", id="4", status="completed"),
        ToolCall("E", id="5", status="failed", error="exit 1", result_json='"half"'),
    )

    results = [item for item in row.turn(turn, "since") if isinstance(item, ResultItem)]

    assert [(item.text, item.is_error) for item in results] == [
        ("[no result recorded]", True),
        ("no result recorded", True),
        ("not allowed", True),
        ("[no output]", False),
        ("half", True),
    ]
    assert row.repairs == [
        Repair("t", "call without a result", "1"),
        Repair("t", "call without a result", "2"),
    ]


def test_a_tool_message_is_its_calls_result_and_one_without_a_call_the_users_words() -> None:
    row = ItemBuilder()
    turn = a_turn(
        ToolCall("A", id="1"),
        Message("tool", "from the message", tool_call_id="1"),
        Message("tool", "lost", tool_call_id="9"),
    )

    made = row.turn(turn, "since")

    assert [getattr(item, "text", None) for item in made] == [
        None,
        "from the message",
        "[result of a tool call that is not recorded]\nlost",
    ]
    assert made[2].role == "user"  # type: ignore[union-attr]
    assert row.repairs == [Repair("t", "result without a call", "m2")]


def test_an_id_that_came_before_or_would_be_refused_is_replaced_by_one_made_from_it() -> None:
    first, second = ItemBuilder(), ItemBuilder()
    turns = [a_turn(ToolCall("A", id="same")), a_turn(ToolCall("A", id="same"))]
    odd = a_turn(ToolCall("A", id="a|b"))

    ids = [item.id for turn in turns for item in first.turn(turn, "since")[:1]]  # type: ignore[union-attr]
    replaced = second.turn(odd, "since")

    assert ids[0] == "same"
    assert ids[1] != "same"
    assert replaced[0].id == replaced[1].call_id  # type: ignore[union-attr]
    assert replaced[0].id.startswith("call_")  # type: ignore[union-attr]
    assert first.repairs == [Repair("t", "call id replaced", "same")]
    again = ItemBuilder().turn(odd, "since")[0]
    assert again == replaced[0], "the same call has the same id in every context"


def test_names_and_parameters_that_would_be_refused_are_put_right() -> None:
    turn = a_turn(
        ToolCall("mcp.files/read it", "[1, 2]", id="1"),
        ToolCall("B" * 100, "rm -rf {", id="2"),
        ToolCall("C", "null", id="3"),
    )

    calls = [item for item in items_of(turn) if isinstance(item, CallItem)]

    assert [(call.tool_name, call.params_json) for call in calls] == [
        ("mcp_files_read_it", '{"input":[1,2]}'),
        ("B" * 64, '{"input":"rm -rf {"}'),
        ("C", '{"input":null}'),
    ]


def test_thinking_is_kept_only_with_its_signature() -> None:
    turn = a_turn(
        Message("assistant", "a", thinking="unsigned"),
        Message("assistant", "b", thinking="signed", metadata_json='{"thinking_signature": "sig"}'),
        provider="anthropic",
    )

    assert items_of(turn) == [
        TextItem("assistant", "a"),
        ThinkingItem("signed", "sig", "anthropic"),
        TextItem("assistant", "b"),
    ]


def test_blank_words_and_notices_are_left_out_and_lone_surrogates_replaced() -> None:
    turn = a_turn(
        Message("system", "Answer in French."),
        Message("user", "  \n"),
        Message("system", "An update is available."),
        Message("assistant", ""),
        Message("assistant", "bro\ud800ken"),
    )

    assert items_of(turn) == [
        TextItem("user", "[system]\nAnswer in French."),
        TextItem("assistant", "bro\ufffdken"),
    ]


def signed_thinking(**fields: Any) -> Turn:
    signed = '{"thinking_signature": "sig"}'
    answer = Message("assistant", "a", thinking="hm", metadata_json=signed)
    return a_turn(Message("user", "q"), answer, **fields)


def test_the_provider_of_signed_thinking_is_known_by_a_claude_model() -> None:
    builder = ItemBuilder()

    items = builder.turn(signed_thinking(model="claude-opus-5"), "since")

    assert isinstance(items[1], ThinkingItem)
    assert items[1].provider == "anthropic"
    block = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    assert anthropic.render(None, items)["messages"][1]["content"][0] == block
    assert builder.repairs == []


def test_signed_thinking_of_an_unknown_provider_is_reported() -> None:
    builder = ItemBuilder()

    items = builder.turn(signed_thinking(model="some-model"), "since")

    assert "thinking" not in str(anthropic.render(None, items))
    what = "signed thinking left out: the turn names no provider"
    assert builder.repairs == [Repair("t", what, "m1")]


def test_images_are_kept_by_reference() -> None:
    blocks = [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "bytes": 20481}},
        {"type": "image", "source": {"type": "url", "url": "https://example.org/b.png"}},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]
    turn = a_turn(
        Message("user", "Look.", metadata_json=json.dumps({"blocks": blocks})),
        Message(
            "user",
            "And here.",
            metadata_json='{"blocks": [{"type": "input_image", "bytes": 3}]}',
            files=(MessageFile("attached", "/home/me/shot.PNG"), MessageFile("attached", "a.py")),
        ),
        Message("assistant", "Drawn.", metadata_json='{"blocks": [{"type": "image"}]}'),
        ToolCall(
            "Shot", id="1", result_json=json.dumps([{"type": "text", "text": "ok"}, blocks[1]])
        ),
    )

    made = items_of(turn)

    assert made[:7] == [
        ImageItem("message m0, 20481 bytes", "image/png"),
        ImageItem("https://example.org/b.png"),
        ImageItem("data:image/png;base64,AAAA"),
        TextItem("user", "Look."),
        ImageItem("/home/me/shot.PNG"),
        TextItem("user", "[file: a.py]"),
        TextItem("user", "And here."),
    ]
    assert made[7:9] == [
        TextItem("assistant", "Drawn."),
        TextItem("assistant", "[image: message m2]"),
    ]
    assert (made[-1].text, [each.reference for each in made[-1].images]) == (
        "ok",
        ["https://example.org/b.png"],
    )


def test_an_attached_image_is_sent_and_any_other_file_is_named() -> None:
    shown = {
        "data:image/png;base64,AAAA": ImageItem("data:image/png;base64,AAAA"),
        "https://x.y/a.png?x=1": ImageItem("https://x.y/a.png?x=1"),
        "https://x.y/a.png#top": ImageItem("https://x.y/a.png#top"),
        "https://x.y/img?id=3.png": TextItem("user", "[file: https://x.y/img?id=3.png]"),
        "https://[a": TextItem("user", "[file: https://[a]"),
        "why?.png": ImageItem("why?.png"),
        "build.log": TextItem("user", "[file: build.log]"),
        "data:application/pdf;base64,JVBERi0=": TextItem("user", "[file: application/pdf]"),
    }
    for path, item in shown.items():
        question = Message("user", "Look.", files=(MessageFile("attached", path),))
        assert items_of(a_turn(question)) == [item, TextItem("user", "Look.")]


def test_only_attached_files_are_named_with_their_lines() -> None:
    files = (MessageFile("attached", "a.py", 3, 9), MessageFile("read", "b.py"))
    turn = a_turn(
        Message("user", "Look.", files=files),
        Message("assistant", "Here.", files=(MessageFile("attached", "report.pdf"),)),
    )

    assert [item.text for item in items_of(turn)] == [
        "[file: a.py, lines 3 to 9]", "Look.", "Here.", "[file: report.pdf]",
    ]  # fmt: skip


def test_a_result_that_is_no_text_is_shown_as_it_is() -> None:
    shown = {
        '"plain"': "plain",
        '{"rows": [1, 2]}': '{"rows": [1, 2]}',
        '{"content": [{"type": "text", "text": "of MCP"}]}': "of MCP",
        '[{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]': "a\nb",
        '[{"type": "resource", "uri": "x"}]': '[{"type": "resource", "uri": "x"}]',
        "not json": "not json",
        "[]": "[]",
    }
    for result, text in shown.items():
        [_, item] = items_of(a_turn(ToolCall("A", id="1", result_json=result)))
        assert item.text == text
