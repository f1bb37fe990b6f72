"""ChatGPT export: the tree with regenerations and edits, tools, repeated exports."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.chatgpt.source import ChatGpt
from tests.importers.helping import import_paths, result


def node(name: str, parent: str | None, role: str | None, text: Any = None, **more: Any) -> Any:
    message = None
    if role is not None:
        content = text if isinstance(text, dict) else {"content_type": "text", "parts": [text]}
        message = {
            "id": name,
            "author": {"role": role, "name": more.pop("tool", None)},
            "create_time": 1_700_000_000.5,
            "content": content,
            "status": "finished_successfully",
            "recipient": more.pop("recipient", "all"),
            "metadata": {"model_slug": "gpt-x"} if role == "assistant" else {},
        }
        message["metadata"] |= more.pop("metadata", {})
        message |= more
    return {"id": name, "message": message, "parent": parent, "children": []}


def conversation(*nodes: Any, name: str = "c1", current: str | None = None, **more: Any) -> Any:
    mapping = {each["id"]: json.loads(json.dumps(each)) for each in nodes}
    for each in mapping.values():
        if each["parent"] in mapping:
            mapping[each["parent"]]["children"].append(each["id"])
    return {
        "title": "Soup",
        "create_time": 1_700_000_000.0,
        "update_time": 1_700_000_100.0,
        "mapping": mapping,
        "current_node": current or nodes[-1]["id"],
        "conversation_id": name,
        **more,
    }


def export(folder: Path, *conversations: Any, name: str = "conversations.json") -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(json.dumps(conversations))
    return path


ROOT = node("r", None, None)
HIDDEN = node("s", "r", "system", "")
ASK = node("u1", "s", "user", "How do I make soup?")
TELL = node("a1", "u1", "assistant", "With water.")
LINE = (ROOT, HIDDEN, ASK, TELL)


def turns(ledger: Ledger, name: str = "c1") -> list[str]:
    return [turn.id.removeprefix(f"{name}:") for turn in ledger.thread(f"chatgpt:{name}").turns]


def test_a_conversation(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, export(tmp_path, conversation(*LINE, is_archived=True)))
    assert report.faults == []
    assert report.records["chatgpt", "(empty node)", "unmapped"] == 1
    assert report.records["chatgpt", "system", "unmapped"] == 1
    session = ledger.session("chatgpt:c1")
    assert (session.title, session.created_at) == ("Soup", 1_700_000_000_000)
    assert session.metadata_json == '{"is_archived":true}'
    (turn,) = ledger.thread("chatgpt:c1").turns
    assert (turn.model, turn.provider) == ("gpt-x", "openai")
    assert [m.content for m in turn.messages] == ["How do I make soup?", "With water."]
    assert ledger.audit() == ()


def test_an_export_is_recognised_by_its_first_node_of_any_length(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked = node("u1", None, "user", "soup " * 20_000)
    path = export(tmp_path, conversation(asked, TELL), name="mine.json")

    report = import_paths(ledger, path)

    assert report.unrecognised == []
    assert turns(ledger) == ["u1"]


def test_a_mapping_of_other_objects_is_not_recognised(tmp_path: Path) -> None:
    fields = b'{"mapping": {"field": {"id": 5, "type": "long"}, "parent": 1, "children": []}}'

    assert not ChatGpt().recognises(tmp_path, fields)


def test_a_regenerated_answer_is_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    again = node("a2", "u1", "assistant", "With stock.")
    more = (node("u2", "a2", "user", "And salt?"), node("a3", "u2", "assistant", "A little."))
    import_paths(ledger, export(tmp_path, conversation(*LINE, again, *more)))
    assert turns(ledger) == ["a2", "u2"]
    first, second = ledger.get_turn("c1:u1"), ledger.get_turn("c1:a2")
    assert first.parent_turn_id == second.parent_turn_id is None
    assert [m.content for m in first.messages] == ["How do I make soup?", "With water."]
    assert [m.content for m in second.query] == ["How do I make soup?"]
    assert second.response is not None
    assert second.response.content == "With stock."
    assert ledger.audit() == ()


def test_an_edited_prompt_is_a_branch(ledger: Ledger, tmp_path: Path) -> None:
    line = (*LINE, node("u2", "a1", "user", "And salt?"), node("a2", "u2", "assistant", "Some."))
    edit = (node("u3", "a1", "user", "And pepper?"), node("a3", "u3", "assistant", "None."))
    import_paths(ledger, export(tmp_path, conversation(*line, *edit, current="a2")))
    assert turns(ledger) == ["u1", "u2"]  # the live path
    assert {turn.id for turn in ledger.children("c1:u1")} == {"c1:u2", "c1:u3"}
    assert ledger.audit() == ()


def test_an_answer_that_forks_half_way(ledger: Ledger, tmp_path: Path) -> None:
    thoughts = {"content_type": "thoughts", "thoughts": [{"summary": "Soup", "content": "hot"}]}
    line = (
        ROOT,
        node("u1", "r", "user", "Soup?"),
        node("t1", "u1", "assistant", thoughts),
        node("a1", "t1", "assistant", "Hot."),
        node("a2", "t1", "assistant", "Cold."),
    )
    import_paths(ledger, export(tmp_path, conversation(*line)))
    (turn,) = ledger.thread("chatgpt:c1").turns
    assert turn.id == "c1:a2"
    assert [(m.content, m.thinking) for m in turn.messages] == [
        ("Soup?", None),
        (None, "Soup: hot"),
        ("Cold.", None),
    ]


def test_tools(ledger: Ledger, tmp_path: Path) -> None:
    code = {"content_type": "code", "language": "python", "text": "1 + 1"}
    output = {"content_type": "execution_output", "text": "2"}
    failed = {"aggregate_result": {"status": "failed_with_in_kernel_exception"}}
    line = (
        *LINE[:3],
        node("x1", "u1", "assistant", code, recipient="python"),
        node("o1", "x1", "tool", output, tool="python"),
        node("x2", "o1", "assistant", '{"q":"soup"}', recipient="browser"),
        node("o2", "x2", "tool", "no such page", tool="browser", metadata=failed),
        node("o3", "o2", "tool", "one more", tool="browser"),
        node("a1", "o3", "assistant", "Two."),
    )
    import_paths(ledger, export(tmp_path, conversation(*line)))
    (turn,) = ledger.thread("chatgpt:c1").turns
    one, two = turn.tool_calls
    assert (one.tool_name, one.status) == ("python", "completed")
    assert one.params_json == '{"code":"1 + 1","language":"python"}'
    assert '"text":"2"' in str(one.result_json)
    assert (two.params_json, two.status, two.error) == ('{"q":"soup"}', "failed", "no such page")
    assert [m.role for m in turn.messages] == ["user", "tool", "assistant"]
    assert ledger.audit() == ()


def test_images_and_instructions(ledger: Ledger, tmp_path: Path) -> None:
    wishes = {"content_type": "user_editable_context", "user_instructions": "Be brief."}
    picture = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f1"}
    asked = {"content_type": "multimodal_text", "parts": [picture, "What is it?"]}
    line = (
        ROOT,
        node("w", "r", "user", wishes, metadata={"is_visually_hidden_from_conversation": True}),
        node("u1", "w", "user", asked),
        node("a1", "u1", "assistant", "A spoon."),
    )
    import_paths(ledger, export(tmp_path, conversation(*line)))
    (turn,) = ledger.thread("chatgpt:c1").turns
    assert [(m.role, m.content) for m in turn.messages] == [
        ("system", "Be brief."),
        ("user", "What is it?"),
        ("assistant", "A spoon."),
    ]
    assert [m.content for m in turn.query] == ["What is it?"]
    assert "file-service://f1" in str(turn.messages[1].metadata_json)


def test_a_prompt_without_an_answer(ledger: Ledger, tmp_path: Path) -> None:
    waiting = node("u2", "a1", "user", "And salt?")
    import_paths(ledger, export(tmp_path, conversation(*LINE, waiting)))
    assert turns(ledger) == ["u1"]
    assert ledger.get_turn("c1:u2").status == "pending"


def test_a_file_with_a_single_conversation(ledger: Ledger, tmp_path: Path) -> None:
    path = tmp_path / "soup.json"
    path.write_text(json.dumps(conversation(*LINE), indent=2))
    assert import_paths(ledger, path).counts.imported == 1


def test_a_later_export_is_merged(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, export(tmp_path, conversation(*LINE), conversation(*LINE, name="c2")))
    before = result(ledger)["turns"]
    grown = (*LINE, node("u2", "a1", "user", "And salt?"), node("a2", "u2", "assistant", "Some."))
    report = import_paths(ledger, export(tmp_path, conversation(*grown)))  # c2 was deleted
    assert (report.counts.upserted, report.counts.skipped) == (1, 1)
    assert turns(ledger) == ["u1", "u2"]
    assert turns(ledger, "c2") == ["u1"]
    assert report.written_turns == 1
    assert [row[0] for row in before] == ["c1:u1", "c2:u1"]
    assert rederive(ledger).written_turns == 0
    assert ledger.audit() == ()


def test_shards_in_any_order(ledger: Ledger, tmp_path: Path) -> None:
    old = conversation(*LINE)
    new = conversation(
        *LINE, node("u2", "a1", "user", "Salt?"), node("a2", "u2", "assistant", "No")
    )
    one = export(tmp_path / "one", old, name="conversations-000.json")
    two = export(
        tmp_path / "two", conversation(*LINE, name="c2"), new, name="conversations-001.json"
    )
    import_paths(ledger, two)
    import_paths(ledger, one)
    assert ledger.query("SELECT count(*) FROM turns")[1] == [(3,)]
    assert len(ledger.sessions()) == 2
    assert ledger.audit() == ()


def test_a_truncated_document(ledger: Ledger, tmp_path: Path) -> None:
    path = export(tmp_path, conversation(*LINE), conversation(*LINE, name="c2"))
    path.write_bytes(path.read_bytes()[:-40])
    report = import_paths(ledger, path)
    assert "cut off" in report.faults[0].what
    assert [s.label for s in ledger.sessions()] == ["chatgpt:c1"]


def test_unpaired_surrogates_do_not_hide_a_conversation(ledger: Ledger, tmp_path: Path) -> None:
    talk = conversation(node("q", None, "user", "Which LONE?"), node("a", "q", "assistant", "LONE"))
    path = export(tmp_path, {**talk, "title": "A LONE"})
    path.write_text(path.read_text().replace("LONE", "\\ud83d"))

    report = import_paths(ledger, path)

    assert report.faults == []
    turn = ledger.thread("chatgpt:c1").turns[0]
    assert [message.content for message in turn.messages] == ["Which \ufffd?", "\ufffd"]


def test_texts_and_authors_that_are_plain_strings_are_read(ledger: Ledger, tmp_path: Path) -> None:
    answer = node("a", "q", "assistant", "", author="assistant", content="Soup.")
    import_paths(ledger, export(tmp_path, conversation(node("q", None, "user", "What?"), answer)))

    response = ledger.thread("chatgpt:c1").turns[0].response
    assert response is not None
    assert response.content == "Soup."


def test_the_archive_of_an_export_is_read_without_unpacking(ledger: Ledger, tmp_path: Path) -> None:
    talk = [conversation(node("q", None, "user", "What?"), node("a", "q", "assistant", "Soup."))]

    def packed(*talks: Any) -> Path:
        path = tmp_path / "export.zip"
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("conversations.json", json.dumps(talks))
            archive.writestr("chat.html", "<html>")
        return path

    report = import_paths(ledger, packed(*talk))
    assert report.counts.imported == 1
    assert report.unrecognised == [str(tmp_path / "export.zip" / "chat.html")]
    assert import_paths(ledger, tmp_path).counts.skipped == 1

    more = conversation(
        node("q2", None, "user", "And?"), node("a2", "q2", "assistant", "."), name="d"
    )
    report = import_paths(ledger, packed(*talk, more))
    assert (report.counts.imported, report.counts.skipped) == (1, 1)
    (written,) = export_source(ledger, "chatgpt:d", tmp_path / "out.json")
    assert json.loads(written.read_bytes()) == [*talk, more]


def test_what_was_derived_when_empty_nodes_hid_parents_is_derived_again(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = (node("u2", "e", "user", "And salt?"), node("a2", "u2", "assistant", "A little."))
    told = conversation(*LINE, *more, node("e", "a1", None), current="a2")
    told["mapping"]["a1"]["children"] = []  # the empty node comes last, and is on no list
    path = export(tmp_path, told)
    monkeypatch.setattr(ChatGpt, "version", 2)  # which found no parent here
    import_paths(ledger, path)
    monkeypatch.undo()

    assert import_paths(ledger, path).derived_records > 0
    assert turns(ledger) == ["u1", "u2"]


@pytest.mark.parametrize("indent", [None, 2])
def test_elements_that_are_not_conversations_are_faults_and_are_numbered(
    ledger: Ledger, tmp_path: Path, indent: int | None
) -> None:
    talks = [conversation(*LINE), conversation(*LINE, name="c2"), {"mapping": 5}]
    elements = [None, talks[0], "a, b", [{}], talks[1], talks[2], 5]
    path = tmp_path / "conversations.json"
    path.write_text(json.dumps(elements, indent=indent))

    report = import_paths(ledger, path)

    assert [fault.line for fault in report.faults] == [1, 3, 4, 6, 7]
    assert [fault.what.split(":")[0] for fault in report.faults] == [
        *["not an object"] * 3,
        "not a conversation",
        "not an object",
    ]
    assert len(ledger.sessions()) == 2


def test_unreadable_data_between_conversations_is_one_fault(ledger: Ledger, tmp_path: Path) -> None:
    path = export(tmp_path, "LOST", conversation(*LINE), {"mapping": 5})
    path.write_text(path.read_text().replace('"LOST"', "[lost]"))

    assert [fault.line for fault in import_paths(ledger, path).faults] == [1, 3]


def test_malformed_messages_are_a_fault_of_their_conversation(
    ledger: Ledger, tmp_path: Path
) -> None:
    broken = [{**node(name, "a1", None), "message": 5} for name in ("x", "y")]
    talk = conversation(*LINE, *broken, current="a1")

    report = import_paths(ledger, export(tmp_path, talk))

    assert [(fault.line, fault.what) for fault in report.faults] == [
        (1, "2 messages in this conversation cannot be read")
    ]
    assert turns(ledger) == ["u1"]
