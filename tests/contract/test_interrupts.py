"""Signals wait while a write is between two sound states, and none of them is lost."""

# ruff: noqa: PT012 (what happens after the signal, inside the block, is what is tested)
from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator

import pytest

from agents_ledger import Ledger
from agents_ledger.store.concurrency.interrupts import NOT_HELD, held
from agents_ledger.store.database import Database, Transaction
from tests.builders import chain


@pytest.fixture(autouse=True)
def ctrl_c() -> Iterator[None]:
    """Whoever started the tests may not care for Ctrl-C."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def test_a_signal_takes_effect_at_the_end_of_the_section() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), held():
        press()
        steps.append("after the signal")

    assert steps == ["after the signal"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_signal_ends_a_call_that_may_be_interrupted() -> None:
    steps = []

    def work() -> None:
        press()
        steps.append("never")

    with pytest.raises(KeyboardInterrupt), held() as hold:
        hold.interruptible(work)

    assert steps == []


def test_a_second_signal_does_not_reach_the_clean_up() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), held() as hold:
        try:
            hold.interruptible(press)
        finally:
            press()
            steps.append("cleaned up")

    assert steps == ["cleaned up"]


def test_a_signal_that_waits_keeps_an_interruptible_call_from_being_made() -> None:
    steps: list[str] = []
    with pytest.raises(KeyboardInterrupt), held() as hold:
        press()
        hold.interruptible(steps.append, "never")

    assert steps == []


def test_a_handler_that_does_not_raise_is_called_for_each_signal_that_waited() -> None:
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        with pytest.raises(KeyboardInterrupt), held():
            press()
            signal.raise_signal(signal.SIGTERM)
            assert received == []
    finally:
        signal.signal(signal.SIGTERM, before)

    assert received == [signal.SIGTERM]


def test_sections_can_be_nested() -> None:
    steps = []
    with pytest.raises(KeyboardInterrupt), held():
        with held() as inner:
            inner.interruptible(press)
            steps.append("inner")
        steps.append("outer")

    assert steps == ["inner", "outer"]


def test_a_handler_that_a_section_left_behind_passes_signals_on() -> None:
    left = held()
    left.__enter__()
    handler = signal.getsignal(signal.SIGINT)
    left.__exit__(None, None, None)
    signal.signal(signal.SIGINT, handler)  # as if a signal had struck during __exit__

    with pytest.raises(KeyboardInterrupt):
        press()
    with held():
        pass
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_a_handler_that_a_handler_installs_stays() -> None:
    """The first Ctrl-C asks a program to finish, the second one ends it."""

    def finish(*_: object) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    signal.signal(signal.SIGINT, finish)
    with held() as hold:
        hold.interruptible(press)

    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_nothing_is_held_in_other_threads() -> None:
    holds = []
    thread = threading.Thread(target=lambda: holds.append(held()))
    thread.start()
    thread.join()

    assert holds == [NOT_HELD]


def test_ctrl_c_in_a_write_rolls_it_back_and_the_next_one_succeeds(
    ledger: Ledger, db: Database
) -> None:
    chain(ledger, "main", 1)

    def work(tx: Transaction) -> None:
        tx.run("set_task_status", label="main", status="failed")
        press()

    with pytest.raises(KeyboardInterrupt):
        db.write(work)

    assert ledger.record("main", "q", "r").depth == 2


@pytest.mark.parametrize("write", [False, True])
def test_ctrl_c_between_two_rows_leaves_no_old_snapshot_behind(
    ledger: Ledger, db: Database, open_ledger: Callable[[], Ledger], write: bool
) -> None:
    """The traceback is kept, as interactive shells do: it holds on to all that was in use."""
    ids = json.dumps(chain(ledger, "main", 3))

    def stop(*_: object) -> None:
        press()

    def work(tx: Transaction) -> None:
        tx.read_as("document_messages", stop, ids=ids)

    with pytest.raises(KeyboardInterrupt) as kept:
        (db.write if write else db.read)(work)
    [turn_id] = chain(open_ledger(), "other", 1)

    assert kept.value is not None
    assert ledger.head("other") == turn_id
    ledger.record("other", "q", "r")
