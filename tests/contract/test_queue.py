"""The queue: one durable line per session, claimed by one writer, never asked twice."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import pytest

from agents_ledger import (
    Ambiguous,
    Ask,
    AsyncLedger,
    AsyncQueue,
    Claim,
    Conflict,
    Ledger,
    NotFound,
    Queue,
    QueueLimits,
    Refused,
    Usage,
)
from agents_ledger.ledger.sessions import queue_entries as queues
from agents_ledger.ledger.sessions.queue_entries import ClaimEnding
from tests.builders import a_message
from tests.raw import Raw

T = TypeVar("T")


@pytest.fixture
def queue(ledger: Ledger) -> Queue:
    """The lines of the test's ledger."""
    return Queue(ledger)


def ask(*texts: str, **fields: Any) -> Ask:
    return Ask(tuple(a_message(text) for text in texts), **fields)


def texts(claim: Claim | None) -> list[str | None]:
    assert claim is not None
    return [m.content for entry in claim.entries if entry.ask for m in entry.ask.messages]


def waiting(queue: Queue, session: str | None = None) -> list[str]:
    return [entry.id for entry in queue.entries(session) if entry.status == "waiting"]


def on(address: str, act: Callable[[AsyncLedger, AsyncQueue], Awaitable[T]]) -> T:
    """What `act` returns, given the ledger as a broker has it."""

    async def within() -> T:
        async with AsyncLedger.open(address) as ledger:
            return await act(ledger, AsyncQueue(ledger))

    return asyncio.run(within())


async def answer(queue: AsyncQueue, claim: Claim, text: str = "r") -> str:
    """Answer a claim as a broker does."""
    turn = await queue.begin(claim, [m for e in claim.entries if e.ask for m in e.ask.messages])
    work = turn.state.respond(text, usage=Usage())
    await queue.seal(claim, turn, ClaimEnding((work,), "done"))
    return turn.id


# -- joining a line ----------------------------------------------------------------------------


def test_an_entry_makes_its_session_and_waits_in_order(queue: Queue, ledger: Ledger) -> None:
    for number in range(3):
        queue.enqueue("main", ask(f"q{number}"), id=f"e{number}")

    assert ledger.session("main").thread_id is None
    assert waiting(queue, "main") == ["e0", "e1", "e2"]
    entry = queue.get("e1")
    assert (entry.mode, entry.status, entry.turn_id) == ("followup", "waiting", None)
    assert entry.ask == ask("q1")


def test_the_same_entry_again_changes_nothing_and_another_of_its_id_is_a_conflict(
    queue: Queue, raw: Raw
) -> None:
    first = queue.enqueue("main", ask("q"), id="e")
    before = raw.count()

    assert queue.enqueue("main", ask("q"), id="e") == first
    with pytest.raises(Conflict, match="queued already, with other content"):
        queue.enqueue("main", ask("other"), id="e")

    assert raw.count() == before


def test_an_alias_leads_to_the_line_of_its_session(queue: Queue, ledger: Ledger) -> None:
    ledger.record("main", "q", "r")
    ledger.alias("nick", "main")

    assert queue.enqueue("nick", ask("q")).session_label == "main"


def test_what_cannot_be_queued_is_refused(queue: Queue, ledger: Ledger) -> None:
    with pytest.raises(Refused, match="nothing to ask"):
        queue.enqueue("main", Ask(()))
    with pytest.raises(Refused, match="no queue mode 'loud'"):
        queue.enqueue("main", ask("q"), mode="loud")  # type: ignore[arg-type]
    ledger.record("old", "q", "r")
    ledger.archive("old")
    with pytest.raises(Refused, match="archived"):
        queue.enqueue("old", ask("q"))
    with pytest.raises(NotFound, match="no queue entry 'gone'"):
        queue.cancel("gone")

    assert queue.entries(everything=True) == ()


@pytest.mark.parametrize(
    ("drop", "kept", "dropped"), [("old", ["e1", "e2"], "e0"), ("new", ["e0", "e1"], "e2")]
)
def test_a_full_line_drops_an_entry_and_says_so(
    queue: Queue, drop: Any, kept: list[str], dropped: str
) -> None:
    limits = QueueLimits(cap=2, drop=drop)
    for number in range(3):
        queue.enqueue("main", ask(f"q{number}"), limits=limits, id=f"e{number}")

    assert waiting(queue) == kept
    entry = queue.get(dropped)
    assert (entry.status, entry.error) == ("dropped", "the queue was full")
    assert entry.ask is not None


