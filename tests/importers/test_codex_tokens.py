"""Codex: the tokens of turns by the record of each response (since 0.151)."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.sources.registry import SOURCES
from tests.importers.codex_log import THREAD, Rollout, thread_id, turn_id
from tests.importers.helping import import_paths, packed_result, result

LABEL = f"codex:{THREAD}"
COMPACTION = f"{turn_id(2)}:compaction:1"


def totals(ledger: Ledger) -> dict[str, int | None]:
    return {turn.id: turn.total_tokens for turn in ledger.thread(LABEL).turns}


def a_compacted_task(folder: Path, *, compaction_first: bool = False) -> Rollout:
    """A turn counted by totals alone, and one by records in which an automatic compaction ran."""
    log = Rollout(folder, cli_version="0.151.0")
    log.exchange(1, "Begin.")  # 100 tokens by the totals: an older version
    log.start(2)
    if not compaction_first:
        log.ask("Go on.")
        log.call("c1", output="Seen.")
        log.response(2, "r1", 40)
        log.tokens(140)
    log.response(2, "rc", 900)
    log.add("compacted", message="So far.", replacement_history=[{}], compaction_response_id="rc")
    log.tokens(60, last=20)  # the totals fall at a compaction
    if compaction_first:
        log.ask("Go on.")
    log.say("Gone on.")
    log.response(2, "r2", 30)
    log.response(2, "r2", 30)
    log.tokens(90)
    log.end(2)
    return log


@pytest.mark.finding("import-3")
def test_each_response_counts_once_and_that_of_a_compaction_in_the_compaction(
    ledger: Ledger, tmp_path: Path
) -> None:
    report = import_paths(ledger, a_compacted_task(tmp_path).save())

    expected = {turn_id(1): 100, turn_id(2): 40, COMPACTION: 900, f"{turn_id(2)}:2": 30}
    assert totals(ledger) == expected
    compaction = ledger.get_turn(COMPACTION)
    assert (compaction.input_tokens, compaction.cached_input_tokens) == (810, 450)
    assert report.records["codex", "token_usage_record", "derived"] == 4
    assert result(ledger) == packed_result(tmp_path, tmp_path)


@pytest.mark.finding("import-3")
def test_a_compaction_before_the_prompt_of_its_task_has_its_tokens(
    ledger: Ledger, tmp_path: Path
) -> None:
    import_paths(ledger, a_compacted_task(tmp_path, compaction_first=True).save())

    assert totals(ledger) == {turn_id(1): 100, COMPACTION: 900, turn_id(2): 30}


@pytest.mark.finding("import-3")
@pytest.mark.parametrize("fork_first", [True, False])
def test_a_fork_that_replays_totals_without_records_changes_no_count(
    ledger: Ledger, tmp_path: Path, fork_first: bool
) -> None:
    log = a_compacted_task(tmp_path)
    fork = log.fork(tmp_path, thread_id(3), len(log.lines))
    # A fork never copies these records.
    fork.lines = [line for line in fork.lines if "token_usage_record" not in line]
    paths = log.save(), fork.save()
    for path in reversed(paths) if fork_first else paths:
        import_paths(ledger, path)

    assert sum(filter(None, totals(ledger).values())) == 1_070


@pytest.mark.finding("import-3")
def test_a_rollout_is_recognised_by_a_record_of_usage(tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.response(1, "r1", 40)
    assert SOURCES["codex"].recognises(tmp_path / "log.jsonl", log.lines[-1].encode())


@pytest.mark.finding("import-4")
def test_a_prompt_that_sets_off_a_compaction_has_its_answer(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path)
    log.exchange(1, "Begin.")
    log.start(2)
    log.ask("Go on.")
    for number in (1, 2):
        log.response(2, f"rc{number}", 900)
        compacting = {"message": "So far.", "compaction_response_id": f"rc{number}"}
        log.add("compacted", replacement_history=[{}], **compacting)
    log.say("Gone on.")
    log.response(2, "r2", 30)
    log.add("compacted", message="So far.", replacement_history=[{}])
    log.say("All done.")
    log.end(2)
    log.exchange(3, "Thanks.")
    import_paths(ledger, log.save())

    compactions = [f"{turn_id(2)}:compaction:{number}" for number in (1, 2)]
    first, *folded, answered, cut, rest, last = ledger.thread(LABEL).turns
    # The numbers of later turns do not depend on it.
    assert (cut.id, rest.id) == (f"{turn_id(2)}:compaction:3", f"{turn_id(2)}:3")
    assert [turn.id for turn in folded] == compactions
    assert (first.id, answered.id, last.id) == (turn_id(1), turn_id(2), turn_id(3))
    assert [turn.total_tokens for turn in (*folded, answered)] == [900, 900, 30]
    assert (answered.status, [m.content for m in answered.query]) == ("completed", ["Go on."])
    assert answered.response is not None
    assert answered.response.content == "Gone on."
    assert folded[0].compaction is not None
    assert folded[0].compaction.summarized_through_turn_id == first.id
    assert result(ledger) == packed_result(tmp_path, tmp_path)
    assert ledger.audit() == ()


@pytest.mark.finding("import-4")
def test_a_first_prompt_stays_before_the_compaction_that_it_sets_off(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    log.start(1)
    log.ask("Begin.")
    log.add("compacted", message="So far.", replacement_history=[{}])
    log.say("Begun.")
    log.end(1)
    import_paths(ledger, log.save())

    ids = [turn.id for turn in ledger.thread(LABEL).turns]
    assert ids == [turn_id(1), f"{turn_id(1)}:compaction:1", f"{turn_id(1)}:2"]
