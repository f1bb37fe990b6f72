"""AsyncLedger: the same verbs for asyncio, and what cancelling one leaves."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from agents_ledger import (
    AsyncLedger,
    AsyncLiveCall,
    AsyncLiveTurn,
    Conflict,
    HeadMoved,
    Ledger,
    LiveCall,
    LiveTurn,
    NotFound,
    OutcomeUnknown,
    Refused,
    Session,
)
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.subjects import Subjects
from agents_ledger.store.database import CommitCallback, Database, Transaction, open_database
from tests.builders import A_USAGE, a_call, a_full_turn
from tests.raw import Raw
from tests.statements import Meddled
from tests.waiting import PATIENCE_S

Test = Callable[[AsyncLedger], Coroutine[Any, Any, None]]
# These return something to be awaited or entered.
BEGIN = {"batch", "open", "turn", "tool_call"}


def run(address: str, test: Test) -> None:
    """Run a test in an event loop of its own, on a ledger opened there."""

    async def opened() -> None:
        async with AsyncLedger.open(address) as ledger:
            await asyncio.wait_for(test(ledger), PATIENCE_S)

    asyncio.run(opened())


def public(kind: type) -> dict[str, Any]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(
    ("plain", "other"),
    [(Ledger, AsyncLedger), (LiveTurn, AsyncLiveTurn), (LiveCall, AsyncLiveCall)],
)
def test_both_ledgers_offer_the_same_verbs_with_the_same_parameters(
    plain: type, other: type
) -> None:
    verbs = {name for name, verb in public(plain).items() if callable(verb)} - {*vars(Subjects)}
    same = {name for name, verb in public(other).items() if callable(verb)} - {"over"}

    assert same == verbs
    for name in verbs:
        wanted, found = (inspect.signature(getattr(kind, name)) for kind in (plain, other))
        assert found.parameters == wanted.parameters, name
        returned = str(found.return_annotation)
        for begun in ("Ledger", "LiveTurn", "LiveCall", "Batch"):
            returned = returned.replace(f"Async{begun}", begun)
        assert returned == str(wanted.return_annotation), name
        assert inspect.iscoroutinefunction(getattr(other, name)) == (name not in BEGIN), name


def test_what_one_ledger_records_the_other_reads(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        recorded = await other.record("main", **a_full_turn())
        assert await other.get_turn("main") == recorded
        assert ledger.get_turn("main") == recorded

        mine = ledger.record("main", "q", "r")
        assert await other.ancestry("main") == (recorded.id, mine.id)
        assert await other.thread("main") == ledger.thread("main")
        assert await other.history("main") == ledger.history("main")
        assert await other.effective_config(recorded.id) == ledger.effective_config(recorded.id)
        assert await other.audit() == ()

    run(address, test)


def test_every_verb_works(address: str) -> None:
    async def test(ledger: AsyncLedger) -> None:
        first = await ledger.record("main", "q", "r", system_prompt="s")
        second = await ledger.record("main", "q", "r")
        assert (await ledger.fork(first.id, label="other")).thread_id == first.id
        assert (await ledger.roll_back("main", first.id)).thread_id == first.id
        assert (await ledger.undo("main")).thread_id == second.id
        assert (await ledger.move("other", second.id)).thread_id == second.id
        assert (await ledger.clear("other")).thread_id is None
        assert await ledger.head("other") is None
        assert (await ledger.create_session(Session("new"))).label == "new"
        assert (await ledger.alias("nick", "main")).session_label == "main"
        assert len(await ledger.aliases()) == 1
        assert (await ledger.merge("main", "new")).label == "main"
        assert (await ledger.annotate("main", title="t")).title == "t"
        assert (await ledger.update_session("main", agent_id="a")).agent_id == "a"
        assert (await ledger.archive("other")).status == "archived"
        assert [s.label for s in await ledger.sessions()] == ["main"]
        assert (await ledger.session("nick")).label == "main"
        assert await ledger.ancestor_at("main", 1) == first.id
        assert await ledger.is_ancestor(first.id, second.id)
        assert await ledger.common_ancestor(first.id, second.id) == first.id
        assert [turn.id for turn in await ledger.children(first.id)] == [second.id]
        assert await ledger.siblings(second.id) == ()
        assert [turn.id for turn in await ledger.roots()] == [first.id]
        assert len(await ledger.subtree(first.id)) == 2
        assert await ledger.compactions("main") == ()
        assert await ledger.latest_roots() == (first.id,)
        assert len((await ledger.tree("main")).nodes) > 0
        assert len(await ledger.headlines([first.id, second.id])) == 2
        assert await ledger.system_prompt("main") == "s"
        assert await ledger.sessions_including(second.id) == ("main", "other")
        assert await ledger.live_turns() == ()
        assert await ledger.recover() == ()
        assert (await ledger.query("SELECT count(*) FROM turns"))[1] == [(2,)]
        with pytest.raises(NotFound):
            await ledger.session("nothing")

    run(address, test)


def test_a_live_turn_is_written_as_it_happens(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        async with other.turn("main", "q") as turn:
            assert ledger.get_turn(turn.id).status == "pending"
            await turn.message("I look.")
            async with turn.tool_call("Read", {"a": 1}, id="c1") as call:
                assert ledger.get_turn(turn.id).tool_calls[0].status == "running"
                await call.complete("1")
            spawning = await turn.tool_call("Task", id="c2")
            assert (await spawning.spawn("child")).spawn_tool_call_id == "c2"
            await spawning.reject("no")
            await turn.stream("an")
            await turn.stream("swer")
            assert await other.partial_text(turn.id) == "answer"
            await turn.respond(usage=A_USAGE)
        with pytest.raises(Conflict, match="is sealed"):
            await turn.message("late")

    run(address, test)
    turn = ledger.get_turn("main")
    assert turn.response is not None
    assert turn.response.content == "answer"
    assert [(c.id, c.status) for c in turn.tool_calls] == [("c1", "completed"), ("c2", "rejected")]


def test_a_live_turn_fails_with_its_block(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        with pytest.raises(ZeroDivisionError):
            async with other.turn("main", "q", id="broken"):
                _ = 1 / 0
        async with other.turn("main", "q", id="silent"):
            pass
        with pytest.raises(OSError, match="gone"):
            async with other.turn("main", "q", id="failing") as turn, turn.tool_call("Read"):
                raise OSError("gone")

    run(address, test)
    assert ledger.get_turn("broken").error == "ZeroDivisionError: division by zero"
    assert ledger.get_turn("silent").error == "no response recorded"
    assert ledger.get_turn("failing").tool_calls[0].error == "OSError: gone"


def test_a_cancelled_live_turn_is_failed(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        async def use() -> None:
            async with other.turn("main", "q", id="cancelled") as turn:
                await turn.stream("half")
                await asyncio.sleep(60)

        task = asyncio.create_task(use())
        while not await other.live_turns():
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(address, test)
    turn = ledger.get_turn("cancelled")
    assert (turn.status, turn.error) == ("failed", "CancelledError")


def test_an_answer_is_kept_when_the_head_moved(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        turn = await other.turn("main", "q")
        await other.record("main", "quicker", "r")
        with pytest.raises(HeadMoved) as caught:
            await turn.respond("r")
        assert caught.value.turn_id == turn.id

    run(address, test)


def test_many_writers_share_one_ledger(address: str, ledger: Ledger) -> None:
    async def test(other: AsyncLedger) -> None:
        await asyncio.gather(
            *(other.record(f"s{number % 5}", f"q{number}", "r") for number in range(60))
        )

    run(address, test)
    assert sum(ledger.thread(f"s{number}").depth for number in range(5)) == 60


class Blocked:
    """A write that takes its time, so that others queue behind it."""

    def __init__(self, db: Database, writers: int) -> None:
        self._started = threading.Semaphore(0)
        self._go_on = threading.Event()
        self._threads = [
            threading.Thread(target=db.write, args=(self._work,)) for _ in range(writers)
        ]
        for thread in self._threads:
            thread.start()
            assert self._started.acquire(timeout=PATIENCE_S)

    def _work(self, tx: Transaction) -> None:
        self._started.release()
        assert self._go_on.wait(PATIENCE_S)

    def go_on(self) -> None:
        self._go_on.set()
        for thread in self._threads:
            thread.join()


def on_database(db: Database, test: Test) -> None:
    """Run a test on an AsyncLedger over a database the test can block."""

    async def opened() -> None:
        ledger = await AsyncLedger(lambda: Core(db))
        await ledger.recover()
        await asyncio.wait_for(test(ledger), PATIENCE_S)

    asyncio.run(opened())


def test_cancelling_a_queued_write_leaves_nothing(db: Database, raw: Raw) -> None:
    async def test(ledger: AsyncLedger) -> None:
        await ledger.record("main", "q", "r")
        before = raw.dump()
        # One lets the others of SQLite wait; a server has so many connections.
        blocked = Blocked(db, 1 if db.engine == "sqlite" else 10)
        tasks = [asyncio.create_task(ledger.record("main", "q", "r")) for _ in range(12)]
        await asyncio.sleep(0.1)
        for task in tasks:
            task.cancel()
        await asyncio.sleep(0.1)  # those that wait for a connection are withdrawn
        if db.engine == "postgresql":
            blocked.go_on()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(outcome, asyncio.CancelledError) for outcome in outcomes)
        blocked.go_on()
        if db.engine == "sqlite":
            assert raw.dump() == before
        assert (await ledger.record("main", "after", "r")).depth <= 12

    on_database(db, test)


def test_cancelling_a_write_that_was_taken_waits_for_its_outcome(db: Database) -> None:
    taken, go_on = threading.Event(), threading.Event()

    def slow(tx: Transaction) -> None:
        tx.run("annotate", label="main", title="written", starred=0, note=None)
        taken.set()
        assert go_on.wait(PATIENCE_S)

    async def test(ledger: AsyncLedger) -> None:
        await ledger.create_session("main")
        task = asyncio.create_task(ledger._write(slow))
        await asyncio.to_thread(taken.wait, PATIENCE_S)
        task.cancel()
        await asyncio.sleep(0.05)
        task.cancel()
        await asyncio.sleep(0.05)
        assert not task.done()
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert (await ledger.session("main")).title == "written"

    on_database(db, test)


def test_a_turn_cancelled_while_it_began_does_not_stay_live(db: Database) -> None:
    async def test(ledger: AsyncLedger) -> None:
        slow = Slow(db)
        other = await AsyncLedger(lambda: Core(slow.database))
        await other.record("main", "q", "r")
        slow.hold()
        task = asyncio.create_task(begin(other))
        await asyncio.to_thread(slow.wait_until_written)
        task.cancel()
        await asyncio.sleep(0.05)
        slow.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ledger.live_turns() == ()
        assert (await ledger.get_turn("cancelled")).error == "CancelledError"

    async def begin(ledger: AsyncLedger) -> None:
        async with ledger.turn("main", "q", id="cancelled"):
            raise AssertionError("never entered")

    on_database(db, test)


def test_a_turn_cancelled_while_it_responded_is_completed(db: Database) -> None:
    async def test(ledger: AsyncLedger) -> None:
        slow = Slow(db)
        other = await AsyncLedger(lambda: Core(slow.database))
        turn = await other.turn("main", "q")
        slow.hold()

        async def respond() -> None:
            async with turn:
                await turn.respond("r")

        task = asyncio.create_task(respond())
        await asyncio.to_thread(slow.wait_until_written)
        task.cancel()
        await asyncio.sleep(0.05)
        slow.go_on()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await ledger.head("main") == turn.id

    on_database(db, test)


class Slow:
    """A database whose next write waits when it is all but committed."""

    def __init__(self, db: Database) -> None:
        meddled, self.database = Meddled.over(db)
        meddled.submit = self._submit  # type: ignore[attr-defined]
        self._db = db
        self._written, self._go_on = threading.Event(), threading.Event()
        self._go_on.set()

    def hold(self) -> None:
        self._go_on.clear()

    def go_on(self) -> None:
        self._go_on.set()

    def wait_until_written(self) -> None:
        assert self._written.wait(PATIENCE_S)

    def _submit(self, work: Any, answer: Any) -> Any:
        def slow(tx: Transaction) -> Any:
            result = work(tx)
            if not self._go_on.is_set():
                self._written.set()
            assert self._go_on.wait(PATIENCE_S)
            return result

        return self._db.submit(slow, answer)


class Forgotten:
    """Where the outcome of a write gets lost on its way."""

    def __init__(self, answer: CommitCallback) -> None:
        self._answer = answer

    def set(self, result: Any, error: BaseException | None) -> Callable[[], None]:
        return self._answer.set(None, OutcomeUnknown("the commit failed"))


def test_a_write_of_unknown_outcome_can_be_made_again(db: Database) -> None:
    forgetful, database = Meddled.over(db)
    forgets = [True]

    def submit(work: Any, answer: CommitCallback) -> Any:
        return db.submit(work, Forgotten(answer) if forgets.pop() else answer)

    forgetful.submit = submit  # type: ignore[attr-defined]

    async def test(ledger: AsyncLedger) -> None:
        other = await AsyncLedger(lambda: Core(database))
        with pytest.raises(OutcomeUnknown) as recorded:
            await other.record("main", "q", "r")
        forgets.append(True)
        with pytest.raises(OutcomeUnknown) as begun:
            await other.turn("main", "q")
        forgets.extend([False] * 3)
        again = await other.record("main", "q", "r", id=recorded.value.turn_id or "")
        assert again.depth == 1
        turn = await other.turn("main", "q", id=begun.value.turn_id or "")
        await turn.respond("r")
        assert await ledger.head("main") == turn.id

    on_database(db, test)


def test_closing_lets_no_write_hang(address: str) -> None:
    async def test() -> None:
        ledger = await AsyncLedger(lambda: Core(open_database(address)))
        await ledger.record("main", "q", "r")
        tasks = [asyncio.create_task(ledger.record("main", "q", "r")) for _ in range(20)]
        await asyncio.sleep(0)
        await ledger.close()
        ended = asyncio.gather(*tasks, return_exceptions=True)
        outcomes = await asyncio.wait_for(ended, PATIENCE_S)
        assert all(
            not isinstance(outcome, BaseException) or isinstance(outcome, Refused)
            for outcome in outcomes
        ), outcomes
        with pytest.raises(Refused, match="closed"):
            await ledger.record("main", "q", "r")

    asyncio.run(test())


def test_one_ledger_serves_several_event_loops(db: Database) -> None:
    ledger = AsyncLedger(lambda: Core(db))

    async def start() -> None:
        await ledger
        await ledger.record("main", "q", "r")

    asyncio.run(start())
    for _ in range(2):
        turn = asyncio.run(ledger.record("main", "q", "r", steps=[a_call()]))

    assert turn.depth == 3


def test_a_turn_or_call_that_was_not_begun_says_so(address: str) -> None:
    async def test(ledger: AsyncLedger) -> None:
        turn = ledger.turn("main", "q")
        with pytest.raises(Refused, match="has not begun"):
            await turn.respond("r")
        assert await ledger.live_turns() == ()
        await turn
        call = turn.tool_call("Read")
        for finish in (call.complete, call.cancel, call.reject):
            with pytest.raises(Refused, match=f"{call.id} has not begun") as refused:
                await finish()
            assert refused.value.hint.startswith("Await it")
        with pytest.raises(Refused, match="has not begun"):
            await call.spawn("helper")
        await call
        await call.complete(1)
        await turn.respond("r")

    run(address, test)


def test_a_turn_or_call_that_nobody_awaits_warns(address: str) -> None:
    async def test(ledger: AsyncLedger) -> None:
        with pytest.warns(RuntimeWarning, match="AsyncLiveTurn .* was never awaited"):
            ledger.turn("main", "q")
        async with ledger.turn("main", "q") as turn:
            with pytest.warns(RuntimeWarning, match="AsyncLiveCall c1 was never awaited"):
                turn.tool_call("forgotten", id="c1")
            await turn.respond("r")

    run(address, test)
