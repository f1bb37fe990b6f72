"""Files: which turns read or wrote one, however its path is given."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, Message, MessageFile, Refused, ToolCall, Touched


def touches(found: Touched) -> list[tuple[str, str]]:
    return [(touch.turn_id, touch.action) for touch in found.touches]


def work(ledger: Ledger, *calls: ToolCall, message: Message | None = None) -> str:
    return ledger.record(
        "main", "q", message or "r", steps=calls, workspace_path="/home/me/project"
    ).id


@pytest.mark.parametrize("indexed", [False, True])
def test_turns_that_touched_a_file_are_found_by_the_end_of_its_path(
    ledger: Ledger, indexed: bool
) -> None:
    read = work(ledger, ToolCall.of("Read", {"file_path": "/home/me/project/src/app.py"}))
    edited = work(ledger, ToolCall.of("edit_file_v2", {"path": "src/app.py"}))
    patch = "*** Begin Patch\n*** Update File: src/app.py\n@@\n*** Add File: new/b.txt\n"
    patched = work(ledger, ToolCall.of("apply_patch", {"input": patch}))
    files = (MessageFile("written", "src/app.py"), MessageFile("referenced", "src/other.py"))
    said = work(ledger, message=Message("assistant", "r", files=files))
    work(ledger, ToolCall.of("Bash", {"command": "cat src/app.py"}))
    work(ledger, ToolCall.of("Read", {"file_path": "/elsewhere/src/myapp.py"}))
    ledger.record("main", "look at src/app.py", "r")
    if indexed:
        ledger._core.index(least=1)

    everything = [(said, "written"), (patched, "written"), (edited, "written"), (read, "read")]
    for path in (
        "app.py",
        "src/app.py",
        "./src/app.py",
        "/home/me/project/src/app.py",
        "SRC\\app.py",
    ):
        assert touches(ledger.files(path)) == everything, path
    assert touches(ledger.files("app.py", action="read")) == [(read, "read")]
    assert touches(ledger.files("app.py", action="written")) == everything[:3]
    assert touches(ledger.files("b.txt")) == [(patched, "written")]
    assert touches(ledger.files("new/")) == [(patched, "written")]
    for path in ("other.py", "lib/app.py", "pp.py", "/src/x/app.py"):
        assert touches(ledger.files(path)) == [], path


def test_pages_of_touches_follow_each_other(ledger: Ledger) -> None:
    turns = [work(ledger, ToolCall.of("Read", {"path": "a.py"})) for _ in range(5)]

    first = ledger.files("a.py", limit=3)
    second = ledger.files("a.py", limit=3, after=first.next)

    assert [turn for turn, _ in (*touches(first), *touches(second))] == turns[::-1]
    assert second.next is None


def test_what_names_no_file_is_refused(ledger: Ledger) -> None:
    for path in ("", "/", "..."):
        with pytest.raises(Refused, match="is not a file name"):
            ledger.files(path)
    with pytest.raises(Refused, match="limit"):
        ledger.files("a.py", limit=0)
