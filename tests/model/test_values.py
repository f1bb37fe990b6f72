"""Values: what a turn, a configuration and a setting mean without any database."""

from __future__ import annotations

import json
from datetime import timedelta, timezone
from pathlib import Path

import pytest

from agents_ledger import Config, Message, Setting, ToolCall, Turn, Usage
from agents_ledger.model.agents import config
from agents_ledger.model.installation import settings
from agents_ledger.model.text.periods import period_of
from agents_ledger.model.turns import to_json


@pytest.mark.parametrize(
    ("usage", "total"),
    [
        (Usage(), None),
        (Usage(3), 3),
        (Usage(output_tokens=4), 4),
        (Usage(3, 4, 100, 100, 100), 7),
        (Usage(3, 4, total_tokens=9), 9),
        (Usage(total_tokens=0), 0),
        (Usage(cached_input_tokens=5), None),
    ],
)
def test_the_total_is_what_was_said_else_input_and_output(usage: Usage, total: int | None) -> None:
    assert usage.total == total


def test_a_turn_knows_its_query_its_response_and_its_order() -> None:
    asked = Message("user", "q", id="a", sequence=0)
    call = ToolCall("Read", id="c", sequence=1)
    between = Message("assistant", "hm", id="b", sequence=2)
    answered = Message("assistant", "r", id="d", sequence=3)
    turn = Turn(
        "t",
        query_message_ids='["a"]',
        response_message_id="d",
        messages=(asked, between, answered),
        tool_calls=(call,),
    )

    assert turn.query == (asked,)
    assert turn.response == answered
    assert turn.steps == (asked, call, between, answered)


def test_a_turn_may_have_neither_query_nor_response() -> None:
    assert Turn("t").query == ()
    assert Turn("t").response is None


def test_values_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        Usage().input_tokens = 5  # type: ignore[misc]


def test_a_call_is_made_from_plain_values() -> None:
    assert ToolCall.of("Read", {"a": 1}, [1, None]) == ToolCall("Read", '{"a":1}', "[1,null]")
    failed = ToolCall.of("Read", {}, error="gone")
    assert (failed.status, failed.error, failed.result_json) == ("failed", "gone", None)


def test_text_is_taken_for_json_already() -> None:
    assert to_json("[1,  2]") == "[1,  2]"
    assert to_json({"é": "\x00"}) == '{"é":"\\u0000"}'


def test_a_lone_surrogate_becomes_json_too() -> None:
    assert json.loads(to_json({"a": "\ud800"})) == {"a": "\ud800"}


def test_a_configuration_survives_its_json() -> None:
    resolved = config.resolve(
        Config({"a": "\ud800", "b": None}, {"c": [1, {"d": 2}]}, {"b": False}),
        {"e": Setting(1, "directive"), "f": Setting(2, "default"), "g": Setting(3, "permission")},
        "parent",
    )

    assert config.decode(config.encode(resolved)) == resolved
    assert resolved == {
        "a": Setting("\ud800", "directive"),
        "b": Setting(False, "permission", instead_of=Setting(None, "directive")),
        "c": Setting([1, {"d": 2}], "default"),
        "e": Setting(1, "inherited", "parent"),
    }


def test_no_configuration_is_an_empty_one() -> None:
    assert config.decode(None) == config.decode("") == {}


def test_the_ledgers_address_is_given_or_in_the_environment_or_the_users_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    assert settings.address("given.db", {"AGENTS_LEDGER": "set.db"}) == "given.db"
    assert settings.address(None, {"AGENTS_LEDGER": "set.db"}) == "set.db"
    assert Path(settings.address(None, {})).name == "ledger.db"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("hours", [-12, 0, 14])
def test_a_time_that_no_calendar_has_falls_in_the_first_or_last_day_of_it(hours: int) -> None:
    zone = timezone(timedelta(hours=hours))

    assert period_of(10**15, "month", zone) == period_of(9 * 10**18, "month", zone) == "9999-12"
    assert period_of(-(10**15), "month", zone) == "0001-01"
    assert period_of(1_769_616_537_000, "day") == "2026-01-28"
