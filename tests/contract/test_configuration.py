"""Effective configuration: what a turn ran with and who decided it, from the ledger alone."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from agents_ledger import Config, Ledger, Setting
from agents_ledger.model.errors import NotFound
from tests.builders import chain
from tests.importers.test_requests import import_sessions, item, label, request

DEFAULTS = {"model": "small", "temperature": 1}


def test_the_layers_are_folded_in_order_and_each_value_says_who_decided_it(
    ledger: Ledger,
) -> None:
    first = ledger.record(
        "main", "q", "r", config=Config({"model": "big", "thinking": "high"}, DEFAULTS)
    )
    ledger.record(
        "main",
        "q",
        "r",
        config=Config({"thinking": "low"}, {**DEFAULTS, "temperature": 0}, {"network": False}),
    )

    assert ledger.effective_config(first.id) == {
        "model": Setting("big", "directive"),
        "temperature": Setting(1, "default"),
        "thinking": Setting("high", "directive"),
    }
    assert ledger.effective_config("main") == {
        "model": Setting("big", "inherited", first.id),
        "temperature": Setting(0, "default"),
        "thinking": Setting("low", "directive"),
        "network": Setting(False, "permission"),
    }


def test_an_inherited_value_names_the_turn_that_said_it(ledger: Ledger) -> None:
    said = ledger.record("main", "q", "r", config=Config({"model": "big"}))
    for _ in range(3):
        ledger.record("main", "q", "r", config=Config())

    assert ledger.effective_config("main") == {"model": Setting("big", "inherited", said.id)}


def test_a_constraint_overrules_and_leaves_no_trace_once_it_is_lifted(ledger: Ledger) -> None:
    said = ledger.record("main", "q", "r", config=Config({"model": "big"}))
    ledger.record("main", "q", "r", config=Config(constraints={"model": "small", "network": False}))
    constrained = ledger.effective_config("main")
    ledger.record("main", "q", "r", config=Config())

    assert constrained == {
        "model": Setting("small", "permission", instead_of=Setting("big", "inherited", said.id)),
        "network": Setting(False, "permission"),
    }
    assert ledger.effective_config("main") == {"model": Setting("big", "inherited", said.id)}


def test_a_directive_given_under_a_constraint_holds_once_it_is_lifted(ledger: Ledger) -> None:
    said = ledger.record(
        "main", "q", "r", config=Config({"model": "big"}, DEFAULTS, {"model": "small"})
    )
    ledger.record("main", "q", "r", config=Config(defaults=DEFAULTS))

    assert ledger.effective_config("main")["model"] == Setting("big", "inherited", said.id)


def test_a_fork_inherits_from_where_it_forked(ledger: Ledger) -> None:
    first = ledger.record("main", "q", "r", config=Config({"model": "big"}))
    ledger.record("main", "q", "r", config=Config({"model": "small"}))
    ledger.fork(first.id, label="other")

    ledger.record("other", "q", "r", config=Config())

    assert ledger.effective_config("other") == {"model": Setting("big", "inherited", first.id)}


def test_a_live_turn_has_its_configuration_from_the_start(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    with ledger.turn("main", "q", config=Config({"model": "big"})) as turn:
        seen = open_ledger().effective_config(turn.id)
        turn.respond("r")

    assert seen == {"model": Setting("big", "directive")}
    assert ledger.effective_config("main") == seen


def test_turns_that_say_nothing_are_looked_through(ledger: Ledger) -> None:
    said = ledger.record("main", "q", "r", config=Config({"model": "big"}))
    chain(ledger, "main", 3)
    ledger.record("main", "q", "r", config=Config({"thinking": "low"}))

    assert ledger.effective_config("main") == {
        "model": Setting("big", "inherited", said.id),
        "thinking": Setting("low", "directive"),
    }


def test_a_compaction_keeps_the_configuration_of_its_thread(ledger: Ledger) -> None:
    said = ledger.record("main", "q", "r" * 900, config=Config({"model": "big"}, DEFAULTS))
    chain(ledger, "main", 3)
    ledger.compact("main", strategy="sliding_window", budget=60)

    assert ledger.get_turn("main").turn_type == "compaction"
    assert ledger.effective_config("main") == {"model": Setting("big", "inherited", said.id)}


def test_a_compaction_where_nobody_said_anything_stores_no_configuration(ledger: Ledger) -> None:
    ledger.record("main", "q", "r" * 900)
    chain(ledger, "main", 3)

    assert ledger.compact("main", strategy="sliding_window", budget=60).compaction is not None
    assert ledger.get_turn("main").effective_config_json is None


def test_words_of_a_source_are_its_defaults_and_not_inherited(ledger: Ledger) -> None:
    handed = item()
    handed["turns"][1]["metadata"] = {"effort": "low", "model": ["big", "directive"]}
    import_sessions(ledger, request(handed))

    assert ledger.effective_config(label()) == {
        "effort": Setting("low", "default"),
        "model": Setting("big", "directive"),
    }
    ledger.record(label(), "q", "r", config=Config({"thinking": "low"}))
    assert ledger.effective_config(label())["thinking"] == Setting("low", "directive")
    assert "effort" not in ledger.effective_config(label())


@pytest.mark.parametrize("metadata", [[1], "text", 7, {"a": None}, {"a": ["x"]}, {}])
def test_whatever_a_source_says_of_a_turn_its_configuration_can_be_read(
    ledger: Ledger, metadata: object
) -> None:
    handed = item()
    handed["turns"][1]["metadata"] = metadata
    import_sessions(ledger, request(handed))

    assert set(ledger.effective_config(label())) <= {"a"}


def test_the_stored_json_is_compact(ledger: Ledger) -> None:
    turn = ledger.record(
        "main", "q", "r", config=Config({"model": "big"}, {"limits": {"n": [1, None]}})
    )

    stored = ledger.get_turn(turn.id).effective_config_json
    assert stored == turn.effective_config_json
    assert stored == '{"limits":[{"n":[1,null]},"default"],"model":["big","directive"]}'
    assert msgspec.json.decode(stored)["model"][0] == "big"


@pytest.mark.finding("spec-N")
def test_a_turn_without_configuration_reports_what_it_inherits(ledger: Ledger) -> None:
    config = Config({"model": "big"}, {"temperature": 1}, {"network": False})
    first = ledger.record("main", "q", "r", config=config)
    chain(ledger, "main", 2)

    assert ledger.get_turn("main").effective_config_json is None
    assert ledger.effective_config("main") == {"model": Setting("big", "inherited", first.id)}


def test_a_turn_without_configuration_stores_none(ledger: Ledger) -> None:
    [turn_id] = chain(ledger, "main", 1)

    assert ledger.get_turn(turn_id).effective_config_json is None
    assert ledger.effective_config("main") == {}
    with pytest.raises(NotFound):
        ledger.effective_config("nothing")
