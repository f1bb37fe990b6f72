"""Contexts in the form of each provider, and what is found wrong with lists of messages."""

from __future__ import annotations

from typing import Any

import pytest

from agents_ledger import (
    CallItem,
    ImageItem,
    Refused,
    ResultItem,
    TextItem,
    ThinkingItem,
    validate,
)
from agents_ledger.context.providers import PROVIDERS

ITEMS = (
    ImageItem("https://example.org/a.png"),
    TextItem("user", "What is this?"),
    ThinkingItem("hm", "sig", "anthropic"),
    TextItem("assistant", "Let me see. "),
    CallItem("c1", "look", '{"at": 1}'),
    CallItem("c2", "look", "{}"),
    ResultItem("c1", "a cat", images=(ImageItem("data:image/png;base64,AAAA"),)),
    ResultItem("c2", "nothing", is_error=True),
    TextItem("user", "And?"),
    ThinkingItem("of another", "sig", "google"),
    TextItem("assistant", "A cat. "),
)


def test_in_the_form_of_anthropic() -> None:
    assert PROVIDERS["anthropic"].render("Be kind.", ITEMS) == {
        "system": "Be kind.",
        "messages": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "image",
                        "source": {"type": "url", "url": "https://example.org/a.png"},
                    },
                    {"type": "text", "text": "What is this?"},
                ],
            },
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "sig"},
                    {"type": "text", "text": "Let me see. "},
                    {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}},
                    {"type": "tool_use", "id": "c2", "name": "look", "input": {}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "a cat"},
                            {
                                "type": "image",
                                "source": {
                                    "type": "base64",
                                    "media_type": "image/png",
                                    "data": "AAAA",
                                },
                            },
                        ],
                    },
                    {
                        "type": "tool_result",
                        "tool_use_id": "c2",
                        "content": [{"type": "text", "text": "nothing"}],
                        "is_error": True,
                    },
                    {"type": "text", "text": "And?"},
                ],
            },
            {"role": "assistant", "content": [{"type": "text", "text": "A cat."}]},
        ],
    }


def test_in_the_form_of_openai_chat() -> None:
    assert PROVIDERS["openai"].render("Be kind.", ITEMS) == {
        "messages": [
            {"role": "system", "content": "Be kind."},
            {
                "role": "user",
                "content": [
                    {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}},
                    {"type": "text", "text": "What is this?"},
                ],
            },
            {
                "role": "assistant",
                "content": "Let me see. ",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"at": 1}'},
                    },
                    {
                        "id": "c2",
                        "type": "function",
                        "function": {"name": "look", "arguments": "{}"},
                    },
                ],
            },
            {"role": "tool", "tool_call_id": "c1", "content": "a cat\n[image: image/png]"},
            {"role": "tool", "tool_call_id": "c2", "content": "nothing"},
            {"role": "user", "content": "And?"},
            {"role": "assistant", "content": "A cat. "},
        ]
    }


