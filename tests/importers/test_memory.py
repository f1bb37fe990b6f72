"""What an import holds in memory: little of each record, and nothing twice."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers import reader
from agents_ledger.importers.claude_code import ClaudeCode
from agents_ledger.importers.importing import rederive
from agents_ledger.importers.reader import Material
from agents_ledger.ledger import projected_turns
from agents_ledger.model.sources import Derivation, SourceFile
from tests.importers.claude_log import SESSION, Log, text
from tests.importers.helping import import_paths, result

TURNS = 2000
BLOCK = 16 << 10


def session(folder: Path, turns: int, first: str = "question") -> Log:
    log = Log(folder)
    for turn in range(turns):
        log.user(f"{turn}a", "question" if turn else first)
        log.assistant(f"{turn}b", text("answer"))
    return log


class Given:
    """The bytes of one file."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    def stream(self, _: int) -> Iterator[bytes]:
        return (self.data[at : at + BLOCK] for at in range(0, len(self.data), BLOCK))

    def read(self, _: int, start: int, length: int) -> bytes:
        return self.data[start : start + length]


def test_of_a_record_of_a_large_family_little_is_held(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader, "HOLD_MAX", 0)
    given = Given(session(tmp_path, TURNS).save().read_bytes())
    size = len(given.data)
    file = SourceFile(1, "claude-code", f"/{SESSION}.jsonl", 0, "f", "lines", size, 0, size)
    material = Material(given, [file])
    ClaudeCode().derive(Material(given, [file]))  # what is made once is there

    tracemalloc.start()
    try:
        derivation = ClaudeCode().derive(material)
        held, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert len(derivation.turns) == TURNS
    assert held / (2 * TURNS) < 550  # bytes
    assert most / (2 * TURNS) < 800


def test_a_family_is_not_held_twice_while_it_is_derived_with_what_shares_its_turns(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    origin = session(tmp_path / "logs", 3)
    origin.save()
    fork = Log(tmp_path / "logs", SESSION.replace("1", "2"))
    fork.lines, fork.last, fork.clock = list(origin.lines), origin.last, origin.clock
    fork.user("c", "more")
    fork.assistant("d", text("said"))
    fork.save()
    import_paths(ledger, tmp_path / "logs")
    derive = ClaudeCode.derive
    alive: list[int] = []

    def counted(self: ClaudeCode, material: Material) -> Derivation:
        alive.append(sum(isinstance(each, Derivation) for each in gc.get_objects()))
        return derive(self, material)

    monkeypatch.setattr(ClaudeCode, "derive", counted)
    gc.collect()
    rederive(ledger)

    assert alive == [alive[0]] * 2  # for itself, then with the fork


def test_a_tree_larger_than_the_places_that_are_remembered_is_put_again(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projected_turns, "PLACES", 2)
    path = session(tmp_path, 7).save()
    import_paths(ledger, path)
    before = result(ledger)

    session(tmp_path, 7, first="another question").save()
    import_paths(ledger, path)

    after = result(ledger)
    assert before["messages"] != after["messages"]
    assert [depth for _, depth, *_ in after["threads"]] == list(range(1, 8))
    assert before["threads"] == after["threads"]
    assert ledger.audit() == ()
