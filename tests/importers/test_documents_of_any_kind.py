"""Readers of documents: whatever a document holds, they say what they can and never fail."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from agents_ledger.importers.parsing.json_spans import objects
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.sources.chatgpt.source import ChatGpt
from agents_ledger.importers.sources.claude_ai.source import ClaudeAi
from agents_ledger.importers.sources.cline.source import Cline
from agents_ledger.importers.sources.gemini.source import GeminiCli
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.sources import Derivation, SourceFile

NAMES = """
id ts type say ask text role user gemini model assistant system tool content parts messages
sessionId projectHash $set $rewindTo tokens toolCalls thoughts mapping message parent children
current_node author name recipient python content_type metadata conversation_id title
api_req_started command command_output user_feedback condense_context completion_result
conversationHistoryIndex tool_use tool_result input create_time a b
"""
WORDS = st.sampled_from(NAMES.split())
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 70), 1 << 70)
    | st.floats(allow_nan=False)
    | WORDS
    | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS, inner, max_size=5),
    max_leaves=25,
)
NODES = st.dictionaries(
    st.sampled_from("abcd"),
    st.fixed_dictionaries(
        {"parent": st.sampled_from([None, "a", "b", "c", "d"])},
        optional={
            "children": VALUES | st.lists(st.sampled_from("abcd"), max_size=4),
            "message": VALUES
            | st.fixed_dictionaries(
                {
                    "author": st.fixed_dictionaries({"role": WORDS}),
                    "content": st.fixed_dictionaries({"parts": VALUES, "content_type": WORDS}),
                    "recipient": WORDS,
                }
            ),
        },
    ),
)
CONVERSATIONS = st.lists(
    st.fixed_dictionaries({"mapping": NODES, "current_node": st.sampled_from("abcd"), "id": WORDS})
    | VALUES,
    max_size=3,
)
CHATS = st.fixed_dictionaries(
    {
        "sessionId": WORDS,
        "projectHash": WORDS,
        "messages": st.lists(
            st.fixed_dictionaries(
                {"id": st.sampled_from("abcd") | VALUES, "type": WORDS},
                optional={"content": VALUES},
            )
            | VALUES
        ),
    }
)
TALKS = st.lists(
    st.fixed_dictionaries(
        {
            "uuid": st.sampled_from("xy"),
            "chat_messages": st.lists(
                st.fixed_dictionaries(
                    {
                        "uuid": st.sampled_from("abcd"),
                        "sender": st.sampled_from(["human", "assistant", "other"]),
                        "content": VALUES,
                    },
                    optional={"parent_message_uuid": st.sampled_from("abcd") | VALUES},
                )
                | VALUES,
                max_size=6,
            ),
        },
        optional={"name": VALUES, "summary": VALUES},
    )
    | VALUES,
    max_size=3,
)
BLOCKS = st.lists(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["text", "thinking", "tool_use", "tool_result", "image"])},
        optional={
            "text": WORDS | VALUES,
            "id": st.sampled_from("ab") | VALUES,
            "tool_use_id": st.sampled_from("ab") | VALUES,
            "name": st.sampled_from(["spawn_agent", "editor"]) | VALUES,
            "input": VALUES,
            "content": VALUES,
        },
    )
    | VALUES,
    max_size=3,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {
            "id": st.sampled_from(["a", "b", "msg_abcdefgh", "msg_ABCDEFGH"]) | VALUES,
            "role": st.sampled_from(["user", "assistant", "other"]),
            "content": BLOCKS | VALUES,
        },
        optional={
            "metadata": st.fixed_dictionaries(
                {"kind": st.sampled_from(["compaction", "compaction_summary", "other"])}
            )
            | VALUES,
            "metrics": VALUES,
        },
    )
    | VALUES,
    max_size=6,
)
SESSIONS = st.fixed_dictionaries(
    {"messages": MESSAGES},
    optional={
        "sessionId": st.sampled_from(["s", "s__a"]) | VALUES,
        "source_message_count": st.integers(-1, 7) | VALUES,
        "origin": VALUES,
    },
) | st.fixed_dictionaries({"session_id": WORDS | VALUES}, optional={"metadata": VALUES})
ENTRIES = st.lists(
    st.fixed_dictionaries({"ts": st.integers(0, 9), "say": WORDS, "text": VALUES | WORDS})
    | st.fixed_dictionaries({"role": WORDS, "content": VALUES})
    | VALUES,
    max_size=8,
)


class Memory:
    """Kept files, without a ledger."""

    def __init__(self, *contents: bytes) -> None:
        self.contents = contents

    def stream(self, file_id: int) -> Iterator[bytes]:
        data = self.contents[file_id]
        yield from (data[at : at + 7] for at in range(0, len(data), 7))

    def read(self, file_id: int, start: int, length: int) -> bytes:
        return self.contents[file_id][start : start + length]


def derive(reader: Source, path: str, kind: Any, *contents: bytes) -> Derivation:
    files = [
        SourceFile(n, reader.name, path, n, "f", kind, len(c), 0, len(c))
        for n, c in enumerate(contents)
    ]
    derivation = reader.derive(Material(cast(Sources, Memory(*contents)), files))
    known: set[str] = set()
    for turn in derivation.turns:
        assert turn.parent_id is None or turn.parent_id in known
        known.add(turn.id)
        built = turn.build()
        parent = as_id(turn.parent_id) if turn.parent_id is not None else None
        assert (built.id, built.parent_turn_id) == (as_id(turn.id), parent)
        assert {m.id for m in built.messages} <= {as_id(each) for each in turn.record_ids}
        assert len({s.sequence for s in built.steps}) == len(built.steps)
    assert len(known) == len(derivation.turns)
    for session in derivation.sessions:
        assert session.head is None or session.head in known
    return derivation


READERS = {
    "gemini": partial(derive, GeminiCli(), "/x/chats/s.json", "document"),
    "gemini lines": partial(derive, GeminiCli(), "/x/chats/s.jsonl", "lines"),
    "chatgpt": partial(derive, ChatGpt(), "/x/conversations.json", "document"),
    "claude.ai": partial(derive, ClaudeAi(), "/x/conversations.json", "document"),
    "cline": partial(derive, Cline(), "/x/1/ui_messages.json", "document"),
    "cline history": partial(derive, Cline(), "/x/1/api_conversation_history.json", "document"),
    "cline session": partial(derive, Cline(), "/x/1/1.messages.json", "document"),
}


def written(value: Any) -> bytes:
    return json.dumps(value).encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("name", READERS)
@given(first=st.binary(max_size=60), value=VALUES)
@settings(max_examples=settings().max_examples // 4)
def test_anything(name: str, first: bytes, value: Any) -> None:
    READERS[name](first, written(value), written(value)[:-3])


@given(st.lists(CONVERSATIONS, min_size=1, max_size=3))
@settings(max_examples=settings().max_examples // 4)
def test_conversations(exports: list[Any]) -> None:
    READERS["chatgpt"](*map(written, exports))


@given(st.lists(TALKS, min_size=1, max_size=3))
@settings(max_examples=settings().max_examples // 4)
def test_talks(exports: list[Any]) -> None:
    READERS["claude.ai"](*map(written, exports))


@given(st.lists(CHATS, min_size=1, max_size=3))
@settings(max_examples=settings().max_examples // 4)
def test_chats(chats: list[Any]) -> None:
    READERS["gemini"](*map(written, chats))
    records = [record for chat in chats for record in [chat, *chat["messages"]]]
    READERS["gemini lines"](b"\n".join(map(written, records)))


@given(st.lists(ENTRIES, min_size=1, max_size=3))
@settings(max_examples=settings().max_examples // 4)
def test_tasks(documents: list[Any]) -> None:
    READERS["cline"](*map(written, documents))
    READERS["cline history"](*map(written, documents))


@given(st.lists(SESSIONS, min_size=1, max_size=4))
@settings(max_examples=settings().max_examples // 2)
def test_sessions(documents: list[Any]) -> None:
    READERS["cline session"](*map(written, documents))


@given(st.lists(VALUES, max_size=6), st.integers(1, 40), st.sampled_from([None, 1]))
@settings(deadline=None)
def test_objects_are_found_however_they_are_cut(
    values: list[Any], size: int, indent: int | None
) -> None:
    data = json.dumps(values, indent=indent).encode("utf-8", "surrogatepass")
    blocks = [data[at : at + size] for at in range(0, len(data), size)]
    found = [json.loads(data[start:end]) for start, end in objects(blocks)]
    assert found == [value for value in values if isinstance(value, dict)]


def test_one_object_is_found() -> None:
    assert list(objects([b' {"a": ["}"]} '])) == [(1, 13)]
