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
from agents_ledger.importers.pipeline import Importer, rederive
from agents_ledger.integrations.claude import DerivationTiming, LedgerSessionStore
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.store.database import Database
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.helping import import_paths
from tests.statements import Watched
from tests.waiting import until

KEY: Any = {"project_key": "-home-me-shop", "session_id": SESSION}


def test_the_sdks_own_suite_passes(new_address: Callable[[], str]) -> None:
    ledgers: list[Ledger] = []

    def make() -> LedgerSessionStore:
        end_last()  # each contract asks for one store, when the one before is over
        ledgers.append(Ledger.open(new_address()))
        return LedgerSessionStore(ledgers[-1])

    def end_last() -> None:
        for ledger in ledgers[-1:]:
            assert ledger.audit() == ()
            ledger.close()

    asyncio.run(run_session_store_conformance(make))
    end_last()
    assert len(ledgers) == 15  # a probe, and each of the fourteen contracts: none was skipped


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


def a_talk(turns: int, folder: Any) -> list[dict[str, Any]]:
    """Entries of a session of so many turns, two each."""
    log = Log(folder)
    for number in range(turns):
        log.user(f"{number}q", "How many apples are there?")
        log.assistant(f"{number}a", text("Seven."))
    return [json.loads(line) for line in log.save().read_text(encoding="utf-8").splitlines()]


class Counted(Watched):
    """A database that notes what every read ran, also the earlier ones."""

    def noted(self, read: Any, work: Any) -> Any:
        before = self.ran
        value = super().noted(read, work)
        self.ran = before + self.ran
        return value


def test_an_append_costs_the_same_however_long_the_session_is(
    db: Database, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    timing = DerivationTiming(small_bytes=2_000, quiet_seconds=600)
    derived: list[int] = []
    derive = Importer.derive_safely

    def counted(self: Any, reader: Any, family: str) -> Any:
        derived.append(sum(file.kept_bytes for file in self.sources.files_of_family(family)))
        return derive(self, reader, family)

    monkeypatch.setattr(Importer, "derive_safely", counted)
    watched, database = Counted.over(db)
    work: list[list[tuple[str, int]]] = []
    with Ledger(Core(database)) as ledger:
        store = LedgerSessionStore(ledger, timing=timing)
        for entry in a_talk(100, tmp_path):
            watched.ran = []
            before = len(derived)
            asyncio.run(store.append(KEY, [entry]))  # type: ignore[list-item]
            if len(derived) == before:
                work.append(watched.ran)
        kept = max(derived)
        assert len(work) > 100
        assert all(each == work[0] for each in work)
        small = [size for size in derived if size <= 2_000]
        assert sum(derived) - sum(small) < 10 * kept  # not once per append
        store.flush()
        assert ledger.thread(f"claude-code:{SESSION}").depth == 100
        assert ledger.audit() == ()


def test_what_waits_is_derived_when_nothing_more_comes(ledger: Ledger, tmp_path: Any) -> None:
    timing = DerivationTiming(small_bytes=0, quiet_seconds=0.1, pause=0)
    entries = a_talk(20, tmp_path)
    store = LedgerSessionStore(ledger, timing=timing)
    label = f"claude-code:{SESSION}"

    asyncio.run(store.append(KEY, entries[:38]))  # type: ignore[arg-type]
    asyncio.run(store.append(KEY, entries[38:]))  # type: ignore[arg-type]
    assert ledger.thread(label).depth == 19
    until(lambda: ledger.thread(label).depth == 20)


def test_what_a_program_left_waiting_is_derived_by_the_next_import(
    address: str, tmp_path: Any
) -> None:
    entries = a_talk(20, tmp_path)
    with Ledger.open(address) as ledger:
        store = LedgerSessionStore(ledger, timing=DerivationTiming(small_bytes=0))
        asyncio.run(store.append(KEY, entries[:38]))  # type: ignore[arg-type]
        asyncio.run(store.append(KEY, entries[38:]))  # type: ignore[arg-type]

    with Ledger.open(address) as ledger:
        assert ledger.thread(f"claude-code:{SESSION}").depth == 19
        import_paths(ledger)
        assert ledger.thread(f"claude-code:{SESSION}").depth == 20


def test_two_who_keep_one_file_in_turns_read_what_the_other_kept(
    ledger: Ledger, open_ledger: Callable[[], Ledger]
) -> None:
    both = Sources(ledger._core), Sources(open_ledger()._core)
    whole = b""
    for number in range(6):
        mine = both[number % 2]
        file = mine.file("f") or mine.begin(
            source="claude-code", path="f", family="f", kind="lines", previous=None
        )
        data = f"line {number}\n".encode()
        grown = mine.append(file, data, size=len(whole + data), mtime_ns=1)
        whole += data
        for sources in both:
            assert sources.read(grown.id, 0, len(whole)) == whole
            assert sources.read(grown.id, len(whole) - 3, 3) == whole[-3:]
            assert sources.read(grown.id, 2, 1 << 20) == whole[2:]
            assert b"".join(sources.stream(grown.id)) == whole


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
