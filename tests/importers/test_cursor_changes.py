"""Cursor: of a changed database only the changed chats and related ones are read."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.sources.cursor.changes import IdSearch
from tests.importers.cursor_made import bubble, chat, headers, state_db, tool
from tests.importers.helping import import_paths, result
from tests.importers.test_cursor_agent import AGENT, store

USER = Path(".config/Cursor/User")
GLOBAL = USER / "globalStorage/state.vscdb"
WORKSPACE = USER / "workspaceStorage/w1"
AGENTS = Path(".cursor/chats/0a")
TRANSCRIPTS = Path(".cursor/projects/shop/agent-transcripts")
CHATS = 12
STEPS = 14


def many(number: int = CHATS) -> dict[str, Any]:
    rows: dict[str, Any] = {}
    for n in range(number):
        asked, told = bubble(f"q{n}", 1, f"Question {n}", 1), bubble(f"a{n}", 2, "Answer", 2)
        rows |= chat(f"chat-{n}", asked, told)
    return rows


def faults(ledger: Ledger) -> list[tuple[Any, ...]]:
    return ledger.query("SELECT file_id, position, what FROM source_faults ORDER BY 1, 2, 3")[1]


def test_only_the_changed_chat_is_read(ledger: Ledger, tmp_path: Path) -> None:
    path = state_db(tmp_path / GLOBAL, many())
    assert import_paths(ledger, path).derived_records == 3 * CHATS

    more = [bubble("q3", 1, "Question 3", 1), bubble("a3", 2, "Answer", 2)]
    more += [bubble("q3b", 1, "And?", 3), bubble("a3b", 2, "Yes.", 4)]
    state_db(path, chat("chat-3", *more))
    report = import_paths(ledger, path)

    assert report.derived_records == 8  # its five rows, and three as they were before
    assert report.written_turns == 1
    assert (report.counts.upserted, report.counts.skipped) == (1, CHATS - 1)
    assert ledger.session("cursor:chat-3").thread_id == "q3b"
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_ids_are_found_at_any_position() -> None:
    chosen = random.Random(7)

    def letters(number: int) -> bytes:
        return bytes(chosen.choices(b"ab-", k=number))

    for _ in range(500):
        lengths = range(chosen.randint(1, 6), 9)
        names = {letters(chosen.choice(lengths)) for _ in range(chosen.randint(1, 5))}
        data = letters(chosen.randint(0, 60))
        assert set(IdSearch(names)(data)) == {name for name in names if name in data}


class Counted(bytes):
    """A row that counts how often it was sliced."""

    looks = 0

    def __getitem__(self, at: Any) -> Any:
        Counted.looks += 1
        return super().__getitem__(at)


def test_searching_more_ids_takes_no_longer() -> None:
    data = Counted(b'{"text": "Nobody is named here."}' * 100)
    looks = []
    for number in (1, 1000):
        Counted.looks = 0
        assert not any(IdSearch(b"%08d-chat" % n for n in range(number))(data))
        looks.append(Counted.looks)

    assert looks[0] == looks[1] < len(data) / 5


def test_one_short_id_takes_little_longer() -> None:
    data = Counted(random.Random(7).randbytes(2000).hex().encode())
    names = [b"%08x-0000-4000-8000-000000000000" % n for n in range(500)]
    Counted.looks = 0

    assert set(IdSearch([*names, b"1"])(data)) == {b"1"}

    assert Counted.looks < 2 * len(data)


def test_faults_of_other_chats_stay_and_fixed_ones_disappear(
    ledger: Ledger, tmp_path: Path
) -> None:
    rows = many() | {"bubbleId:chat-1:q1": "{", "bubbleId:chat-2:a2": "{"}
    path = state_db(tmp_path / GLOBAL, rows)
    import_paths(ledger, path)
    assert len(faults(ledger)) == 4

    state_db(path, {"bubbleId:chat-1:q1": bubble("q1", 1, "Again", 1)})
    import_paths(ledger, path)

    found = faults(ledger)
    assert len(found) == 2
    assert all("a2" in what or "chat-2" in what for _, _, what in found)


def test_a_summary_that_was_the_head_may_disappear(ledger: Ledger, tmp_path: Path) -> None:
    talk = [bubble("q1", 1, "Why?", 1), bubble("a1", 2, "So.", 2)]
    more = [bubble("q2", 1, "And?", 3), bubble("a2", 2, "Thus.", 4)]
    said = {"summary": "Short", "truncationLastBubbleIdInclusive": "a2"}
    summary = {"latestConversationSummary": {"summary": said}}
    path = state_db(tmp_path / GLOBAL, chat("chat-1", *talk, *more, **summary))
    import_paths(ledger, path)
    assert ledger.session("cursor:chat-1").thread_id == "chat-1:summary:a2"

    state_db(path, chat("chat-1", *talk, bubble("q3", 1, "What?", 5), bubble("a3", 2, "That.", 6)))
    report = import_paths(ledger, path)

    assert report.faults == []
    assert ledger.session("cursor:chat-1").thread_id == "q3"
    assert ledger.audit() == ()
    state_db(path, chat("chat-1", *talk, *more, **summary))
    import_paths(ledger, path)
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before


def test_a_chat_removed_from_a_list_that_contained_it_stays(ledger: Ledger, tmp_path: Path) -> None:
    def listed(*names: str) -> dict[str, Any]:
        talks = {
            name: [bubble(f"{name}-q", 1, "Why?", 1), bubble(f"{name}-a", 2, "So.", 2)]
            for name in names
        }
        whole = [{"composerId": name, "conversation": talk} for name, talk in talks.items()]
        return {"composer.composerData": {"allComposers": whole}}

    path = state_db(tmp_path / WORKSPACE / "state.vscdb", items=listed("one", "two"))
    import_paths(ledger, path)
    before = result(ledger)
    state_db(path, items=listed("two"))
    import_paths(ledger, path)

    assert result(ledger) == before
    assert ledger.session("cursor:one").thread_id == "one-q"


def test_a_message_that_another_turn_has_too_gets_its_own_id(
    ledger: Ledger, tmp_path: Path
) -> None:
    asked, told = bubble("q1", 1, "Why?", 1), bubble("a1", 2, "So.", 2)
    copy = chat("copy-2", asked, told)
    path = state_db(tmp_path / GLOBAL, {k: v for k, v in copy.items() if not k.endswith(":q1")})
    import_paths(ledger, path)
    assert ledger.get_turn("a1").response_message_id == "a1"

    state_db(path, chat("chat-1", asked, told))
    import_paths(ledger, path)

    assert ledger.get_turn("q1").response_message_id == "a1"
    assert ledger.get_turn("a1").response_message_id == "copy-2:a1"
    assert ledger.audit() == ()


def test_agent_sessions_of_unchanged_stores_stay(ledger: Ledger, tmp_path: Path) -> None:
    def kept(name: str) -> list[str | None]:
        return [m.content for turn in ledger.thread(name).turns for m in turn.messages]

    told = ["You are an agent.", "List files", "", "One file."]
    path = state_db(tmp_path / GLOBAL, many(2))
    for name in ("agent-1", "agent-2"):
        store(tmp_path / AGENTS / name / "store.db", AGENT, session=name)
    import_paths(ledger, tmp_path)

    state_db(path, {"bubbleId:chat-1:a1": bubble("a1", 2, "Another answer", 2)})
    import_paths(ledger, tmp_path)
    assert [kept(f"cursor:agent-{n}") for n in (1, 2)] == [told] * 2

    store(tmp_path / AGENTS / "agent-3" / "store.db", AGENT, session="agent-3")
    assert import_paths(ledger, tmp_path).written_turns == 1
    assert [kept(f"cursor:agent-{n}") for n in (1, 2, 3)] == [told] * 3

    store(tmp_path / AGENTS / "agent-2" / "store.db", AGENT[:2], session="agent-2")
    import_paths(ledger, tmp_path)
    assert kept("cursor:agent-1") == kept("cursor:agent-3") == told
    assert ledger.query("SELECT status FROM turns WHERE id LIKE 'agent-2:%'")[1] == [("pending",)]


class _World:
    """Cursor's files, changed at random: in every way that relates chats."""

    def __init__(self, folder: Path, run: int) -> None:
        self.folder = folder
        self.chance = random.Random(run)
        self.chats: dict[str, list[dict[str, Any]]] = {}
        self.fields: dict[str, dict[str, Any]] = {}
        self.agents: dict[str, list[dict[str, Any]]] = {}
        self.names = 0
        state_db(folder / GLOBAL, {})
        state_db(folder / WORKSPACE / "state.vscdb", {})
        (folder / WORKSPACE / "workspace.json").write_text('{"folder": "file:///home/dev/shop"}')

    def name(self, kind: str) -> str:
        self.names += 1
        return f"{kind}{self.names}"

    def some(self) -> str:
        return self.chance.choice(sorted(self.chats) or [self.new()])

    def save(self, composer: str) -> None:
        rows = chat(composer, *self.chats[composer], **self.fields.get(composer, {}))
        rows = {key: rows[key] for key in self.chance.sample(sorted(rows), len(rows))}
        if self.chance.random() < 0.3:  # not everything is written at once
            rows.popitem()
        state_db(self.folder / GLOBAL, rows)

    def new(self) -> str:
        composer = self.name("chat-")
        self.chats[composer] = []
        self.more(composer)
        return composer

    def more(self, composer: str | None = None) -> None:
        composer = composer or self.some()
        bubbles = self.chats[composer]
        for kind in (1, 2):
            bubbles.append(bubble(self.name("b"), kind, self.name("said "), len(bubbles)))
        self.save(composer)

    def changed(self) -> None:
        composer = self.some()
        self.chance.choice(self.chats[composer])["text"] = self.name("changed ")
        self.save(composer)

    def forgotten(self) -> None:
        """It goes back: what it shows no more is a branch."""
        composer = self.some()
        del self.chats[composer][2:]
        self.more(composer)

    def copied(self) -> None:
        composer, copy = self.some(), self.name("copy-")
        self.chats[copy] = [dict(each) for each in self.chats[composer]]
        self.save(copy)

    def started(self) -> None:
        """A call starts a subagent, known or not, by either of its names."""
        composer, call = self.some(), self.name("call-")
        child = self.chance.choice([self.some(), self.name("chat-"), f"task-{call}"])
        said = tool(call, "task_v2", 48, params=json.dumps({"description": "Look"}))
        if not child.startswith("task-"):
            said["additionalData"] = {"subagentComposerId": child}
        at = len(self.chats[composer])
        self.chats[composer].append(bubble(self.name("b"), 2, "", at, toolFormerData=said))
        self.save(composer)
        if self.chance.random() < 0.5 and child not in self.chats:
            self.chats[child] = []
            self.more(child)

    def summarised(self) -> None:
        composer = self.some()
        last = self.chance.choice(self.chats[composer])["bubbleId"]
        said = {"summary": self.name("short "), "truncationLastBubbleIdInclusive": last}
        self.fields[composer] = {"latestConversationSummary": {"summary": said}}
        self.save(composer)

    def listed(self) -> None:
        heads: list[dict[str, Any]] = [
            {"composerId": each, "name": self.name("title ")} for each in sorted(self.chats)
        ]
        heads = heads[: self.chance.randint(1, 3)]
        if self.chance.random() < 0.3:
            heads[0]["conversation"] = [bubble(self.name("b"), 1, "inline", 1)]
        row = {"composer.composerData": {"allComposers": heads}}
        state_db(self.folder / WORKSPACE / "state.vscdb", items=row)

    def transcribed(self) -> None:
        stem = self.chance.choice([self.some(), self.name("agent-")])
        path = self.folder / TRANSCRIPTS / stem / f"{stem}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:
            for role in ("user", "assistant"):
                text = [{"type": "text", "text": self.name("told ")}]
                file.write(json.dumps({"role": role, "message": {"content": text}}) + "\n")

    def stored(self) -> None:
        """The agent goes on, goes back, or begins, also with what is a chat of the editor."""
        begun = [*self.agents, self.name("agent-"), self.some()]
        agent = self.chance.choice(begun)
        said = self.agents.setdefault(agent, [])
        if self.chance.random() < 0.3:
            del said[2:]
        said += [{"role": role, "content": self.name("told ")} for role in ("user", "assistant")]
        store(self.folder / AGENTS / agent / "store.db", said, session=agent)

    def broken(self) -> None:
        composer = self.some()
        name = self.chance.choice(self.chats[composer])["bubbleId"]
        state_db(self.folder / GLOBAL, {f"bubbleId:{composer}:{name}": "{"})

    def step(self) -> None:
        ways: list[Callable[[], object]] = [
            self.new, self.more, self.changed, self.forgotten, self.copied, self.started,
            self.summarised, self.listed, self.transcribed, self.stored, self.broken,
        ]  # fmt: skip
        self.chance.choice(ways)()


