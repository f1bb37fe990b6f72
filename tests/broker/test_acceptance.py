"""The six acceptance criteria of the ledger-only cutover, each with a test of its name."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from agents_ledger import Ledger
from agents_ledger.broker.broker import Broker
from agents_ledger.broker.policy import (
    Identity,
    Persona,
    PersonaModel,
    PersonaPermissions,
    Policy,
    ToolRules,
    Workers,
)
from agents_ledger.broker.tools import offer
from tests.broker.conftest import WithBroker, answer_of
from tests.importers.test_requests import import_sessions, item, label, request
from tests.web.conftest import Running

TRANSCRIPTS = (
    ".claude/projects/-work/1.jsonl",
    ".codex/sessions/2026/11/15/rollout-1.jsonl",
    ".openclaw/agents/main/sessions/sessions.json",
    ".openclaw/agents/main/sessions/1.jsonl",
    "sessions.json",
)


def look(path: str) -> str:
    """Looks at a file that is not there."""
    return f"nothing at {path}"


def erase(path: str) -> str:
    """Erases a file."""
    raise AssertionError(path)


ATLAS = Policy(
    personas={
        "atlas": Persona(
            identity=Identity("Be exact.", name="Atlas"),
            permissions=PersonaPermissions(ToolRules(deny=("erase",))),
            model=PersonaModel(model="small"),
        )
    },
    workers=Workers(depth_max=0),
)
TOOLS = (offer(look), offer(erase))
CALLS = '/call look {"path": "a"}\n/call erase {"path": "a"}\nDone.'


@pytest.fixture
def opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Transcripts that nobody can read, not even root, and every attempt to open one."""
    home = tmp_path / "home"
    for name in TRANSCRIPTS:
        file = home / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(file.with_name("gone"))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.chdir(home)
    tried: list[str] = []
    watching = True

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if watching and event in ("open", "os.listdir", "os.scandir") and isinstance(args[0], str):
            path = args[0]
            if path.endswith(("sessions.json", ".jsonl")) or "/.claude" in path:
                tried.append(path)

    sys.addaudithook(hook)
    yield tried
    watching = False


def test_1_native_broker_runs_write_complete_lineage_without_transcript_fallback(
    with_broker: WithBroker, ledger: Ledger, opened: list[str]
) -> None:
    async def act(broker: Broker) -> list[Any]:
        return [
            await answer_of(broker, "main", text, persona_id="atlas") for text in (CALLS, "two")
        ]

    first, second = with_broker(act, ATLAS, tools=TOOLS)

    assert opened == []
    thread = ledger.thread("main")
    assert [turn.id for turn in thread.turns] == [first.turn_id, second.turn_id]
    assert [turn.parent_turn_id for turn in thread.turns] == [None, first.turn_id]
    assert [turn.depth for turn in thread.turns] == [1, 2]
    assert thread.total_tokens == first.usage.total + second.usage.total
    assert ledger.head("main") == second.turn_id
    assert [move.thread_id for move in ledger.history("main")] == [second.turn_id, first.turn_id]
    assert all(turn.query and turn.response for turn in thread.turns)
    assert [call.status for call in thread.turns[0].tool_calls] == ["completed", "rejected"]
    assert (thread.persona_id, thread.model) == ("atlas", "small")


def test_2_effective_configuration_is_persisted_per_turn_and_reconstructed_from_the_ledger_alone(
    with_broker: WithBroker, address: str
) -> None:
    async def act(broker: Broker) -> list[str]:
        asked = [{"model": "big"}, {}, {"temperature": 0.1}]
        return [
            (
                await answer_of(broker, "main", "x", persona_id="atlas", directives=directives)
            ).turn_id
            for directives in asked
        ]

    turns = with_broker(act, ATLAS)

    with Ledger.open(address, read_only=True) as alone:
        found = [
            {name: (s.value, s.by, s.turn_id) for name, s in alone.effective_config(turn).items()}
            for turn in turns
        ]
    engine = {"engine": ("echo", "default", None)}
    assert found == [
        {**engine, "model": ("big", "directive", None)},
        {**engine, "model": ("big", "inherited", turns[0])},
        {
            **engine,
            "model": ("big", "inherited", turns[0]),
            "temperature": (0.1, "directive", None),
        },
    ]


