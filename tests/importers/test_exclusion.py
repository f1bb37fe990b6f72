"""Projects that are left out: nothing of them is kept, all of the others is."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.discovery import FileSelection, Unrecognised, files_at
from agents_ledger.importers.pipeline import Importer, Report, rederive
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.ledger.projection.source_records import Sources
from tests.importers import test_aix, test_cline, test_gemini, test_opencode
from tests.importers.claude_log import Log, a_log
from tests.importers.codex_log import Rollout, index_line
from tests.importers.cursor_made import bubble, chat, state_db, tool
from tests.importers.cursor_made import headers as made_by_row
from tests.importers.helping import result

LEFT, KEPT = "/home/dev/secret", "/home/dev/shop"
SECRET, PLAIN = "the password is swordfish", "the till is open"


@pytest.fixture
def address(tmp_path: Path) -> str:
    return str(tmp_path / "ledger.db")


@pytest.fixture
def ledger(address: str) -> Iterator[Ledger]:
    with Ledger.open(address) as opened:
        yield opened


def import_without(
    ledger: Ledger, path: Path, *exclude: str, limits: ImportLimits = LIMITS
) -> Report:
    report = Report()
    found = files_at(path, Unrecognised(report.faults, report.unrecognised))
    wanted = FileSelection(0, exclude or (LEFT,))
    importer = Importer(ledger, report, limits=limits)
    return importer.run(wanted.of(found, report.faults, report.excluded))


def everything(ledger: Ledger, address: str) -> str:
    """All that a ledger holds: its tables, its index of words, and what is packed in blocks."""
    sources = Sources(ledger._core)
    kept = b"".join(b"".join(sources.stream(file.id)) for file in sources.all_files())
    with closing(sqlite3.connect(address)) as file:
        return "\n".join(file.iterdump()) + kept.decode(errors="replace")


def a_home(root: Path) -> Path:
    """Chats of two projects in one Cursor database, and databases of their workspaces."""
    made: dict[str, Any] = {}
    headers = []
    for at, (name, folder, words) in enumerate((("a", LEFT, SECRET), ("b", KEPT, PLAIN))):
        place = root / "workspaceStorage" / f"w{name}"
        listed = {"allComposers": [{"composerId": f"{name}-listed", "name": words}]}
        state_db(place / "state.vscdb", items={"composer.composerData": listed})
        state_db(place / "state.vscdb", items={"aiService.prompts": [{"text": words}]})
        (place / "workspace.json").write_text(json.dumps({"folder": f"file://{folder}"}))
        ways: dict[str, dict[str, Any]] = {
            "said": {"workspaceIdentifier": {"id": f"w{name}", "uri": {"fsPath": f"{folder}/in"}}},
            "by-id": {"workspaceIdentifier": {"id": f"w{name}"}},
            "listed": {},
            "header": {},
            "sent": {},
            "selected": {"context": {"folderSelections": [{"absolutePath": folder}]}},
            "row": {},
            "parent": {"subComposerIds": [f"{name}-child"]} | {"name": words},
            "child": {},
        }
        ways["parent"] |= {"workspaceIdentifier": {"uri": {"fsPath": folder}}}
        for way, fields in ways.items():
            chat_id, b = f"{name}-{way}", f"{name}{way}"
            made |= chat(
                chat_id,
                bubble(f"{b}1", 1, words, at),
                bubble(f"{b}2", 2, f"{words}!", at, toolFormerData=tool(f"call-{b}", "read", 1)),
                **fields,
            )
            made[f"codeBlockDiff:{chat_id}:x"] = {"diff": words}
            made[f"checkpointId:{chat_id}:x"] = {"files": [words]}
        task = f"task-call-{name}said"
        made |= chat(task, bubble(f"{name}t1", 1, words, at), bubble(f"{name}t2", 2, words, at))
        layout = json.dumps({"rootPath": folder})
        made[f"messageRequestContext:{name}-sent:x"] = {"projectLayouts": [layout], "todo": words}
        made[f"agentKv:checkpoint:{name}-said"] = words
        place_of = {"workspaceIdentifier": {"uri": {"fsPath": folder}}}
        headers.append({"composerId": f"{name}-header", "name": words, **place_of})
    made[f"agentKv:blob:{'0' * 64}"] = {"role": "user", "content": SECRET}
    said = {"more": 1, "selected": {"a-said": SECRET}, "opened": {"b-said": "the last one"}}
    lists = {"composer.composerHeaders": {"allComposers": headers, **said}}
    path = state_db(root / "globalStorage" / "state.vscdb", made, lists)
    for name, words in (("a", SECRET), ("b", PLAIN)):
        held = {"workspaceIdentifier": {"id": f"w{name}"}}
        made_by_row(path, {"type": "head", "composerId": f"{name}-row", "name": words, **held})
    return root


def test_cursors_chats_of_a_project_are_left_out_of_a_database_of_many(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    report = import_without(ledger, a_home(tmp_path / "User"))

    held = everything(ledger, address)
    assert SECRET not in held
    assert "a-said" not in held
    assert "the last one" in held
    labels = {label for (label,) in ledger.query("SELECT label FROM sessions")[1]}
    ways = ("said", "by-id", "listed", "header", "sent", "selected", "row", "parent", "child")
    assert labels == {f"cursor:b-{way}" for way in ways} | {"cursor:task-call-bsaid"}
    assert ledger.session("cursor:b-header").title == PLAIN
    assert report.faults == []
    assert report.counts.failed == 0


def test_the_same_is_left_out_when_more_is_written(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    root = a_home(tmp_path / "User")
    import_without(ledger, root)
    again = import_without(ledger, root)
    assert (again.read_bytes, again.derived_records, again.written_turns) == (0, 0, 0)

    place = {"workspaceIdentifier": {"uri": {"fsPath": LEFT}}}
    more = chat("a-more", bubble("m1", 1, SECRET), **place)
    more |= {"bubbleId:a-listed:z": bubble("z", 2, SECRET), "bubbleId:b-listed:z": bubble("z", 2)}
    state_db(root / "globalStorage" / "state.vscdb", more)
    import_without(ledger, root)

    assert SECRET not in everything(ledger, address)
    assert ledger.query("SELECT count(*) FROM messages WHERE id = 'z'")[1] == [(1,)]
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_what_is_no_longer_left_out_comes_in_whole(ledger: Ledger, tmp_path: Path) -> None:
    root = a_home(tmp_path / "User")
    import_without(ledger, root)

    import_without(ledger, root, "/nowhere")

    labels = {label for (label,) in ledger.query("SELECT label FROM sessions")[1]}
    assert {"cursor:a-said", "cursor:a-header", "cursor:task-call-asaid"} <= labels
    assert ledger.session("cursor:a-header").title == SECRET
    blobs = [
        record
        for file in Sources(ledger._core).all_files()
        if b"agentKv:blob" in (record := b"".join(Sources(ledger._core).stream(file.id)))
    ]
    assert len(blobs) == 1


def test_what_was_imported_before_it_was_excluded_keeps_what_a_list_said_of_it(
    ledger: Ledger, tmp_path: Path
) -> None:
    path = tmp_path / "User" / "globalStorage" / "state.vscdb"
    entries = [
        {
            "composerId": name,
            "name": f"Title {name}",
            "workspaceIdentifier": {"uri": {"fsPath": at}},
        }
        for name, at in (("a-1", LEFT), ("b-1", KEPT))
    ]
    made = chat("a-1", bubble("a1", 1, "Hello"), bubble("a2", 2, "Hi"))
    made |= chat("b-1", bubble("b1", 1, "Hello"), bubble("b2", 2, "Hi"))
    state_db(path, made, {"composer.composerHeaders": {"allComposers": entries}})
    import_without(ledger, path, "/nowhere")
    before = ledger.session("cursor:a-1")

    entries[0]["name"], entries[1]["name"] = SECRET, "Title b-2"
    more = {"bubbleId:a-1:a3": bubble("a3", 1, SECRET), "bubbleId:b-1:b3": bubble("b3", 1, "More")}
    state_db(path, more, {"composer.composerHeaders": {"allComposers": entries}})
    report = import_without(ledger, path)

    assert report.excluded.sessions == 1
    assert ledger.session("cursor:a-1") == before
    assert before.title == "Title a-1"
    assert LEFT in str(before.metadata_json)
    assert ledger.session("cursor:b-1").title == "Title b-2"
    everything_before = result(ledger)
    rederive(ledger)
    assert result(ledger) == everything_before


def test_a_chat_that_says_no_project_is_kept_and_told(ledger: Ledger, tmp_path: Path) -> None:
    home = tmp_path / "home"
    made = chat("c", bubble("c1", 1, "Hello"), bubble("c2", 2, "Hi"))
    state_db(home / "User" / "globalStorage" / "state.vscdb", made)

    report = import_without(ledger, home)

    assert len(ledger.thread("cursor:c").turns) == 1
    assert [
        fault.what
        for fault in report.faults
        if "1 session kept though folders are excluded" in fault.what
    ]


def test_what_is_of_no_chat_is_not_kept_while_one_is_left_out_of_the_database(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    root = a_home(tmp_path / "User")
    items = {"aiService.prompts": [{"text": SECRET}], "aiService.generations": [{"text": SECRET}]}
    state_db(root / "globalStorage" / "state.vscdb", items=items)

    report = import_without(ledger, root)

    held = everything(ledger, address)
    assert SECRET not in held
    assert PLAIN in held
    assert report.faults == []
    import_without(ledger, root, "/nowhere")
    assert SECRET in everything(ledger, address)


def test_rows_and_entries_that_say_no_project_are_counted(ledger: Ledger, tmp_path: Path) -> None:
    root = a_home(tmp_path / "User")
    tabs = {"tabs": [{"tabId": "tab", "bubbles": [{"type": "user", "text": "Hello"}]}]}
    headers = {"allComposers": [{"composerId": "entry", "name": "No folder"}]}
    state_db(
        root / "globalStorage" / "state.vscdb",
        {"composerData:broken": '{"workspaceIdentifier":{"uri":{"fsPath":"' + LEFT},
        {"workbench.panel.aichat.view.aichat.chatdata": tabs, "composer.composerData": headers},
    )

    report = import_without(ledger, root)

    assert [f.what for f in report.faults if "3 sessions kept though" in f.what]


def test_a_broken_list_that_names_a_chat_left_out_is_not_kept(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    root = a_home(tmp_path / "User")
    tabs = "workbench.panel.aichat.view.aichat.chatdata"
    broken = f'[{{"composerId":"a-said","name":"{SECRET}"}}'
    ours = '[{"composerId":"b-said","name":"broken, but ours"}'
    state_db(
        root / "globalStorage" / "state.vscdb", items={tabs: broken, "composer.composerData": ours}
    )

    import_without(ledger, root)

    held = everything(ledger, address)
    assert SECRET not in held
    assert "broken, but ours" in held


def test_cursors_agent_is_left_out_by_what_stands_beside_it_or_by_its_folders_name(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    line = json.dumps({"role": "user", "message": {"content": [{"type": "text", "text": SECRET}]}})
    root = tmp_path / ".cursor"
    for slug in ("home-dev-secret", "home-dev-secret-deep-in"):
        file = root / "projects" / slug / "agent-transcripts" / f"{slug}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(line + "\n")
    kept = root / "projects" / "home-dev-secretary" / "agent-transcripts" / "k.jsonl"
    kept.parent.mkdir(parents=True)
    kept.write_text(line.replace(SECRET, PLAIN) + "\n")
    hashed = hashlib.md5(LEFT.encode(), usedforsecurity=False).hexdigest()
    for name, meta in ((hashed, {"title": SECRET}), ("0" * 32, {"cwd": f"{LEFT}/x", "t": SECRET})):
        place = root / "chats" / name / "s"
        place.mkdir(parents=True)
        (place / "meta.json").write_text(json.dumps({"hasConversation": True, **meta}))

    import_without(ledger, root)

    held = everything(ledger, address)
    assert SECRET not in held
    assert PLAIN in held


def test_a_folder_beside_one_that_is_left_out_is_told_by_the_disk(
    ledger: Ledger, tmp_path: Path
) -> None:
    left = tmp_path / "dev" / "shop"
    (tmp_path / "dev" / "shop-2").mkdir(parents=True)
    (left / "3").mkdir(parents=True)
    dashes = str(left).replace("/", "-").replace("_", "-").strip("-")
    line = json.dumps({"role": "user", "message": {"content": [{"type": "text", "text": "Hi"}]}})
    for name in ("2", "3"):
        file = tmp_path / "projects" / f"{dashes}-{name}" / "agent-transcripts" / f"t{name}.jsonl"
        file.parent.mkdir(parents=True)
        file.write_text(line + "\n")

    import_without(ledger, tmp_path / "projects", str(left))

    assert ledger.query("SELECT label FROM sessions")[1] == [("cursor:t2",)]


def of_opencode(words: str, folder: str, tail: str) -> test_opencode.Records:
    session = {**test_opencode.SESSION, "id": f"ses_{tail}", "directory": folder, "title": words}
    session["projectID"] = f"p{tail}"
    asked = test_opencode.user(f"msg_{tail}", 1, f"ses_{tail}")
    said = test_opencode.part(f"prt_{tail}", f"msg_{tail}", "text", f"ses_{tail}", text=words)
    child = {**session, "id": f"ses_{tail}c", "parentID": f"ses_{tail}", "directory": ""}
    more = test_opencode.user(f"msg_{tail}c", 2, f"ses_{tail}c")
    text = test_opencode.part(f"prt_{tail}c", f"msg_{tail}c", "text", f"ses_{tail}c", text=words)
    return [session, child], [asked, more], [said, text]


@pytest.mark.parametrize("generation", ["database", "files", "both"])
def test_opencodes_sessions_of_a_project_are_left_out(
    ledger: Ledger, address: str, tmp_path: Path, generation: str
) -> None:
    home = tmp_path / "home"
    for words, folder, tail in ((SECRET, f"{LEFT}/deep", "a"), (PLAIN, KEPT, "b")):
        records = of_opencode(words, folder, tail)
        root = home / "opencode"
        if generation != "files":
            test_opencode.database(root / "opencode.db", records)
        if generation != "database":
            sessions, messages, parts = records
            kept = [each for each in sessions if generation == "files" or not each.get("parentID")]
            for each in kept:
                each["directory"] = each["directory"] or folder
            test_opencode.storage(root, (kept, messages, parts))
            diff = root / "storage" / "session_diff" / f"ses_{tail}.json"
            diff.parent.mkdir(exist_ok=True)
            diff.write_text(json.dumps([{"file": words}]))

    import_without(ledger, home)

    held = everything(ledger, address)
    assert SECRET not in held
    assert "ses_a" not in held
    said = ledger.query("SELECT content FROM messages")[1]
    assert said == [(PLAIN,), (PLAIN,)]


@pytest.mark.parametrize("told_by", ["hash", "root", "list", "hash in list", "hash of words"])
def test_geminis_chats_of_a_project_are_left_out(
    ledger: Ledger, address: str, tmp_path: Path, told_by: str
) -> None:
    home = tmp_path / "home"
    (home / ".gemini").mkdir(parents=True)
    listed = {"projects": {f"{LEFT}/deep": "secret", KEPT: "shop"}}
    if "list" in told_by:
        (home / ".gemini" / "projects.json").write_text(json.dumps(listed))
    for folder, words, name in ((LEFT, SECRET, "secret"), (KEPT, PLAIN, "shop")):
        is_deep = told_by in ("hash in list", "hash of words") and folder == LEFT
        project = f"{folder}/deep" if is_deep else folder
        hashed = hashlib.sha256(project.encode()).hexdigest()
        place = home / ".gemini" / "tmp" / (hashed if "hash" in told_by else name)
        chats = place / "chats"
        chats.mkdir(parents=True)
        if told_by == "root":
            (place / ".project_root").write_text(f"{folder}\n")
        more = f" in {project}/a.txt" if told_by == "hash of words" else ""
        ask = {**test_gemini.ASK, "content": words + more, "id": name}
        about = {"sessionId": f"{name}-s", "projectHash": hashed}
        document = {**test_gemini.META, **about, "messages": [ask]}
        (chats / f"session-2026-{name}.json").write_text(json.dumps(document))

    report = import_without(ledger, home)

    held = everything(ledger, address)
    assert SECRET not in held
    assert PLAIN in held
    # Of a hash nobody knows whether it is of a folder within one that is left out.
    assert len(report.faults) == (told_by == "hash")


@pytest.mark.parametrize("told_by", ["history", "timeline", "list", "item"])
def test_clines_tasks_of_a_project_are_left_out(
    ledger: Ledger, address: str, tmp_path: Path, told_by: str
) -> None:
    tasks, listed = tmp_path / "claude-dev" / "tasks", []
    for folder, words, name in ((LEFT, SECRET, "1"), (KEPT, PLAIN, "2")):
        place = f"# Current Working Directory ({folder}) Files"
        task = tasks / name
        task.mkdir(parents=True)
        sent = place if told_by == "timeline" else "nothing"
        timeline = [test_cline.say(1000, "task", words), test_cline.say(1001, "text", sent)]
        (task / "ui_messages.json").write_text(json.dumps(timeline))
        sent = place if told_by == "history" else "nothing"
        history = [{"role": "user", "content": [test_cline.text(f"<task>{words}</task> {sent}")]}]
        (task / "api_conversation_history.json").write_text(json.dumps(history))
        listed.append({"id": name, "task": words, "cwdOnTaskInitialization": folder})
        if told_by == "item":
            (task / "history_item.json").write_text(json.dumps({"id": name, "workspace": folder}))
    if told_by == "list":
        (tmp_path / "claude-dev" / "state").mkdir()
        (tmp_path / "claude-dev" / "state" / "taskHistory.json").write_text(json.dumps(listed))

    import_without(ledger, tasks)

    held = everything(ledger, address)
    assert SECRET not in held
    assert PLAIN in held


def test_an_aix_database_is_kept_without_the_sessions_of_a_project(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    rows: dict[str, list[dict[str, Any]]] = {"sessions": [], "messages": [], "message_metadata": []}
    for name, folder, words in (("a", LEFT, SECRET), ("b", KEPT, PLAIN)):
        child = {"parent_session_id": name, "is_subagent": 1}
        for session, said in ((name, {"workspace_path": folder}), (f"{name}c", child)):
            rows["sessions"].append({"id": session, "source": "cursor", "summary": words, **said})
            message = {"id": f"m{session}", "session_id": session, "role": "user", "sequence": 1}
            rows["messages"].append({**message, "content": words, "timestamp": 1769616000000})
            rows["message_metadata"].append({"message_id": f"m{session}", "metadata_json": words})
    home.mkdir()
    test_aix.aix_db(home / "aix.db", **rows)

    import_without(ledger, home)

    held = everything(ledger, address)
    assert SECRET not in held
    assert {label for (label,) in ledger.query("SELECT label FROM sessions")[1]} == {
        "aix:cursor:b",
        "aix:cursor:bc",
    }


def test_a_claude_code_file_of_titles_alone_is_of_its_folders_project(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    log = a_log(home / "projects" / "-home-dev-shop")
    titles = log.path.with_name("33333333-3333-4333-8333-333333333333.jsonl")
    titles.write_text(json.dumps({"type": "summary", "summary": SECRET, "leafUuid": "x"}) + "\n")

    import_without(ledger, home, "/home/dev/shop")

    assert SECRET not in everything(ledger, address)


def test_the_map_of_openclaws_sessions_goes_with_them(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    place = home / ".openclaw" / "agents" / "main" / "sessions"
    place.mkdir(parents=True)
    header = {"type": "session", "version": 3, "id": "s", "timestamp": "2026-03-01T10:00:00.000Z"}
    (place / "s.jsonl").write_text(json.dumps({**header, "cwd": LEFT}) + "\n")
    entry = {"sessionId": "s", "updatedAt": 1, "displayName": SECRET}
    (place / "sessions.json").write_text(json.dumps({"agent:main:main": entry}))

    import_without(ledger, home)

    assert SECRET not in everything(ledger, address)


def test_the_index_of_codexs_threads_goes_with_them(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    log = Rollout(home / "sessions" / "2026" / "03" / "01", cwd=LEFT)
    log.save()
    (home / "session_index.jsonl").write_text(index_line(log.thread, SECRET))

    import_without(ledger, home)
    assert SECRET not in everything(ledger, address)

    import_without(ledger, home, "/home/dev/other")
    assert SECRET in everything(ledger, address)


def test_a_claude_code_folder_says_the_project_where_no_record_does(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    projects = tmp_path / ".claude" / "projects"
    a_log(projects / "-home-dev-shop")
    titles = Log(projects / "-home-dev-secret", "22222222-2222-4222-8222-222222222222")
    titles.add("summary", summary=SECRET, leafUuid="gone")
    titles.save()
    gone = projects / "-home-dev-secret-in" / titles.session
    for place, name in (("tool-results", "t.txt"), ("subagents", "agent-a.meta.json")):
        (gone / place).mkdir(parents=True)
        (gone / place / name).write_text(json.dumps({"agentType": SECRET}))
    agent = Log(gone / "subagents", "agent-a")
    agent.user("a1", SECRET)
    agent.lines = [line.replace('"cwd"', '"was"') for line in agent.lines]
    agent.save()

    report = import_without(ledger, projects)

    assert SECRET not in everything(ledger, address)
    assert (report.counts.imported, report.excluded.files) == (1, 4)
    (fault,) = report.faults  # nobody knows whether -home-dev-secret-in was /home/dev/secret-in
    assert fault.what.startswith("3 files of claude-code excluded by the name of a folder")


def test_a_project_is_told_however_long_the_records_before_are(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    log = Log(tmp_path / "p")
    log.add("summary", summary=SECRET, leafUuid="x")
    log.add("file-history-snapshot", snapshot="x" * (1 << 20))
    log.user("u1", SECRET, cwd=LEFT)
    log.assistant("a1", {"type": "text", "text": "Yes"}, cwd=LEFT)
    log.save()

    import_without(ledger, tmp_path)

    assert SECRET not in everything(ledger, address)


def test_a_folder_that_a_tool_was_given_is_not_the_sessions(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path / "p")
    log.user("u1", "Run it")
    given = {"type": "tool_use", "id": "toolu_1", "name": "run", "input": {"cwd": LEFT}}
    log.assistant("a1", given)
    log.save()

    report = import_without(ledger, log.path)

    assert (report.counts.imported, report.faults) == (1, [])


def test_a_session_is_of_the_folder_it_began_in(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path / "p")
    log.user("u1", "Hello")
    log.assistant("a1", {"type": "text", "text": "Hi"})
    log.save()
    import_without(ledger, tmp_path)
    log.user("u2", "Now there", cwd=LEFT)
    log.assistant("a2", {"type": "text", "text": "Yes"}, cwd=LEFT)
    log.save()

    import_without(ledger, tmp_path)

    assert ledger.query("SELECT count(*) FROM turns")[1] == [(2,)]


@pytest.mark.parametrize("told_by", ["events", "old events", "workspace.yaml"])
def test_copilots_old_document_goes_with_its_session(
    ledger: Ledger, address: str, tmp_path: Path, told_by: str
) -> None:
    home = tmp_path / ".copilot"
    session = home / "session-state" / "11111111-1111-4111-8111-111111111111"
    session.mkdir(parents=True)
    begun = {"sessionId": session.name, "context": {"cwd": LEFT}}
    start = {"type": "session.start", "id": "e0", "timestamp": "2026-01-01T00:00:00Z"}
    events = json.dumps({**start, "data": begun}) + "\n"
    if told_by == "events":
        (session / "events.jsonl").write_text(events)
    elif told_by == "old events":
        session.with_name(f"{session.name}.jsonl").write_text(events)
    else:
        (session / "workspace.yaml").write_text(f"id: {session.name}\ncwd: {LEFT}\n")
    document = home / "history-session-state" / f"session_{session.name}_1.json"
    document.parent.mkdir()
    said = {"type": "user", "id": "1", "text": SECRET, "timestamp": "2025-10-01T00:00:00Z"}
    about = {"sessionId": session.name, "startTime": "2025-10-01T00:00:00Z", "timeline": [said]}
    document.write_text(json.dumps(about))

    report = import_without(ledger, home)

    assert SECRET not in everything(ledger, address)
    assert report.faults == []


def test_a_file_that_says_no_project_is_imported_and_told(ledger: Ledger, tmp_path: Path) -> None:
    home = tmp_path / "home"
    log = a_log(home / "projects" / "p")
    log.lines = [line.replace('"cwd"', '"was"') for line in log.lines]
    log.save()

    report = import_without(ledger, home)

    assert report.counts.imported == 1
    (fault,) = report.faults
    assert "1 file of claude-code imported although folders are excluded" in fault.what


def test_what_left_out_nothing_may_go_and_the_order_may_change_without_reading_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    root = a_home(tmp_path / "User")
    first = import_without(ledger, root, LEFT, "/z", "/y")
    assert first.excluded.matched == {LEFT}
    assert (first.excluded.files, first.excluded.sessions) == (2, 10)
    seen = "SELECT cursor_json FROM source_files ORDER BY id"
    before = ledger.query(seen)[1]

    for exclude in (("/y", "/z", LEFT), (LEFT, "/z"), (LEFT,), ("/y", LEFT)):
        again = import_without(ledger, root, *exclude)
        assert again.excluded == first.excluded
        assert ledger.query(seen)[1] == before

    import_without(ledger, root, "/y")
    assert ledger.query(seen)[1] != before
