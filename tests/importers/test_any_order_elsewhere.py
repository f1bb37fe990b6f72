"""Codex, pi, Cline, Cursor: any order of files, any split into imports, ends in the same ledger."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from tests.exhaustive import exhaustive
from tests.importers.codex_log import Rollout, index_line, thread_id
from tests.importers.cursor_made import bubble, chat, headers, state_db, tool
from tests.importers.helping import import_paths, result
from tests.importers.test_any_order import import_in_steps
from tests.importers.test_cline_sessions import agent, answer, beside, folded, manifest, save, user
from tests.importers.test_cline_sessions import call as used
from tests.importers.test_cline_sessions import document as of_session
from tests.importers.test_cline_sessions import text as words
from tests.importers.test_pi import Transcript, call

World = Callable[[random.Random, Path], list[Path]]


def codex(chance: random.Random, folder: Path) -> list[Path]:
    """Threads that fork each other at any line, compact, roll back and end anywhere, and are
    renamed."""
    numbers = iter(range(1, 60_000, 3))
    threads = [Rollout(folder, thread_id(next(numbers)))]
    for _ in range(chance.randrange(1, 4)):
        origin = chance.choice(threads)
        for _ in range(chance.randrange(0, 4)):
            _codex_turn(chance, origin, next(numbers))
        cut = chance.randrange(1, len(origin.lines) + 1)
        child = origin.fork(folder, thread_id(next(numbers)), cut)
        for _ in range(chance.randrange(0, 3)):
            _codex_turn(chance, child, next(numbers))
        threads.append(child)
    paths = [thread.save() for thread in threads]
    names = [chance.choice(paths).stem[-36:] for _ in range(chance.randrange(6))]
    said = [index_line(name, f"Title {at}") for at, name in enumerate(names)]
    if said:
        paths.append(folder / "session_index.jsonl")
        paths[-1].write_text("".join(said))
    return paths


def _codex_turn(chance: random.Random, thread: Rollout, number: int) -> None:
    thread.start(number)
    thread.ask(f"question {chance.randrange(100)}")
    if chance.random() < 0.5:
        thread.call(f"c{number}", output="Exit code: 0", cmd="ls")
    if chance.random() < 0.2:
        thread.add("compacted", message="So far.", replacement_history=[])
    if chance.random() < 0.8:
        thread.say("answer")
        thread.tokens(thread.total + chance.randrange(1, 100))
        thread.end(number)
    if chance.random() < 0.1:
        thread.event("thread_rolled_back", num_turns=1)


def pi(chance: random.Random, folder: Path) -> list[Path]:
    """Sessions with branches inside, that copy each other's entries, compact and end anywhere."""
    sessions: list[Transcript] = []
    for number in range(chance.randrange(1, 4)):
        name = f"aaaaaaaa-0000-4000-8000-{number:012}"
        log = Transcript(folder, name)
        if sessions and chance.random() < 0.7:
            origin = chance.choice(sessions)
            log = Transcript(folder, name, parentSession=str(origin.path))
            cut = chance.randrange(1, len(origin.lines) + 1)
            log.lines += origin.lines[1:cut]
            log.last = None if cut == 1 else f"{cut - 1:08x}"
        log.clock = 100 * (number + 1)
        for _ in range(chance.randrange(1, 5)):
            _pi_exchange(chance, log)
        sessions.append(log)
    return [log.save() for log in sessions]


def _pi_exchange(chance: random.Random, log: Transcript) -> None:
    if len(log.lines) > 2 and chance.random() < 0.2:  # back to an earlier entry
        log.last = f"{chance.randrange(1, len(log.lines)):08x}"
    log.user(f"question {chance.randrange(100)}")
    if chance.random() < 0.5:
        log.say("Look.", call(f"k{len(log.lines)}", "bash", command="ls"))
        log.result(f"k{len(log.lines) - 1}", "a.py")
    if chance.random() < 0.8:
        log.say("answer")
    if chance.random() < 0.15:
        log.add("compaction", summary="So far.", firstKeptEntryId=log.last, tokensBefore=9)


def spoken(chance: random.Random, folder: Path) -> list[Path]:
    """Cursor's oldest transcripts; some sessions have one of the newer form too."""
    place = folder / "projects" / "w-app" / "agent-transcripts"
    place.mkdir(parents=True)
    paths = []
    for number in range(chance.randrange(1, 4)):
        words = ["user:\n<user_query>\nHello\n</user_query>\n"]
        for at in range(chance.randrange(1, 8)):
            called = f"[Tool call] Read\n  path: {at}\n[Tool result] Read\nx\n\n"
            words += chance.choice((["user:\n", f"question {at}\n"], ["assistant:\n", called]))
            words += [f"words {at}\n"] * chance.randrange(3)
        paths.append(place / f"s{number}.txt")
        paths[-1].write_text("".join(words))
        if chance.random() < 0.3:
            paths.append(place / f"s{number}.jsonl")
            paths[-1].write_text(said("user", "Hello") + said("assistant", "Hi"))
    return paths


def said(role: str, words: str) -> str:
    said = {"role": role, "message": {"content": words}}
    return json.dumps(said, separators=(",", ":")) + "\n"