def test_a_full_line_can_tell_how_the_dropped_began(queue: Queue) -> None:
    limits = QueueLimits(cap=2, drop="summarize")
    for number in range(4):
        queue.enqueue("main", ask(f"q{number} " + "x" * 200), limits=limits, id=f"e{number}")

    kept = queue.get("e2").ask
    assert waiting(queue) == ["e2", "e3"]
    assert kept is not None
    assert [text[:3] for text in kept.left_out] == ["q0 ", "q1 "]
    assert all(len(text) == 80 for text in kept.left_out)


def test_an_interruption_finds_room_in_a_full_line(queue: Queue) -> None:
    limits = QueueLimits(cap=1, drop="new")
    queue.enqueue("main", ask("a"), limits=limits, id="a")

    queue.enqueue("main", ask("b"), mode="interrupt", limits=limits, id="b")

    assert waiting(queue) == ["a", "b"]


# -- being answered ----------------------------------------------------------------------------


def test_a_line_is_answered_one_by_one_and_in_order(queue: Queue, address: str) -> None:
    for number in range(3):
        queue.enqueue("main", ask(f"q{number}"))

    async def act(ledger: AsyncLedger, lines: AsyncQueue) -> list[list[str | None]]:
        answered = []
        while (claim := await lines.claim()) is not None:
            assert await lines.claim() is None, "the session is being answered"
            assert await lines.claim("main") is None
            answered.append(texts(claim))
            await answer(lines, claim)
        return answered

    assert on(address, act) == [["q0"], ["q1"], ["q2"]]
    assert {entry.status for entry in queue.entries(everything=True)} == {"done"}
    assert all(entry.ask is None for entry in queue.entries(everything=True))


def test_sessions_are_answered_beside_each_other_the_longest_waiting_first(
    queue: Queue, address: str
) -> None:
    for name in ("a", "b", "a", "c"):
        queue.enqueue(name, ask(name))

    async def act(ledger: AsyncLedger, lines: AsyncQueue) -> list[str | None]:
        claims = [await lines.claim() for _ in range(4)]
        return [claim.session_label if claim else None for claim in claims]

    assert on(address, act) == ["a", "b", "c", None]


def test_the_turn_and_its_entry_are_done_as_one(queue: Queue, ledger: Ledger, address: str) -> None:
    queue.enqueue("main", ask("q"), id="e")

    async def act(_: AsyncLedger, lines: AsyncQueue) -> str:
        claim = await lines.claim()
        assert claim is not None
        return await answer(lines, claim)

    turn_id = on(address, act)

    entry = queue.get("e")
    assert (entry.status, entry.turn_id, entry.writer_id) == ("done", turn_id, None)
    assert ledger.head("main") == turn_id


def test_collected_messages_wait_for_one_more_and_are_answered_together(
    queue: Queue, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000]
    monkeypatch.setattr(queues, "now_ms", lambda: now[0])
    for number in range(3):
        queue.enqueue("main", ask(f"q{number}"), mode="collect")
        now[0] += 900

    async def act(_: AsyncLedger, lines: AsyncQueue) -> tuple[Claim | None, Claim | None]:
        early = await lines.claim()
        now[0] += 100
        return early, await lines.claim()

    early, claim = on(address, act)

    assert early is None
    assert texts(claim) == ["q0", "q1", "q2"]


def test_a_batch_that_keeps_growing_is_answered_in_the_end(
    queue: Queue, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1_000_000]
    monkeypatch.setattr(queues, "now_ms", lambda: now[0])
    for number in range(12):
        queue.enqueue("main", ask(f"q{number}"), mode="collect")
        now[0] += 900

    claim = on(address, lambda _, lines: lines.claim())

    assert len(texts(claim)) == 12


def test_a_message_of_another_mode_ends_a_batch(queue: Queue, address: str) -> None:
    queue.enqueue("main", ask("a"), mode="collect")
    queue.enqueue("main", ask("b"), mode="collect")
    queue.enqueue("main", ask("c"))

    assert texts(on(address, lambda _, lines: lines.claim())) == ["a", "b"]


def test_an_interruption_takes_what_waits_before_it_along(queue: Queue, address: str) -> None:
    queue.enqueue("main", ask("a"))
    queue.enqueue("main", ask("b"), mode="interrupt", id="b")
    queue.enqueue("main", ask("c"))

    async def act(_: AsyncLedger, lines: AsyncQueue) -> tuple[Any, Claim | None]:
        return await lines.urgent(), await lines.claim()

    urgent, claim = on(address, act)

    assert urgent == (("main", "b", "interrupt"),)
    assert texts(claim) == ["a", "b"]


