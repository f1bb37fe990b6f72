"""Copilot CLI: token totals at the end of a run, of that run or of the session so far."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.importers.copilot_log import LABEL, Events, metrics
from tests.importers.helping import import_paths, packed_result, result

Spent = list[tuple[int | None, int | None, int | None]]


def spent(ledger: Ledger) -> Spent:
    turns = ledger.thread(LABEL).turns
    return [(turn.input_tokens, turn.output_tokens, turn.total_tokens) for turn in turns]


def run(log: Events, output: int, totals: dict[str, Any] | None, **said: Any) -> None:
    """A prompt and its answer, and the end of the run if there are totals."""
    log.add("user.message", content="Go on.")
    log.say("Done.", outputTokens=output, **said)
    if totals is not None:
        log.add("session.shutdown", modelMetrics=totals)
        log.add("session.resume", eventCount=len(log.lines))


def of(**models: tuple[int, int]) -> dict[str, Any]:
    """Totals of several models."""
    return {model: metrics(*numbers)["gpt-5"] for model, numbers in models.items()}


def test_totals_at_the_end_of_a_run_may_be_those_of_the_run(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    log.add("user.message", content="One.")
    log.say("First.")
    log.add("session.shutdown", modelMetrics=metrics(1000, 25))
    log.add("session.shutdown", modelMetrics=metrics(1000, 25))  # repeated
    log.add("session.resume", eventCount=4)
    run(log, 500, None)  # it crashes without totals
    log.add("session.resume", eventCount=8)
    run(log, 45, metrics(1600, 47))
    run(log, 30, metrics(1700, 30))

    import_paths(ledger, log.save())

    assert spent(ledger) == [
        (1000, 25, 1025),
        (None, 500, 500),
        (1600, 47, 1647),
        (1700, 30, 1730),
    ]


def test_totals_of_the_session_count_once(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    run(log, 60, of(small=(900, 60)), model="small")
    run(log, 140, of(small=(900, 60), large=(3000, 143)), model="large")
    run(log, 10, of(small=(900, 60), large=(3200, 153)), model="large")
    log.add("session.shutdown", modelMetrics=of(small=(900, 60), large=(3200, 153)))
    run(log, 80, None, model="large")  # it dies, and nobody knows whether the next total has it
    log.add("session.resume")
    run(log, 20, of(small=(900, 60), large=(4000, 253)), model="large")
    path = log.save()

    import_paths(ledger, path)

    shown = [(900, 60, 960), (3000, 143, 3143), (200, 10, 210), (None, 80, 80), (800, 20, 820)]
    assert spent(ledger) == shown
    before = result(ledger)
    assert packed_result(tmp_path, path) == before
    rederive(ledger)
    assert result(ledger) == before


@pytest.mark.parametrize("lost", [0, 5, 700])
def test_totals_that_miss_a_compacted_part_are_those_of_the_session(
    ledger: Ledger, tmp_path: Path, lost: int
) -> None:
    log = Events(tmp_path)
    run(log, 100, metrics(1000, 100))
    run(log, lost, None)
    log.add("session.compaction_complete", success=True, summaryContent="So far.")
    run(log, 30, metrics(1400, 130))

    import_paths(ledger, log.save())

    (first, early, _, late) = spent(ledger)
    assert (first, early[1], late) == ((1000, 100, 1100), lost, (400, 30, 430))


@pytest.mark.parametrize("empty", [{}, {"gpt-5": {"requests": 2}}, {"gpt-5": 7}])
def test_a_shutdown_without_totals_changes_nothing(
    ledger: Ledger, tmp_path: Path, empty: dict[str, Any]
) -> None:
    log = Events(tmp_path)
    run(log, 100, metrics(1000, 100))
    log.add("session.shutdown", modelMetrics=empty)
    log.add("session.resume")
    run(log, 50, metrics(1500, 150))

    import_paths(ledger, log.save())

    assert spent(ledger) == [(1000, 100, 1100), (500, 50, 550)]


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_a_copy_without_its_beginning_counts_nothing_twice(
    ledger: Ledger, tmp_path: Path, order: tuple[int, ...]
) -> None:
    log = Events(tmp_path / "whole")
    for number in range(1, 4):
        run(log, 60, None)
        run(log, 40, metrics(1000 * number, 100 * number))
    whole = log.save()
    paths = [whole]
    for name, lines in {"rest": log.lines[7:], "end": log.lines[11:]}.items():
        path = tmp_path / name / "session" / "events.jsonl"
        path.parent.mkdir(parents=True)
        path.write_text("".join(line + "\n" for line in lines))
        paths.append(path)

    for number in order:
        import_paths(ledger, paths[number])

    assert spent(ledger) == [(None, 60, 60), (1000, 40, 1040)] * 3
    assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(3300,)]


def test_a_lone_copy_without_its_beginning_counts_all_its_totals(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Events(tmp_path)
    for number in range(1, 4):
        run(log, 100, metrics(1000 * number, 100 * number))
    del log.lines[:5]
    import_paths(ledger, log.save())

    assert ledger.query("SELECT sum(input_tokens), sum(output_tokens) FROM turns")[1] == [
        (3000, 300)
    ]


def test_ambiguous_totals_are_those_of_the_session(ledger: Ledger, tmp_path: Path) -> None:
    log = Events(tmp_path)
    run(log, 100, metrics(1000, 100))
    run(log, 50, metrics(1200, 100))

    import_paths(ledger, log.save())

    assert spent(ledger) == [(1000, 100, 1100), (200, 50, 250)]
    first, _ = ledger.thread(LABEL).turns
    assert (first.cached_input_tokens, first.cache_write_tokens) == (5, None)
