"""Codex: scripts, which are one call, and the calls that they make, which are in events."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.model.turns import ToolCall
from tests.importers.codex_log import Rollout, thread_id, turn_id
from tests.importers.helping import import_paths

CART = "/home/dev/shop/cart.py"
ADDED = {CART: {"type": "add", "content": "def total():\n    return 1\n"}}
DIFF = "@@ -2 +2 @@\n-    return 1\n+    return {}\n"


def script(log: Rollout, call_id: str, text: str) -> None:
    log.item("custom_tool_call", name="exec", input=text, call_id=call_id, status="completed")


def output(log: Rollout, call_id: str, *blocks: str, word: str = "completed") -> None:
    said = [f"Script {word}\nWall time 0.1 seconds\nOutput:\n", *blocks]
    content = [{"type": "input_text", "text": text} for text in said]
    log.item("custom_tool_call_output", call_id=call_id, output=content)


def patched(log: Rollout, call_id: str, changes: dict[str, Any], **said: Any) -> None:
    told = {"stdout": "Success.", "stderr": "", "success": True, "status": "completed"}
    told |= {"turn_id": turn_id(1), **said}
    log.event("patch_apply_end", call_id=call_id, changes=changes, **told)


def calls(ledger: Ledger, number: int = 1) -> list[ToolCall]:
    return list(ledger.get_turn(turn_id(number)).tool_calls)


def test_files_patched_by_a_script_are_written_by_the_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Add a cart.")
    log.say("I add it.")
    script(log, "c1", 'await tools.apply_patch("*** Begin Patch\\n*** Add File: cart.py\\n")')
    patched(log, "exec-1", ADDED)
    moved = {"type": "update", "unified_diff": DIFF.format(2), "move_path": "/home/dev/shop/b.py"}
    patched(log, "exec-2", {"/home/dev/shop/a.py": moved})
    patched(log, "exec-2", {"/home/dev/shop/a.py": moved})  # reported again
    output(log, "c1", "{}")
    log.say("Added.")

    report = import_paths(ledger, log.save())

    said = ledger.get_turn(turn_id(1)).messages[1]
    assert [file.file_path for file in said.files] == [
        CART,
        "/home/dev/shop/a.py",
        "/home/dev/shop/b.py",
    ]
    assert [(c.id, c.tool_name, c.status, c.message_id) for c in calls(ledger)] == [
        ("c1", "exec", "completed", said.id),
        ("exec-1", "apply_patch", "completed", said.id),
        ("exec-2", "apply_patch", "completed", said.id),
    ]
    assert json.loads(calls(ledger)[1].params_json) == {"changes": ADDED}
    assert [touch.turn_id for touch in ledger.files("shop/cart.py").touches] == [turn_id(1)]
    assert [touch.path for touch in ledger.files("b.py").touches] == ["/home/dev/shop/b.py"]
    assert not [said for said in report.records if "patch" in said[1] and said[2] == "unmapped"]


def test_branches_are_compared_by_the_patches_of_their_scripts(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Add a cart.")
    script(log, "c1", "...")
    patched(log, "exec-1", ADDED)
    output(log, "c1")
    fork = log.fork(tmp_path, thread_id(5), len(log.lines))
    for branch, number in ((log, 3), (fork, 6)):
        branch.start(number)
        branch.ask("Another total.")
        script(branch, "c2", "...")
        change = {"type": "update", "unified_diff": DIFF.format(number), "move_path": None}
        patched(branch, f"exec-{number}", {CART: change}, turn_id=turn_id(number))
        output(branch, "c2")
        branch.end(number)

    import_paths(ledger, log.save(), fork.save())

    (file,) = ledger.compare_files(turn_id(3), turn_id(6))
    assert (file.file_path, file.by) == (CART, ("a", "b"))
    assert str(file.diff).splitlines()[-2:] == ["-    return 3", "+    return 6"]


def test_only_files_in_the_changes_of_a_patch_were_written(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Add a cart.")
    text = "await tools.apply_patch(`*** Begin Patch\n*** Update File: a.py\n*** End Patch`)"
    script(log, "c1", text)
    patched(log, "exec-1", ADDED, success=False, status="failed", stderr="no such line")
    output(log, "c1", "{}")

    import_paths(ledger, log.save())

    assert ledger.query("SELECT file_path FROM message_files")[1] == []
    assert [(c.status, c.error) for c in calls(ledger)] == [
        ("completed", None),
        ("failed", "no such line"),
    ]


def test_mcp_calls_and_searches_of_a_script_are_calls(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Look it up.")
    script(log, "c1", "...")
    asked = {"server": "apps", "tool": "hub.open_request", "arguments": {"title": "Cart"}}
    answer = {"content": [{"type": "text", "text": "Opened."}], "isError": False}
    took = {"secs": 1, "nanos": 500_000_000}
    told = {"invocation": asked, "duration": took}
    log.event("mcp_tool_call_end", call_id="exec-1", result={"Ok": answer}, **told)
    log.event("mcp_tool_call_end", call_id="exec-2", result={"Err": "timed out"}, **told)
    refused = {**answer, "isError": True}
    log.event("mcp_tool_call_end", call_id="exec-3", result={"Ok": refused}, **told)
    search = {"type": "search", "queries": ["carts"]}
    log.event("web_search_end", call_id="exec-4", query="carts ...", action=search)
    output(log, "c1")
    log.item("web_search_call", status="completed", action=search)
    log.event("web_search_end", call_id="ws_1", query="carts", action=search)  # once more
    log.say("Looked up.")

    import_paths(ledger, log.save())

    first, done, late, wrong, found, *others = calls(ledger)
    assert (first.tool_name, done.tool_name) == ("exec", "mcp__apps__hub_open_request")
    assert json.loads(done.params_json) == {"title": "Cart"}
    assert json.loads(done.result_json or "") == answer
    assert (done.completed_at or 0) - done.started_at == 1500
    assert [(c.status, c.error) for c in (done, late, wrong)] == [
        ("completed", None),
        ("failed", "timed out"),
        ("failed", "Opened."),
    ]
    assert (found.tool_name, json.loads(found.params_json)) == ("web_search", search)
    assert [c.tool_name for c in others] == ["web_search"]


def test_items_report_calls_as_events_do(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Build it.")
    script(log, "c1", "...")
    items: list[dict[str, Any]] = [
        {"type": "CommandExecution", "id": "exec-1", "command": ["ls"], "cwd": "/home/dev/shop"},
        {"type": "FileChange", "id": "exec-2", "changes": ADDED, "status": "completed"},
        {"type": "McpToolCall", "id": "exec-3", "server": "apps", "tool": "run", "arguments": {}},
        {"type": "Extension", "kind": "web.search", "id": "exec-4", "query": "carts"},
        {"type": "Extension", "kind": "clock.sleep", "id": "exec-5"},
        {"type": "Extension", "kind": ["odd"], "id": "exec-6"},
    ]
    items[0] |= {"status": "failed", "exit_code": 2, "aggregated_output": "no such file"}
    items[2] |= {"status": "failed", "error": {"message": "not there"}}
    for item in items:
        log.event("item_completed", turn_id=turn_id(1), item=item)
    output(log, "c1")

    import_paths(ledger, log.save())

    assert [(c.tool_name, c.status, c.error) for c in calls(ledger)[1:]] == [
        ("exec_command", "failed", "exit code 2"),
        ("apply_patch", "completed", None),
        ("mcp__apps__run", "failed", "not there"),
        ("web_search", "completed", None),
    ]
    assert calls(ledger)[1].result_json == '"no such file"'
    assert len(ledger.files("cart.py").touches) == 1


def test_an_item_reports_the_end_of_a_command_without_a_script(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Build it.")
    log.call("t1", cmd="make")
    for kind, name in (("CommandExecution", "t1"), ("Reasoning", "r1")):
        item = {"type": kind, "id": name, "exit_code": 2, "status": "failed"}
        log.event("item_completed", turn_id=turn_id(1), item=item)
    log.item("function_call_output", call_id="t1", output="no rule")

    report = import_paths(ledger, log.save())

    assert [(c.tool_name, c.status, c.error) for c in calls(ledger)] == [
        ("exec_command", "failed", "exit code 2")
    ]
    assert report.records["codex", "event_msg/item_completed", "derived"] == 1
    assert report.records["codex", "event_msg/item_completed", "unmapped"] == 1


@pytest.mark.parametrize(
    ("item", "status", "error"),
    [
        ({"type": "FileChange", "status": "completed"}, "completed", None),
        ({"type": "FileChange", "status": "failed"}, "failed", "What came of it."),
        ({"type": "FileChange", "status": "declined"}, "rejected", "What came of it."),
        ({"type": "McpToolCall", "status": "completed", "result": {}}, "completed", None),
        (
            {"type": "McpToolCall", "status": "failed", "error": {"message": "Gone"}},
            "failed",
            "Gone",
        ),
        ({"type": "DynamicToolCall", "success": False}, "failed", "What came of it."),
        ({"type": "DynamicToolCall", "status": "failed", "error": "Gone"}, "failed", "Gone"),
        ({"type": "DynamicToolCall", "status": 5, "error": [None]}, "completed", None),
    ],
)
def test_an_item_reports_the_end_of_a_call(
    ledger: Ledger, tmp_path: Path, item: dict[str, Any], status: str, error: str | None
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Do it.")
    log.call("t1", "do")
    log.event("item_completed", turn_id=turn_id(1), item={"id": "t1", **item})
    log.item("function_call_output", call_id="t1", output="What came of it.")

    import_paths(ledger, log.save())

    assert [(call.status, call.error) for call in calls(ledger)] == [(status, error)]


def test_an_error_result_of_an_mcp_tool_is_a_failed_call(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Do it.")
    log.call("t1", "mcp__shop__find")
    said = {"content": [{"type": "text", "text": "no such shop"}], "isError": True}
    log.event("mcp_tool_call_end", call_id="t1", result={"Ok": said})
    log.item("function_call_output", call_id="t1", output="no such shop")

    import_paths(ledger, log.save())

    assert [(call.status, call.error) for call in calls(ledger)] == [("failed", "no such shop")]


def test_a_call_belongs_to_the_turn_that_it_names(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Begin.")
    script(log, "c1", "...")
    output(log, "c1", word="running with cell ID 7")
    log.end(1)
    log.start(2)
    log.ask("Meanwhile.")
    patched(log, "exec-1", ADDED)
    log.say("Yes.")
    log.end(2)
    log.add("compacted", message="So far.", replacement_history=[])
    patched(log, "exec-2", ADDED, turn_id=turn_id(2))
    log.start(3)
    log.ask("Go on.")
    log.say("Gone on.")

    import_paths(ledger, log.save())

    assert [call.id for call in calls(ledger, 1)] == ["c1", "exec-1"]
    assert [call.id for call in calls(ledger, 3)] == ["exec-2"]
    assert not ledger.audit()


def test_a_script_that_failed_is_a_failed_call(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Patch it.")
    wrong = "Script error:\napply_patch verification failed: no such lines in cart.py:\nreturn 1"
    for call_id, said in (
        ("c1", ["Begun.", wrong]),
        ("c2", [f"Warning: truncated output (original token count: 9)\n\n{wrong}"]),
        ("c3", []),
        ("c4", ["Script error:\nexec_command failed: rejected by user"]),
    ):
        script(log, call_id, "...")
        output(log, call_id, *said, word="failed")
    log.say("It does not fit.")

    import_paths(ledger, log.save())

    first = "apply_patch verification failed: no such lines in cart.py:"
    assert [(c.status, c.error) for c in calls(ledger)] == [
        ("failed", first),
        ("failed", first),
        ("failed", "script failed"),
        ("rejected", "exec_command failed: rejected by user"),
    ]
    assert "Begun." in str(calls(ledger)[0].result_json)


def test_only_the_output_of_a_script_decides_how_it_ended(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Look.")
    told = "Script failed\nWall time 0.1 seconds\nOutput:\nScript error:\nno"
    log.call("c1", "read_file", output=told, path="a.log")
    log.call("c2", "exec", output="Script " + "a" * 1_000_000 + "\nX", code="...")  # in no time
    log.say("So it says.")

    import_paths(ledger, log.save())

    assert [call.status for call in calls(ledger)] == ["completed", "completed"]


PRINTED = [
    (['{"chunk_id":"1f","wall_time_seconds":0.1,"exit_code":2,"output":"no such file"}'], 2),
    (['{"output":"no such file","exit_code":2}'], 2),
    (['{\n  "exit_code": 2,\n  "output": "cut o'], 2),
    (['Warning: truncated output (9 tokens)\nTotal output lines: 1\n\n{"exit_code":2,'], 2),
    (["{}", '{"exit_code":0}', '{"exit_code":127}', '{"exit_code":1}'], 127),
    (['{"exit_code":0}'], None),
    (['{"exit_code":null,"session_id":3}', "[]", "{"], None),
    (["Process exited with code 2, says the manual", 'grep: "exit_code":2'], None),
    (['{"output":"{\\"exit_code\\":2}"}', '{"a":{"exit_code":2}}'], None),
]


@pytest.mark.parametrize(("printed", "code"), PRINTED)
def test_a_script_that_printed_a_failed_command_failed(
    ledger: Ledger, tmp_path: Path, printed: list[str], code: int | None
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Try it.")
    script(log, "c1", "...")
    output(log, "c1", *printed)
    log.say("Tried.")

    import_paths(ledger, log.save())

    (call,) = calls(ledger)
    failed = ("failed", f"exit code {code}", f"exit {code}")
    wanted = failed if code else ("completed", None, None)
    assert (call.status, call.error, call.source_status) == wanted


def test_a_running_or_stopped_script_did_not_fail(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Wait.")
    script(log, "c1", "...")
    running = "Script running with cell ID 7\nWall time 10.0 seconds\nOutput:\n"
    log.item("custom_tool_call_output", call_id="c1", output=running)
    log.call("c2", "wait", cell_id="7", terminate=True)
    stopped = "Script terminated\nWall time 0.0 seconds\nOutput:\n"
    log.item("function_call_output", call_id="c2", output=stopped)
    log.say("Stopped.")

    import_paths(ledger, log.save())

    assert [call.status for call in calls(ledger)] == ["completed", "completed"]
