"""Any order of files, any split into several imports, ends in the same ledger."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.relations import MergeGroups, group_copies
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.projection import reconcile
from agents_ledger.model.imports.sources import Derivation
from agents_ledger.store.database import Transaction
from tests.exhaustive import exhaustive
from tests.importers.claude_log import Log, text, tool, uid
from tests.importers.helping import import_paths, result
from tests.statements import Meddled

CORPUS = os.environ.get("AGENTS_LEDGER_CORPUS")


def a_world(chance: random.Random, folder: Path, first: int = 0) -> list[Path]:
    """Sessions that fork each other, spawn subagents, compact, and end anywhere. `first`: where
    ids begin; worlds with other ones, 10,000 away or more, share nothing."""
    logs: list[Log] = []
    names = iter(f"{n:x}" for n in range(first + 1, first + 10_000))
    for number in range(first, first + chance.randrange(1, 5)):
        log = Log(folder, f"{number:08}-0000-4000-8000-000000000000")
        if logs and chance.random() < 0.7:
            origin = chance.choice(logs)
            cut = chance.randrange(1, len(origin.lines) + 1)
            log.lines, log.last, log.clock = origin.lines[:cut], origin.uuids[cut - 1], origin.clock
            log.uuids = origin.uuids[:cut]
            if chance.random() < 0.3:  # of what was left nothing is taken over
                _keep(log, [record["uuid"] for record in log.thread()])
        elif chance.random() < 0.5:
            log.add("attachment", next(names), attachment={"type": "hook_success"})
        for _ in range(chance.randrange(1, 6)):
            _an_exchange(chance, log, names, folder)
            _without_anybody(chance, log, names, folder)
            _leave(chance, log, names)
            if chance.random() < 0.2:
                log.resume(names, chance.choice((0, chance.randrange(len(log.thread())))))
        logs.append(log)
    named = [uuid for log in logs for uuid in log.uuids if uuid is not None]
    logs.append(Log(folder, f"{99_999_999 - first}-0000-4000-8000-000000000000"))
    for number in range(chance.randrange(0, 5)):
        log = chance.choice(logs)
        leaf = {"summary": f"title {number}", "leafUuid": chance.choice(named)}
        at = chance.choice((0, len(log.lines)))
        log.lines.insert(at, json.dumps({"type": "summary", **leaf}))
    return [log.save() for log in logs if log.lines] + sorted(folder.rglob("agent-*.jsonl"))


def _keep(log: Log, thread: list[str]) -> None:
    """Of a session only these records, and those of subagents."""
    kept = [
        (line, uuid)
        for line, uuid in zip(log.lines, log.uuids, strict=True)
        if uuid in thread or json.loads(line).get("isSidechain")
    ]
    log.lines, log.uuids = [line for line, _ in kept], [uuid for _, uuid in kept]


def _an_exchange(chance: random.Random, log: Log, names: Iterator[str], folder: Path) -> None:
    log.user(next(names), f"question {chance.randrange(1000)}")
    for _ in range(chance.randrange(0, 4)):
        call = f"call-{next(names)}"
        log.assistant(next(names), text("First."), api=(api := f"m-{next(names)}"))
        log.assistant(next(names), tool(call, "Task", prompt="Look."), api=api)
        _meanwhile(chance, log, names)
        if chance.random() < 0.7:
            agent = f"{chance.randrange(1 << 30):x}"
            working = {"type": "agent_progress", "agentId": agent}
            log.add("progress", next(names), data=working, parentToolUseID=call)
            if chance.random() < 0.8:
                log.result(next(names), call, "Seen.", toolUseResult={"agentId": agent})
            if chance.random() < 0.5:
                child = Log(folder / "agents", f"agent-{agent}")
                child.user(next(names), "Look.", isSidechain=True, agentId=agent)
                child.assistant(next(names), text("Seen."), isSidechain=True, agentId=agent)
                child.save()
    if chance.random() < 0.8:
        log.assistant(next(names), text(f"answer {chance.randrange(1000)}"))
    if chance.random() < 0.15:
        log.add(
            "system",
            next(names),
            subtype="compact_boundary",
            parentUuid=None,
            logicalParentUuid=log.last,
            compactMetadata={
                "trigger": "auto",
                "preservedSegment": {"headUuid": chance.choice(log.uuids)},
            },
        )
        log.user(next(names), "What came before.", isCompactSummary=True)
        above = log.last
        if chance.random() < 0.5:
            log.assistant(next(names), text("I go on."))
            log.add("system", next(names), subtype="stop_hook_summary", parentUuid=above)


def _without_anybody(chance: random.Random, log: Log, names: Iterator[str], folder: Path) -> None:
    """The program asks what was planned, or a helper that it gives all that was said."""
    if chance.random() < 0.2:
        words = f"planned {chance.randrange(3)}"
        at = f"2026-03-01T08:{log.clock // 60:02}:{log.clock % 60:02}Z"
        log.add("queue-operation", operation="enqueue", content=words, timestamp=at)
        log.user(next(names), words, isMeta=True)
        log.assistant(next(names), text("As planned."))
    if chance.random() < 0.2:
        kind = ("ahelper", "acompact", "aside_question")[len(log.lines) % 3]
        own = {"isSidechain": True, "agentId": f"{kind}-{chance.randrange(1 << 30):x}"}
        helper = Log(folder / "agents", f"agent-{own['agentId']}")
        helper.lines = [json.dumps(record | own) for record in log.thread()]
        helper.session, helper.last = log.session, log.last
        helper.user(next(names), "Suggest.", **own)
        if chance.random() < 0.7:
            helper.assistant(next(names), text("This."), **own)
        helper.save()


def _leave(chance: random.Random, log: Log, names: Iterator[str]) -> None:
    """Somebody gives the program a command, and perhaps comes back to where it was."""
    if chance.random() < 0.3:
        above = log.last
        log.user(next(names), "<command-name>/exit</command-name>")
        log.user(next(names), "<local-command-stdout>Bye!</local-command-stdout>")
        log.last = above if chance.random() < 0.7 else log.last


def _meanwhile(chance: random.Random, log: Log, names: Iterator[str]) -> None:
    """Somebody types, or a subagent works in the same file."""
    if chance.random() < 0.3:
        at = f"2026-03-01T09:{log.clock // 60:02}:{log.clock % 60:02}Z"
        words = f"also {chance.randrange(3)}"
        log.add("queue-operation", operation="enqueue", content=words, timestamp=at)
    if chance.random() < 0.3:
        above = log.last
        log.user(next(names), "Look.", isSidechain=True, parentUuid=None)
        log.assistant(next(names), text("Looked."), isSidechain=True)
        log.last = above


def import_in_steps(
    ledger: Ledger, chance: random.Random, paths: list[Path], root: Path, into: Path
) -> None:
    """Import files as they might have grown, in any order, some at a time."""
    states = [
        (path, size)
        for path in paths
        for size in (
            *(chance.randrange(1, path.stat().st_size + 1) for _ in range(chance.randrange(3))),
            path.stat().st_size,
        )
    ]
    chance.shuffle(states)
    grown: dict[Path, int] = {}
    waiting: dict[Path, None] = {}
    for path, size in states:
        grown[path] = max(size, grown.get(path, 0))
        target = into / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes()[: grown[path]])
        shutil.copystat(path, target)  # some sources have no other time
        waiting[target] = None
        if chance.random() < 0.4:
            import_paths(ledger, *waiting)
            waiting.clear()
    import_paths(ledger, *waiting)


# The last fork what was written again, and begin with what only a helper has a copy of yet.
@pytest.mark.parametrize("seed", [*range(3), 376, 2007, 3172, *exhaustive(range(3, 15))])
def test_random_sessions_in_random_steps(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    paths = a_world(chance, tmp_path / "world")
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        wanted = result(whole)
        assert not whole.audit()

    for attempt in range(3):
        with Ledger.open(str(tmp_path / f"steps-{attempt}.db")) as ledger:
            import_in_steps(
                ledger, chance, paths, tmp_path / "world", tmp_path / f"grown-{attempt}"
            )

            assert result(ledger) == wanted
            assert not ledger.audit()


def test_random_sessions_on_every_engine(ledger: Ledger, tmp_path: Path) -> None:
    chance = random.Random(99)
    paths = a_world(chance, tmp_path / "world")
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        wanted = result(whole)

    import_in_steps(ledger, chance, paths, tmp_path / "world", tmp_path / "grown")

    assert result(ledger) == wanted


@pytest.mark.skipif(CORPUS is None, reason="there is no corpus of real logs here")
@pytest.mark.parametrize("source", ["claude_code", "codex", "pi", "openclaw", "copilot"])
def test_real_logs_in_random_steps(source: str, tmp_path: Path) -> None:
    root = Path(str(CORPUS)) / source
    paths = sorted(path for path in root.rglob("*.jsonl") if path.is_file())
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        wanted = result(whole)

    with Ledger.open(str(tmp_path / "steps.db")) as ledger:
        import_in_steps(ledger, random.Random(1), paths, root, tmp_path / "grown")

        assert result(ledger) == wanted
        assert not ledger.audit()
    shutil.rmtree(tmp_path / "grown")


class DiesAtSecondCommit(Meddled):
    """A database that fails where a second commit would write turns."""

    def count(self, tx: Transaction, name: str) -> None:
        if name == "insert_turn" and any(name in ran for ran in self.writes[:-1]):
            raise OSError("killed")
        super().count(tx, name)


def test_what_a_died_import_wrote_goes_when_its_records_are_another_turn_s(
    ledger: Ledger, limited: Callable[..., Ledger], tmp_path: Path
) -> None:
    dying = limited(batch_turns=1)
    log = Log(tmp_path)
    for name in "abc":
        log.user(f"{name}1", f"Question {name}")
        log.assistant(f"{name}2", text(f"Answer {name}"))
    whole = list(log.lines)
    del log.lines[:3]  # it begins with the second answer
    _, dying._core.db = DiesAtSecondCommit.over(dying._core.db)
    import_paths(dying, log.save())
    assert ledger.query("SELECT id FROM turns")[1] == [(uid("b2"),)]

    log.lines = whole
    import_paths(ledger, log.save())

    turns = ledger.query("SELECT id FROM turns ORDER BY id")[1]
    assert turns == [(uid(f"{name}1"),) for name in "abc"]


def test_families_that_share_with_one_of_several_groups_make_them_one() -> None:
    groups, names = MergeGroups(), reconcile.Names(Derivation(turns=(), sessions=()))

    def merge(family: str, *others: str) -> bool:
        return groups.merge(SOURCES["claude-code"], [family], others, names)

    assert not merge("a")
    assert merge("b", "a")
    assert merge("d", "c")
    assert merge("e", "a", "c")  # what were two is one
    assert merge("f", "d")
    assert merge("c")

    assert [group.families for group in groups] == [set("abcdef")]
    assert not merge("g")


def test_copies_that_each_go_on_from_another_are_one_group() -> None:
    copies = {"d": "c", "c": "b", "b": "c", "x": "y"}
    assert group_copies("abcdxy", copies) == [["a"], ["b", "c", "d"], ["x", "y"]]
