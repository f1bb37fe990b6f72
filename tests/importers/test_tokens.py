"""Tokens by an independent count: once per answer of the model, a replayed history not again."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.importers.claude_log import Log, text
from tests.importers.codex_log import Rollout, thread_id
from tests.importers.helping import import_paths

CORPUS = os.environ.get("AGENTS_LEDGER_CORPUS")
CLAUDE = (
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
)
Count = Callable[[Path], int]


def records(path: Path) -> Iterator[dict[str, Any]]:
    for line in path.read_bytes().split(b"\n"):
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record


def claude_code(path: Path) -> int:
    """The last usage of every message id."""
    last: dict[str, int] = {}
    for number, record in enumerate(records(path)):
        message = record.get("message")
        if record.get("type") != "assistant" or not isinstance(message, dict):
            continue
        usage = message.get("usage") or {}
        if record.get("isApiErrorMessage") or message.get("model") == "<synthetic>":
            continue
        said = sum(usage.get(name) or 0 for name in CLAUDE)
        last[message.get("id") or record.get("uuid") or str(number)] = said
    return sum(last.values())


def codex(path: Path) -> int:
    """What the running total grew by; it begins anew when it falls."""
    total = before = 0
    for record in records(path):
        payload = record.get("payload")
        if not isinstance(payload, dict) or payload.get("type") != "token_count":
            continue
        usage = (payload.get("info") or {}).get("total_token_usage")
        if usage:
            now = usage["input_tokens"] + usage["output_tokens"]
            total += now - before if now >= before else now
            before = now
    return total


def pi(path: Path) -> int:
    """The usage of every answer."""
    total = 0
    for record in records(path):
        message = record.get("message")
        if isinstance(message, dict) and message.get("role") == "assistant":
            usage = message.get("usage") or {}
            names = ("input", "output", "cacheRead", "cacheWrite")
            parts = sum(usage.get(name) or 0 for name in names)
            total += usage.get("totalTokens") or parts
    return total


@pytest.mark.skipif(CORPUS is None, reason="there is no corpus of real logs here")
@pytest.mark.parametrize(
    ("source", "count"),
    [("claude_code", claude_code), ("codex", codex), ("pi", pi)],
    ids=["claude_code", "codex", "pi"],
)
def test_real_files_hold_what_an_independent_count_finds(
    source: str, count: Count, tmp_path: Path
) -> None:
    checked = 0
    for number, path in enumerate(sorted((Path(str(CORPUS)) / source).rglob("*.jsonl"))):
        with Ledger.open(str(tmp_path / f"{number}.db")) as ledger:
            import_paths(ledger, path)

            found = ledger.query("SELECT coalesce(sum(total_tokens), 0) FROM turns")[1]
            assert found == [(count(path),)], path
            checked += count(path) > 0
    assert checked > 1


def test_a_file_that_copies_another_counts_only_what_it_adds(tmp_path: Path) -> None:
    one = Log(tmp_path)
    one.user("a1", "Begin.")
    one.assistant("a2", text("Begun."), api="m", usage={"input_tokens": 10, "output_tokens": 1})
    one.assistant("a3", text("More."), api="m", usage={"input_tokens": 10, "output_tokens": 5})
    two = Log(tmp_path, "22222222-2222-4222-8222-222222222222")
    two.lines, two.last = list(one.lines), one.last
    two.user("b1", "Go on.")
    two.assistant("b2", text("Done."), usage={"input_tokens": 100, "output_tokens": 1})
    first = Rollout(tmp_path)
    first.exchange(1, "One.")
    fork = first.fork(tmp_path, thread_id(9), len(first.lines))
    fork.exchange(10, "Two.")
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        import_paths(ledger, one.save(), two.save(), first.save(), fork.save())

        totals = ledger.query(
            "SELECT origin, total_tokens FROM sessions s JOIN places p"
            " ON p.turn_id = s.thread_id ORDER BY 1, 2"
        )[1]
        assert totals == [
            ("claude-code", 15),
            ("claude-code", 116),
            ("codex", 100),
            ("codex", 200),
        ]
        assert ledger.query("SELECT sum(total_tokens) FROM turns")[1] == [(316,)]


def test_a_copy_with_a_piece_more_counts_as_much(ledger: Ledger, tmp_path: Path) -> None:
    nothing = {"input_tokens": 0, "output_tokens": 0}
    one = Log(tmp_path)
    one.user("a1", "Begin.")
    one.assistant("a3", text("Begun."), api="m", usage={"input_tokens": 10, "output_tokens": 5})
    two = Log(tmp_path, "22222222-2222-4222-8222-222222222222")
    two.user("a1", "Begin.")
    two.assistant("a2", text("Well."), api="m", usage=nothing)
    two.lines.append(one.lines[1])

    import_paths(ledger, one.save(), two.save())

    assert ledger.query("SELECT total_tokens FROM turns")[1] == [(15,)]


def test_an_answer_that_names_no_model_counts_too(ledger: Ledger, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a1", "Begin.")
    log.assistant("a2", text("Begun."), model=None)

    import_paths(ledger, log.save())

    assert ledger.query("SELECT model, total_tokens FROM turns")[1] == [(None, 15)]