def cline(chance: random.Random, folder: Path) -> list[Path]:
    """Sessions that fork each other at any message, have subagents and compactions, and end
    anywhere."""
    numbers = iter(range(1000))
    known: list[list[dict[str, Any]]] = [[]]
    for at in range(chance.randrange(1, 4)):
        name, origin = f"s{at}", chance.choice(known)
        messages = origin[: chance.randrange(len(origin) + 1)]
        for _ in range(chance.randrange(1, 4)):
            messages += _cline_exchange(chance, next(numbers))
        known.append(messages)
        save(folder, of_session(messages, name), f"{name}.messages.json", name)
        save(folder, manifest(name, title=f"Title {at}"), f"{name}.json", name)
        asked = [user(f"k{at}", words(f"task {chance.randrange(9)}")), agent(f"l{at}", words("12"))]
        save(folder, of_session(asked, f"{name}__a"), "a.messages.json", name)
        if chance.random() < 0.5:
            number = chance.randrange(1, len(messages) + 1)
            save(folder, beside(number, folded(at=at)), f"{name}.compaction.json", name)
    return [path for path in folder.rglob("*.json") if path.is_file()]


def _cline_exchange(chance: random.Random, number: int) -> list[dict[str, Any]]:
    made = [user(f"u{number}", words(f"question {number}"))]
    for each in range(chance.randrange(3)):
        call_id = f"c{number}_{each}"
        given = used(call_id, "spawn_agent", task=f"task {chance.randrange(9)}")
        made.append(agent(f"b{number}_{each}", given))
        made.append(user(f"r{number}_{each}", answer(call_id, "done")))
    return [*made, agent(f"a{number}", words("answer"))][: chance.randrange(2, 12)]


@pytest.mark.parametrize("world", [codex, pi, cline, spoken])
@pytest.mark.parametrize("seed", [0, 1, 19, *exhaustive(range(2, 6))])  # 19 tells a session anew
def test_random_sessions_in_random_steps(seed: int, world: World, tmp_path: Path) -> None:
    chance = random.Random(seed)
    paths = world(chance, tmp_path / "world")
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, *paths)
        wanted = result(whole)
        assert not whole.audit()

    for attempt in range(2):
        with Ledger.open(str(tmp_path / f"steps-{attempt}.db")) as ledger:
            into = tmp_path / f"grown-{attempt}"
            import_in_steps(ledger, chance, paths, tmp_path / "world", into)

            assert result(ledger) == wanted
            assert not ledger.audit()


# -- Cursor: rows, not files ------------------------------------------------------------------


def a_chat(chance: random.Random, number: int) -> list[dict[str, Any]]:
    """A chat's rows, as they stood after each message."""
    name, bubbles = f"chat-{number}", []
    states = []
    for at in range(chance.randrange(1, 8)):
        fields: dict[str, Any] = {}
        kind = 1 if at == 0 or chance.random() < 0.3 else 2
        if kind == 2 and chance.random() < 0.4:
            child = f"chat-{chance.randrange(4)}" if chance.random() < 0.3 else "x"
            data = {"composerData": {"composerId": child}} if child != "x" else {}
            call_id = f"call-{number}-{at}"
            fields["toolFormerData"] = tool(call_id, "task_v2", 48, additionalData=data)
        bubbles.append(bubble(f"b-{number}-{at}", kind, f"words {at}", at, **fields))
        states.append(chat(name, *bubbles, name=f"Title {number}"))
    return states


@pytest.mark.parametrize("seed", [0, 1, *exhaustive(range(2, 6))])
def test_chats_in_any_order_at_any_state(seed: int, tmp_path: Path) -> None:
    chance = random.Random(seed)
    chats = [a_chat(chance, number) for number in range(4)]
    last = {key: row for states in chats for key, row in states[-1].items()}
    listed = {"composer.composerData": {"allComposers": [{"composerId": "chat-1", "type": "head"}]}}
    place = Path(".config/Cursor/User")
    workspace = place / "workspaceStorage" / "abc"

    def write(root: Path, rows: dict[str, Any]) -> None:
        path = state_db(root / place / "globalStorage" / "state.vscdb", rows)
        held = {"workspaceIdentifier": {"id": "abc"}}
        names = {key.partition(":")[2] for key in rows if key.startswith("composerData:")}
        heads = [{"composerId": name, "name": f"Head {name}", **held} for name in names]
        headers(path, *(head for head in heads if head["composerId"] in ("chat-2", "chat-3")))

    def beside(root: Path) -> None:
        state_db(root / workspace / "state.vscdb", {}, listed)
        (root / workspace / "workspace.json").write_text('{"folder": "file:///w/app"}')

    write(tmp_path / "whole", last)
    beside(tmp_path / "whole")
    with Ledger.open(str(tmp_path / "whole.db")) as whole:
        import_paths(whole, tmp_path / "whole")
        wanted = result(whole)
        assert not whole.audit()
    with Ledger.open(str(tmp_path / "steps.db")) as ledger:
        steps = [(number, at) for number, states in enumerate(chats) for at in range(len(states))]
        after = chance.randrange(len(steps) + 1)
        reached = [-1] * len(chats)
        for step in range(len(steps)):
            if step == after:
                beside(tmp_path / "steps")
            waiting = [n for n, states in enumerate(chats) if reached[n] < len(states) - 1]
            number = chance.choice(waiting)
            reached[number] += 1
            write(tmp_path / "steps", chats[number][reached[number]])
            if chance.random() < 0.5:
                import_paths(ledger, tmp_path / "steps")
        if after == len(steps):
            beside(tmp_path / "steps")
        import_paths(ledger, tmp_path / "steps")

        assert result(ledger) == wanted
        assert not ledger.audit()
