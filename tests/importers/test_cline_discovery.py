"""Cline sessions: where they are, how files are recognised, which project they belong to."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from agents_ledger import Ledger
from agents_ledger.importers.exclusion import PROBE
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.cline.source import Cline
from tests.importers import test_exclusion as exclusion
from tests.importers.helping import import_paths
from tests.importers.test_cline_sessions import (
    FIRST,
    NAME,
    agent,
    beside,
    document,
    manifest,
    save,
    text,
    user,
    write,
)


def test_where_sessions_are_found() -> None:
    def roots(platform: str = "linux", **environment: str) -> list[Path]:
        return list(Cline().roots(Home(Path("/home/dev"), environment, platform)))

    for platform in ("linux", "darwin", "win32"):
        assert Path("/home/dev/.cline/data/sessions") in roots(platform)
    assert Path("/a/data/sessions") in roots(CLINE_DIR="/a")
    assert Path("/b/sessions") in roots(CLINE_DIR="/a", CLINE_DATA_DIR="/b")
    assert Path("/b/tasks") in roots(CLINE_DIR="/a", CLINE_DATA_DIR="/b")
    assert Path("/c") in roots(CLINE_DATA_DIR="/b", CLINE_SESSION_DATA_DIR="/c")
    place = Path("/x/sessions")
    for wanted in (
        "s1/s1.json",
        "s1/s1.messages.json",
        "s1/a.messages.json",
        "s1/s1.compaction.json",
    ):
        assert Cline().wants(place / wanted), wanted
    for other in (
        "sessions.index.json",
        "subagent-spawn-queue.json",
        "s1/hooks.jsonl",
        "s1/x.json",
    ):
        assert not Cline().wants(place / other), other


def test_files_are_recognised_by_their_content() -> None:
    def told(name: str, value: Any) -> bool:
        return Cline().recognises(Path("/x") / name, json.dumps(value, indent=2).encode())

    assert told("a.json", document([]))
    assert told("a.json", manifest())
    assert told("a.json", beside(1))
    assert told("a.messages.json", {"messages": []})
    assert not told("a.json", {"messages": []})
    assert not told("a.json", {"version": 1, "sessions": {}})
    assert not told("a.messages.json", {"version": 1})


def test_the_manifest_gives_the_project_of_a_session(tmp_path: Path) -> None:
    place = write(tmp_path, FIRST)
    messages = place / f"{NAME}.messages.json"
    assert Cline().projects(messages, PROBE) is None
    save(tmp_path, manifest(cwd="/w/till"), f"{NAME}.json")
    for name in (messages, place / f"{NAME}.json", place / "agent_7.messages.json"):
        assert Cline().projects(name, PROBE) == ["/w/till"]
    save(tmp_path, manifest("s2", "/w/lamp"), "s2.json")
    assert Cline().projects(place / "s2.compaction.json", PROBE) == ["/w/lamp"]


def test_sessions_in_one_folder_have_their_own_projects(ledger: Ledger, tmp_path: Path) -> None:
    for name, cwd in (("s1", "/w/till"), ("s2", "/w/lamp")):
        said = [user(f"u{name}", text("Go.")), agent(f"a{name}", text("Done."))]
        save(tmp_path, document(said, name), f"{name}.messages.json")
        place = save(tmp_path, manifest(name, cwd), f"{name}.json")
    import_paths(ledger, place)
    found = ledger.query("SELECT workspace_path FROM turns ORDER BY id")[1]
    assert found == [("/w/till",), ("/w/lamp",)]


def test_sessions_of_an_excluded_project_are_excluded_with_their_subagents(tmp_path: Path) -> None:
    for cwd, words, name in (
        (exclusion.LEFT, exclusion.SECRET, "s1"),
        (exclusion.KEPT, exclusion.PLAIN, "s2"),
    ):
        write(tmp_path, [user(name, text(words))], name)
        child = document([user(f"k{name}", text(words))], f"{name}__a")
        save(tmp_path, child, "a.messages.json", name)
        save(tmp_path, manifest(name, cwd, title=words), f"{name}.json", name)

    address = str(tmp_path / "ledger.db")
    with Ledger.open(address) as ledger:
        report = exclusion.import_without(ledger, tmp_path / "data")
        held = exclusion.everything(ledger, address)

    assert exclusion.SECRET not in held
    assert exclusion.PLAIN in held
    assert (report.excluded.files, report.faults) == (3, [])
