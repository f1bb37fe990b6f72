"""The events of a run: exported, typed, and the same as JSON."""

from __future__ import annotations

from typing import Any, get_args

import msgspec
import pytest

import agents_ledger
from agents_ledger import EngineEvent, Event, Queued, RunEvent
from agents_ledger.model.reports import events as report_events
from tests.broker.conftest import WithBroker, events_of
from tests.docs.console import ROOT

PAGE = "docs/how-to/run-turns-with-the-broker.md"
CLASSES: list[Any] = [*dict.fromkeys(get_args(RunEvent) + get_args(EngineEvent))]


@pytest.mark.finding("spec-3")
@pytest.mark.finding("users-6")
@pytest.mark.parametrize("event", CLASSES)
def test_every_event_is_exported_and_has_the_type_it_has_in_json(event: Any) -> None:
    assert getattr(agents_ledger, event.__name__) is event
    assert event.type == event.__struct_config__.tag


@pytest.mark.finding("spec-3")
@pytest.mark.finding("users-6")
def test_events_have_a_type_and_survive_json(with_broker: WithBroker) -> None:
    events = with_broker(lambda b: events_of(b, "main", "/think Hm.\nHello"))

    assert [event.type for event in events] == [
        "queued",
        "started",
        "thinking",
        "text",
        "completed",
    ]
    for event in events:
        assert msgspec.json.decode(msgspec.json.encode(event), type=RunEvent) == event
    assert isinstance(events[0], Queued)


def test_the_events_of_a_thread_keep_their_name() -> None:
    assert Event is report_events.Event


@pytest.mark.finding("spec-docs-events")
def test_the_docs_list_every_event_with_its_fields() -> None:
    text = (ROOT / PAGE).read_text(encoding="utf-8")

    for event in get_args(RunEvent):
        [line] = [line for line in text.splitlines() if f"| `{event.__name__}` |" in line]
        assert line.startswith(f"| `{event.type}` |")
        for field in event.__struct_fields__:
            assert f"`{field}`" in line
