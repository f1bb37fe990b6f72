"""Many requests at once: how many run, in which order, and what they share. Nothing is stale."""

from __future__ import annotations

import asyncio
import sqlite3
import subprocess
import sys
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from agents_ledger import Ledger, Message, Session
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from agents_ledger.model.access import Token
from agents_ledger.model.errors import Locked
from agents_ledger.model.reports.usage import SessionUsage, Spent
from agents_ledger.store.sqlite.engine import SqliteDatabase
from agents_ledger.web import admission
from agents_ledger.web.admission import Admission, SharedReads, read_slots
from agents_ledger.web.caches import LONG_DEPTH, RenderCache, SessionUsageCache
from agents_ledger.web.logins import Logins
from agents_ledger.web.pages import thread as thread_pages
from agents_ledger.web.security import TokenDoor
from agents_ledger.web.site import Site
from tests.statements import Watched
from tests.web.conftest import Running

LONG_S = 60.0
LONG_AGO = 1_600_000_000_000  # shown as a date: it stays the same while the test runs

# -- admission --------------------------------------------------------------------------------


class Work:
    """An application whose requests end when they are told to, and the order they began in."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        name = scope["path"]
        self.began.append(name)
        await self.end_of(name).wait()
        await send({"type": "http.response.start"})
        await send({"type": "http.response.body"})

    def end_of(self, name: str) -> asyncio.Event:
        return self._ends.setdefault(name, asyncio.Event())


async def nothing() -> Any:
    return {}


async def ignore(_: Any) -> None:
    return None


def request(
    gate: Admission, path: str, method: str = "GET", send: Callable[[Any], Awaitable[None]] = ignore
) -> asyncio.Task[None]:
    scope: Any = {"type": "http", "method": method, "path": path}
    return asyncio.ensure_future(gate(scope, nothing, send))


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 30))


def test_a_few_requests_run_at_once_and_the_others_wait_in_order_of_arrival() -> None:
    async def test() -> None:
        work = Work()
        gate = Admission(work, 2, LONG_S)
        tasks = [request(gate, name) for name in "abcde"]
        await settle()
        assert work.began == ["a", "b"]

        work.end_of("b").set()
        await settle()
        assert work.began == ["a", "b", "c"]

        for name in "acde":
            work.end_of(name).set()
        await asyncio.gather(*tasks)
        assert work.began == ["a", "b", "c", "d", "e"]

    run(test)


def test_a_slow_request_gives_up_its_slot() -> None:
    async def test() -> None:
        work = Work()
        gate = Admission(work, 1, 0.01)
        slow = request(gate, "audit")
        quick = request(gate, "page")
        work.end_of("page").set()
        await quick
        assert not slow.done()

        work.end_of("audit").set()
        await slow

    run(test)


def test_a_slow_client_delays_nobody() -> None:
    async def test() -> None:
        work = Work()
        gate = Admission(work, 1, LONG_S)
        taken = asyncio.Event()

        async def slowly(_: Any) -> None:
            await taken.wait()

        first = request(gate, "first", send=slowly)
        second = request(gate, "second")
        work.end_of("first").set()
        work.end_of("second").set()
        await second
        assert not first.done()

        taken.set()
        await first

    run(test)


def test_a_write_waits_its_turn_and_occupies_no_slot() -> None:
    async def test() -> None:
        work = Work()
        gate = Admission(work, 1, LONG_S)
        tasks = [request(gate, "read")]
        tasks += [request(gate, f"write {n}", "POST") for n in range(3)]
        tasks.append(request(gate, "next"))
        await settle()
        assert work.began == ["read"]

        work.end_of("read").set()
        await settle()
        assert work.began == ["read", "write 0", "write 1", "write 2", "next"]

        for name in work.began:
            work.end_of(name).set()
        await asyncio.gather(*tasks)

    run(test)


@pytest.mark.parametrize("granted", [False, True])
def test_a_cancelled_request_passes_its_turn_on(granted: bool) -> None:
    async def test() -> None:
        work = Work()
        gate = Admission(work, 1, LONG_S)
        first, given_up, last = [request(gate, name) for name in ("first", "given up", "last")]
        await settle()
        if granted:
            gate._next()  # its turn came in the same instant
        given_up.cancel()
        with suppress(asyncio.CancelledError):
            await given_up
        await settle()
        assert work.began == (["first", "last"] if granted else ["first"])
        work.end_of("first").set()
        work.end_of("last").set()
        await asyncio.gather(first, last)
        assert work.began == ["first", "last"]

    run(test)


def test_on_postgresql_there_are_as_many_slots_as_connections() -> None:
    assert 1 <= read_slots("sqlite") <= 4
    assert read_slots("postgresql") == 10


# -- what requests share ----------------------------------------------------------------------


class Ticking:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_a_read_is_shared_only_with_requests_that_arrived_before_it() -> None:
    clock = Ticking()
    shared = SharedReads(clock)
    ledger = ["first"]

    def asked(arrived: float) -> str:
        token = admission._arrived.set(arrived)
        try:
            return shared.get("key", lambda: ledger[-1])
        finally:
            admission._arrived.reset(token)

    early, late = clock(), None
    assert asked(early) == "first"  # read at 2
    ledger.append("second")
    assert asked(early) == "first"  # waited since 1: that was committed after it came
    late = clock()
    assert asked(late) == "second"
    assert asked(early) == "second"
    assert asked(clock.now) == "second"


def test_outside_a_request_nothing_is_shared() -> None:
    shared = SharedReads()
    read = iter(range(3))

    assert [shared.get("key", lambda: next(read)) for _ in range(3)] == [0, 1, 2]


def test_a_failed_read_is_retried() -> None:
    shared = SharedReads()

    with pytest.raises(ZeroDivisionError):
        shared.get("key", lambda: 1 // 0)
    assert shared.get("key", lambda: 1) == 1


# -- what was rendered ------------------------------------------------------------------------


def test_a_card_is_rendered_again_when_a_value_changes() -> None:
    cache = RenderCache()
    first = Message("user", "one")

    assert cache.get((first, 1), lambda: "A") == "A"
    assert cache.get((Message("user", "one", id=first.id), 1), lambda: "B") == "A"
    assert cache.get((first, 2), lambda: "C") == "C"
    assert cache.misses == 2


def test_the_render_cache_is_bounded_and_keeps_what_is_used() -> None:
    cache = RenderCache(6400)
    for number in range(200):
        cache.get("used", lambda: "U" * 40)
        cache.get(number, lambda: "H" * 90)
    made = cache.misses
    cache.get("used", lambda: "U" * 40)
    cache.get("large", lambda: "L" * 101)
    cache.get("large", lambda: "L" * 101)

    assert cache._characters <= 6400
    assert cache.misses == made + 2  # what takes too much room is not kept


def test_unpaired_surrogates_are_rendered_without_the_cache() -> None:
    cache = RenderCache()

    assert [cache.get("\ud800", lambda text=text: text) for text in "ab"] == ["a", "b"]  # type: ignore[misc]


def test_a_cached_card_contains_nothing_of_its_first_reader(
    own_server: Callable[[], Running],
) -> None:
    running = own_server()
    running.ledger.record("main", "hello", "hi")
    tokens = Tokens(running.ledger._core)
    secrets = [tokens.create(name, ["read", "write"])[1] for name in ("one", "two")]
    shown = [running.ask("/s/main", token=secret).text for secret in secrets]
    words = [page.partition('name="csrf" content="')[2].partition('"')[0] for page in shown]

    assert words[0] != words[1]
    for page, own, other in ((shown[0], *words), (shown[1], words[1], words[0])):
        assert page.count(f'name="csrf" value="{own}"') >= 1
        assert other not in page


# -- nothing is stale -------------------------------------------------------------------------

WRITE = """
import sys
from agents_ledger import Ledger, Message, MessageFile
with Ledger.open(sys.argv[1]) as ledger:
    for number in sys.argv[2:]:
        said = Message("assistant", "step", files=(MessageFile("written", f"/w/file-{number}.py"),))
        ledger.record(
            "other", f"question {number}", f"answer {number}", steps=[said],
            model=f"model-{number}", workspace_path=f"/home/user/project-{number}",
        )