@pytest.mark.parametrize("run", range(6))
def test_partial_derivations_end_in_the_same_rows_as_a_full_one(tmp_path: Path, run: int) -> None:
    world = _World(tmp_path / "home", run)
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        for _ in range(3):
            world.new()
        for _ in range(STEPS):
            for _ in range(world.chance.randint(1, 2)):
                world.step()
            import_paths(ledger, tmp_path / "home")
        before = result(ledger), faults(ledger)
        rederive(ledger)
        assert (result(ledger), faults(ledger)) == before
        assert ledger.audit() == ()


def test_encryption_keys_are_never_shown(ledger: Ledger, tmp_path: Path) -> None:
    secret = {"blobEncryptionKey": "hush-hush", "name": "kept"}
    calls = [
        tool("t1", "run", 15, additionalData={"composerData": secret}),
        tool("t2", "run", 15, additionalData={"composerData": json.dumps(secret)}),
        tool("t3", "task", 48, additionalData={"composerData": json.dumps(secret)[:-1]}),
        [tool("t4", "run", 15, additionalData={"composerData": json.dumps(secret)})],
    ]
    answers = [bubble(f"a{n}", 2, "", 2, toolFormerData=call) for n, call in enumerate(calls)]
    asked = bubble("q", 1, "What?", 1, context={"more": [secret]}, encryptionKey="hush-hush")
    rows = chat("c", asked, *answers, other={"deep": [secret]}, blobEncryptionKey="hush-hush")
    import_paths(ledger, state_db(tmp_path / "state.vscdb", rows))

    told = [ledger.get_turn("q").messages, ledger.session("cursor:c")]
    assert "hush-hush" not in str(told)
    assert str(told).count("kept") == 5


