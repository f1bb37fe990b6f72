"""Values that a caller got wrong are refused by name, with what to pass instead."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger import (
    Ledger,
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    Refused,
    Strategy,
    ToolCall,
    add_strategy,
    offer,
)
from agents_ledger.model.ids import new_id

EMPTY: list[tuple[Any, Any]] = [
    ("", None),
    ((), None),
    ([], ""),
    ("", ""),
    (Message("user"), None),
    ([Message("user", ""), Message("user", None)], Message("assistant", "")),
]
LONG = "data:image/png;base64," + "A" * 600


@pytest.mark.parametrize(
    ("details", "problem", "hint"),
    [
        ({"files": (MessageFile("atached", "a"),)}, "kind is 'atached'", "or attached."),  # type: ignore[arg-type]
        ({"files": ("a.png",)}, r"files is \('a.png',\)", "a tuple of MessageFile"),
        ({"files": "a.png"}, "files is 'a.png'", "a tuple of MessageFile"),
        ({"files": 5}, "files is 5", "a tuple of MessageFile"),
        ({"files": (MessageFile("read", None),)}, "file_path is None", "It is text."),  # type: ignore[arg-type]
        ({"files": (MessageFile("read", LONG),)}, "with 622 characters", "metadata_json"),
        ({"lints": (MessageLint(severity="bad"),)}, "severity is 'bad'", "error or warning"),  # type: ignore[arg-type]
        ({"codeblocks": ("x",)}, r"codeblocks is \('x',\)", "a tuple of MessageCodeblock"),
    ],
)
def test_details_of_a_message_are_checked(
    ledger: Ledger, details: dict[str, Any], problem: str, hint: str
) -> None:
    with pytest.raises(Refused, match=problem) as refused:
        ledger.record("main", Message("user", "Look.", **details), "No.")

    assert hint in refused.value.hint
    assert ledger.roots() == ()


def test_the_longest_path_is_stored(ledger: Ledger) -> None:
    path = "".join(chr(0x10000 + n * 977 % 60_000) for n in range(600))
    message = Message(
        "user",
        "Look.",
        files=(MessageFile("attached", path),),
        codeblocks=(MessageCodeblock("x = 1"),),
    )

    turn = ledger.record("main", message, "Yes.")

    assert turn.messages[0].files[0].file_path == path
    assert ledger.audit() == ()


@pytest.mark.parametrize(("query", "response"), EMPTY)
def test_a_turn_of_nothing_is_refused(ledger: Ledger, query: Any, response: Any) -> None:
    with pytest.raises(Refused, match="the turn is empty") as refused:
        ledger.record("empty", query, response)

    assert refused.value.hint == "Pass the text of the query or of the response."
    assert ledger.roots() == ()


def test_a_turn_may_lack_any_part_but_not_all(ledger: Ledger) -> None:
    ledger.record("main", "only asked")
    ledger.record("main", (), "only answered")
    ledger.record("main", steps=[ToolCall("Read")])
    ledger.record("main", Message("user", files=(MessageFile("attached", "a.png"),)))
    ledger.record("main", status="failed", error="the provider did not answer")
    with ledger.turn("main") as turn:
        turn.respond("Nobody asked.")

    assert ledger.thread("main").depth == 5
    assert ledger.audit() == ()


WRONG_CALLS: dict[str, Callable[[Ledger], object]] = {
    "limit is 'x'": lambda ledger: ledger.sessions(limit="x"),  # type: ignore[arg-type]
    "limit is 0": lambda ledger: ledger.sessions(limit=0),
    "after is 'zz'": lambda ledger: ledger.sessions(after="zz"),  # type: ignore[arg-type]
    "depth is '1'": lambda ledger: ledger.ancestor_at("main", "1"),  # type: ignore[arg-type]
    "last is -1": lambda ledger: ledger.context("main", last=-1),
    "budget is 0": lambda ledger: ledger.context("main", budget=0),
    "count is 5": lambda ledger: ledger.context("main", count=5),  # type: ignore[arg-type]
    "budget is '50'": lambda ledger: ledger.compact("main", strategy=WINDOW, budget="50"),  # type: ignore[arg-type]
    "budget is -1": lambda ledger: ledger.plan_compaction("main", strategy=WINDOW, budget=-1),
    "window is -4": lambda ledger: ledger.compaction_due("main", window=-4),
    "every is 0": lambda ledger: ledger.compaction_due("main", every=0),
    "turn_ids is 'nosuch'": lambda ledger: ledger.headlines("nosuch"),
    "a tool is a function, not 5": lambda _: offer(5),  # type: ignore[arg-type]
}
WINDOW = "sliding_window"


@pytest.mark.parametrize("problem", WRONG_CALLS)
def test_a_wrong_argument_is_named(ledger: Ledger, problem: str) -> None:
    ledger.record("main", "q", "r")

    with pytest.raises(Refused) as refused:
        WRONG_CALLS[problem](ledger)

    assert str(refused.value) == problem


def test_a_strategy_that_chooses_nothing_is_named(ledger: Ledger) -> None:
    for _ in range(3):
        ledger.record("main", "q" * 100, "r")
    name = f"numbered-{new_id()}"  # strategies are those of the process
    add_strategy(Strategy(name, lambda turns, room: 5))  # type: ignore[arg-type,return-value]

    with pytest.raises(Refused, match=f"strategy '{name}' returned 5") as refused:
        ledger.compact("main", strategy=name, budget=10)

    assert refused.value.hint == "Return a Chosen."
