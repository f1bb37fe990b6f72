"""Tool calls in one line."""

from __future__ import annotations

import json
from typing import Any

import pytest
from msgspec.structs import replace

from agents_ledger import ToolCall
from agents_ledger.model.turns import CallStatus
from agents_ledger.render.summaries import (
    DIFF_MAX,
    LineCounts,
    argument,
    count_edit,
    count_signs,
    outcome,
)

PATCH = "*** Begin Patch\n*** Update File: a.py\n@@\n-old\n+new\n+more\n*** End Patch"
TASKS = [{"content": "Read", "status": "completed"}, {"content": "Write", "status": "in_progress"}]


@pytest.mark.parametrize(
    ("params", "line"),
    [
        ({"command": "pytest -q"}, "pytest -q"),
        ({"command": ["bash", "-lc", "ls"]}, "bash -lc ls"),
        ({"command": "pytest", "description": "Run the tests"}, "Run the tests · pytest"),
        ({"pattern": "def parse", "path": "src"}, "def parse in src"),
        ({"query": "rate limits"}, "rate limits"),
        ({"file_path": "a.py"}, "a.py"),
        ({"file_path": "a.py", "content": "1\n2\n3\n"}, "a.py +3"),
        ({"path": "a.py", "old": "one\ntwo", "new": "one\n2"}, "a.py +1 -1"),
        ({"input": PATCH}, "a.py +2 -1"),
        ({"changes": {"a.py": {"type": "add", "content": "x"}, "b.py": {}}}, "a.py, b.py +1"),
        ({"todos": TASKS}, "1 of 2 done · Write"),
        ({"questions": [{"question": "Which one?"}]}, "Which one?"),
        ({"subject": "Tidy up", "description": "All of it"}, "Tidy up"),
        ({"skill": "commit", "args": "--amend"}, "commit --amend"),
        ({"input": "const r = 1"}, "const r = 1"),
        ({"taskId": 3, "status": "completed"}, "task 3 completed"),
        (
            {"targets": ["a", "b"], "deep": [{}], "block": True},
            "targets a b, deep 1 item, block yes",
        ),
        ({}, ""),
    ],
)
def test_a_call_is_described_in_words(params: Any, line: str) -> None:
    assert argument(json.dumps(params)) == line


def test_parameters_that_are_cut_are_still_described_in_words() -> None:
    prompt = json.dumps({"description": "Find callers", "prompt": "x" * 99})[:60]
    command = json.dumps({"command": 'echo "a"\n' * 20})[:40]
    edit = json.dumps({"file_path": "a.py", "old_string": "a", "new_string": "b" * 99})[:70]

    assert argument(prompt) == "Find callers"
    assert argument(command).startswith('echo "a" echo')
    assert argument(edit) == "a.py", "line counts of a part would be wrong"


@pytest.mark.parametrize("length", range(1, 90))
def test_parameters_can_be_cut_anywhere(length: int) -> None:
    params = json.dumps(
        {"command": 'say "\u00e9\\"\t', "list": [1, {"a": "b"}], "description": "é"}
    )

    assert isinstance(argument(params[:length]), str)


def test_text_that_is_not_json_is_shown_as_it_is() -> None:
    assert argument("not\njson") == "not json"


def test_an_outcome_names_size_duration_or_error() -> None:
    call = ToolCall("Bash", "{}", status="completed", result_json="x" * 20, started_at=1000)

    assert outcome(call) == "20 B"
    assert outcome(call, 2048) == "2.0 KB"
    assert outcome(ToolCall("Bash", "{}", status="failed", error="exit 1\n")) == "failed: exit 1"
    assert outcome(ToolCall("Bash", "{}", status="running")) == "running"


@pytest.mark.parametrize("status", ["failed", "cancelled", "rejected"])
def test_a_call_that_ended_badly_also_names_its_duration(status: CallStatus) -> None:
    call = ToolCall("Bash", "{}", status=status, started_at=1000, completed_at=3500)

    assert outcome(call) == f"{status} · 2.5 s"
    assert outcome(replace(call, error="exit 1\n")) == f"{status}: exit 1 · 2.5 s"
    assert outcome(replace(call, status="completed")) == "done · 2.5 s"
    assert outcome(replace(call, status="running")) == "running"


def test_a_long_error_leaves_room_for_the_duration() -> None:
    error = "no " * 100
    call = ToolCall("Bash", status="failed", error=error, started_at=1000, completed_at=3500)

    line = outcome(call, most=40)

    assert line == "failed: no no no no no no no no… · 2.5 s"
    assert len(line) <= 40
    assert len(outcome(replace(call, completed_at=None), most=40)) <= 40


# -- counts of lines --------------------------------------------------------------------------


def test_all_lines_of_a_long_edit_are_counted() -> None:
    old = "\n".join(f"old {n}" for n in range(2500))
    new = "\n".join(f"new {n}" for n in range(2400))

    assert count_edit(old, new) == LineCounts(2400, 2500)
    edit = {"path": "a.py", "old": f"{old}\nsame", "new": f"{new}\nsame"}
    assert argument(json.dumps(edit)) == "a.py +2400 -2500"


def test_an_edit_too_large_to_compare_has_no_counts() -> None:
    small, large = {"old": "a", "new": "b"}, {"old": "a", "new": "b\n" * DIFF_MAX}

    assert count_edit("a", "b" * DIFF_MAX) is None
    assert argument(json.dumps({"path": "a.py", **large})) == "a.py"
    both = {"path": "a.py", "edits": [small, large]}
    assert argument(json.dumps(both)) == "a.py", "counts of some edits would be wrong"


def test_edited_comments_of_sql_are_counted() -> None:
    assert count_edit("-- one\n-- two\nselect", "++ one\nselect") == LineCounts(1, 2)


FILE = "--- a/x.sql\n+++ b/x.sql\n"
GIT = "diff --git a/x.sql b/x.sql\nindex 1..2 100644\n"


@pytest.mark.parametrize(
    ("diff", "added", "removed"),
    [
        ("@@ -1,2 +1 @@\n--- one\n--- two\n+++ one", 1, 2),
        (f"{FILE}@@ -1 +1 @@\n--- one\n+++ one", 1, 1),
        (f"{FILE}@@ -1 +1 @@\n--- one\n+++ one\n@@ -9 +9 @@\n-a\n+b", 2, 2),
        (f"{FILE}@@ -1 +1 @@\n-a\n+b\n{FILE}@@ -1 +1 @@\n-a\n+b\n", 2, 2),
        (f"{FILE}@@ -1,9 +1,9 @@\n--- a\n+b\n{GIT}{FILE}@@ -1 +1 @@\n-a\n+b\n", 2, 2),
        (f"{GIT}{FILE}@@ @@\n--- a\n+b\n{FILE}@@ @@\n-a\n+++ b", 2, 2),
        (f"Index: x.sql\n====\n{FILE}@@ -0,0 +1,2 @@\n+a\n+++ b", 2, 0),
        (f"{FILE}-a\n+++ b", 1, 1),
        ("--- a/gone\n+++ /dev/null\n@@ -1,2 +0,0 @@\n--- a\n-b\n\\ No newline", 0, 2),
        ("*** Begin Patch\n*** Update File: a\n@@\n--- a\n+++ b\n@@\n-a\n*** End Patch", 1, 2),
        (f"{FILE}@@ -1 +1 @@\n-a\n+*** Begin Patch", 1, 1),
        ("", 0, 0),
    ],
)
def test_only_the_headers_of_a_patch_are_not_counted(diff: str, added: int, removed: int) -> None:
    assert count_signs(diff) == LineCounts(added, removed)