def test_3_permissions_derived_and_permissions_used_are_both_persisted_per_turn(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> list[Any]:
        return [
            await answer_of(broker, "main", text, persona_id="atlas") for text in (CALLS, "none")
        ]

    used, unused = with_broker(act, ATLAS, tools=TOOLS)

    for done, wanted in ((used, {"tools": {"look": 1}, "rejected": {"erase": 1}}), (unused, {})):
        turn = ledger.get_turn(done.turn_id)
        granted = json.loads(turn.permissions_granted or "")
        assert json.loads(turn.tools_available or "") == ["look", "erase"]
        assert (granted["tools"], granted["persona"]) == (["look"], "atlas")
        assert granted["layers"][0]["deny"] == ["erase"]
        assert json.loads(turn.permissions_used or "") == wanted
    assert [m.what for m in ledger.review_permissions(persona_id="atlas").misuses] == ["rejected"]


def test_4_alias_promotion_and_import_reconciliation_resolve_to_stable_canonical_sessions(
    with_broker: WithBroker, ledger: Ledger
) -> None:
    async def act(broker: Broker) -> list[str]:
        heard = []
        for target, text in (("telegram:1", "one"), ("telegram:1", "two"), ("discord:9", "three")):
            heard.append((await answer_of(broker, target, text)).turn_id)
        promoted = await broker.ledger.promote("telegram:1", "dm:ann")
        assert promoted.label == "telegram:1"
        merged = await broker.ledger.promote("discord:9", "dm:ann")
        assert merged.label == "telegram:1"
        for target in ("dm:ann", "telegram:1", "discord:9"):
            heard.append((await answer_of(broker, target, f"after, by {target}")).turn_id)
        return heard

    turns = with_broker(act)

    first, second, apart, *after = turns
    assert ledger.ancestry("telegram:1") == (first, second, *after)
    assert {ledger.session(key).label for key in ("telegram:1", "discord:9", "dm:ann")} == {
        "telegram:1"
    }
    left = ledger.session("discord:9", exact=True)
    assert (left.thread_id, left.status) == (apart, "archived")
    assert [(a.alias, a.reason) for a in ledger.aliases("telegram:1")] == [
        ("discord:9", "identity_merge"),
        ("dm:ann", "identity_promotion"),
    ]
    import_sessions(ledger, request(item()))
    ledger.alias("cursor:apples", label(), reason="import_reconciliation")
    import_sessions(ledger, request(item(fingerprint="f2"), key="k2"))
    done = with_broker(lambda b: answer_of(b, "cursor:apples", "And the plums?"))
    assert ledger.head(label()) == done.turn_id
    assert ledger.thread("cursor:apples", last=0).depth == 3
    assert ledger.query("SELECT count(*) FROM turns")[1][0][0] == len(turns) + 3


def test_5_sessions_import_is_idempotent_with_deterministic_outcomes(ledger: Ledger) -> None:
    bad = item("s2", messages=[{"role": "wizard"}])

    answers = [
        import_sessions(ledger, request(item(), bad, key="k1")),
        import_sessions(ledger, request(item(), bad, key="k1")),
        import_sessions(ledger, request(item(), bad, key="k2")),
        import_sessions(ledger, request(item(fingerprint="f2"), bad, key="k3")),
    ]

    told = [[result["status"] for result in answer["results"]] for answer in answers]
    assert told == [
        ["imported", "failed"],
        ["imported", "failed"],
        ["skipped", "failed"],
        ["upserted", "failed"],
    ]
    assert answers[0] == answers[1]
    assert ledger.thread(label(), last=0).depth == 2


def test_6_the_command_center_reads_session_continuity_from_the_ledger_alone(
    with_broker: WithBroker, address: str, opened: list[str]
) -> None:
    async def act(broker: Broker) -> list[Any]:
        one = await answer_of(broker, "telegram:1", "one")
        await broker.ledger.promote("telegram:1", "dm:ann")
        return [one, await answer_of(broker, "dm:ann", "two")]

    first, second = with_broker(act)

    running = Running(address)
    try:
        key = quote("dm:ann", safe="")
        session = running.ask(f"/api/v1/sessions/{key}").json
        thread = running.ask(f"/api/v1/threads/{key}").json
        history = running.ask(f"/api/v1/sessions/{key}/history").json
    finally:
        running.stop()
    assert (session["label"], session["thread_id"]) == ("telegram:1", second.turn_id)
    assert [turn["id"] for turn in thread["turns"]] == [first.turn_id, second.turn_id]
    moves = [move["thread_id"] for move in history["items"]]
    assert moves == [second.turn_id, first.turn_id]
    assert opened == []
