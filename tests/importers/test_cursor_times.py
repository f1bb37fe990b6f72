"""Cursor: times of bubbles that have none."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.cursor_made import chat, state_db
from tests.importers.helping import import_paths, result

START = 1_700_000_000_000
HOUR = 3_600_000
GLOBAL = Path("Cursor/User/globalStorage/state.vscdb")


def said(number: int, role: str, at: int | None) -> Any:
    """A bubble; with a time only if one is given."""
    sent = {"clientRpcSendTime": START + (at or 0), "clientStartTime": 4711.5}
    kind = 1 if role == "u" else 2
    return {"_v": 2, "type": kind, "bubbleId": f"b{number:02}", "text": "words"} | (
        {"timingInfo": sent} if at is not None else {}
    )


def times(ledger: Ledger, folder: Path, *bubbles: tuple[str, int | None], **about: Any) -> Any:
    """When the messages of a chat of these bubbles were, since the chat began."""
    made = [said(number, *each) for number, each in enumerate(bubbles)]
    about = {"createdAt": START, "lastUpdatedAt": START + HOUR, **about}
    import_paths(ledger, state_db(folder / GLOBAL, chat("c", *made, **about)))
    assert not ledger.audit()
    return [at - START for (at,) in ledger.query("SELECT created_at FROM messages ORDER BY id")[1]]


def test_bubbles_of_unknown_times_are_spread_over_the_time_of_the_chat(
    ledger: Ledger, tmp_path: Path
) -> None:
    bubbles = [("u", None), ("a", None)] * 2
    found = times(ledger, tmp_path, *bubbles, lastUpdatedAt=START + 4000)
    assert found == [0, 1000, 2000, 3000]


def test_a_prompt_without_a_time_has_the_first_time_of_its_answer(
    ledger: Ledger, tmp_path: Path
) -> None:
    minutes = [60_000 * each for each in range(1, 24)]
    bubbles = [each for at in minutes for each in (("u", None), ("a", at))]

    found = times(ledger, tmp_path, *bubbles, lastUpdatedAt=START + 5 * HOUR)

    assert found == [at for at in minutes for _ in range(2)]
    assert ledger.query("SELECT count(*) FROM turns WHERE completed_at < started_at")[1] == [(0,)]
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_bubbles_without_a_time_lie_between_those_with_one(ledger: Ledger, tmp_path: Path) -> None:
    bubbles: list[tuple[str, int | None]] = [
        ("u", None),
        ("u", None),
        ("a", None),
        ("a", 300),  # of the answer that b01 asked for
        ("a", None),
        ("u", None),
        ("a", None),
        ("u", 700),
        ("a", None),
        ("u", None),
    ]
    found = times(ledger, tmp_path, *bubbles, lastUpdatedAt=START + 1000)
    assert found == [150, 300, 300, 300, 400, 500, 600, 700, 800, 900]


@pytest.mark.parametrize("created", [None, START + HOUR])
def test_contradicting_times_of_a_chat_are_ignored(
    ledger: Ledger, tmp_path: Path, created: int | None
) -> None:
    bubbles: list[tuple[str, int | None]] = [
        ("a", None),
        ("a", 300),
        ("u", None),
        ("u", 200),  # before what it follows
        ("a", None),
    ]
    found = times(ledger, tmp_path, *bubbles, createdAt=created, lastUpdatedAt=START + 100)
    assert found == [300, 300, 200, 200, 200]


def test_unlisted_bubbles_have_times_within_the_chat(ledger: Ledger, tmp_path: Path) -> None:
    bubbles = [said(0, "u", 60_000), said(1, "a", 61_000)]
    left = [said(2, "a", None), said(3, "a", None), said(4, "a", 40_000)]
    listed = [{"bubbleId": each["bubbleId"], "type": each["type"]} for each in bubbles]
    about = {"createdAt": START, "lastUpdatedAt": START + HOUR}
    records = chat("c", *bubbles, *left, **about, fullConversationHeadersOnly=listed)

    import_paths(ledger, state_db(tmp_path / GLOBAL, records))

    rows = ledger.query("SELECT created_at FROM messages WHERE id > 'b01' ORDER BY id")[1]
    assert [START < at <= START + 40_000 for (at,) in rows] == [True] * 3


@pytest.mark.finding("import-6")
@pytest.mark.parametrize("is_text", [False, True])
def test_a_transcript_without_times_has_that_of_its_file(
    ledger: Ledger, tmp_path: Path, is_text: bool
) -> None:
    lines = [
        {"role": role, "message": {"content": [{"type": "text", "text": words}]}}
        for role, words in (("user", "List."), ("assistant", "One."), ("user", "Thanks."))
    ]
    folder = tmp_path / ".cursor/projects/shop/agent-transcripts/s1"
    path = folder / ("s1.txt" if is_text else "s1.jsonl")
    folder.mkdir(parents=True)
    path.write_text(
        "user:\nList.\n\nassistant:\nOne.\n\nuser:\nThanks.\n"
        if is_text
        else "".join(json.dumps(line) + "\n" for line in lines)
    )
    os.utime(path, ns=(START * 1_000_000, START * 1_000_000))
    import_paths(ledger, path)

    session = ledger.session("cursor:s1")
    assert (session.created_at, session.updated_at) == (START, START)
    times = ledger.query(
        "SELECT started_at, created_at FROM turns JOIN messages ON turn_id = turns.id"
    )
    assert set(times[1]) == {(START, START)}
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
    assert ledger.audit() == ()
