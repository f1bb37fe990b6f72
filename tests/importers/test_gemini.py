"""Gemini CLI: documents, logs, rewinds, subagents."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.gemini.source import GeminiCli
from tests.importers.helping import import_paths, result

SESSION = "3f1c2a80-0000-4000-8000-00000000000a"
META = {
    "sessionId": SESSION,
    "projectHash": "ab" * 32,
    "startTime": "2026-03-01T10:00:00.000Z",
    "lastUpdated": "2026-03-01T10:05:00.000Z",
}


def said(name: str, type_: str, content: Any, **more: Any) -> dict[str, Any]:
    minute = sum(name.encode()) % 50 + 10
    return {
        "id": name,
        "timestamp": f"2026-03-01T10:{minute}:00.000Z",
        "type": type_,
        "content": content,
        **more,
    }


ASK = said("u1", "user", "What is in the shed?")
LOOK = said(
    "g1",
    "gemini",
    "",
    model="gemini-x",
    thoughts=[{"subject": "Shed", "description": "I open the door."}],
    tokens={"input": 100, "output": 10, "cached": 40, "thoughts": 5, "tool": 0, "total": 115},
    toolCalls=[
        {
            "id": "call-1",
            "name": "read_file",
            "args": {"file_path": "shed.txt"},
            "status": "success",
            "timestamp": "2026-03-01T10:20:01.000Z",
            "result": [{"functionResponse": {"id": "call-1", "response": {"output": "a rake"}}}],
        }
    ],
)
TELL = said(
    "g2",
    "gemini",
    "A rake.",
    model="gemini-x",
    tokens={"input": 120, "output": 4, "cached": 0, "thoughts": 0, "tool": 0, "total": 124},
)
ASK2 = said("u2", "user", [{"text": "And in the barn?"}, {"inlineData": {"data": "AAAA"}}])
TELL2 = said("g3", "gemini", [{"text": "Hay."}])


def document(folder: Path, *messages: dict[str, Any], **more: Any) -> Path:
    path = folder / "chats" / "session-2026-03-01T10-00-3f1c2a80.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**META, "messages": messages, **more}, indent=2))
    return path


def lines(folder: Path, *records: dict[str, Any]) -> Path:
    path = folder / "chats" / "session-2026-03-01T10-00-3f1c2a80.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(each) + "\n" for each in (META, *records)))
    return path


def label() -> str:
    return f"gemini-cli:{SESSION}"


def test_a_document(ledger: Ledger, tmp_path: Path) -> None:
    report = import_paths(ledger, document(tmp_path, ASK, LOOK, TELL, ASK2, summary="The shed"))
    assert report.counts.imported == 1
    assert report.faults == []
    session = ledger.session(label())
    assert (session.origin, session.title) == ("gemini-cli", "The shed")
    (turn,) = ledger.thread(label()).turns
    assert turn.id == f"{SESSION}:u1"
    assert (turn.model, turn.provider) == ("gemini-x", "google")
    assert (turn.input_tokens, turn.cached_input_tokens, turn.total_tokens) == (220, 40, 239)
    assert turn.reasoning_tokens == 5
    assert [m.role for m in turn.messages] == ["user", "assistant", "assistant"]
    assert turn.messages[1].thinking == "Shed: I open the door."
    assert turn.messages[1].files[0].file_path == "shed.txt"
    (call,) = turn.tool_calls
    assert (call.status, call.source_status) == ("completed", "success")
    assert call.result_json == '{"output":"a rake"}'
    assert turn.response is not None
    assert turn.response.content == "A rake."
    waiting = ledger.get_turn(f"{SESSION}:u2")
    assert waiting.status == "pending"
    assert waiting.messages[0].content == "And in the barn?"
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    ("folder", "words"),
    [
        ("/home/dev/shop", "Is /home/dev/shop/src/cart.py, the one beside /home/dev, in use?"),
        ("/home/dev/shop", "It is `/home/dev/shop`."),
        ("/home/dev/my shop", [{"text": "/home/dev/my shop/cart.py"}]),
        ("C:\\dev\\shop", "Look at C:\\dev\\shop\\cart.py"),
        ("/home/dev/café", "Look at /home/dev/café/cart.py"),
    ],
)
@pytest.mark.parametrize("form", [document, "lines"])
def test_the_folder_is_the_path_in_a_chat_that_has_its_hash(
    ledger: Ledger, tmp_path: Path, folder: str, words: Any, form: Any
) -> None:
    meta = {**META, "projectHash": hashlib.sha256(folder.encode()).hexdigest()}
    later = said("u2", "user", words)
    path = document(tmp_path, ASK, TELL, later, TELL2, projectHash=meta["projectHash"])
    if form == "lines":
        path.unlink()
        path = lines(tmp_path, {"$set": meta}, ASK, TELL, later, TELL2)
    import_paths(ledger, path)

    assert {turn.workspace_path for turn in ledger.thread(label()).turns} == {folder}
    session = ledger.session(label())
    assert session.routing_key == folder
    assert json.loads(session.metadata_json or "")["workspace_path"] == folder


def test_a_path_with_another_hash_is_not_the_folder_and_a_later_match_counts_for_all_turns(
    ledger: Ledger, tmp_path: Path
) -> None:
    hashed = hashlib.sha256(b"/home/dev/shop").hexdigest()
    first = (said("u1", "user", "Read /home/dev/other/a.py"), TELL)
    import_paths(ledger, document(tmp_path, *first, projectHash=hashed))
    assert [turn.workspace_path for turn in ledger.thread(label()).turns] == [None]

    more = (said("u2", "user", "Read /home/dev/shop/a.py"), TELL2)
    import_paths(ledger, document(tmp_path, *first, *more, projectHash=hashed))
    assert [turn.workspace_path for turn in ledger.thread(label()).turns] == ["/home/dev/shop"] * 2
    assert rederive(ledger).written_turns == 0


@pytest.mark.parametrize("root_first", [True, False])
def test_the_folder_may_be_in_a_root_file_of_the_project(
    ledger: Ledger, tmp_path: Path, root_first: bool
) -> None:
    hashed = hashlib.sha256(b"/home/dev/shop").hexdigest()
    chat = document(tmp_path, ASK, TELL, projectHash=hashed)
    root = tmp_path / ".project_root"
    root.write_text("/home/dev/shop\n")
    for path in (root, chat) if root_first else (chat, root):
        import_paths(ledger, path)

    assert [turn.workspace_path for turn in ledger.thread(label()).turns] == ["/home/dev/shop"]
    assert ledger.session(label()).routing_key == "/home/dev/shop"
    assert rederive(ledger).written_turns == 0
    root.write_text("/home/dev/other")  # that is not the hash of this chat
    import_paths(ledger, root)
    assert [turn.workspace_path for turn in ledger.thread(label()).turns] == ["/home/dev/shop"]


@pytest.mark.parametrize("words", ["", "shop", "/home/dev\n/shop", "\x00"])
def test_a_root_file_without_a_path_is_not_recognised(
    ledger: Ledger, tmp_path: Path, words: str
) -> None:
    path = tmp_path / ".project_root"
    path.write_text(words)

    report = import_paths(ledger, path)

    assert (report.unrecognised, report.faults) == ([str(path)], [])


def test_a_growing_document_is_shown_in_its_last_state(ledger: Ledger, tmp_path: Path) -> None:
    everything = (ASK, LOOK, TELL, ASK2, TELL2)
    for number in range(1, 6):
        import_paths(ledger, document(tmp_path, *everything[:number]))
    assert [t.id for t in ledger.thread(label()).turns] == [f"{SESSION}:u1", f"{SESSION}:u2"]
    assert ledger.query("SELECT count(*) FROM messages")[1] == [(5,)]
    again = import_paths(ledger, tmp_path)
    assert (again.counts.skipped, again.read_bytes, again.written_turns) == (1, 0, 0)
    assert rederive(ledger).written_turns == 0


def test_messages_that_a_later_document_lacks_stay(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, document(tmp_path, ASK, LOOK, TELL, ASK2, TELL2))
    other = said("u3", "user", "And in the well?")
    import_paths(ledger, document(tmp_path, ASK, LOOK, TELL, other, said("g4", "gemini", "Water")))
    assert ledger.session(label()).thread_id == f"{SESSION}:u3"
    children = {turn.id for turn in ledger.children(f"{SESSION}:u1")}
    assert children == {f"{SESSION}:u2", f"{SESSION}:u3"}  # a branch
    import_paths(ledger, document(tmp_path, TELL, other, said("g4", "gemini", "Water")))
    assert ledger.get_turn(f"{SESSION}:u3").parent_turn_id == f"{SESSION}:u1"
    assert ledger.audit() == ()


def test_a_log_with_a_rewind(ledger: Ledger, tmp_path: Path) -> None:
    early = {**TELL, "content": "A r"}
    path = lines(
        tmp_path,
        ASK,
        LOOK,
        early,
        {"$set": {"lastUpdated": "2026-03-01T11:00:00.000Z", "summary": "Places"}},
        TELL,
        ASK2,
        TELL2,
        {"$rewindTo": "u2"},
        said("u3", "user", "And in the well?"),
        said("g4", "gemini", "Water."),
        {"strange": 1},
    )
    report = import_paths(ledger, path)
    assert report.records["gemini-cli", "metadata", "unmapped"] == 1
    assert report.records["gemini-cli", "gemini", "derived"] == 5
    assert ledger.session(label()).title == "Places"
    assert [t.id for t in ledger.thread(label()).turns] == [f"{SESSION}:u1", f"{SESSION}:u3"]
    assert ledger.get_turn(f"{SESSION}:u2").parent_turn_id == f"{SESSION}:u1"
    first = ledger.get_turn(f"{SESSION}:u1")
    assert first.response is not None
    assert first.response.content == "A rake."  # the last one of an id counts
    assert first.total_tokens == 239
    assert ledger.audit() == ()


def test_a_growing_log_is_read_on(ledger: Ledger, tmp_path: Path) -> None:
    path = lines(tmp_path, ASK)
    import_paths(ledger, path)
    assert ledger.session(label()).thread_id is None
    with path.open("a") as file:
        file.write(json.dumps(TELL) + "\n" + json.dumps(ASK2)[:20])
    report = import_paths(ledger, path)
    assert "unfinished" in report.faults[0].what
    assert ledger.session(label()).thread_id == f"{SESSION}:u1"
    assert ledger.query("SELECT max(generation) FROM source_files")[1] == [(0,)]


def test_a_document_that_became_a_log_is_one_session(ledger: Ledger, tmp_path: Path) -> None:
    document(tmp_path, ASK, LOOK, TELL)
    lines(tmp_path, ASK, LOOK, TELL, ASK2, TELL2)
    import_paths(ledger, tmp_path)
    assert len(ledger.sessions()) == 1
    assert [t.id for t in ledger.thread(label()).turns] == [f"{SESSION}:u1", f"{SESSION}:u2"]
    assert ledger.query("SELECT count(*) FROM messages")[1] == [(5,)]


def test_a_patch_replaces_all_messages(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(
        ledger, lines(tmp_path, ASK, TELL, {"$set": {"messages": [ASK, TELL, ASK2, TELL2]}})
    )
    assert [t.id for t in ledger.thread(label()).turns] == [f"{SESSION}:u1", f"{SESSION}:u2"]


@pytest.mark.parametrize("parent_first", [True, False])
def test_a_subagent(ledger: Ledger, tmp_path: Path, parent_first: bool) -> None:
    agent = "scout-7"
    call = {"id": "c1", "name": "scout", "args": {}, "status": "success", "agentId": agent}
    parent = lines(tmp_path, ASK, {**LOOK, "toolCalls": [call]})
    child = tmp_path / "chats" / SESSION / f"{agent}.jsonl"
    child.parent.mkdir(parents=True)
    meta = {**META, "sessionId": agent, "kind": "subagent"}
    child.write_text("".join(json.dumps(each) + "\n" for each in (meta, ASK, TELL)))
    for path in (parent, child) if parent_first else (child, parent):
        import_paths(ledger, path)
    found = ledger.session(f"gemini-cli:{agent}")
    assert found.is_subagent
    assert (found.parent_session_label, found.spawn_tool_call_id) == (label(), "c1")
    assert found.parent_turn_id == f"{SESSION}:u1"
    asked = "SELECT source FROM messages WHERE role = 'user' ORDER BY id LIKE '%scout%'"
    assert ledger.query(asked)[1] == [("human",), ("agent",)]
    assert ledger.audit() == ()


def of_server(folder: Path, name: str, *records: dict[str, Any], **more: Any) -> Path:
    path = folder / "chats" / f"{name}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    meta = {**META, "sessionId": "a2a-server", "kind": "main", **more}
    path.write_text("".join(json.dumps(each) + "\n" for each in (meta, *records)))
    return path


def test_chats_of_the_server_share_an_id_and_are_separate_sessions(
    ledger: Ledger, tmp_path: Path
) -> None:
    call = {"id": "c1", "name": "scout", "args": {}, "status": "success", "agentId": "scout-7"}
    asks = {**LOOK, "toolCalls": [call]}
    first = of_server(tmp_path, "session-2026-03-01T10-00-a2a-serv", ASK, TELL)
    of_server(tmp_path, "session-2026-04-01T10-00-a2a-serv", ASK, asks, startTime="2026-04-01")
    of_server(tmp_path, "session-2026-05-01T10-00-a2a-serv", ASK2, TELL2, startTime="now")
    of_server(tmp_path, "a2a-server/scout-7", ASK, TELL, sessionId="scout-7", kind="subagent")
    import_paths(ledger, tmp_path)

    server = "gemini-cli:a2a-server"
    labels = [
        f"{server}:2026-03-01T10:00:00.000Z",
        f"{server}:2026-04-01",
        f"{server}:session-2026-05-01T10-00-a2a-serv",
        "gemini-cli:scout-7",
    ]
    assert sorted(each.label for each in ledger.sessions()) == labels
    assert [len(ledger.thread(each).turns) for each in labels] == [1, 1, 1, 1]
    subagent = ledger.session(labels[3])
    assert (subagent.parent_session_label, subagent.spawn_tool_call_id) == (labels[1], "c1")

    copy = tmp_path / "kept" / "old.jsonl"
    copy.parent.mkdir()
    copy.write_bytes(first.read_bytes())  # when it began tells which session it is
    of_server(tmp_path, first.stem, ASK, TELL, ASK2, TELL2)
    import_paths(ledger, tmp_path)
    assert sorted(each.label for each in ledger.sessions()) == labels
    assert len(ledger.thread(labels[0]).turns) == 2
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
    assert ledger.audit() == ()


def test_notices_and_errors(ledger: Ledger, tmp_path: Path) -> None:
    path = document(
        tmp_path,
        said("i1", "info", "An update is there."),
        ASK,
        TELL,
        ASK2,
        said("e1", "error", "The quota is used up."),
        said("x1", "poem", "Roses are red"),
    )
    report = import_paths(ledger, path)
    assert report.records["gemini-cli", "poem", "unmapped"] == 1
    first, second = (ledger.get_turn(f"{SESSION}:{name}") for name in ("u1", "u2"))
    assert [m.role for m in first.messages] == ["system", "user", "assistant"]
    assert (second.status, second.error) == ("failed", "The quota is used up.")
    assert ledger.session(label()).thread_id == second.id
    assert ledger.audit() == ()


@pytest.mark.parametrize(
    ("answer", "error", "status"),
    [
        (TELL, "Unknown command: /rake", "completed"),
        (TELL, "[API Error: The quota is used up.]", "failed"),
        (LOOK, "The model said nothing more.", "failed"),
    ],
)
def test_an_error_after_an_answer_does_not_fail_the_turn_unless_it_is_the_models(
    ledger: Ledger, tmp_path: Path, answer: dict[str, Any], error: str, status: str
) -> None:
    path = document(tmp_path, ASK, answer, said("e1", "error", error), ASK2, TELL2)

    import_paths(ledger, path)

    turn = ledger.get_turn(f"{SESSION}:u1")
    assert (turn.status, turn.error) == (status, error if status == "failed" else None)
    assert turn.messages[-1].content == error


def test_a_cancelled_answer_is_an_answer(ledger: Ledger, tmp_path: Path) -> None:
    stopped = said("i2", "info", "Request cancelled.")
    import_paths(ledger, document(tmp_path, ASK, TELL, stopped))
    turn = ledger.get_turn(f"{SESSION}:u1")
    assert (turn.status, turn.error) == ("completed", None)


def test_prompts_without_an_answer_between_them_are_one_query(
    ledger: Ledger, tmp_path: Path
) -> None:
    updated = said("i1", "info", "An update is there.")
    import_paths(ledger, document(tmp_path, ASK, updated, ASK2, TELL2))
    (turn,) = ledger.thread(label()).turns
    assert [m.content for m in turn.query] == ["What is in the shed?", "And in the barn?"]


def test_where_it_is_found() -> None:
    home = Home(Path("/home/dev"), {}, "linux")
    assert GeminiCli().roots(home) == [Path("/home/dev/.gemini/tmp")]
    moved = Home(Path("/home/dev"), {"GEMINI_CLI_HOME": "/srv/g"}, "linux")
    assert GeminiCli().roots(moved) == [Path("/srv/g/.gemini/tmp")]
    assert GeminiCli().wants(Path("/x/chats/session-1.json"))
    assert not GeminiCli().wants(Path("/x/logs.json"))


@pytest.mark.parametrize("suffix", [".json", ".jsonl"])
def test_unpaired_surrogates_do_not_hide_a_chat(
    ledger: Ledger, tmp_path: Path, suffix: str
) -> None:
    records = [META, ASK, {**TELL, "content": "LONE"}]
    if suffix == ".json":
        text = json.dumps({**META, "messages": records[1:]})
    else:
        text = "\n".join(json.dumps(each) for each in records)
    path = tmp_path / f"session-1{suffix}"
    path.write_text(text.replace("LONE", "\\ud83d"))

    assert import_paths(ledger, path).faults == []
    response = ledger.thread(f"gemini-cli:{SESSION}").turns[0].response
    assert response is not None
    assert response.content in ("\ud83d", "\ufffd")


def test_a_call_without_an_id_is_kept(ledger: Ledger, tmp_path: Path) -> None:
    looked = {**LOOK, "toolCalls": [{"name": "glob", "args": {}, "status": "success"}]}
    path = tmp_path / "session-1.json"
    path.write_text(json.dumps({**META, "messages": [ASK, looked]}))
    import_paths(ledger, path)

    (turn,) = ledger.thread(f"gemini-cli:{SESSION}").turns
    assert [(each.tool_name, each.status) for each in turn.tool_calls] == [("glob", "completed")]


@pytest.mark.parametrize(
    ("call_id", "began"),
    [
        ("read_file-1772360400000-5d44c2d7", 1772360400000),
        ("read_file_1772360400000_0", 1772360400000),
        ("read_file_1872360400000_0", 1772360405000),  # it cannot have ended before
        ("call-1", 1772360405000),
    ],
)
def test_a_call_starts_at_the_time_in_its_id_and_never_after_its_end(
    ledger: Ledger, tmp_path: Path, call_id: str, began: int
) -> None:
    call = {**LOOK["toolCalls"][0], "id": call_id, "timestamp": "2026-03-01T10:20:05.000Z"}
    late = {**LOOK, "timestamp": "2026-03-01T10:20:06.000Z", "toolCalls": [call]}

    import_paths(ledger, document(tmp_path, ASK, late))

    (found,) = ledger.get_turn(f"{SESSION}:u1").tool_calls
    assert (found.started_at, found.completed_at) == (began, 1772360405000)


@pytest.mark.parametrize("name", ["chat.json", "chat.jsonl", "chat.log"])
@pytest.mark.parametrize("form", ["lines", "document", "spread"])
def test_content_counts_before_the_name_of_a_file(
    ledger: Ledger, tmp_path: Path, name: str, form: str
) -> None:
    records = (META, ASK, TELL)
    text = "".join(json.dumps(each) + "\n" for each in records)
    chat = {**META, "messages": records[1:]}
    path = tmp_path / name
    path.write_text(
        text if form == "lines" else json.dumps(chat, indent=2 if form == "spread" else None)
    )
    report = import_paths(ledger, path)

    assert ledger.session(label()).thread_id == f"{SESSION}:u1"
    assert report.faults == []


@pytest.mark.parametrize(
    "record", [TELL, {"$set": {"lastUpdated": "2026-03-01T10:06:00.000Z"}}, {"$rewindTo": "u2"}]
)
def test_a_log_without_its_first_line_is_recognised_by_a_later_record(
    ledger: Ledger, tmp_path: Path, record: dict[str, Any]
) -> None:
    path = tmp_path / "session-2026-03-01T10-00-3f1c2a80.jsonl"
    path.write_text("".join(json.dumps(each) + "\n" for each in (ASK, record)))

    assert import_paths(ledger, path).unrecognised == []
    turn = ledger.get_turn(f"gemini-cli:{path.stem}:u1")
    assert turn.messages[0].content == "What is in the shed?"


def test_lines_that_other_agents_write_too_are_not_recognised(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "changes.jsonl"
    changes = [{"$set": {"price": 5}}, {"type": "gemini", "id": 1}, {**ASK, "type": "user"}]
    path.write_text("".join(json.dumps(each) + "\n" for each in changes))

    assert import_paths(ledger, path).unrecognised == [str(path)]


def test_calls_without_an_id_stay_separate(ledger: Ledger, tmp_path: Path) -> None:
    unnamed = [{"name": "scout"}, {"id": None, "name": "scout"}, {"id": "", "name": "scout"}]
    import_paths(ledger, document(tmp_path, ASK, {**LOOK, "toolCalls": unnamed}, TELL))

    found = ledger.query("SELECT id FROM tool_calls ORDER BY id")[1]
    assert [call_id.rpartition(":")[2] for (call_id,) in found] == ["0", "1", "2"]
    assert ledger.audit() == ()


@pytest.mark.finding("import-8")
@pytest.mark.parametrize(
    "sent",
    [
        "User steering update:\n<user_input>\nLook behind it.\n</user_input>\nInternal: ...",
        'User steering update: "Look behind it."\nInternal instruction: Re-evaluate the plan.',
        "User hints:\n<user_input>\nLook behind it.\n</user_input>\n\nInternal instruction: ...",
        "<hook_context>Earlier &lt;work&gt;.\nMore.</hook_context>\n\nLook behind it.",
        "Look behind it.\n\n<hook_context>A passage.</hook_context>",
    ],
)
def test_of_what_was_sent_around_a_prompt_only_the_words_are_shown(
    ledger: Ledger, tmp_path: Path, sent: str
) -> None:
    prompt = said("u2", "user", [{"text": sent}])
    import_paths(ledger, document(tmp_path, ASK, LOOK, prompt, TELL))

    rows = ledger.query("SELECT content, source, context_json FROM messages WHERE id LIKE '%u2%'")
    assert rows[1] == [
        ("Look behind it.", "human", json.dumps({"sent": sent}, separators=(",", ":")))
    ]
