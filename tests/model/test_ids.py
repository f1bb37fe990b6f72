"""Ids: 26 letters that sort by when they were made, whatever the clock does."""

from __future__ import annotations

import os
import threading
import time

import pytest

from agents_ledger import new_id, now_ms
from agents_ledger.model.ids import _Ids

ALPHABET = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"


def test_an_id_is_26_letters_of_crockfords_alphabet() -> None:
    made = new_id()

    assert len(made) == 26
    assert set(made) <= set(ALPHABET)


def test_an_id_begins_with_its_time() -> None:
    before = now_ms()
    made = new_id()
    after = now_ms()

    ms = 0
    for letter in made[:10]:
        ms = ms * 32 + ALPHABET.index(letter)
    assert before <= ms <= after


def test_each_id_is_greater_than_the_one_before() -> None:
    made = [new_id() for _ in range(20_000)]

    assert made == sorted(set(made))


def test_ids_grow_even_while_the_clock_runs_backwards(monkeypatch: pytest.MonkeyPatch) -> None:
    ids = _Ids()
    times = iter([5_000_000_000, 3_000_000_000, 5_000_000_000, 4_000_000_000, 6_000_000_000])
    monkeypatch.setattr(time, "time_ns", lambda: next(times))

    made = [ids.next() for _ in range(5)]

    assert made == sorted(set(made))


def test_threads_make_no_id_twice() -> None:
    made: list[list[str]] = [[] for _ in range(4)]

    def make(mine: list[str]) -> None:
        mine += [new_id() for _ in range(5_000)]

    threads = [threading.Thread(target=make, args=(mine,)) for mine in made]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({each for mine in made for each in mine}) == 20_000
    assert all(mine == sorted(mine) for mine in made)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_process_does_not_count_on_from_its_parents_ids() -> None:
    new_id()
    read, write = os.pipe()
    child = os.fork()
    if child == 0:  # pragma: no cover
        os.write(write, new_id().encode())
        os._exit(0)
    mine = new_id()
    os.waitpid(child, 0)
    theirs = os.read(read, 26).decode()
    os.close(read)
    os.close(write)

    assert theirs[10:18] != mine[10:18]
