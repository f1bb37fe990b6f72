"""replay: what happened, in order, at a chosen speed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import click
import pytest

from agents_ledger import Ledger, Message, Session, ToolCall
from agents_ledger.cli.command import Invocation
from agents_ledger.cli.explore import replay as replaying
from tests.builders import chain
from tests.edges.conftest import Run

NOON = 1_772_366_400_000


@pytest.fixture
def ledger(file: str) -> Iterator[Ledger]:
    with Ledger.open(file) as opened:
        yield opened


def test_everything_is_shown_in_order_with_the_pauses(run: Run, ledger: Ledger) -> None:
    call = ToolCall("Bash", '{"command": "ls"}', started_at=NOON, completed_at=NOON + 500)
    for minute in (0, 5):
        at = NOON + minute * 60_000
        ledger.record(
            "main", f"ask {minute}", "done", steps=[call], started_at=at, completed_at=at + 60_000
        )

    answer = run("replay", "main")

    shown = [line.strip() for line in answer.out.splitlines()]
    wanted = ["ask 0", "▸ Bash ls  done · 500 ms", "done", "4 min later", "ask 5"]
    assert [line for line in shown if line in wanted] == [*wanted, wanted[1], wanted[2]]
    assert "turn 1 of 2" in answer.out


def test_moments_never_run_backwards_nor_past_the_end_of_their_turn(
    run: Run, ledger: Ledger
) -> None:
    late = Message("assistant", "late", created_at=NOON + 10_000)
    early = Message("assistant", "early", created_at=NOON - 10_000)
    ledger.record("main", "q", "a", steps=[late, early], started_at=NOON, completed_at=NOON + 2000)

    moments = run("replay", "main", "--json").json["moments"]

    assert [moment["kind"] for moment in moments] == [
        "began", "message", "message", "message", "message", "ended"
    ]  # fmt: skip
    times = [moment["at"] - NOON for moment in moments]
    assert times == [0, 0, 2000, 2000, 2000, 2000]
    assert moments[2]["value"]["content"] == "late"


def test_the_last_turns_can_be_selected(run: Run, ledger: Ledger) -> None:
    ids = chain(ledger, "main", 60)

    moments = run("replay", "main", "--last", "2", "--json").json["moments"]

    assert list(dict.fromkeys(moment["turn_id"] for moment in moments)) == ids[-2:]
    upto = run("replay", ids[54], "--json").json["moments"]
    assert list(dict.fromkeys(moment["turn_id"] for moment in upto)) == ids[:55]


def test_an_empty_session_and_a_wrong_speed_are_refused(run: Run, ledger: Ledger) -> None:
    ledger.create_session(Session("empty"))

    assert run("replay", "empty").code == 5
    assert run("replay", "nobody").code == 3
    assert run("replay", "empty", "--speed", "0").code == 2


def waited(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, **options: Any) -> list[object]:
    """What is done to let four seconds pass, and a day."""
    done: list[object] = []
    monkeypatch.setattr(time, "sleep", done.append)
    monkeypatch.setattr(click, "pause", lambda _: done.append("Enter"))
    run = cast(Invocation, SimpleNamespace(out=SimpleNamespace(is_terminal=terminal)))
    wait = replaying._waiting(run, 2.0, **{"step": False, "no_wait": False, **options})
    for passed in (4000, 86_400_000):
        wait(passed)
    return done


def test_time_passes_at_the_chosen_speed_and_never_long(monkeypatch: pytest.MonkeyPatch) -> None:
    assert waited(monkeypatch, terminal=True) == [2.0, 3.0]
    assert waited(monkeypatch, terminal=True, no_wait=True) == []
    assert waited(monkeypatch, terminal=True, step=True) == ["Enter", "Enter"]
    assert waited(monkeypatch, terminal=False, step=True) == []


def test_hostile_text_is_shown_and_not_sent(run: Run, ledger: Ledger) -> None:
    hostile = "\x1b[2J\u202eevil"
    ledger.record("main", hostile, hostile, steps=[ToolCall.of(hostile, hostile)], model=hostile)

    for answer in (run("replay", "main", "--full"), run("replay", "main", "--json")):
        assert answer.code == 0
        assert not set("\x1b\u202e") & set(answer.out)


@pytest.mark.parametrize("speed", ["nan", "inf", "0", "-1"])
def test_a_speed_that_is_none_is_refused(run: Run, speed: str) -> None:
    assert run("replay", "main", "--speed", speed).code in (2, 5)
