"""Gemini CLI: chats with the id of another, and subagents that no call names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.gemini.source import GeminiCli
from agents_ledger.importers.sources.gemini.tree import GeminiSession
from tests.importers.helping import import_paths, result
from tests.importers.test_gemini import (
    ASK,
    ASK2,
    LOOK,
    META,
    SESSION,
    TELL,
    TELL2,
    document,
    label,
    said,
)

INQUIRY = "Find out which sheds have a door that does not close."


def with_the_same_id(folder: Path, *messages: dict[str, Any], began: int, **more: Any) -> Path:
    """Another chat with the id of the session, as subagents wrote until 2026-03."""
    path = folder / "chats" / f"session-2026-03-01T10-{began}-3f1c2a80.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    at = f"2026-03-01T10:{began}:00.000Z"
    messages = tuple({**each, "timestamp": at} for each in messages)
    path.write_text(json.dumps({**META, "startTime": at, "messages": messages, **more}))
    return path


def at(minute: int, message: dict[str, Any]) -> dict[str, Any]:
    return {**message, "timestamp": f"2026-03-01T10:{minute}:00.000Z"}


def inquire(name: str) -> dict[str, Any]:
    call = {"id": name, "name": "codebase_investigator", "args": {"objective": INQUIRY}}
    return said(f"g-{name}", "gemini", "", toolCalls=[{**call, "status": "success", "result": []}])


@pytest.mark.parametrize("kind", [None, "subagent"])
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_subagent_chat_with_the_id_of_its_session_is_not_the_session(
    ledger: Ledger, tmp_path: Path, kind: str | None, parent_first: bool
) -> None:
    whole = [at(11, ASK), at(15, inquire("look")), at(16, TELL), at(17, ASK2), at(18, TELL2)]
    task = said("u9", "user", f"Your task: <objective>\n{INQUIRY}\n</objective>")
    main = document(tmp_path, *whole)
    last = "You have stopped calling tools without finishing. You have one final chance to do it."
    chat = [task, said("g9", "gemini", "One."), said("v9", "user", last)]
    other = with_the_same_id(tmp_path, *chat, began=12, kind=kind)

    for path in (main, other) if parent_first else (other, main):
        import_paths(ledger, path)

    assert [turn.query[0].source for turn in ledger.thread(label()).turns] == ["human", "human"]
    session = ledger.session(f"{label()}:2026-03-01T10:12:00.000Z")
    assert (session.is_subagent, session.parent_session_label) == (True, label())
    assert session.spawn_tool_call_id == "look"
    asked = "SELECT source FROM messages WHERE role = 'user' AND id LIKE '%9' ORDER BY id"
    assert ledger.query(asked)[1] == [("agent",), ("event",)]
    assert not ledger.session(label()).is_subagent
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


@pytest.mark.parametrize("parent_first", [True, False])
@pytest.mark.parametrize("family", ["its parent's", "its own, before"])
def test_a_subagent_that_no_call_names_is_linked_to_the_call_with_its_prompt(
    ledger: Ledger,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parent_first: bool,
    family: str,
) -> None:
    other = {"id": "c1", "name": "scout", "args": {"objective": INQUIRY}, "agentId": "scout-7"}
    naming = said("g0", "gemini", "", toolCalls=[{**other, "status": "success"}])
    parent = document(tmp_path, ASK, naming, inquire("look"), TELL)
    child = tmp_path / "chats" / SESSION / "abc123.json"
    child.parent.mkdir(parents=True)
    task = said("u1", "user", f"Your task: <objective>\n{INQUIRY}\n</objective>")
    told = {**META, "sessionId": "abc123", "kind": "subagent", "messages": [task, TELL]}
    child.write_text(json.dumps(told))
    paths = (parent, child) if parent_first else (child, parent)
    if family != "its parent's":  # so an earlier version imported it
        with monkeypatch.context() as patch:
            patch.setattr(GeminiCli, "version", 1)
            patch.setattr(GeminiCli, "family", lambda _, path: f"gemini-cli:{path.stem}")
            import_paths(ledger, *paths)
        assert ledger.session("gemini-cli:abc123").spawn_tool_call_id is None

    for path in paths:
        import_paths(ledger, path)

    session = ledger.session("gemini-cli:abc123")
    assert (session.parent_session_label, session.spawn_tool_call_id) == (label(), "look")
    assert ledger.audit() == ()


def test_two_subagents_are_linked_to_the_calls_with_the_longest_matching_arguments(
    ledger: Ledger, tmp_path: Path
) -> None:
    gives = {"blank": " " * 9, "file": INQUIRY[:12], "first": INQUIRY, "second": INQUIRY}
    calls = [
        {"id": name, "name": "a tool", "args": {"given": text}, "status": "success"}
        for name, text in gives.items()
    ]
    document(tmp_path, at(11, ASK), at(12, {**LOOK, "toolCalls": calls}), at(40, TELL))
    for began in (13, 14):
        task = said(f"u{began}", "user", f"Your task: {INQUIRY}")
        with_the_same_id(tmp_path, at(began, task), began=began)

    import_paths(ledger, tmp_path)

    linked = [
        ledger.session(f"{label()}:2026-03-01T10:{began}:00.000Z").spawn_tool_call_id
        for began in (13, 14)
    ]
    assert linked == ["first", "second"]


def test_a_subagent_of_a_session_that_was_killed_while_it_waited(
    ledger: Ledger, tmp_path: Path
) -> None:
    document(tmp_path, at(11, ASK), at(12, TELL), at(13, ASK2))
    task = [said("u9", "user", INQUIRY), said("g9", "gemini", "One.")]
    with_the_same_id(tmp_path, *task, began=40)

    import_paths(ledger, tmp_path)

    session = ledger.session(f"{label()}:2026-03-01T10:40:00.000Z")
    assert (session.parent_session_label, session.spawn_tool_call_id) == (label(), None)
    assert len(ledger.thread(label()).turns) == 1


def test_a_subagent_that_started_before_the_chat_with_its_id_is_not_the_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    document(tmp_path, at(41, ASK), at(42, TELL), startTime="2026-03-01T10:40:00.000Z")
    task = said("u9", "user", INQUIRY), said("g9", "gemini", "One.")
    with_the_same_id(tmp_path, *task, began=39, kind="subagent")

    import_paths(ledger, tmp_path)

    assert [turn.id for turn in ledger.thread(label()).turns] == [f"{SESSION}:u1"]
    assert ledger.session(f"{label()}:2026-03-01T10:39:00.000Z").parent_session_label == label()


def test_a_later_chat_with_the_same_id_is_a_separate_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    document(tmp_path, at(11, ASK), at(12, TELL))
    with_the_same_id(tmp_path, ASK2, TELL2, began=40)

    import_paths(ledger, tmp_path)

    session = ledger.session(f"{label()}:2026-03-01T10:40:00.000Z")
    assert not session.is_subagent
    assert ledger.thread(session.label).turns[0].query[0].source == "human"
    assert [turn.id for turn in ledger.thread(label()).turns] == [f"{SESSION}:u1"]


def test_a_chat_that_continues_in_a_later_file_is_one_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    document(tmp_path, ASK, TELL)
    with_the_same_id(tmp_path, ASK, TELL, ASK2, TELL2, began=40)

    import_paths(ledger, tmp_path)

    assert len(ledger.thread(label()).turns) == 2
    assert len(ledger.query("SELECT label FROM sessions")[1]) == 1
    assert ledger.session(label()).created_at == milliseconds(META["startTime"])


def test_subagents_are_determined_once_per_session_and_not_for_every_turn(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []

    def is_subagent(session: GeminiSession) -> bool:
        asked.append(session.session_id)
        return session.parent_id is not None

    monkeypatch.setattr(GeminiSession, "is_subagent", property(is_subagent))
    document(tmp_path, ASK)
    for began in range(10, 40):
        task = said(f"u{began}", "user", INQUIRY), said(f"g{began}", "gemini", "One.")
        with_the_same_id(tmp_path, *task, began=began)

    import_paths(ledger, tmp_path)

    assert ledger.query("SELECT count(*) FROM sessions WHERE is_subagent = 1")[1] == [(30,)]
    assert len(asked) < 6 * 30
