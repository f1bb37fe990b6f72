"""Compare: where two threads part, and what each did from there on."""

from __future__ import annotations

import pytest

from agents_ledger import (
    Ledger,
    Message,
    MessageFile,
    NotFound,
    Refused,
    Session,
    ToolCall,
    TouchedFile,
    Usage,
)
from tests.builders import chain, grow


def test_two_branches_are_told_from_where_they_part(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3-4, 2-5")

    found = ledger.compare("4", "5")

    assert found.ancestor is not None
    assert found.ancestor.turn.id == ids["2"]
    assert [line.turn.id for line in found.a.turns] == [ids["3"], ids["4"]]
    assert [line.text for line in found.b.turns] == ["5"]
    assert (found.a.turn_count, found.b.turn_count) == (2, 1)
    assert (found.a.answer, found.b.answer) == ("answer 4", "answer 5")


def test_each_branch_has_its_own_tokens_tools_and_files(ledger: Ledger) -> None:
    first = ledger.record("main", "q", "a", usage=Usage(100), steps=[ToolCall.of("Bash", {})])
    ledger.fork(first.id, label="other")
    read = Message("assistant", "r", files=(MessageFile("read", "a.py"),))
    edit = ToolCall.of("Edit", {"file_path": "a.py"})
    ledger.record("main", "q", "a", usage=Usage(10, 1), steps=[read, edit])
    ledger.record("main", "q", "a", usage=Usage(10, 1), steps=[edit])
    patch = ToolCall.of("apply_patch", {"input": "*** Update File: b.py\n*** Add File: a.py\n"})
    fails = ToolCall.of("Bash", {"command": "x"}, error="exit 1")
    ledger.record("other", "q", "a", usage=Usage(5), steps=[patch, fails])

    found = ledger.compare("main", "other")

    assert (found.a.spent.total_tokens, found.b.spent.total_tokens) == (22, 5)
    assert [(t.tool_name, t.calls, t.failed) for t in found.a.tools] == [("Edit", 2, 0)]
    assert [(t.tool_name, t.calls, t.failed) for t in found.b.tools] == [
        ("Bash", 1, 1),
        ("apply_patch", 1, 0),
    ]
    assert found.a.files == (TouchedFile("a.py", ("read", "written"), 2),)
    assert [file.file_path for file in found.b.files] == ["a.py", "b.py"]
    assert found.files_in_both == ("a.py",)


def test_one_that_goes_on_from_the_other_stands_alone(ledger: Ledger) -> None:
    first, *_, last = chain(ledger, "main", 4)

    found = ledger.compare(first, last)

    assert found.ancestor is not None
    assert found.ancestor.turn.id == first
    assert (found.a.turn_count, found.b.turn_count) == (0, 3)
    assert (found.a.turns, found.a.answer, found.a.spent.turns) == ((), None, 0)


def test_threads_that_share_nothing_are_compared_whole(ledger: Ledger) -> None:
    chain(ledger, "one", 2)
    chain(ledger, "two", 3)

    found = ledger.compare("one", "two")

    assert found.ancestor is None
    assert (found.a.turn_count, found.b.turn_count) == (2, 3)


def test_a_long_branch_lists_its_latest_turns(ledger: Ledger) -> None:
    first, *others = chain(ledger, "main", 8)

    found = ledger.compare(first, "main", limit=3)

    assert [line.turn.id for line in found.b.turns] == others[-3:]
    assert (found.b.turn_count, found.b.spent.turns) == (7, 7)
    assert ledger.compare(first, "main", limit=0).b.turns == ()


def test_what_cannot_be_compared_is_refused(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    ledger.create_session(Session("empty"))

    with pytest.raises(Refused, match="'empty' is empty"):
        ledger.compare("main", "empty")
    with pytest.raises(NotFound):
        ledger.compare("main", "nobody")
    with pytest.raises(Refused, match="limit"):
        ledger.compare("main", "main", limit=-1)
