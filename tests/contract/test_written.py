"""The files that two branches wrote, as each left them."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, Refused, Replaced, ToolCall, WrittenFile
from tests.builders import chain


def write(path: str, content: str) -> ToolCall:
    return ToolCall.of("Write", {"file_path": path, "content": content}, "done")


def edit(path: str, old: str, new: str, error: str | None = None) -> ToolCall:
    params = {"file_path": path, "old_string": old, "new_string": new}
    return ToolCall.of("Edit", params, None if error else "done", error)


def fork(ledger: Ledger, *steps: ToolCall) -> None:
    first = ledger.record("main", "q", "a", steps=steps)
    ledger.fork(first.id, label="other")


def test_files_are_told_as_a_diff_of_what_they_hold_in_the_end(ledger: Ledger) -> None:
    fork(ledger, write("a.py", "one\ntwo\n"))
    ledger.record("main", "q", "a", steps=[edit("a.py", "one", "1"), edit("a.py", "two", "2")])
    ledger.record("other", "q", "a", steps=[edit("a.py", "one", "uno")])

    [file] = ledger.compare_files("main", "other")

    assert (file.file_path, file.by) == ("a.py", ("a", "b"))
    assert file.diff == "@@ -1,2 +1,2 @@\n-1\n-2\n+uno\n+two"


def test_a_branch_that_left_a_file_alone_has_it_as_it_was(ledger: Ledger) -> None:
    shown = ToolCall.of("Read", {"path": "a.py"}, {"text": "     1→one\n     2→two"})
    fork(ledger, shown)
    ledger.record("main", "q", "a", steps=[edit("a.py", "two", "2")])

    [file] = ledger.compare_files("main", "other")

    assert file == WrittenFile("a.py", ("a",), "@@ -1,2 +1,2 @@\n one\n-2\n+two")


def test_what_ended_equal_says_so_and_what_failed_does_not_count(ledger: Ledger) -> None:
    fork(ledger, write("a.py", "one"))
    ledger.record("main", "q", "a", steps=[edit("a.py", "one", "two")])
    failed = edit("a.py", "two", "three", error="no")
    ledger.record("other", "q", "a", steps=[edit("a.py", "one", "two"), failed])

    assert [file.diff for file in ledger.compare_files("main", "other")] == [""]


def test_of_a_file_not_known_whole_the_changes_are_told(ledger: Ledger) -> None:
    fork(ledger)
    ledger.record("main", "q", "a", steps=[edit("a.py", "one", "two"), write("b.py", "x")])

    known, unknown = reversed(ledger.compare_files("main", "other"))

    assert unknown == WrittenFile("a.py", ("a",), None, (Replaced("one", "two"),))
    assert known == WrittenFile("b.py", ("a",), None, (Replaced("", "x"),))
    assert ledger.compare_files("main", "other", limit=1) == (unknown,)
    with pytest.raises(Refused, match="limit"):
        ledger.compare_files("main", "other", limit=0)


def test_branches_that_wrote_nothing_have_no_files(ledger: Ledger) -> None:
    chain(ledger, "one", 2)
    chain(ledger, "two", 2)

    assert ledger.compare_files("one", "two") == ()
