"""The Claude Agent SDK's SessionStore over the ledger: its own suite, and the turns it makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest
from claude_agent_sdk import list_sessions_from_store
from claude_agent_sdk.testing import run_session_store_conformance

from agents_ledger import Ledger
from agents_ledger.importers.importing import rederive
from agents_ledger.integrations.claude import LedgerSessionStore
from tests.importers.claude_log import SESSION, Log, text

KEY: Any = {"project_key": "-home-me-shop", "session_id": SESSION}


def test_the_sdks_own_suite_passes(new_address: Callable[[], str]) -> None:
    ledgers: list[Ledger] = []

    def make() -> LedgerSessionStore:
        ledgers.append(Ledger.open(new_address()))
        return LedgerSessionStore(ledgers[-1])

    try:
        asyncio.run(run_session_store_conformance(make))
        assert len(ledgers) == 15  # a probe, and each of the fourteen contracts: none was skipped
        for ledger in ledgers:
            assert ledger.audit() == ()
    finally:
        for ledger in ledgers:
            ledger.close()


@pytest.fixture
def entries(tmp_path: Any) -> list[dict[str, Any]]:
    """What the SDK mirrors of a session with two turns and a tool call."""
    log = Log(tmp_path)
    log.user("a1", "Count the apples.")
    log.assistant("a2", text("Let me look."))
    log.user("a3", "And the pears?")
    log.assistant("a4", text("Four."))
    lines = log.save().read_text(encoding="utf-8").splitlines()
    return [json.loads(line) for line in lines]


def test_what_is_mirrored_is_a_session_with_turns(
    ledger: Ledger, entries: list[dict[str, Any]]
) -> None:
    store = LedgerSessionStore(ledger)

    async def mirror() -> None:
        await store.append(KEY, entries[:2])  # type: ignore[arg-type]
        await store.append(KEY, entries)  # type: ignore[arg-type]

    asyncio.run(mirror())

    turns = ledger.thread(f"claude-code:{SESSION}").turns
    assert [[m.content for m in turn.messages] for turn in turns] == [
        ["Count the apples.", "Let me look."],
        ["And the pears?", "Four."],
    ]
    assert asyncio.run(store.load(KEY)) == entries
    assert ledger.audit() == ()


def test_another_process_goes_on_where_one_stopped(
    ledger: Ledger, open_ledger: Callable[[], Ledger], entries: list[dict[str, Any]]
) -> None:
    first, second = LedgerSessionStore(ledger), LedgerSessionStore(open_ledger())

    async def mirror() -> None:
        await first.append(KEY, entries[:1])  # type: ignore[arg-type]
        await second.append(KEY, entries[:3])  # type: ignore[arg-type]
        await first.append(KEY, entries)  # type: ignore[arg-type]

    asyncio.run(mirror())

    assert asyncio.run(second.load(KEY)) == entries


def test_many_writers_of_one_transcript_lose_nothing(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    stores = [LedgerSessionStore(ledger), LedgerSessionStore(open_ledger())]

    async def mirror() -> None:
        await asyncio.gather(
            *(
                store.append(KEY, [{"type": "x", "uuid": f"{number}-{n}"} for n in range(2)])
                for number, store in enumerate(stores * 4)
            )
        )

    asyncio.run(mirror())

    loaded = asyncio.run(stores[0].load(KEY))
    assert loaded
    assert len({entry["uuid"] for entry in loaded}) == len(loaded) == 16


def test_a_deleted_transcript_is_hidden_and_its_turns_stay(
    ledger: Ledger, entries: list[dict[str, Any]]
) -> None:
    store = LedgerSessionStore(ledger)
    label = f"claude-code:{SESSION}"

    async def delete_and_write_again() -> None:
        await store.append(KEY, entries)  # type: ignore[arg-type]
        await store.delete(KEY)
        assert await store.load(KEY) is None
        assert ledger.session(label).status == "deleted"
        assert len(ledger.thread(label).turns) == 2
        await store.append(KEY, entries[:2])  # type: ignore[arg-type]
        assert await store.load(KEY) == entries[:2]

    asyncio.run(delete_and_write_again())

    assert ledger.session(label).status == "active"
    rederive(ledger)
    assert len(ledger.thread(label).turns) == 2
    assert ledger.audit() == ()


def test_the_sdk_lists_what_the_ledger_has(ledger: Ledger, entries: list[dict[str, Any]]) -> None:
    store = LedgerSessionStore(ledger)

    async def listed() -> Any:
        await store.append(KEY, entries)  # type: ignore[arg-type]
        return await list_sessions_from_store(store, directory="/home/me/shop")

    [session] = asyncio.run(listed())
    assert session.session_id == SESSION
    assert session.first_prompt == "Count the apples."


@pytest.mark.parametrize("name", ["a/b", "..", "ü %41", "x" * 300, "a.jsonl"])
def test_any_key_is_its_own(ledger: Ledger, name: str) -> None:
    store = LedgerSessionStore(ledger)
    other: Any = {"project_key": "p", "session_id": "other"}
    key: Any = {"project_key": name, "session_id": name, "subpath": f"{name}/deep"}

    async def keep() -> None:
        await store.append(other, [{"type": "x", "uuid": "o"}])
        main: Any = {**key, "subpath": ""}
        await store.append(main, [{"type": "x", "uuid": "m"}])
        await store.append(key, [{"type": "x", "uuid": "s"}])
        assert await store.load(key) == [{"type": "x", "uuid": "s"}]
        assert [s["session_id"] for s in await store.list_sessions(name)] == [name]
        assert await store.list_subkeys(key) == [f"{name}/deep"]

    asyncio.run(keep())
