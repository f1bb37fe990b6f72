"""The view agent_sessions: where sessions come from, their project, and the context they use."""

from __future__ import annotations

import pytest

from agents_ledger import Ledger, Session, Usage
from tests.raw import Raw


@pytest.mark.finding("spec-J", "spec-6")
def test_sessions_recorded_here_have_the_origin_native(ledger: Ledger, raw: Raw) -> None:
    ledger.record("main", "q", "r")
    ledger.fork("main", label="other")
    ledger.create_session(Session("imported", origin="codex", origin_session_id="x"))

    native = ledger.sessions(origin="native")
    assert {session.label for session in native} == {"main", "other"}
    assert {session.origin for session in native} == {"native"}
    assert [session.label for session in ledger.sessions(origin="codex")] == ["imported"]
    assert dict(raw.execute("SELECT label, origin FROM sessions")) == {
        "main": "native",
        "other": "native",
        "imported": "codex",
    }
    assert dict(raw.execute("SELECT id, source FROM agent_sessions")) == {
        "main": "native",
        "other": "native",
        "x": "codex",
    }
    assert ledger.update_session("imported", origin=None).origin == "native"


@pytest.mark.finding("spec-J")
@pytest.mark.parametrize(
    ("folder", "project"),
    [
        ("/home/dev/shop", "shop"),
        ("/home/shop/shop/", "shop"),
        ("shop", "shop"),
        (r"C:\work\shop", "shop"),
        (None, None),
    ],
)
def test_the_project_of_a_session_is_named_after_its_folder(
    ledger: Ledger, raw: Raw, folder: str | None, project: str | None
) -> None:
    ledger.record("main", "q", "r", workspace_path=folder)

    assert raw.one("SELECT project FROM agent_sessions") == project
    assert raw.one("SELECT workspace_path FROM agent_sessions") == folder


@pytest.mark.finding("spec-7")
def test_the_context_used_is_that_of_the_last_turn(ledger: Ledger, raw: Raw) -> None:
    for size in (10_000, 20_000, 30_000):
        usage = Usage(input_tokens=size, cached_input_tokens=size - 500, output_tokens=10)
        ledger.record("main", "q", "r", usage=usage)

    used = "SELECT context_tokens_used FROM agent_sessions"
    assert raw.one(used) == 30_010
    ledger.record("main", "q", "r")
    assert raw.one(used) is None


@pytest.mark.finding("spec-7")
def test_after_a_compaction_the_context_used_is_what_it_left(ledger: Ledger, raw: Raw) -> None:
    for number in range(6):
        usage = Usage(input_tokens=10_000 * (number + 1), output_tokens=10)
        ledger.record("main", "A question. " * 50, "An answer. " * 50, usage=usage)
    turn = ledger.compact("main", strategy="sliding_window", budget=800)

    assert turn.compaction is not None
    left = turn.compaction.tokens_after
    assert left is not None
    assert raw.one("SELECT context_tokens_used FROM agent_sessions") == left < 10_000
