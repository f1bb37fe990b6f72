"""Codex: paginated histories, in which a rollout continues from a point in another."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.codex_log import THREAD, Rollout, thread_id, turn_id
from tests.importers.helping import import_paths, result


class Paged(Rollout):
    """A rollout whose records have ordinals."""

    def __init__(
        self, folder: Path, thread: str = THREAD, base: dict[str, Any] | None = None, **meta: Any
    ) -> None:
        self.ordinal = base["end_ordinal_exclusive"] if base else 0
        said = {"history_mode": "paginated", **({"history_base": base} if base else {})}
        super().__init__(folder, thread, **said, **meta)

    def add(self, kind: str, /, **payload: Any) -> None:
        super().add(kind, **payload)
        self.lines[-1] = json.dumps(json.loads(self.lines[-1]) | {"ordinal": self.ordinal})
        self.ordinal += 1

    def here(self) -> dict[str, Any]:
        """The point after its last record."""
        return {
            "thread_id": self.thread,
            "end_ordinal_exclusive": self.ordinal,
            "end_byte_offset": sum(len(line) + 1 for line in self.lines),
        }


def turns(ledger: Ledger, thread: str = THREAD) -> list[str]:
    return [turn.id for turn in ledger.thread(f"codex:{thread}").turns]


def some_forks(folder: Path) -> list[Path]:
    """A thread, a fork after its second turn, a fork of that before its first turn, and a fork from
    another point in it."""
    first = Paged(folder)
    first.exchange(1, "Begin.")
    first.exchange(2, "Go on.")
    fork = Paged(folder, thread_id(4), first.here(), forked_from_id=THREAD)
    unsaid = fork.here()
    fork.exchange(5, "Another way.")
    again = Paged(folder, thread_id(6), unsaid, forked_from_id=thread_id(4))
    again.exchange(7, "A third.")
    later = Paged(folder, thread_id(8), fork.here(), forked_from_id=thread_id(4))
    later.exchange(9, "A fourth.")
    first.exchange(3, "And on.")
    return [log.save() for log in (first, fork, again, later)]


@pytest.mark.parametrize("order", [*itertools.permutations(range(4))][::4])
def test_a_fork_follows_the_turn_that_it_continues_from(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...]
) -> None:
    paths = some_forks(tmp_path / "logs")
    for number in order:
        import_paths(ledger, paths[number])

    begun = [turn_id(1), turn_id(2)]
    assert turns(ledger) == [*begun, turn_id(3)]
    assert turns(ledger, thread_id(4)) == [*begun, turn_id(5)]
    assert turns(ledger, thread_id(6)) == [*begun, turn_id(7)]
    assert turns(ledger, thread_id(8)) == [*begun, turn_id(5), turn_id(9)]
    assert ledger.query("SELECT count(*), sum(total_tokens) FROM turns")[1] == [(6, 600)]
    assert import_paths(ledger, *paths).read_bytes == 0
    assert rederive(ledger).written_turns == 0
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        assert result(whole) == result(ledger)
    assert ledger.audit() == ()


def test_a_reverted_thread_continues_in_another_file(ledger: Ledger, tmp_path: Path) -> None:
    first = Paged(tmp_path)
    first.exchange(1, "Begin.")
    place = first.here()
    first.exchange(2, "Wrong.")
    more = Paged(tmp_path, THREAD, place)
    more.path = tmp_path / f"rollout-2026-03-02T10-00-00-{THREAD}_{thread_id(4)}.jsonl"
    more.clock = 600
    more.exchange(5, "Right.")
    fork = Paged(tmp_path, thread_id(6), {**more.here(), "thread_id": thread_id(4)})
    fork.exchange(7, "Elsewhere.")

    for log in (fork, more, first):
        import_paths(ledger, log.save())

    assert turns(ledger) == [turn_id(1), turn_id(5)]
    assert turns(ledger, thread_id(6)) == [turn_id(1), turn_id(5), turn_id(7)]
    assert ledger.audit() == ()


def test_history_inherited_from_the_parent_is_not_imported_again(
    ledger: Ledger, tmp_path: Path
) -> None:
    parent = Paged(tmp_path)
    parent.start(1)
    parent.ask("Let somebody look.")
    parent.call("s1", "spawn_agent", message="Look.", output=f'{{"agent_id":"{thread_id(4)}"}}')
    parent.say("Somebody looks.")
    parent.tokens(1000)
    spawn = {"subagent": {"thread_spawn": {"parent_thread_id": THREAD}}}
    log = Paged(tmp_path, thread_id(4), source=spawn, subagent_history_start_ordinal=3)
    log.ask("Let somebody look.")
    log.start(5)
    log.ask("Look.")
    log.say("Seen.")
    log.tokens(1100, last=100)

    report = import_paths(ledger, log.save(), parent.save())

    assert turns(ledger, thread_id(4)) == [turn_id(5)]
    assert [message.content for message in ledger.get_turn(turn_id(5)).query] == ["Look."]
    assert ledger.get_turn(turn_id(5)).total_tokens == 100
    assert ledger.session(f"codex:{thread_id(4)}").spawn_tool_call_id == "s1"
    assert report.records["codex", "(inherited)", "unmapped"] == 2


@pytest.mark.parametrize(
    "base",
    [
        {"thread_id": thread_id(4), "end_ordinal_exclusive": 0},  # itself
        {"thread_id": thread_id(6), "end_ordinal_exclusive": 3},  # of a rollout that continues it
        {"thread_id": thread_id(9), "end_ordinal_exclusive": 3},  # one that is not there
        {"thread_id": 5, "end_ordinal_exclusive": 1},
        {"thread_id": THREAD, "end_ordinal_exclusive": -1},
        {"thread_id": THREAD, "end_ordinal_exclusive": 1 << 70},
    ],
)
def test_an_invalid_history_base_is_ignored(
    ledger: Ledger, tmp_path: Path, base: dict[str, Any]
) -> None:
    first = Paged(tmp_path)
    first.exchange(1, "Begin.")
    odd = Paged(tmp_path, thread_id(4), {**base, "end_ordinal_exclusive": 0})
    odd.meta(thread_id(4))
    head = json.loads(odd.lines[0])
    head["payload"]["history_base"] = base
    head["ordinal"] = base["end_ordinal_exclusive"]
    odd.lines[0] = json.dumps(head)
    odd.exchange(5, "On.")
    other = Paged(tmp_path, thread_id(6), odd.here())
    other.exchange(7, "On.")

    import_paths(ledger, first.save(), odd.save(), other.save())

    assert turns(ledger, thread_id(4)) == [turn_id(5)]
    assert turns(ledger, thread_id(6))[-1] == turn_id(7)
    assert ledger.audit() == ()
