"""What files hold after the calls that wrote them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from agents_ledger.model.files.file_contents import CONTENT_MAX, FileContents

NUMBERED = "     1→def f():\n     2→    return 1\n\n<system-reminder>Careful</system-reminder>"
OPENCODE = "<file>\n00001| def f():\n00002|     return 1\n\n(End of file - total 2 lines)\n</file>"
WHOLE = "def f():\n    return 1\n"


def after(*calls: tuple[str, Any], known: dict[str, str] | None = None) -> dict[str, str]:
    contents = FileContents(known)
    for tool, params in calls:
        contents.wrote(tool, json.dumps(params))
    return contents.contents


def test_what_is_written_whole_is_known() -> None:
    assert after(("Write", {"file_path": "a.py", "content": "x"})) == {"a.py": "x"}
    assert after(("create", {"path": "a.py", "file_text": "x"})) == {"a.py": "x"}


def test_edits_change_what_is_known() -> None:
    write = ("Write", {"file_path": "a.py", "content": "one two one"})
    once = {"file_path": "a.py", "old_string": "one", "new_string": "1"}
    both = {"edits": [{"oldText": "one", "newText": "1"}, {"oldText": "two", "newText": "2"}]}

    assert after(write, ("Edit", once)) == {"a.py": "1 two one"}
    assert after(write, ("Edit", {**once, "replace_all": True})) == {"a.py": "1 two 1"}
    assert after(write, ("multi_edit", {"path": "a.py", **both})) == {"a.py": "1 2 one"}


@pytest.mark.parametrize(
    "params",
    [
        {"file_path": "a.py", "old_string": "nowhere", "new_string": "1"},
        {"file_path": "a.py", "old_string": "", "new_string": "1"},
        {"file_path": "a.py"},
        {"file_path": "a.py", "content": "x" * (CONTENT_MAX + 1)},
    ],
)
def test_what_does_not_fit_makes_a_file_unknown(params: dict[str, str]) -> None:
    assert after(("Edit", params), known={"a.py": "one", "b.py": "two"}) == {"b.py": "two"}


def test_a_patch_adds_changes_and_deletes() -> None:
    patch = """*** Begin Patch
*** Add File: new.py
+one
+two
*** Update File: a.py
@@ def f():
 def f():
-    return 1
+    return 2
@@
 def g():
-    pass
+    return 3
*** Delete File: old.py
*** End Patch"""
    known = {"a.py": "def f():\n    return 1\n\ndef g():\n    pass\n", "old.py": "x"}

    found = after(("apply_patch", {"input": patch}), known=known)

    changed = "def f():\n    return 2\n\ndef g():\n    return 3\n"
    assert found == {"new.py": "one\ntwo\n", "a.py": changed, "old.py": ""}
    shell = ("apply_patch", {"command": ["apply_patch", patch]})
    assert after(shell, known=known) == found


def test_a_patch_of_an_unknown_file_leaves_its_changes() -> None:
    contents = FileContents()
    patch = "*** Begin Patch\n*** Update File: a.py\n@@\n-one\n+two\n*** End Patch"
    contents.wrote("apply_patch", json.dumps(patch))

    assert contents.contents == {}
    assert contents.changes == {"a.py": [("one", "two")]}


@pytest.mark.parametrize(
    "result",
    [
        NUMBERED,
        OPENCODE,
        WHOLE,
        {"output": OPENCODE},
        {"text": WHOLE},
        [{"type": "text", "text": WHOLE}],
    ],
)
def test_a_file_that_was_read_whole_is_known(result: Any) -> None:
    contents = FileContents()
    contents.read("a.py", '{"path": "a.py"}', json.dumps(result))

    assert contents.contents == {"a.py": WHOLE}


@pytest.mark.parametrize(
    ("params", "result"),
    [
        ({"path": "a.py", "offset": 20}, WHOLE),
        ({"path": "a.py"}, "one\n\n... (46 more lines not shown)"),
        ({"path": "a.py"}, None),
        ({"path": "a.py"}, {"count": 3}),
        ({"path": "a.py"}, [WHOLE, WHOLE]),
        (["a.py"], WHOLE),
    ],
)
def test_a_part_of_a_file_tells_nothing(params: Any, result: Any) -> None:
    contents = FileContents()
    contents.read("a.py", json.dumps(params), json.dumps(result))

    assert contents.contents == {}


def test_nonsense_changes_nothing() -> None:
    for params in ("", "[]", "{broken", '"text"', "null", "1"):
        contents = FileContents()
        contents.wrote("Write", params)
        contents.wrote("apply_patch", params)
        assert not contents.changes


def test_a_patch_told_file_by_file_is_applied_where_it_says() -> None:
    diff = "@@ -3,0 +4 @@\n+two\n@@ -5,2 +6,2 @@\n }\n-end\n+END\n\\ No newline at end of file\n"
    changes = {
        "a.py": {"type": "update", "unified_diff": diff, "move_path": None},
        "b.py": {"type": "update", "unified_diff": "@@ -1 +1 @@\n-x\n+y\n", "move_path": "c.py"},
        "new.py": {"type": "add", "content": "one\n"},
        "old.py": {"type": "delete", "content": "gone\n"},
        "odd.py": 3,
    }
    known = {"a.py": "}\none\n}\n\n}\nend\n", "b.py": "x\n", "old.py": "gone\n"}

    found = after(("apply_patch", {"changes": changes}), known=known)

    assert found == {
        "a.py": "}\none\n}\ntwo\n\n}\nEND\n",
        "b.py": "",
        "c.py": "y\n",
        "new.py": "one\n",
        "old.py": "",
    }


def test_a_diff_that_does_not_fit_makes_a_file_unknown() -> None:
    contents = FileContents({"a.py": "one\ntwo\n"})
    change = {"type": "update", "unified_diff": "@@ -2 +2 @@\n-one\n+1\n"}
    contents.wrote("apply_patch", json.dumps({"changes": {"a.py": change}}))

    assert contents.contents == {}
    assert contents.changes == {"a.py": [("one", "1")]}


def test_a_diff_with_odd_numbers_harms_nothing() -> None:
    first = {"type": "update", "unified_diff": "@@ -0 +1 @@\n+b\n"}
    huge = {"type": "update", "unified_diff": f"@@ -{'9' * 5000},1 +1 @@\n-a\n+b\n"}

    known = {"a.py": "x\ny", "b.py": "x"}
    found = after(("apply_patch", {"changes": {"a.py": first, "b.py": huge}}), known=known)

    assert found["a.py"] == "b\nx\ny"
