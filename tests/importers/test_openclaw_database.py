"""OpenClaw's database: transcripts and the map of sessions as rows."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from itertools import pairwise, permutations
from pathlib import Path
from typing import Any, cast

import pytest
import zstandard

from agents_ledger import Ledger
from agents_ledger.exporters.source import export_source
from agents_ledger.importers.discovery import find
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.limits import LIMITS, ImportLimits
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.pi.session_map import MapEntry, SessionMap
from agents_ledger.importers.sources.pi.source import OpenClaw
from agents_ledger.importers.transcript.record_offsets import RecordOffsets
from tests.importers.helping import import_paths, result
from tests.importers.test_exclusion import import_without
from tests.importers.test_pi import ONE, TWO, USAGE, Transcript, call, store
from tests.importers.test_pi_again import Timed

THREE = "aaaaaaaa-0000-4000-8000-000000000003"
KEY = "agent:main:main"
SECRET = "sk-made-up-and-secret"
EVENTS = """CREATE TABLE transcript_events (session_id TEXT NOT NULL, seq INTEGER NOT NULL,
    event_json TEXT, created_at INTEGER NOT NULL, PRIMARY KEY (session_id, seq))"""
NOW = f"""
CREATE TABLE session_nodes (session_key TEXT NOT NULL PRIMARY KEY, current_session_id TEXT NOT NULL,
    entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE session_windows (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL, channel TEXT, spawned_by TEXT);
{EVENTS};
CREATE TABLE auth_profile_store (store_key TEXT, store_json TEXT);
INSERT INTO auth_profile_store VALUES ('primary', '{SECRET}');
"""
BEFORE = f"""
CREATE TABLE session_entries (session_key TEXT NOT NULL PRIMARY KEY, session_id TEXT NOT NULL,
    entry_json TEXT NOT NULL, updated_at INTEGER NOT NULL);
CREATE TABLE sessions (session_id TEXT NOT NULL PRIMARY KEY, session_key TEXT NOT NULL,
    created_at INTEGER NOT NULL, updated_at INTEGER NOT NULL);
{EVENTS};
"""


class Database:
    """An agent's, as OpenClaw writes it."""

    def __init__(self, state: Path, schema: str = NOW) -> None:
        self.path = state / "agents" / "main" / "agent" / "openclaw-agent.sqlite"
        self.sessions = state / "agents" / "main" / "sessions"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.is_new = schema == NOW
        with closing(sqlite3.connect(self.path)) as made:
            made.executescript(f"PRAGMA journal_mode = WAL; {schema}")

    def run(self, sql: str, *rows: tuple[Any, ...]) -> None:
        with closing(sqlite3.connect(self.path)) as made:
            made.executemany(sql, rows)
            made.commit()

    def tell(self, log: Transcript, session: str = ONE, *, since: int = 0) -> None:
        """Write what a transcript says from a line on, as its program writes it anew."""
        self.run(
            "DELETE FROM transcript_events WHERE session_id = ? AND seq >= ?", (session, since)
        )
        rows = [(session, seq, line, 1) for seq, line in enumerate(log.lines)][since:]
        self.run("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", *rows)

    def stand(self, session: str, key: str = KEY, *, at: int = 2, **entry: Any) -> None:
        """That a key stands for a session."""
        table = "session_nodes" if self.is_new else "session_entries"
        began = entry.pop("began", 1)
        said = json.dumps({"sessionId": session, "updatedAt": at, **entry})
        self.run(f"INSERT OR REPLACE INTO {table} VALUES (?, ?, ?, ?)", (key, session, said, at))
        window = "session_windows" if self.is_new else "sessions"
        columns = "(session_id, session_key, created_at, updated_at)"
        self.run(
            f"INSERT OR REPLACE INTO {window} {columns} VALUES (?, ?, ?, 2)", (session, key, began)
        )


def a_log(folder: Path, session: str = ONE) -> Transcript:
    log = Transcript(folder, session)
    log.user("What does the cart do?")
    log.say("Reading.", call("t1", "read", path="cart.py"))
    log.result("t1", "class Cart: ...", tool="read")
    log.say("It holds lines.")
    return log


@pytest.mark.parametrize("schema", [NOW, BEFORE])
def test_rows_are_what_lines_were(ledger: Ledger, tmp_path: Path, schema: str) -> None:
    made = Database(tmp_path / ".openclaw", schema)
    log = a_log(tmp_path)
    made.tell(log)
    made.stand(ONE, label="Shop", modelOverride="opus")

    report = import_paths(ledger, tmp_path / ".openclaw")

    assert report.counts.imported == 1
    assert not report.faults
    (turn,) = ledger.thread(f"openclaw:{ONE}").turns
    assert turn.query[0].content == "What does the cart do?"
    assert turn.response is not None
    assert turn.response.content == "It holds lines."
    assert (turn.input_tokens, turn.output_tokens) == (2, 4)
    (called,) = turn.tool_calls
    assert (called.tool_name, called.status) == ("read", "completed")
    assert turn.workspace_path == "/home/dev/shop"
    session = ledger.session(KEY)
    assert session.label == f"openclaw:{ONE}"
    assert session.title == "Shop"
    assert json.loads(session.metadata_json or "")["model_override"] == "opus"
    again = import_paths(ledger, tmp_path / ".openclaw")
    assert (again.read_bytes, again.written_turns) == (0, 0)
    before = result(ledger)
    rederive(ledger)
    assert result(ledger) == before
    assert ledger.audit() == ()


def test_a_database_is_found_and_its_secrets_are_never_read(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    made.tell(a_log(tmp_path))

    found = find(Home(tmp_path, {}, "linux"))
    assert [(each.source.name, each.path) for each in found] == [("openclaw", made.path)]

    import_paths(ledger, made.path)

    (file,) = ledger.query("SELECT id, kind FROM source_files")[1]
    assert file[1] == "rows"
    out = tmp_path / "out.sqlite"
    export_source(ledger, f"openclaw:{ONE}", out)
    assert SECRET.encode() not in out.read_bytes()
    with closing(sqlite3.connect(out)) as read, closing(sqlite3.connect(made.path)) as own:
        names = {name for (name,) in read.execute("SELECT name FROM sqlite_master")}
        rows = "SELECT session_id, seq, event_json, created_at FROM transcript_events"
        assert read.execute(rows).fetchall() == own.execute(rows).fetchall()
    assert names == {"transcript_events"}


def test_a_session_that_moved_into_the_database_is_one_session(
    ledger: Ledger, tmp_path: Path
) -> None:
    state = tmp_path / ".openclaw"
    made = Database(state)
    log = a_log(made.sessions)
    log.save()
    store(made.sessions, **{KEY: {"sessionId": ONE, "updatedAt": 1, "label": "Old"}})
    import_paths(ledger, made.sessions)
    (before,) = ledger.query("SELECT id, total_tokens FROM turns")[1]
    archive = made.sessions.with_name("session-sqlite-import-archive")
    archive.mkdir()
    log.path.rename(archive / f"agent_main_main.{log.path.name}.imported-1")
    log.user("And the till?")
    log.say("It counts.")
    made.tell(log)
    made.stand(ONE, label="New")

    import_paths(ledger, state)

    first, second = ledger.thread(f"openclaw:{ONE}").turns
    assert (first.id, first.total_tokens) == before
    assert second.query[0].content == "And the till?"
    ((count, tokens),) = ledger.query("SELECT count(*), sum(total_tokens) FROM turns")[1]
    assert (count, tokens) == (2, 30)
    assert [label for (label,) in ledger.query("SELECT label FROM sessions")[1]] == [
        f"openclaw:{ONE}"
    ]
    assert ledger.session(KEY).title == "New"
    with Ledger.open(str(tmp_path / "first.db")) as first_rows:
        import_paths(first_rows, made.path)
        import_paths(first_rows, state)
        with Ledger.open(str(tmp_path / "at_once.db")) as at_once:
            import_paths(at_once, state)
            assert result(first_rows) == result(at_once)


def test_events_of_several_sessions_are_told_apart(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    child = "agent:main:subagent:x"
    log = Transcript(tmp_path)
    log.user("Ask another.")
    log.say("Spawning.", call("t1", "sessions_spawn", task="Count."))
    log.result("t1", "ok", tool="sessions_spawn", details={"childSessionKey": child})
    log.say("It counts.")
    other = Transcript(tmp_path, TWO, cwd="/home/dev/other")
    other.user("Count.")
    other.say("Three.")
    for seq in range(5):  # as they come
        for session, each in ((ONE, log), (TWO, other)):
            if seq < len(each.lines):
                row = (session, seq, each.lines[seq], 1)
                made.run("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", row)
    made.stand(ONE)
    made.stand(TWO, child, spawnedBy=KEY)

    import_paths(ledger, made.path)

    (asked,) = ledger.thread(f"openclaw:{ONE}").turns
    assert asked.tool_calls[0].spawned_session_label == f"openclaw:{TWO}"
    (counted,) = ledger.thread(f"openclaw:{TWO}").turns
    assert (asked.query[0].source, counted.query[0].source) == ("human", "agent")
    assert (asked.workspace_path, counted.workspace_path) == ("/home/dev/shop", "/home/dev/other")
    spawned = ledger.session(child)
    assert spawned.is_subagent
    assert spawned.parent_session_label == f"openclaw:{ONE}"


@pytest.mark.parametrize("lot", [LIMITS.read_bytes, 1500, 1])
def test_mixed_sessions_are_read_in_the_order_they_were_kept(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lot: int
) -> None:
    reads: list[int] = []

    class Read(RecordOffsets):
        def data(self, number: int) -> bytes:
            reads.append(number)
            return super().data(number)

    made = Database(tmp_path / ".openclaw")
    names = [f"{ONE[:-1]}{number}" for number in range(4)]
    logs = [Transcript(tmp_path, name) for name in names]
    for number, log in enumerate(logs):
        log.user(f"Question {number}.")
        log.say(f"Answer {number}.")
    for seq in range(3):
        rows = [(name, seq, log.lines[seq], 1) for name, log in zip(names, logs, strict=True)]
        made.run("INSERT INTO transcript_events VALUES (?, ?, ?, ?)", *rows)
    import_paths(ledger, made.path)
    monkeypatch.setattr("agents_ledger.importers.sources.pi.database.RecordOffsets", Read)

    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, made.path, limits=ImportLimits(held_bytes=0, read_bytes=lot))
        assert result(other) == result(ledger)

    assert sorted(reads) == list(range(12))  # each once
    steps_back = sum(one > following for one, following in pairwise(reads))
    assert steps_back == {LIMITS.read_bytes: 0, 1500: 1, 1: 3}[lot]


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("parent_first", [True, False])
def test_a_subagent_belongs_to_the_session_before_the_reset(
    ledger: Ledger, tmp_path: Path, is_told: bool, parent_first: bool
) -> None:
    made = Database(tmp_path / ".openclaw")
    child = "agent:main:subagent:x"
    log = Transcript(tmp_path)
    log.user("Ask another.")
    log.say("Spawning.", call("t1", "sessions_spawn", task="Count."))
    if is_told:
        log.result("t1", "ok", tool="sessions_spawn", details={"childSessionKey": child})
    made.tell(log)
    for number, session in enumerate((TWO, THREE)):
        other = Transcript(tmp_path, session)
        other.user(f"Begin {number}.")
        other.say("Done.")
        made.tell(other, session)
    began = 250 if is_told else 100  # what was told counts more than when it began
    if not parent_first:
        made.stand(TWO, child, at=200, began=200, spawnedBy=KEY)
    made.stand(ONE, at=270, began=began)
    made.stand(THREE, at=300, began=300)
    if parent_first:
        made.stand(TWO, child, at=200, began=200, spawnedBy=KEY)

    import_paths(ledger, made.path)

    assert ledger.session(KEY).label == f"openclaw:{THREE}"
    assert ledger.session(child).parent_session_label == f"openclaw:{ONE}"


def test_who_started_a_session_does_not_depend_on_the_order_of_states() -> None:
    observations = [(5, "A"), (3, None), (4, "B")]
    for order in permutations(observations):
        sessions = SessionMap(cast("Material", None))
        for at, parent in order:
            entry = MapEntry(session_id="c", updated_at=at, spawned_by="p")
            sessions.observe("k", "c", entry, parent, 1)
        (period,) = sessions.periods("c")
        assert sessions.parent_of(period) == "B"
        assert (period.first_at, period.last_at) == (3, 5)


def test_a_window_tells_the_key_of_a_session_that_was_reset(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    made.tell(a_log(tmp_path))
    other = Transcript(tmp_path, TWO)
    other.user("Begin anew.")
    other.say("Gladly.")
    made.tell(other, TWO)
    made.stand(ONE, "agent:main:cron:daily")
    made.stand(TWO, "agent:main:cron:daily", at=5)

    import_paths(ledger, made.path)

    assert ledger.session("agent:main:cron:daily").label == f"openclaw:{TWO}"
    (turn,) = ledger.thread(f"openclaw:{ONE}").turns
    assert turn.query[0].source == "cron"


def test_a_database_that_grows_is_read_on(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    log = a_log(tmp_path)
    made.tell(log)
    import_paths(ledger, made.path)
    told = len(log.lines)
    log.user("And the till?")
    log.say("It counts.")
    made.tell(log, since=told)

    import_paths(ledger, made.path)

    assert len(ledger.thread(f"openclaw:{ONE}").turns) == 2
    whole = result(ledger)
    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, made.path)
        assert result(other) == whole


def test_what_was_written_anew_stays_and_the_session_stands_where_it_went_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    made = Database(tmp_path / ".openclaw")
    log = a_log(tmp_path)
    fork, told = log.last, len(log.lines)
    log.user("And the till?")
    log.say("It counts.")
    log.user("Sure?")
    log.say("Yes.")
    made.tell(log)
    import_paths(ledger, made.path)
    del log.lines[told:]
    log.last = fork
    log.user("And the door?")
    log.say("It opens.")
    made.tell(log, since=told)

    import_paths(ledger, made.path)

    asked = [turn.query[0].content for turn in ledger.thread(f"openclaw:{ONE}").turns]
    assert asked == ["What does the cart do?", "And the door?"]
    assert len(ledger.query("SELECT id FROM turns")[1]) == 4
    whole = result(ledger)
    rederive(ledger)
    assert result(ledger) == whole


THOUGHT = {"type": "thinking", "thinking": "Hm."}


def changed(log: Timed, at: int, **message: Any) -> None:
    """Let an entry say something else."""
    entry = json.loads(log.lines[at])
    entry["message"] |= message
    log.lines[at] = json.dumps(entry)


def test_an_event_that_is_changed_in_its_place_is_one(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    log = Timed(tmp_path)
    log.user("One.")
    log.say("First.", THOUGHT, call("t1", "read", path="a"))
    log.result("t1", "x" * 99)
    log.say("Second.", message={"usage": {"input": 0, "output": 0}})
    made.tell(log)
    import_paths(ledger, made.path)
    before = ledger.query("SELECT id FROM turns")[1]
    text = [{"type": "text", "text": "First, shortly."}]
    for content in (text, [*text, call("t1", "read", path="a")]):
        changed(log, 2, content=content)
        changed(log, 3, content=[{"type": "text", "text": "[cut]"}])
        changed(log, 4, usage={"input": 10, "output": 5})
        made.tell(log, since=2)
        import_paths(ledger, made.path)
    changed(log, 4, usage={"input": 8, "output": 5})  # and not what counts more
    made.tell(log, since=4)
    log.user("Two.")
    log.say("Third.")
    made.tell(log, since=5)

    import_paths(ledger, made.path)

    first, second = ledger.thread(f"openclaw:{ONE}").turns
    assert [(first.id,)] == before
    assert [m.content for m in first.messages] == ["One.", "First, shortly.", "Second."]
    assert first.messages[1].thinking is None
    assert (first.total_tokens, second.total_tokens) == (10 + 13, 10)
    (called,) = first.tool_calls
    assert "x" * 99 in (called.result_json or "")
    assert len(ledger.query("SELECT id FROM turns")[1]) == 2
    whole = result(ledger)
    rederive(ledger)
    assert result(ledger) == whole
    assert ledger.audit() == ()


def test_usage_that_came_later_counts_as_if_it_had_been_there(
    ledger: Ledger, tmp_path: Path
) -> None:
    made = Database(tmp_path / ".openclaw")
    log = Timed(tmp_path)
    log.user("One.")
    log.say("First.", message={"usage": {"input": 0, "output": 0}})
    made.tell(log)
    import_paths(ledger, made.path)
    changed(log, 2, usage=USAGE)
    made.tell(log, since=2)

    import_paths(ledger, made.path)

    with Ledger.open(str(tmp_path / "last.db")) as last:
        import_paths(last, made.path)
        assert result(last) == result(ledger)
        assert last.query("SELECT total_tokens FROM turns")[1] == [(10,)]


@pytest.mark.parametrize("limits", [LIMITS, ImportLimits(held_bytes=0)])
def test_events_that_are_packed_say_the_same(
    ledger: Ledger, tmp_path: Path, limits: ImportLimits
) -> None:
    made = Database(tmp_path / ".openclaw")
    log = a_log(tmp_path)
    log.add("compaction", summary="So far.", tokensBefore=9)
    log.user("And the till?")
    log.say("It counts.")
    made.tell(log)
    import_paths(ledger, made.path, limits=limits)
    before = result(ledger)
    made.run("ALTER TABLE transcript_events ADD COLUMN event_zstd BLOB", ())
    packed = [(zstandard.compress(line.encode()), seq) for seq, line in enumerate(log.lines)]
    change = "UPDATE transcript_events SET event_json = NULL, event_zstd = ? WHERE seq = ?"
    made.run(change, *packed[2:])

    report = import_paths(ledger, made.path, limits=limits)

    assert not report.faults
    assert report.written_turns == 0
    assert result(ledger) == before
    with Ledger.open(str(tmp_path / "other.db")) as other:
        import_paths(other, made.path, limits=limits)
        assert result(other) == before


def test_what_is_no_event_harms_no_other(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    made.tell(a_log(tmp_path))
    made.run("ALTER TABLE transcript_events ADD COLUMN event_zstd BLOB", ())
    insert = "INSERT INTO transcript_events VALUES (?, ?, ?, ?, ?)"
    bomb = zstandard.compress(bytes(65 << 20))
    odd = [
        (ONE, 90, None, 1, None),
        (ONE, 91, "no json", 1, None),
        (ONE, 92, b"\xff\xfe", 1, None),
        (ONE, 93, None, 1, b"\x28\xb5\x2f\xfd broken"),
        (ONE, 94, None, 1, bomb),
        (ONE, "x", "{}", 1, None),
        (ONE, -(1 << 63), "[]", 1, None),
        (TWO, 1 << 40, '{"type": "message"}', 1, None),
    ]
    made.run(insert, *odd)
    made.run("INSERT INTO session_nodes VALUES (?, ?, ?, ?)", ("k", "s", "no json", "x"))

    report = import_paths(ledger, made.path)

    assert len(report.faults) == 8  # what is not UTF-8 is told too
    (turn,) = ledger.thread(f"openclaw:{ONE}").turns
    assert turn.response is not None
    assert ledger.audit() == ()


def test_a_database_from_before_it_held_sessions_is_no_fault(
    ledger: Ledger, tmp_path: Path
) -> None:
    made = Database(tmp_path / ".openclaw", "CREATE TABLE auth_profile_store (store_json TEXT);")

    report = import_paths(ledger, made.path)

    assert (report.faults, report.unrecognised) == ([], [str(made.path)])
    assert not ledger.query("SELECT label FROM sessions")[1]


def test_sessions_of_a_project_are_left_out(ledger: Ledger, tmp_path: Path) -> None:
    made = Database(tmp_path / ".openclaw")
    made.tell(a_log(tmp_path))
    other = Transcript(tmp_path, TWO, cwd="/home/dev/other")
    other.user("Begin.")
    other.say("Done.")
    made.tell(other, TWO)
    made.stand(ONE, label=SECRET)
    made.stand(TWO, "agent:main:other")

    import_without(ledger, made.path, "/home/dev/shop")

    assert ledger.query("SELECT label FROM sessions")[1] == [(f"openclaw:{TWO}",)]
    import_paths(ledger, made.path)
    assert len(ledger.query("SELECT label FROM sessions")[1]) == 2


def test_it_is_known_by_its_name_or_its_tables() -> None:
    reader, head = OpenClaw(), b"SQLite format 3\0"
    at = Path("/x/.openclaw/agents/main/agent/openclaw-agent.sqlite")
    assert reader.wants(at)
    assert reader.recognises(at, head)
    assert reader.recognises(Path("/x/copy.db"), head + b"CREATE TABLE transcript_events (")
    assert not reader.recognises(Path("/x/copy.db"), head)
    agent = Path("/x/.openclaw/agents/main")
    beside = agent / "session-sqlite-import-archive" / "k.a.jsonl.imported-1"
    assert reader.wants(beside)
    families = map(reader.family, (at, beside, agent / "sessions" / "a.jsonl"))
    assert len(set(families)) == 1