def test_the_table_of_chats_gives_their_names_and_folders(ledger: Ledger, tmp_path: Path) -> None:
    user = tmp_path / "User"
    said = chat("c", bubble("b1", 1, "?"), bubble("b2", 2, "!"))
    path = state_db(user / "globalStorage" / "state.vscdb", said)
    place = user / "workspaceStorage" / "w1"
    place.mkdir(parents=True)
    (place / "workspace.json").write_text('{"folder": "file:///w/shop"}')
    head = {"type": "head", "composerId": "c", "workspaceIdentifier": {"id": "w1"}}
    headers(path, {**head, "name": "The till"})
    import_paths(ledger, user)
    session = ledger.session("cursor:c")
    assert (session.title, session.routing_key) == ("The till", "/w/shop")

    headers(path, {**head, "name": "The drawer"})
    report = import_paths(ledger, user)

    assert ledger.session("cursor:c").title == "The drawer"
    assert report.records["cursor", "composerHeaders", "derived"] == 1
    assert import_paths(ledger, user).read_bytes == 0
    headers(path, {**head, "name": "The till"})
    import_paths(ledger, user)
    assert ledger.session("cursor:c").title == "The till"


def test_the_table_of_chats_prevails_over_the_list_whatever_else_changes(
    ledger: Ledger, tmp_path: Path
) -> None:
    def listed(number: int) -> dict[str, Any]:
        names = {"b": "Of the list", "c": f"Number {number}"}
        heads = [{"composerId": chat, "name": name} for chat, name in names.items()]
        return {"composer.composerHeaders": {"allComposers": heads}}

    said = chat("b", bubble("b1", 1, "?"), bubble("b2", 2, "!"))
    said |= chat("c", bubble("c1", 1, "?"), bubble("c2", 2, "!"))
    path = state_db(tmp_path / "state.vscdb", said)
    name = "Of the table"
    for number in range(6):  # what tells the versions of a list apart may fall either way
        state_db(path, {}, listed(number))
        name = "Renamed" if number == 3 else name
        headers(path, {"composerId": "b", "name": name})
        import_paths(ledger, path)
        told = [ledger.session(f"cursor:{each}").title for each in ("b", "c")]
        assert told == [name, f"Number {number}"]
        before = result(ledger)
        rederive(ledger)
        assert result(ledger) == before


