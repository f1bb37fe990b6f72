"""Settings in any layout: what is added can be removed again, and nothing else changes."""

from __future__ import annotations

import json
import re
import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_ledger.integrations.agents.install import json_text, toml_text

KEYS = st.sampled_from(["a", "b", "c d", "mcpServers", "ü", 'quote"d'])
SCALARS = st.sampled_from(["1", "null", "true", '"x"', '"a, b"', '"// no comment"', '"\\" }"'])
BOOLEANS = st.booleans()
SPACES = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // note, with } \n", " /* c, { */ "])
SERVER = {"command": "/p/agents-ledger", "args": ["mcp"]}


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 2) -> str:
    """An object with comments and white space anywhere, and perhaps a last comma."""
    members = []
    for key in draw(st.lists(KEYS, max_size=3, unique=True)):
        value: str = draw(st.one_of(SCALARS, json_texts(depth - 1)) if depth else SCALARS)
        parts = [
            draw(SPACES),
            json.dumps(key),
            draw(SPACES),
            ":",
            draw(SPACES),
            value,
            draw(SPACES),
        ]
        members.append("".join(parts))
    has_last_comma = draw(BOOLEANS)
    last = "," if members and has_last_comma else ""
    return "{" + ",".join(members) + last + draw(SPACES) + "}"


def values(text: str) -> Any:
    return json_text.value_of(text, json_text.parse(text))


def words(text: str) -> str:
    return "".join(text.split())


@given(json_texts())
def test_a_member_that_was_added_is_removed_without_a_trace(text: str) -> None:
    before = values(text)
    if not isinstance(before.get("mcpServers", {}), dict) or before.get("mcpServers") == {}:
        return  # it is refused, or the empty object would go too

    added = json_text.set_member(text, ["mcpServers", "agents-ledger"], SERVER)

    servers = {**before.get("mcpServers", {}), "agents-ledger": SERVER}
    assert values(added) == {**before, "mcpServers": servers}
    removed = json_text.remove(added, ["mcpServers"], lambda key, _: key == "agents-ledger")
    assert values(removed) == before
    assert words(removed) == words(text)


@given(json_texts())
def test_an_item_that_was_appended_is_removed_without_a_trace(text: str) -> None:
    before = values(text)
    if not isinstance(before.get("a", {}), dict) or before.get("a") == {}:
        return

    added = json_text.append_item(text, ["a", "Start"], SERVER)

    expected = before.get("a", {}).get("Start", [])
    assert values(added)["a"]["Start"] == [*expected, SERVER]
    removed = json_text.remove(added, ["a", "Start"], lambda _, item: item == SERVER)
    assert values(removed) == before
    assert words(removed) == words(text)


@pytest.mark.parametrize(
    "text",
    [
        '{\n  "a": 1 // the first\n}\n',
        '{\n  "a": 1, // the first\n}\n',
        '{\r\n\t"a": {"b": 2},\r\n\t"c": [1, 2]\r\n}',
        "{\n    // nothing yet\n}\n",
        '{"a": 1}',
        '{\n  "mcpServers": {\n    "b": {} // keep\n  }\n}\n',
        '{\n  "mcpServers": {\n    "b": {}, // keep\n    /* and this */\n  },\n  "z": 1\n}\n',
    ],
)
def test_usual_layouts_come_back_byte_by_byte(text: str) -> None:
    added = json_text.set_member(text, ["mcpServers", "agents-ledger"], SERVER)

    for comment in re.findall(r"//[^\n\r]*|/[*].*?[*]/", text):
        assert comment in added
    assert ("\r\n" in text) is ("\r\n" in added)
    removed = json_text.remove(added, ["mcpServers"], lambda key, _: key == "agents-ledger")
    assert removed == text


def test_comments_around_a_removed_member_stay() -> None:
    text = '{\n  // one\n  "a": 1,\n  // two\n  "b": 2,\n  // three\n  "c": 3\n}\n'

    removed = json_text.remove(text, [], lambda key, _: key == "b")

    assert removed == '{\n  // one\n  "a": 1,\n  // two\n  // three\n  "c": 3\n}\n'


@pytest.mark.parametrize(
    "text", ["", "{", '{"a" 1}', '{"a": 1} x', '{"a": }', '{"a": 1 "b": 2}', "{a: 1}", "[1", '"']
)
def test_what_is_not_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"offset|empty|Expecting|Unterminated|key|value"):
        json_text.parse(text)


LINES = st.sampled_from(
    ["# note\n", "\n", 'x = "[mcp_servers.agents-ledger]"\n', "y = [\n  [1],\n]\n", "z = 1 # one\n"]
)
TABLES = st.sampled_from(
    [
        "[a]\n",
        "[mcp_servers.docs]\n",
        '[mcp_servers."other.one"]\n',
        "[[list]]\n",
        "# about it\n[b]\n",
    ]
)


@st.composite
def toml_texts(draw: st.DrawFn) -> str:
    text = ""
    for table in ["", *draw(st.lists(TABLES, max_size=3, unique=True))]:
        text += table + "".join(draw(st.lists(LINES, max_size=3, unique=True)))
    return text.replace("\n", "\r\n") if draw(BOOLEANS) else text


PATH = ("mcp_servers", "agents-ledger")


@given(toml_texts())
def test_a_table_that_was_added_is_removed_without_a_trace(text: str) -> None:
    before = tomllib.loads(text)

    added = toml_text.set_table(text, PATH, SERVER)

    assert tomllib.loads(added)["mcp_servers"]["agents-ledger"] == SERVER
    assert added.startswith(text)
    assert toml_text.set_table(added, PATH, SERVER) == added
    removed = toml_text.remove_table(added, PATH)
    assert removed == text
    # Tables that were added behind it later stay with their comments.
    later = f'{added}\n# mine\n[later]\nz = 3 # "three"\n'
    kept = toml_text.remove_table(later, PATH)
    assert "# mine\n[later]\nz = 3" in kept
    assert tomllib.loads(kept) == {**before, "later": {"z": 3}}


def test_a_table_is_replaced() -> None:
    old = toml_text.set_table("a = 1\n", PATH, {"command": "old", "args": []})

    new = toml_text.set_table(f"{old}[mcp_servers.agents-ledger.env]\nX = '1'\n", PATH, SERVER)

    assert tomllib.loads(new) == {"a": 1, "mcp_servers": {"agents-ledger": SERVER}}