def test_a_message_that_steers_becomes_part_of_the_turn_that_runs(
    queue: Queue, ledger: Ledger, address: str
) -> None:
    queue.enqueue("main", ask("q"))

    async def act(_: AsyncLedger, lines: AsyncQueue) -> str:
        claim = await lines.claim()
        assert claim is not None
        turn = await lines.begin(claim, "q")
        await lines.enqueue("main", ask("rather this"), mode="steer", id="s")
        taken = await lines.steer(turn, "main")
        assert [entry.id for entry in taken] == ["s"]
        assert await lines.steer(turn, "main") == ()
        work = turn.state.respond("r", usage=Usage())
        await lines.seal(claim, turn, ClaimEnding((work,), "done"))
        return turn.id

    turn = ledger.get_turn(on(address, act))

    assert [(m.role, m.content) for m in turn.messages] == [
        ("user", "q"),
        ("user", "rather this"),
        ("assistant", "r"),
    ]
    assert (queue.get("s").status, queue.get("s").turn_id) == ("done", turn.id)


def test_a_claim_that_was_lost_cannot_begin_a_turn(
    queue: Queue, ledger: Ledger, address: str, raw: Raw
) -> None:
    queue.enqueue("main", ask("q"), id="e")

    async def act(_: AsyncLedger, lines: AsyncQueue) -> None:
        claim = await lines.claim()
        assert claim is not None
        raw.execute(
            "UPDATE queue SET status = 'waiting', writer_id = NULL, turn_id = NULL WHERE id = 'e'"
        )
        with pytest.raises(Conflict, match="was lost to another process"):
            await lines.begin(claim, "q")

    on(address, act)

    assert ledger.head("main") is None
    assert ledger.live_turns() == ()


def test_whoever_closes_puts_back_what_it_had_not_begun(queue: Queue, address: str) -> None:
    queue.enqueue("main", ask("q"), id="e")

    on(address, lambda _, lines: lines.claim())

    assert (queue.get("e").status, queue.get("e").turn_id) == ("waiting", None)


# -- looking and changing ----------------------------------------------------------------------


def test_a_waiting_entry_can_be_cancelled_and_asked_again(queue: Queue, address: str) -> None:
    queue.enqueue("main", ask("q"), id="e")

    assert queue.cancel("e", "no longer").error == "no longer"
    assert on(address, lambda _, lines: lines.claim()) is None
    with pytest.raises(Refused, match="is cancelled: there is nothing to cancel"):
        queue.cancel("e")
    assert queue.retry("e").status == "waiting"
    with pytest.raises(Refused, match="is waiting: it cannot be retried"):
        queue.retry("e")


def test_an_entry_may_be_named_by_its_first_letters(queue: Queue) -> None:
    for entry_id in ("apple-1", "apple-2", "pear-1"):
        queue.enqueue("main", ask("q"), id=entry_id)

    assert queue.get("pear").id == queue.cancel("pear-").id == "pear-1"
    assert queue.retry("pear").status == "waiting"
    with pytest.raises(Ambiguous, match=r"several entries begin with 'appl': apple-1, apple-2\n"):
        queue.cancel("appl")
    with pytest.raises(NotFound):
        queue.get("pea")


def test_cancelling_what_is_being_answered_asks_to_stop_its_turn(
    queue: Queue, address: str
) -> None:
    queue.enqueue("main", ask("q"), id="e")

    async def act(_: AsyncLedger, lines: AsyncQueue) -> tuple[Any, ...]:
        claim = await lines.claim()
        assert claim is not None
        assert (await lines.cancel("e")).status == "claimed"
        assert await lines.stop("main") == (), "it was asked already"
        assert await lines.urgent() == (("main", claim.turn_id, "stop"),)
        await lines.fail(claim, "stopped")
        return await lines.urgent()

    assert on(address, act) == ()
    assert (queue.get("e").status, queue.get("e").error) == ("failed", "stopped")


def test_a_merge_joins_the_lines(queue: Queue, ledger: Ledger) -> None:
    ledger.record("b", "q", "r")
    queue.enqueue("a", ask("1"), id="1")
    queue.enqueue("b", ask("2"), id="2")
    queue.enqueue("a", ask("3"), id="3")

    ledger.merge("a", "b")

    assert [(e.id, e.session_label) for e in queue.entries("a")] == [
        ("1", "b"),
        ("2", "b"),
        ("3", "b"),
    ]


def test_entries_come_in_pages(queue: Queue) -> None:
    for number in range(5):
        queue.enqueue("main", ask("q"), id=f"e{number}")

    first = queue.entries(limit=3)
    rest = queue.entries(after=first[-1].position)

    assert [entry.id for entry in (*first, *rest)] == [f"e{n}" for n in range(5)]