def test_of_two_lists_the_same_one_prevails_whatever_else_they_list(
    ledger: Ledger, tmp_path: Path
) -> None:
    said = chat("b", bubble("b1", 1, "?"), bubble("b2", 2, "!"))
    said |= chat("c", bubble("c1", 1, "?"), bubble("c2", 2, "!"))
    path = state_db(tmp_path / "state.vscdb", said)
    titles = set()
    for number in range(8):
        lists = {
            f"composer.{kind}": {
                "allComposers": [
                    {"composerId": "b", "name": kind},
                    {"composerId": "c", "name": f"Number {number}"},
                ]
            }
            for kind in ("composerData", "composerHeaders")
        }
        state_db(path, {}, lists)
        import_paths(ledger, path)
        rederive(ledger)
        titles.add(ledger.session("cursor:b").title)
    assert len(titles) == 1


def test_a_chain_of_many_chats_finds_its_folder(ledger: Ledger, tmp_path: Path) -> None:
    number = 1500  # more than calls may stand within each other
    rows: dict[str, Any] = {}
    for at in range(number):  # the last of them comes first
        rows |= chat(f"c{at:04}", subComposerIds=[f"c{at - 1:04}"] if at else [])
    place = {"workspaceIdentifier": {"uri": {"fsPath": "/w/shop"}}}
    rows[f"composerData:c{number - 1:04}"] |= place
    rows |= {"bubbleId:c0000:b": bubble("b", 2, "!")}

    report = import_paths(ledger, state_db(tmp_path / "state.vscdb", rows))

    assert report.counts.failed == 0
    assert ledger.session("cursor:c0000").routing_key == "/w/shop"


def test_chats_that_started_each_other_have_no_folder(ledger: Ledger, tmp_path: Path) -> None:
    rows = chat("a", bubble("a1", 1, "?"), bubble("a2", 2, "!"), subComposerIds=["b"])
    rows |= chat("b", bubble("b1", 1, "?"), bubble("b2", 2, "!"), subComposerIds=["a"])

    import_paths(ledger, state_db(tmp_path / "state.vscdb", rows))

    assert [ledger.session(f"cursor:{each}").routing_key for each in "ab"] == [None, None]
