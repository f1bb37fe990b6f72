"""Whether a list of messages is one its provider takes, judged by other means than the package's
own: the types of the provider's SDK, and the rules of pairing walked through by a state."""

from __future__ import annotations

from typing import Any

from anthropic.types import MessageParam
from openai.types.chat import ChatCompletionMessageParam
from openai.types.responses import ResponseInputParam
from pydantic import TypeAdapter

ANTHROPIC = TypeAdapter(list[MessageParam])
OPENAI = TypeAdapter(list[ChatCompletionMessageParam])
RESPONSES: TypeAdapter[Any] = TypeAdapter(ResponseInputParam)


def walked(value: Any) -> Any:
    """The same value, with everything in it that is checked only when it is looked at."""
    if isinstance(value, dict):
        return {name: walked(each) for name, each in value.items()}
    if value is None or isinstance(value, (str, bytes, int, float)):
        return value
    return [walked(each) for each in value]


def check_anthropic(messages: list[dict[str, Any]]) -> None:
    walked(ANTHROPIC.validate_python(messages))
    waiting: set[str] = set()
    all_ids: list[str] = []
    expected = "user"
    for message in messages:
        assert message["role"] == expected, "roles alternate, the user's first"
        expected = "assistant" if expected == "user" else "user"
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        results = {b["tool_use_id"] for b in message["content"] if b["type"] == "tool_result"}
        assert results == waiting
        assert set(kinds[: len(results)]) <= {"tool_result"}
        waiting = {b["id"] for b in message["content"] if b["type"] == "tool_use"}
        all_ids += waiting
        assert kinds.count("tool_use") == len(waiting)
        assert all(b["text"].strip() for b in message["content"] if b["type"] == "text")
        assert all(type(b["input"]) is dict for b in message["content"] if b["type"] == "tool_use")
        assert kinds[-1] != "thinking"
    assert not waiting
    assert len(set(all_ids)) == len(all_ids)


def check_openai(messages: list[dict[str, Any]]) -> None:
    walked(OPENAI.validate_python(messages))
    waiting: list[str] = []
    all_ids: list[str] = []
    for n, message in enumerate(messages):
        assert (message["role"] == "system") <= (n == 0)
        if waiting:
            assert message["role"] == "tool"
            assert message["tool_call_id"] == waiting.pop(0)
            assert message["content"]
            continue
        assert message["role"] != "tool"
        waiting = [call["id"] for call in message.get("tool_calls", ())]
        all_ids += waiting
        assert message["content"] or waiting
    assert not waiting
    assert len(set(all_ids)) == len(all_ids)
    assert all(len(each) <= 40 for each in all_ids)


def check_responses(items: list[dict[str, Any]]) -> None:
    walked(RESPONSES.validate_python(items))
    calls = [i["call_id"] for i in items if i.get("type") == "function_call"]
    outputs = [i["call_id"] for i in items if i.get("type") == "function_call_output"]
    assert sorted(calls) == sorted(outputs)
    assert len(set(calls)) == len(calls)
    for call_id in calls:
        at = [n for n, item in enumerate(items) if item.get("call_id") == call_id]
        between = items[at[0] : at[1]]
        assert items[at[0]]["type"] == "function_call"
        assert all("role" not in item for item in between), "nobody speaks before the result"
    assert all(item["content"] for item in items if "role" in item)
