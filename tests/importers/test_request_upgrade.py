"""Sessions that an earlier version derived from import requests or from AIX, derived again."""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from pathlib import Path

import pytest
from msgspec import structs

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import Importer, rederive
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.aix.source import Aix
from agents_ledger.importers.sources.import_requests.records import ImportKey
from agents_ledger.importers.sources.import_requests.source import Requests
from agents_ledger.model.imports.sources import Derivation, DerivedTurn
from agents_ledger.model.turns import Turn
from tests.importers.helping import import_paths, result
from tests.importers.test_aix import sample
from tests.importers.test_request_links import parents, turns
from tests.importers.test_requests import (
    call,
    check_family,
    family,
    import_sessions,
    item,
    label,
    request,
    turn_id,
)


def earlier_origins(derivation: Derivation) -> Derivation:
    sessions = (structs.replace(s, origin=f"aix:{s.provider}") for s in derivation.sessions)
    return structs.replace(derivation, sessions=tuple(sessions))


class EarlierRequests(Requests):
    """Version 1: turns without a parent were roots, ids of calls were hashed, steps numbered."""

    version = 1

    def __init__(self, root_ids: Collection[str]) -> None:
        self.root_ids = root_ids

    def derive(self, material: Material) -> Derivation:
        derivation = super().derive(material)
        earlier = tuple(self._earlier(turn) for turn in derivation.turns)
        return earlier_origins(structs.replace(derivation, turns=earlier))

    def _earlier(self, turn: DerivedTurn) -> DerivedTurn:
        return structs.replace(
            turn,
            parent_id=None if turn.id in self.root_ids else turn.parent_id,
            fingerprint=b"1" + turn.fingerprint[1:],
            build=partial(_built_earlier, turn.build()),
        )


def _built_earlier(turn: Turn) -> Turn:
    number = {step.id: index for index, step in enumerate(turn.steps)}
    key = ImportKey("aix", "cursor", "s1")
    return structs.replace(
        turn,
        messages=tuple(structs.replace(m, sequence=number[m.id]) for m in turn.messages),
        tool_calls=tuple(
            structs.replace(c, id=key.id_of("tool", c.id), sequence=number[c.id])
            for c in turn.tool_calls
        ),
    )


def derive_as_before(ledger: Ledger, *sessions: str, roots: Collection[str] = ()) -> None:
    paths = [ImportKey("aix", "cursor", session).path() for session in sessions]
    Importer(ledger).derive(EarlierRequests(roots), *paths)


def chained() -> dict[str, object]:
    links = turns("a", "b", "c")
    links["toolCalls"] = [call("toolu_01", "c", sequence=7)]
    return item(**links)


ROOTS = [turn_id(name) for name in "abc"]


@pytest.mark.finding("spec-A")
@pytest.mark.finding("spec-G")
@pytest.mark.finding("spec-I")
def test_sessions_of_before_get_their_order_ids_and_origin(ledger: Ledger) -> None:
    import_sessions(ledger, request(chained()))
    now = result(ledger)
    derive_as_before(ledger, "s1", roots=ROOTS)
    assert ledger.thread(label()).depth == 1
    assert ledger.session(label()).origin == "aix:cursor"
    assert ledger.query("SELECT id LIKE 'imp_tool_%' FROM tool_calls")[1] in ([(1,)], [(True,)])
    assert ledger.audit() == ()

    report = rederive(ledger)

    assert report.faults == []
    assert result(ledger) == now
    assert ledger.thread(label()).depth == 3
    assert ledger.audit() == ()


@pytest.mark.finding("spec-G")
def test_subagents_of_before_are_linked_to_the_ids_of_their_calls(ledger: Ledger) -> None:
    import_sessions(ledger, request(*family()))
    now = result(ledger)
    derive_as_before(ledger, "parent", "by-call", "by-message", "by-parent")
    assert str(ledger.session(label("by-call")).spawn_tool_call_id).startswith("imp_tool_")

    rederive(ledger)

    check_family(ledger)
    assert result(ledger) == now


@pytest.mark.finding("spec-A")
@pytest.mark.finding("spec-G")
def test_turns_of_before_that_were_continued_stay_as_they_are(ledger: Ledger) -> None:
    import_sessions(ledger, request(chained()))
    derive_as_before(ledger, "s1", roots=ROOTS)
    ours = ledger.record(label(), "And now?", "Done.")
    frozen = ledger.get_turn(turn_id("c"))

    rederive(ledger)

    assert ledger.get_turn(turn_id("c")) == frozen
    assert ledger.session(label()).thread_id == ours.id
    assert parents(ledger) == {"a": None, "b": "a", "c": None, None: "c"}
    assert ledger.audit() == ()


@pytest.mark.finding("spec-A")
def test_a_later_request_repairs_a_session_of_before(ledger: Ledger) -> None:
    import_sessions(ledger, request(chained()))
    derive_as_before(ledger, "s1", roots=ROOTS)

    import_sessions(ledger, request(item(fingerprint="f2", **turns("d")), key="k2"))

    assert parents(ledger) == {"a": None, "b": "a", "c": "b", "d": "c"}
    assert ledger.session(label()).origin == "cursor"
    assert ledger.audit() == ()


class EarlierAix(Aix):
    """Version 3: the origin named AIX and the agent."""

    version = 3

    def derive(self, material: Material) -> Derivation:
        return earlier_origins(super().derive(material))


@pytest.mark.finding("spec-I")
@pytest.mark.parametrize("again", [True, False], ids=["imported", "rederived"])
def test_aix_sessions_of_before_get_the_agent_as_origin(
    ledger: Ledger, tmp_path: Path, again: bool
) -> None:
    database = sample(tmp_path / "aix.db")
    import_paths(ledger, database)
    now = result(ledger)
    [family_path] = {file.family for file in ledger.sources.all_files()}
    Importer(ledger).derive(EarlierAix(), family_path)
    assert ledger.query("SELECT DISTINCT source FROM agent_sessions")[1] == [("aix:cursor",)]

    if again:
        import_paths(ledger, database)
    else:
        rederive(ledger)

    assert ledger.query("SELECT count(*) FROM agent_sessions WHERE source = 'cursor'")[1] == [(2,)]
    assert len(ledger.sessions(origin="cursor")) == 2
    assert result(ledger) == now
    assert ledger.audit() == ()