def test_in_the_form_of_openai_responses() -> None:
    assert PROVIDERS["openai-responses"].render(None, ITEMS) == {
        "input": [
            {
                "role": "user",
                "content": [
                    {
                        "type": "input_image",
                        "image_url": "https://example.org/a.png",
                        "detail": "auto",
                    },
                    {"type": "input_text", "text": "What is this?"},
                ],
            },
            {"role": "assistant", "content": "Let me see. "},
            {
                "type": "function_call",
                "call_id": "c1",
                "name": "look",
                "arguments": '{"at": 1}',
            },
            {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"},
            {
                "type": "function_call_output",
                "call_id": "c1",
                "output": [
                    {"type": "input_text", "text": "a cat"},
                    {
                        "type": "input_image",
                        "image_url": "data:image/png;base64,AAAA",
                        "detail": "auto",
                    },
                ],
            },
            {"type": "function_call_output", "call_id": "c2", "output": "nothing"},
            {"role": "user", "content": [{"type": "input_text", "text": "And?"}]},
            {"role": "assistant", "content": "A cat. "},
        ]
    }


def test_an_image_that_no_provider_can_see_becomes_words() -> None:
    lost = ImageItem("message m1, 20481 bytes", "image/png")
    tiff = ImageItem("data:image/tiff;base64,AAAA", "image/tiff")

    blocks = PROVIDERS["anthropic"].render(None, [lost, tiff])["messages"][0]["content"]

    assert [block["text"] for block in blocks] == [
        "[image: message m1, 20481 bytes (image/png)]",
        "[image: image/tiff]",
    ]


def test_thinking_that_leads_to_nothing_is_left_out() -> None:
    items = (TextItem("user", "a"), ThinkingItem("hm", "s", "anthropic"), TextItem("user", "b"))

    assert [m["role"] for m in PROVIDERS["anthropic"].render(None, items)["messages"]] == ["user"]


def use(call_id: Any = "1", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": "f", "input": {}, **fields}


def result(call_id: str = "1") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": "x"}


def says(role: str, *blocks: Any) -> dict[str, Any]:
    return {"role": role, "content": list(blocks)}


TEXT = {"type": "text", "text": "a"}
ASKED = says("user", TEXT)


@pytest.mark.parametrize(
    ("messages", "index", "what"),
    [
        ([says("assistant", TEXT)], 0, "the first message is not the user's"),
        (["hello"], 0, "a message is str, not an object"),
        ([says("system", TEXT)], 0, "role 'system' is neither user nor assistant"),
        ([says("user")], 0, "there is no content"),
        ([says("user", TEXT, "b")], 0, "content holds str, not an object"),
        ([{"role": "user", "content": 3}], 0, "content is int, neither text nor a list"),
        ([says("user", {"type": "text", "text": " "})], 0, "a text is blank"),
        ([says("user", use())], 0, "a user's message holds 'tool_use'"),
        ([ASKED, says("assistant", use())], 1, "tool call '1' has no result"),
        (
            [ASKED, says("assistant", use()), says("user", TEXT)],
            1,
            "tool call '1' has no result in the next message",
        ),
        ([ASKED, says("user", result())], 1, "result of '1' has no call in the message before"),
        (
            [ASKED, says("assistant", use()), says("user", result(), result())],
            2,
            "tool call '1' has two results",
        ),
        (
            [ASKED, says("assistant", use()), says("user", TEXT, result())],
            2,
            "results do not stand before the other content",
        ),
        (
            [ASKED, says("assistant", use(), use()), says("user", result())],
            1,
            "tool call id '1' came before",
        ),
        ([ASKED, says("assistant", use("a b"))], 1, "'a b' cannot be the id of a tool call"),
        ([ASKED, says("assistant", use(name="a.b"))], 1, "'a.b' cannot be the name of a tool"),
        (
            [ASKED, says("assistant", use(input=[]))],
            1,
            "the input of tool call '1' is not an object",
        ),
        (
            [ASKED, says("assistant", {"type": "thinking", "thinking": "a"}, TEXT)],
            1,
            "thinking has no signature",
        ),
        (
            [ASKED, says("assistant", {"type": "thinking", "signature": "s"})],
            1,
            "a message ends with thinking",
        ),
        ([says("user", {"type": "image"})], 0, "an image has no source"),
        (
            [ASKED, {"role": "assistant", "content": "yes "}],
            1,
            "the assistant's last words end in space",
        ),
    ],
)
def test_what_anthropic_would_refuse_is_found(messages: Any, index: int, what: str) -> None:
    assert (index, what) in [(p.index, p.what) for p in validate(messages, "anthropic")]


def calling(call_id: Any = "1", **function: Any) -> dict[str, Any]:
    made = {"name": "f", "arguments": "{}", **function}
    return {"role": "assistant", "tool_calls": [{"id": call_id, "function": made}]}


SAID = {"role": "tool", "tool_call_id": "1", "content": "x"}
HELLO = {"role": "user", "content": "a"}


@pytest.mark.parametrize(
    ("messages", "index", "what"),
    [
        ([{"role": "bot", "content": "a"}], 0, "role 'bot' is none of system, developer, user,"),
        ([{"role": "user"}], 0, "there is no content"),
        ([{"role": "user", "content": {}}], 0, "content is dict, neither text nor a list"),
        ([HELLO, calling()], 1, "tool call '1' has no result right after it"),
        ([HELLO, calling(), HELLO, SAID], 1, "tool call '1' has no result right after it"),
        ([HELLO, SAID], 1, "result of '1' has no open call right before it"),
        ([calling(), SAID, SAID], 2, "result of '1' has no open call right before it"),
        ([calling(), SAID, calling(), SAID], 2, "tool call id '1' came before"),
        ([calling("x" * 41)], 0, f"'{'x' * 41}' cannot be the id of a tool call"),
        ([calling(name="a b")], 0, "'a b' cannot be the name of a tool"),
        ([calling(arguments={})], 0, "the arguments of 'f' are not text"),
        ([calling(), {**SAID, "content": None}], 1, "there is no content"),
    ],
)
def test_what_openai_would_refuse_is_found(messages: Any, index: int, what: str) -> None:
    found = [(p.index, p.what) for p in validate(messages, "openai")]
    assert any(index == at and said.startswith(what) for at, said in found), found


CALL = {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "1", "output": "x"}


@pytest.mark.parametrize(
    ("messages", "index", "what"),
    [
        ([HELLO, CALL], 1, "tool call '1' has no result"),
        ([HELLO, OUTPUT, CALL], 1, "result of '1' has no call before it"),
        ([CALL, OUTPUT, OUTPUT], 2, "tool call '1' has two results"),
        ([CALL, CALL, OUTPUT], 1, "tool call id '1' came before"),
        ([{**CALL, "call_id": ""}], 0, "'' cannot be the id of a tool call"),
        ([{**CALL, "name": ""}], 0, "'' cannot be the name of a tool"),
        ([CALL, {**OUTPUT, "output": None}], 1, "the result of '1' has no output"),
        ([{"role": "tool", "content": "a"}], 0, "role 'tool' is none of user, assistant,"),
        ([{"role": "user", "content": ""}], 0, "there is no content"),
        ([{"role": "user", "content": [1]}], 0, "content holds int, not an object"),
        ([{"type": 3}], 0, "type 3 is not text"),
    ],
)
def test_what_openai_responses_would_refuse_is_found(messages: Any, index: int, what: str) -> None:
    found = [(p.index, p.what) for p in validate(messages, "openai-responses")]
    assert any(index == at and said.startswith(what) for at, said in found), found


def test_good_lists_are_found_good() -> None:
    good = [ASKED, says("assistant", TEXT, use()), says("user", result(), TEXT)]
    assert validate(good, "anthropic") == ()
    assert validate([{"role": "user", "content": "plain"}], "anthropic") == ()
    assert validate([HELLO, calling(), SAID, HELLO], "openai") == ()
    assert validate([HELLO, CALL, OUTPUT, {"type": "reasoning"}], "openai-responses") == ()


def test_an_unknown_provider_and_no_list_at_all_are_refused() -> None:
    with pytest.raises(Refused, match="no provider format 'other'") as refused:
        validate([], "other")
    assert "anthropic, openai, openai-responses" in refused.value.hint
    with pytest.raises(Refused, match="messages are a list, not str"):
        validate("hello", "openai")
