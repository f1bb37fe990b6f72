"""Whatever turns hold, what is made of them is what each provider takes."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from agents_ledger import Message, Refused, ToolCall, Turn, validate
from agents_ledger.context.assembly import Assembled, VisibleThread, assemble
from agents_ledger.context.providers import PROVIDERS
from agents_ledger.model.context.items import TextItem
from tests.context.checking import check_anthropic, check_openai, check_responses

CHECKS = {
    "anthropic": check_anthropic,
    "openai": check_openai,
    "openai-responses": check_responses,
}
words = st.one_of(
    st.sampled_from(["", " ", "yes", "a\n", "\ud800", "日本", "x" * 3000]), st.text(max_size=8)
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner),
    max_leaves=4,
)
blocks = st.lists(
    st.sampled_from(
        [
            {"type": "text", "text": "found"},
            {"type": "text", "text": ""},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "bytes": 9}},
            {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
            {"type": "image", "mimeType": "image/gif", "data": "R0lGODlh"},
            {"type": "input_image", "image_url": None},
            {"type": "image_url", "image_url": {"url": "data:image/tiff;base64,AAAA"}},
        ]
    ),
    max_size=3,
)
any_json = st.one_of(json_values, blocks, st.builds(lambda b: {"content": b}, blocks)).map(
    json.dumps
)
call_ids = st.sampled_from(["toolu_1", "toolu_2", "call|3", "x" * 60, "ü", "functions.exec:0"])
messages = st.builds(
    Message,
    role=st.sampled_from(["user", "assistant", "system", "tool"]),
    content=st.none() | words,
    thinking=st.none() | st.just("hm"),
    metadata_json=st.sampled_from(
        [None, "[]", "not json", '{"thinking_signature": "abc"}', '{"blocks": [{"type": "image"}]}']
    ),
    tool_call_id=st.none() | call_ids,
)
calls = st.builds(
    ToolCall,
    tool_name=st.sampled_from(["Read", "mcp.x/y z", "ö", "n" * 90]),
    params_json=st.sampled_from(["{}", '{"a": 1}', "[1]", '"text"', "broken {", "", "null"]),
    result_json=st.none() | any_json | st.just("broken"),
    error=st.none() | words,
    status=st.sampled_from(["pending", "running", "completed", "failed", "cancelled", "rejected"]),
    id=call_ids,
    message_id=st.sampled_from([None, "m1", "m2"]),
)


@st.composite
def turns(draw: st.DrawFn, turn_id: str) -> Turn:
    steps = draw(st.lists(messages | calls, max_size=6))
    seen: set[str] = set()
    placed: list[Any] = []
    for n, step in enumerate(steps):
        if isinstance(step, ToolCall):
            if step.id in seen:
                continue
            seen.add(step.id)
            placed.append(_at(step, turn_id, n, step.id))
        else:
            placed.append(_at(step, turn_id, n, f"{turn_id}-{n}"))
    said = [step for step in placed if isinstance(step, Message)]
    asked = [step.id for step in said[: draw(st.integers(0, 2))]]
    return Turn(
        turn_id,
        provider=draw(st.sampled_from(["anthropic", "openai", None])),
        query_message_ids=json.dumps(asked),
        messages=tuple(said),
        tool_calls=tuple(step for step in placed if isinstance(step, ToolCall)),
    )


def _at(step: Any, turn_id: str, sequence: int, step_id: str) -> Any:
    fields = {name: getattr(step, name) for name in step.__struct_fields__}
    return type(step)(**{**fields, "turn_id": turn_id, "sequence": sequence, "id": step_id})


@st.composite
def histories(draw: st.DrawFn) -> VisibleThread:
    made = [draw(turns(f"t{n}")) for n in range(draw(st.integers(0, 4)))]
    kept = draw(st.integers(0, len(made)))
    return VisibleThread(
        draw(st.sampled_from([None, "Be brief."])),
        draw(st.sampled_from(["", "They talked."])),
        "c",
        made[: kept // 2],
        made[kept // 2 : kept],
        made[kept:],
        draw(st.sampled_from([(), (Message("user", "And now?"),)])),
    )


def assert_valid(made: Assembled) -> None:
    for name, provider in PROVIDERS.items():
        rendered = provider.render(made.system_prompt, made.items)
        json.dumps(rendered).encode()
        if made.items:
            CHECKS[name](rendered[provider.messages])
            assert validate(rendered, name) == (), name


@given(histories())
@settings(max_examples=60, deadline=None)
def test_every_thread_gives_a_list_that_every_provider_takes(history: VisibleThread) -> None:
    made = assemble(history)

    assert_valid(made)
    shown = {item.turn_id for item in made.items}
    assert shown <= {turn.id for turn in (*history.picked, *history.kept, *history.since)} | {
        "c",
        None,
    }


@given(histories(), st.integers(1, 900), st.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_so_it_does_when_it_is_cut_to_a_budget_and_the_last_turns_are_whole(
    history: VisibleThread, budget: int, last: int
) -> None:
    whole = assemble(history)
    try:
        made = assemble(history, budget=budget, last=last)
    except Refused:
        return

    assert_valid(made)
    tokens = sum(block.tokens for block in made.blocks)
    assert tokens + (7 if history.system_prompt else 0) <= budget
    kept_whole = [b for b in whole.blocks if b.part in ("kept", "since")]
    protected = kept_whole[len(kept_whole) - last :] if last else []
    protected += [block for block in whole.blocks if block.part == "query"]
    assert [block for block in protected if block not in made.blocks] == []
    saved = sum(cut.tokens for cut in made.cuts)
    assert sum(block.tokens for block in whole.blocks) == tokens + saved


@given(st.lists(json_values | st.dictionaries(st.text(max_size=3), json_values), max_size=4))
@settings(max_examples=50, deadline=None)
def test_validating_anything_at_all_never_fails(messages: list[Any]) -> None:
    for name in PROVIDERS:
        found = validate(messages, name)
        assert found or messages


fields = {
    "role": st.sampled_from(["user", "assistant", "tool", "system", None, 3, []]),
    "type": st.sampled_from(["message", "function_call", "function_call_output", None, []]),
    "content": st.one_of(
        words,
        st.none(),
        st.lists(
            st.fixed_dictionaries(
                {"type": st.sampled_from(["text", "tool_use", "tool_result", "thinking", 1])},
                optional={
                    "text": words,
                    "id": json_values,
                    "tool_use_id": json_values,
                    "name": json_values,
                    "input": json_values,
                },
            ),
            max_size=3,
        ),
    ),
    "tool_calls": json_values | st.just([{"id": [], "function": 3}]),
    "call_id": json_values,
}


@given(st.lists(st.fixed_dictionaries({}, optional=fields), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_validating_lists_that_are_nearly_right_never_fails_either(messages: list[Any]) -> None:
    for name in PROVIDERS:
        validate(messages, name)


def test_an_empty_thread_shows_nothing() -> None:
    made = assemble(VisibleThread())

    assert made.items == ()
    assert [problem.what for problem in validate([], "anthropic")] == ["there are no messages"]


def test_the_query_names_no_turn() -> None:
    made = assemble(VisibleThread(query=(Message("user", "Hello?"),)))

    assert made.items == (TextItem("user", "Hello?", None, "query"),)
