"""Cursor: timestamps, query tags and injected prompts in the files of its agent."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.cursor.rules import prompt_in, timestamp_ms
from agents_ledger.ledger.reports.pages import Pages
from tests.importers.helping import import_paths, result
from tests.importers.test_cursor_agent import PROJECT, SESSION, said, store, text, transcript

PATH = PROJECT / SESSION / f"{SESSION}.jsonl"
LABEL = f"cursor:{SESSION}"
ENDED = "Briefly inform the user about the task result and go on."


def asked(words: str, time: str = "", before: str = "") -> str:
    tag = f"<timestamp>{time}</timestamp>\n" if time else ""
    return f"{before}{tag}<user_query>\n{words}\n</user_query>"


def at(*moment: int) -> int:
    return int(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc, arg-type]


@pytest.mark.parametrize(
    ("time", "means"),
    [
        ("Thursday, Aug 6, 2026, 4:33 PM (UTC+5:30)", at(2026, 8, 6, 11, 3)),
        ("Friday, Sep 4, 2026, 2:21 AM (UTC+8)", at(2026, 9, 3, 18, 21)),
        ("Wednesday, Jun 3, 2026, 7:30\u202fPM (UTC-7)", at(2026, 6, 4, 2, 30)),
        ("Monday, Jan 12, 2026, 12:00 AM (UTC\u22123:30)", at(2026, 1, 12, 3, 30)),
        ("Monday, January 12, 2026, 12:05 PM (UTC)", at(2026, 1, 12, 12, 5)),
        ("Jan 12, 2026, 23:59:30 (GMT+0)", at(2026, 1, 12, 23, 59, 30)),
        ("Sunday, Sep 27, 2026, 9:00 AM", at(2026, 9, 27, 9)),
        ("Saturday, Feb 31, 2026, 4:33 PM (UTC+5:30)", 0),
        ("Thursday, Aug 6, 2026, 14:33 PM (UTC+5:30)", 0),
        ("Thursday, Aug 6, 2026, 4:33 PM (UTC+99)", 0),
        ("Donnerstag, 6. Aug. 2026, 16:33", 0),
        ("Thursday, Foo 6, 2026, 4:33 PM (UTC)", 0),
        ("now", 0),
    ],
)
def test_a_time_is_read_with_its_offset_or_not_at_all(time: str, means: int) -> None:
    assert timestamp_ms(time) == means
    assert prompt_in(asked("Go.", time)) == ("Go.", means, False)


def test_prompts_have_the_time_of_their_tag_and_answers_that_of_the_prompt(
    ledger: Ledger, tmp_path: Path
) -> None:
    first = asked("List files", "Thursday, Aug 6, 2026, 4:33 PM (UTC+5:30)")
    pushed = asked("Push.", "Thursday, Aug 6, 2026, 4:36 PM (UTC+5:30)", "Push this branch.\n")
    call = {"type": "tool_use", "name": "Shell", "input": {"command": "ls"}}
    path = transcript(
        tmp_path / PATH,
        said("user", text("Hello")),
        said("assistant", text("Hello.")),
        said("user", text(first)),
        said("assistant", call),
        said("assistant", text("One file.")),
        said("user", text("And now?")),
        said("assistant", text("Nothing.")),
        said("user", text(pushed)),
        said("assistant", text("Pushed.")),
    )
    import_paths(ledger, path)

    turns = ledger.thread(LABEL).turns
    early, late = at(2026, 8, 6, 11, 3), at(2026, 8, 6, 11, 6)
    assert [turn.started_at for turn in turns] == [early, early, early, late]
    assert [turn.query[0].content for turn in turns] == ["Hello", "List files", "And now?", "Push."]
    assert json.loads(turns[1].query[0].metadata_json or "") == {"text": first}
    assert {m.created_at for m in turns[1].messages} == {early}
    assert turns[1].tool_calls[0].started_at == early
    session = ledger.session(LABEL)
    assert (session.created_at, session.updated_at) == (early, late)
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
    assert ledger.audit() == ()


@pytest.mark.parametrize("time", ["", "yesterday", "Thursday, Feb 31, 2026, 4:33 PM (UTC)"])
def test_a_prompt_without_a_time_is_shown_unchanged(
    ledger: Ledger, tmp_path: Path, time: str
) -> None:
    plain = f"<timestamp>{time}</timestamp>\nWhat is this tag?"
    lines = (said("user", text(asked("Go.", time))), said("assistant", text("Gone.")))
    more = (said("user", text(plain)), said("assistant", text("A time.")))
    path = transcript(tmp_path / PATH, *lines, *more)
    import_paths(ledger, path)

    first, second = ledger.thread(LABEL).turns
    assert (first.query[0].content, second.query[0].content) == ("Go.", plain)
    assert first.started_at == path.stat().st_mtime_ns // 1_000_000


def test_a_timestamp_is_not_part_of_a_prompt_without_a_query_tag() -> None:
    time = "Thursday, Aug 6, 2026, 4:33 PM (UTC)"
    tag = f"<timestamp>{time}</timestamp>"
    assert prompt_in(f"{tag}\nGo.") == ("Go.", at(2026, 8, 6, 16, 33), False)
    within = f"What does {tag} mean?"
    assert prompt_in(within) == (within, 0, False)
    assert prompt_in(asked(within)) == (within, 0, False)


TASK = "<system_notification>\nThe task has ended.\n</system_notification>\n"
MACHINE = "<user_info>\nOS: linux\n</user_info>\n\n<git_status>\nClean.\n</git_status>"
OPEN = "<open_and_recently_viewed_files>\na.py\n</open_and_recently_viewed_files>"
TOOLS = (
    "<available_subagent_types>\n- one\n</available_subagent_types>\n"
    "<dynamic_tools>\n- two\n</dynamic_tools>"
)


@pytest.mark.parametrize(
    ("told", "is_event"),
    [
        (f"<user_query>{ENDED}</user_query>", True),
        (f"{TASK}<user_query>{ENDED}</user_query>", True),
        (f"{TASK}<user_query>Fix the login.</user_query>", False),
        (f"<timestamp>Aug 6, 2026, 4:33 PM (UTC)</timestamp>\n{TASK}", True),
        ("<user_info>x</user_info>\nFix it.\n<system_reminder>y</system_reminder>", False),
        ("<user_info>never ends", False),
        (f"\n{TOOLS}\n", True),
        (f"{TOOLS}\n{asked('Go on.')}", False),
        (f"{TOOLS}\nWhat are these?", False),
        ("<agent_skills>\nA skill.\n</agent_skills>\n", True),
        ("<agent_skills>\nA skill.\n</agent_skills>\nWhich are these?", False),
        (f"{MACHINE}\n\n<rules>\nBe brief.\n</rules>\n{OPEN}", True),
        (f"{MACHINE}\n<rules>\nBe brief.\n</rules>\n{OPEN}{asked('Go on.')}", False),
        (asked(f"What does {ENDED!r} mean?"), False),
        ("<div>\n</div>", False),
    ],
)
def test_injected_prompts_are_events(told: str, is_event: bool) -> None:
    assert prompt_in(told).is_event == is_event


def test_a_prompt_without_an_end_tag_is_parsed_quickly() -> None:
    told = "<user_query>" + " " * 200_000
    assert prompt_in(told).words == told


def test_an_injected_prompt_does_not_name_its_session(ledger: Ledger, tmp_path: Path) -> None:
    notice = said("user", text(f"<user_query>{ENDED}</user_query>"))
    path = transcript(
        tmp_path / PATH,
        said("user", text(TOOLS)),
        said("user", text(asked("List files"))),
        said("assistant", text("One file.")),
        notice,
        notice,
        said("assistant", text("It is done.")),
    )
    import_paths(ledger, path)

    first, second = ledger.thread(LABEL).turns
    assert [m.source for m in first.query] == ["event", "human"]
    assert [m.source for m in second.query] == ["event", "event"]
    (line,) = Pages(ledger._core).session_lines()
    assert line.first_prompt == "List files"


def test_prompts_in_a_store_have_times_too(ledger: Ledger, tmp_path: Path) -> None:
    info = "<user_info>\nOS: linux\n</user_info>"
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": info},
        {"role": "user", "content": asked("List files", "Apr 8, 2026, 4:33 PM (UTC+2)")},
        {"role": "assistant", "content": [text("One file.")]},
    ]
    import_paths(ledger, store(tmp_path / ".cursor/chats/0a" / SESSION / "store.db", messages))

    (turn,) = ledger.thread(LABEL).turns
    assert [(m.content, m.source) for m in turn.query] == [(info, "event"), ("List files", "human")]
    asked_at = at(2026, 4, 8, 14, 33)
    assert [m.created_at for m in turn.messages] == [1775522590321, asked_at, asked_at]
    session = ledger.session(LABEL)
    assert (session.created_at, session.updated_at) == (1775522590321, asked_at)