"""
PAGES = {
    "/": "file-{n}.py",
    "/sessions": "project-{n}",
    "/s/other": "answer {n}",
    "/s/other/tree": "question {n}",
    "/search?q=answer": "answer</mark> {n}",
    "/api/v1/sessions": "model-{n}",
    "/api/v1/threads/other": "answer {n}",
    "/api/v1/context/other": "answer {n}",
    "/api/v1/usage": "model-{n}",
    "/api/v1/search?q=answer": "answer {n}",
}


def test_the_next_request_shows_what_another_process_wrote(
    own_server: Callable[[], Running],
) -> None:
    running = own_server()
    address = running.ledger._core.db.address
    for number in range(3):
        subprocess.run([sys.executable, "-c", WRITE, address, str(number)], check=True)
        for path, shown in PAGES.items():
            answer = running.ask(path)
            assert answer.status == 200, (path, answer.text)
            assert shown.format(n=number) in answer.text, (path, number)
    assert running.ledger.audit() == ()


def test_a_token_that_another_process_revoked_is_refused_by_the_next_request(
    own_server: Callable[[], Running],
) -> None:
    running = own_server()
    with Ledger.open(running.ledger._core.db.address) as other:
        _, secret = Tokens(other._core).create("agent", ["read"])
        assert running.ask("/api/v1/sessions", token=secret).status == 200
        Tokens(other._core).revoke("agent")
        assert running.ask("/api/v1/sessions", token=secret).status == 401


def test_a_token_lookup_that_must_wait_runs_in_a_thread() -> None:
    token = Token("id", "name", ("read",), 0)

    class Busy:
        """Tokens of a ledger that somebody writes to."""

        def find(self, secret: str, /, *, wait: bool = True) -> Token | None:
            if not wait:
                raise Locked("somebody writes")
            return token if secret == "secret" else None

        def get(self, token_id: str, /, *, wait: bool = True) -> Token | None:
            return self.find("secret" if token_id == "id" else "", wait=wait)

        def valid_ids(self, ids: Collection[str]) -> set[str]:
            return {token.id} & set(ids)

    door = TokenDoor("run", Busy(), Logins())

    assert asyncio.run(door.by_secret("secret")) is token
    assert asyncio.run(door.by_secret("other")) is None
    assert asyncio.run(door.by_id("id")) is token


# -- what a page costs ------------------------------------------------------------------------


def test_a_page_of_a_thread_reads_one_snapshot(ledger: Ledger) -> None:
    """Some turns are recorded between two reads of a page: it shows none of them, or all."""
    if ledger._core.db.engine != "sqlite":
        pytest.skip("a server gives each read a snapshot of its own")
    ledger.record("main", "one", "1")
    site = Site(ledger)

    with site.pages.snapshot():
        before = site.ledger.thread("main", last=0).depth
        with Ledger.open(ledger._core.db.address) as other:
            other.record("main", "two", "2")
        assert site.ledger.thread("main", last=0).depth == before == 1
        with site.pages.snapshot():
            assert site.ledger.thread("main", last=0).depth == 1
    assert site.ledger.thread("main", last=0).depth == 2


class Reader:
    """A request without a server."""

    cookies: dict[str, str] = {}  # noqa: RUF012
    headers: dict[str, str] = {}  # noqa: RUF012
    scope: dict[str, Any] = {"state": {}, "path": "/s/main"}  # noqa: RUF012


def test_a_page_of_a_thread_takes_one_transaction_and_few_statements(tmp_path: Path) -> None:
    ran: list[str] = []  # the statements of all connections

    def connect(*args: Any, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = sqlite3.connect(*args, **options)
        connection.set_trace_callback(ran.append)
        return connection

    db = SqliteDatabase(str(tmp_path / "ledger.db"), connect=connect)
    with Ledger(Core(db)) as ledger:
        for number in range(5):
            ledger.record("main", f"question {number}", f"answer {number}", started_at=LONG_AGO)
        site = Site(ledger)
        show: Any = thread_pages.session_page.fn
        show(Reader, site, label="main")
        made = site.rendered.misses
        ran.clear()
        show(Reader, site, label="main")

        assert ran.count("BEGIN") == 1
        assert len(ran) <= 26
        assert site.rendered.misses == made == 5
        ledger.record("main", "question 5", "answer 5", started_at=LONG_AGO)
        show(Reader, site, label="main")
        assert site.rendered.misses == made + 2  # its own, and the turn's that now has a child


def test_texts_of_turns_that_wait_for_the_index_are_read_once(ledger: Ledger) -> None:
    if ledger._core.db.engine != "sqlite":
        pytest.skip("a server's index is filled with the turn")
    for number in range(5):
        ledger.record("main", f"question {number}", f"answer {number}")
    watched, db = Watched.over(ledger._core.db)
    ledger._core.db = db

    assert len(ledger.search("answer").hits) == 5
    first = [name for name, _ in watched.ran]
    assert len(ledger.search("answer").hits) == 5
    again = [name for name, _ in watched.ran]
    assert first.count("document_messages") == again.count("document_messages") + 1

    ledger.record("main", "question 5", "answer 5")
    assert len(ledger.search("answer").hits) == 6


def test_a_live_turn_is_found_by_its_current_text(ledger: Ledger) -> None:
    if ledger._core.db.engine != "sqlite":
        pytest.skip("a server's index is filled when the turn is sealed")
    turn = ledger.turn("main", "question")
    turn.message("the first words")
    assert len(ledger.search("first").hits) == 1
    turn.message("then others")
    assert len(ledger.search("others").hits) == 1
    turn.respond("done at last")
    assert len(ledger.search("last").hits) == 1
    assert ledger.audit() == ()


def test_a_long_thread_is_summed_up_once_until_its_head_moves() -> None:
    read: list[str] = []
    spent = SessionUsage(Spent(), Spent(), Spent())

    def usage(labels: list[str]) -> dict[str, SessionUsage]:
        read.extend(labels)
        return dict.fromkeys(labels, spent)

    cache = SessionUsageCache(usage)
    long, short = Session("long", thread_id="a", updated_at=1), Session("short", thread_id="b")
    lines = [(long, LONG_DEPTH), (short, LONG_DEPTH - 1)]
    assert set(cache.get(lines)) == set(cache.get(lines)) == {"long", "short"}
    assert read == ["long", "short", "short"]
    cache.get([(structs.replace(long, thread_id="c"), LONG_DEPTH + 1)])
    assert read[3:] == ["long"]
    cache.clear()
    cache.get(lines[:1])
    assert read[4:] == ["long"]
