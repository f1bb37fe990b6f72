"""What tells the projects of files; of many of them it is read once."""

from __future__ import annotations

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from agents_ledger.importers import exclusion
from agents_ledger.importers.exclusion import PROBE, CachedProbe, ExcludedFolders
from agents_ledger.importers.parsing import files
from agents_ledger.importers.parsing.row_filter import excluded_sessions
from agents_ledger.importers.sources.claude_code.source import ClaudeCode
from agents_ledger.importers.sources.cline.records import HISTORY
from agents_ledger.importers.sources.cline.source import Cline
from agents_ledger.importers.sources.gemini.source import GeminiCli
from agents_ledger.importers.sources.opencode.source import OpenCode
from tests.importers.claude_log import Log

NUMBER = 30


@pytest.fixture
def heads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often the beginning of each file was read, by name."""
    head = files.head
    read: Counter[str] = Counter()

    def counted(path: Path, *size: int) -> bytes:
        read[path.name] += 1
        return head(path, *size)

    monkeypatch.setattr(files, "head", counted)
    return read


def write(path: Path, said: object) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(said))
    return path


def test_clines_list_of_tasks_is_read_once(tmp_path: Path, heads: Counter[str]) -> None:
    names = [f"task{number}" for number in range(NUMBER)]
    paths = [write(tmp_path / "tasks" / name / HISTORY, []) for name in names]
    listed = [{"id": name, "workspace": f"/w/{name}"} for name in names]
    state = write(tmp_path / "state" / "taskHistory.json", [1, {}, *listed, {"id": names[0]}])

    assert [Cline().projects(path, PROBE) for path in paths] == [[f"/w/{name}"] for name in names]
    assert heads["taskHistory.json"] == 1
    write(state, [{"id": names[0], "workspace": "/w/moved"}])
    assert Cline().projects(paths[0], PROBE) == ["/w/moved"]
    assert Cline().projects(paths[1], PROBE) is None
    state.unlink()
    assert Cline().projects(paths[0], PROBE) is None


def test_geminis_list_of_projects_is_read_once(tmp_path: Path, heads: Counter[str]) -> None:
    names = [f"shop-{number}" for number in range(NUMBER)]
    paths = [write(tmp_path / "tmp" / name / "chats" / "session-1.json", {}) for name in names]
    write(tmp_path / "projects.json", {"projects": {f"/w/{name}": name for name in names}})

    assert [GeminiCli().projects(path, PROBE) for path in paths] == [
        [f"/w/{name}"] for name in names
    ]
    assert heads["projects.json"] == 1


class Rows(tuple[Any, ...]):
    """Rows that count how often somebody goes through them."""

    passed = 0

    def __iter__(self) -> Iterator[Any]:
        Rows.passed += 1
        return super().__iter__()


def test_opencodes_sessions_are_gone_through_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with closing(sqlite3.connect(tmp_path / "opencode.db")) as made:
        made.execute("CREATE TABLE session (id TEXT, directory TEXT, parent_id TEXT)")
        rows = [(f"ses{number}", f"/w/{number}", None) for number in range(NUMBER)]
        made.executemany("INSERT INTO session VALUES (?, ?, ?)", rows)
        made.commit()
    told_of = [tmp_path / "storage" / "message" / f"ses{n}" / "m.json" for n in range(NUMBER)]
    paths = [write(path, {}) for path in told_of]
    found = exclusion._rows
    monkeypatch.setattr(Rows, "passed", 0)
    monkeypatch.setattr(exclusion, "_rows", lambda *asked: Rows(found(*asked)))

    said = [OpenCode().projects(path, PROBE) for path in paths]

    assert said == [[f"/w/{number}"] for number in range(NUMBER)]
    assert Rows.passed == 1


def test_the_first_folder_that_a_record_itself_says_is_the_project(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    told = [
        {"input": {"cwd": "/w/tool"}},
        {"cwd": "/w/shop"},
        {"cwd": "/w/later"},
        {"x": "x" * 300},
    ]
    path.write_text("".join(json.dumps(each) + "\n" for each in told))

    assert CachedProbe((100, 200)).working_folder(path) == "/w/shop"


def test_the_name_of_a_folder_tells_for_certain_that_it_is_another_one(tmp_path: Path) -> None:
    log = Log(tmp_path / "-w-shop")
    log.add("summary", summary="A shop", leafUuid="x")
    met: set[str] = set()

    said = [
        ExcludedFolders.of([folder]).verdict(ClaudeCode(), log.save(), met)
        for folder in ("/w/shop", "/w/till")
    ]

    assert (said, met) == (["excluded", "included"], {"/w/shop"})


def test_a_chain_of_sessions_is_climbed_once() -> None:
    steps = 0

    class Counted(dict[str, str]):
        def get(self, key: str, default: Any = None) -> Any:
            nonlocal steps
            steps += 1
            return super().get(key, default)

    number = 2000
    names = [f"s{at}" for at in range(number)]
    parents = Counted(zip(names[1:], names, strict=False))
    parents |= {"x": "y", "y": "x"}

    excluded, with_project = excluded_sessions(
        {"s0": "/w/a", "s9": "/w/b"}, parents, [*names[::-1], "x", "y"], {"/w/a"}.__contains__
    )

    assert (excluded, with_project) == (frozenset(names[:9]), frozenset(names))
    assert steps <= number + 2
