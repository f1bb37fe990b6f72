"""pi's transcripts and OpenClaw's, one oddity at a time."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.pi.source import OpenClaw, Pi
from tests.importers.helping import import_paths, result

ONE = "aaaaaaaa-0000-4000-8000-000000000001"
TWO = "aaaaaaaa-0000-4000-8000-000000000002"
USAGE = {"input": 1, "output": 2, "cacheRead": 3, "cacheWrite": 4, "cost": {"total": 0.5}}


class Transcript:
    """Writes entries as pi does, each hung on the one before unless it says otherwise."""

    def __init__(self, folder: Path, session: str = ONE, **header: Any) -> None:
        self.path = folder / f"{session}.jsonl"
        self.lines: list[str] = []
        self.clock = 0
        self.last: str | None = None
        said = {"type": "session", "version": 3, "id": session, "cwd": "/home/dev/shop"}
        self.write({**said, "timestamp": self.now(), **header})

    def now(self) -> str:
        self.clock += 1
        return f"2026-03-01T10:{self.clock // 60:02}:{self.clock % 60:02}.000Z"

    def write(self, entry: dict[str, Any]) -> None:
        self.lines.append(json.dumps(entry))

    def add(self, kind: str, **fields: Any) -> str:
        entry = {"type": kind, "id": f"{len(self.lines):08x}", "parentId": self.last}
        entry |= {"timestamp": self.now(), **fields}
        self.write(entry)
        self.last = str(entry["id"])
        return self.last

    def user(self, text: str, **fields: Any) -> str:
        content = [{"type": "text", "text": text}]
        return self.add("message", message={"role": "user", "content": content}, **fields)

    def say(self, text: str, *blocks: dict[str, Any], **fields: Any) -> str:
        message = {
            "role": "assistant",
            "content": [{"type": "text", "text": text}, *blocks],
            "provider": "anthropic",
            "model": "claude-opus-5",
            "usage": USAGE,
            "stopReason": "stop",
            **fields.pop("message", {}),
        }
        return self.add("message", message=message, **fields)

    def result(self, call: str, text: str, tool: str = "bash", **message: Any) -> str:
        said = {"role": "toolResult", "toolCallId": call, "toolName": tool, "isError": False}
        content = [{"type": "text", "text": text}]
        return self.add("message", message={**said, "content": content, **message})

    def save(self) -> Path:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_text("".join(line + "\n" for line in self.lines))
        return self.path


def call(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "toolCall", "id": call_id, "name": name, "arguments": arguments}


def test_a_prompt_and_all_that_follows_it_is_a_turn(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.add("model_change", provider="anthropic", modelId="claude-opus-5")
    log.user("What does the cart do?")
    thought = {"type": "thinking", "thinking": "Look first.", "thinkingSignature": "x"}
    log.say("Reading.", thought, call("t1", "read", path="cart.py"))
    log.result("t1", "class Cart: ...", "read")
    log.say("It adds things up.")
    log.user("Thanks.")
    log.say("Welcome.", message={"usage": {**USAGE, "totalTokens": 50}})
    log.add("session_info", name="The cart")

    report = import_paths(ledger, log.save())

    first, second = ledger.thread(f"pi:{ONE}").turns
    assert first.response is not None
    assert first.response.content == "It adds things up."
    assert first.messages[1].thinking == "Look first."
    assert [(f.kind, f.file_path) for f in first.messages[1].files] == [("read", "cart.py")]
    assert [c.status for c in first.tool_calls] == ["completed"]
    assert (first.total_tokens, second.total_tokens) == (20, 50)
    assert (first.input_tokens, first.cached_input_tokens) == (2, 6)
    assert (first.model, first.workspace_path) == ("claude-opus-5", "/home/dev/shop")
    assert '"cost":0.5' in (first.response.metadata_json or "")
    assert ledger.query("SELECT source_title, origin FROM sessions")[1] == [("The cart", "pi")]
    assert sum(report.records.values()) == len(log.lines)
    assert not ledger.audit()


def test_calls_of_one_id_are_calls_of_their_own_each_with_its_result(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path)
    log.user("Look.")
    for at in range(3):
        log.say("", call("functions.bash:1", "bash", command=f"ls {at}"))
        log.result("functions.bash:1", f"{at}.py")
    log.say("", call("functions.bash:2", "bash", command="a"), call("functions.bash:2", "bash"))
    log.result("functions.bash:2", "first")
    log.result("functions.bash:2", "second")
    log.say("Done.")

    import_paths(ledger, log.save())

    (turn,) = (ledger.get_turn(t) for (t,) in ledger.query("SELECT id FROM turns")[1])
    found = [(c.id, c.params_json, json.loads(c.result_json or "")) for c in turn.tool_calls]
    assert [(name, params) for name, params, _ in found] == [
        ("functions.bash:1", '{"command":"ls 0"}'),
        ("functions.bash:1:2", '{"command":"ls 1"}'),
        ("functions.bash:1:3", '{"command":"ls 2"}'),
        ("functions.bash:2", '{"command":"a"}'),
        ("functions.bash:2:2", "{}"),
    ]
    said = ["0.py", "1.py", "2.py", "first", "second"]
    assert [word in str(told) for word, (*_, told) in zip(said, found, strict=True)] == [True] * 5


def test_a_result_belongs_to_the_last_call_of_its_id(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("Look.")
    log.result("x", "of nothing")
    log.say("", call("x", "bash", command="1"))
    log.say("", call("x", "bash", command="2"))
    log.result("x", "two")
    log.say("", call("x:2", "bash", command="3"))
    log.result("x:2", "three")
    log.say("Done.")

    import_paths(ledger, log.save())

    (turn,) = (ledger.get_turn(t) for (t,) in ledger.query("SELECT id FROM turns")[1])
    found = [(json.loads(c.params_json)["command"], c.status) for c in turn.tool_calls]
    assert found == [("1", "cancelled"), ("2", "completed"), ("3", "completed")]
    assert "two" in str(turn.tool_calls[1].result_json)
    assert "three" in str(turn.tool_calls[2].result_json)
    assert len({c.id for c in turn.tool_calls}) == 3


def test_a_fork_copies_entries_and_shares_turns(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("First.")
    fork = Transcript(tmp_path, TWO, parentSession=f"/old/2026_{ONE}.jsonl")
    fork.lines += log.lines[1:]
    fork.last, fork.clock = log.last, 40
    log.user("Two.")
    log.say("Second.")
    fork.user("Other.")
    fork.say("Another.")

    import_paths(ledger, fork.save(), log.save())

    main, other = ledger.thread(f"pi:{ONE}").turns, ledger.thread(f"pi:{TWO}").turns
    assert main[0].id == other[0].id
    assert len(ledger.query("SELECT id FROM turns")[1]) == 3
    assert f'"forked_from":"{ONE}"' in (ledger.session(f"pi:{TWO}").metadata_json or "")


def test_a_file_without_ids_keeps_its_turns_when_it_gets_some(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("First.")
    new = log.save().read_text()
    old = []
    for line in new.splitlines():
        entry = json.loads(line)
        for name in ("version", "parentId", *(("id",) if entry["type"] != "session" else ())):
            entry.pop(name, None)
        old.append(json.dumps(entry))
    log.path.write_text("\n".join(old) + "\n")
    import_paths(ledger, log.path)
    before = [turn.id for turn in ledger.thread(f"pi:{ONE}").turns]
    log.path.write_text(new)

    import_paths(ledger, log.path)

    assert [turn.id for turn in ledger.thread(f"pi:{ONE}").turns] == before
    assert len(ledger.query("SELECT id FROM turns")[1]) == 1


def test_branches_are_prompts_not_copies_of_what_was_sent(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    said = log.say("Sending.", call("t1", "message", text="Hi."))
    log.say("Hi.", message={"model": "delivery-mirror", "usage": {}})
    log.last = said
    log.result("t1", "sent", "message")
    answer = log.say("Sent.")
    log.user("Two.")
    log.say("Second.")
    log.last = answer
    log.add("branch_summary", fromId="x", summary="The other way.")
    log.user("Two, differently.")
    log.say("Third.")

    import_paths(ledger, log.save())

    first, last = ledger.thread(f"openclaw:{ONE}").turns
    assert len(ledger.query("SELECT id FROM turns")[1]) == 3
    assert [m.content for m in first.messages] == ["One.", "Sending.", "Hi.", "Sent."]
    assert '"injected":"delivery-mirror"' in (first.messages[2].metadata_json or "")
    assert first.total_tokens == 20
    assert [m.content for m in last.query] == ["The other way.", "Two, differently."]
    assert [m.source for m in last.query] == ["event", "human"]


def test_a_compaction_says_what_it_kept(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("First.")
    kept = log.user("Two.")
    log.say("Second.")
    log.add(
        "compaction",
        summary="It began.",
        firstKeptEntryId=kept,
        tokensBefore=900,
        details={"readFiles": ["a.py"], "modifiedFiles": ["b.py"]},
    )
    log.say("Going on.")
    log.user("Three.")
    log.say("Third.")

    import_paths(ledger, log.save())

    one, two, compaction, on, _ = ledger.thread(f"pi:{ONE}").turns
    record = compaction.compaction
    assert record is not None
    assert (record.summarized_through_turn_id, record.first_kept_turn_id) == (one.id, two.id)
    assert (record.summary, record.tokens_before) == ("It began.", 900)
    assert [f.file_path for f in compaction.messages[0].files] == ["a.py", "b.py"]
    assert [m.content for m in on.messages] == ["Going on."]
    assert not ledger.audit()


def test_a_transcript_cut_at_its_compaction_begins_with_the_summary(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path)
    log.add("compaction", summary="It began.", firstKeptEntryId="lost", parentId="lost")
    log.user("Go on.")
    log.say("On.")

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"pi:{ONE}").turns
    assert [m.content for m in turn.query] == ["It began.", "Go on."]
    assert not ledger.audit()


def test_errors_orphans_and_what_nobody_knows(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("One.")
    log.say("", message={"stopReason": "error", "errorMessage": "overloaded"})
    log.add("unknown_future_entry_type", anything=[1])
    log.user("Two.", parentId="lost")
    log.say("Trying.", call("t1", "bash", command="false"))
    log.result("t1", "exit 1", isError=True)
    log.add("message", message={"role": "bashExecution", "command": "ls", "output": "a"})
    log.add("custom_message", customType="hook", content="Injected.", display=False)
    log.lines += ["oops", "[]", '{"type":"message","message":[]}']

    report = import_paths(ledger, log.save())

    one, two = ledger.thread(f"pi:{ONE}").turns
    assert (one.status, one.error) == ("failed", "overloaded")
    assert two.parent_turn_id == one.id
    assert (two.tool_calls[0].status, two.tool_calls[0].error) == ("failed", "exit 1")
    assert [(m.role, m.source) for m in two.messages[-2:]] == [("user", "human"), ("user", "event")]
    assert sum(report.records.values()) == len(log.lines)
    assert [fault.line for fault in report.faults] == [5, 10, 11]
    assert report.faults[0].what == "the entry it follows is missing: lost"


# -- OpenClaw ---------------------------------------------------------------------------------


def openclaw(tmp_path: Path) -> Path:
    return tmp_path / ".openclaw" / "agents" / "main" / "sessions"


def store(folder: Path, **entries: dict[str, Any]) -> Path:
    path = folder / "sessions.json"
    path.write_text(json.dumps({key.replace("_", ":"): said for key, said in entries.items()}))
    return path


def test_a_tool_that_tells_of_its_failure_in_its_result_failed(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path / ".openclaw" / "agents" / "main" / "sessions")
    log.user("Look.")
    calls = [call(f"t{number}", "exec") for number in range(3)]
    log.say("", *calls)
    told = {"status": "error", "tool": "exec", "error": "no such file"}
    log.result("t0", json.dumps(told), details=told)
    log.result("t1", "Killed.", details={"status": "failed"})  # what it watched, not the call
    log.result("t2", "Done.", details={"status": "completed"})
    log.say("Seen.")

    import_paths(ledger, log.save())

    found = ledger.thread(f"openclaw:{ONE}").turns[0].tool_calls
    assert [(c.status, c.source_status, c.error) for c in found] == [
        ("failed", "error", "no such file"),
        ("completed", "failed", None),
        ("completed", "completed", None),
    ]


def test_keys_lead_to_sessions_and_subagents_to_their_parents(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = openclaw(tmp_path)
    parent = Transcript(folder)
    parent.user("[Telegram Ann id:7 2026-03-01] Let somebody look. [message_id: 12]")
    parent.say("Asking.", call("s1", "sessions_spawn", task="Look."))
    details = {"status": "accepted", "childSessionKey": "agent:main:subagent:u1"}
    parent.result("s1", "", "sessions_spawn", details=details)
    parent.say("NO_REPLY")
    child = Transcript(folder, TWO)
    child.user("Look.")
    child.say("Seen.")
    paths = [parent.save(), child.save()]
    map_ = store(
        folder,
        agent_main_main={"sessionId": ONE, "updatedAt": 5, "displayName": "Ann", "totalTokens": 9},
        agent_main_subagent_u1={
            "sessionId": TWO,
            "updatedAt": 6,
            "spawnedBy": "agent:main:main",
            "label": "looker",
        },
    )

    report = import_paths(ledger, *paths, map_)

    session = ledger.session("agent:main:subagent:u1")
    assert session.label == f"openclaw:{TWO}"
    assert (session.is_subagent, session.parent_session_label) == (True, f"openclaw:{ONE}")
    assert session.spawn_tool_call_id == "s1"
    assert ledger.thread(session.label).turns[0].query[0].source == "agent"
    (turn,) = ledger.thread("agent:main:main").turns
    assert turn.query[0].source == "human"
    assert '"channel":"Telegram"' in (turn.query[0].metadata_json or "")
    assert turn.response is not None
    assert '"silent":true' in (turn.response.metadata_json or "")
    assert turn.total_tokens == 20
    assert report.records["openclaw", "sessions.json", "derived"] == 2
    assert ledger.session("agent:main:main").origin_session_id == ONE


def test_a_key_moves_on_and_the_earlier_session_keeps_what_was_seen(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = openclaw(tmp_path)
    for number, session in enumerate((ONE, TWO)):
        log = Transcript(folder, session)
        log.user(f"Day {number}.")
        log.say("Good day.")
        log.save()
        store(folder, agent_main_main={"sessionId": session, "updatedAt": 100 + number})
        import_paths(ledger, folder)

    assert ledger.session("agent:main:main").label == f"openclaw:{TWO}"
    first = json.loads(ledger.session(f"openclaw:{ONE}").metadata_json or "{}")
    assert (first["session_key"], first["observed_at"]) == ("agent:main:main", [100, 100])


def test_deleted_and_reset_transcripts_are_the_same_sessions(
    ledger: Ledger, tmp_path: Path
) -> None:
    folder = openclaw(tmp_path)
    log = Transcript(folder)
    log.user("One.")
    log.say("First.")
    path = log.save()
    import_paths(ledger, path)
    before = result(ledger)
    gone = path.with_name(path.name + ".deleted.2026-03-02T00-00-00.000Z")
    path.rename(gone)

    import_paths(ledger, gone)

    assert result(ledger) == before
    assert OpenClaw().wants(gone)


@pytest.mark.parametrize("name", ["cron", "hook", "subagent"])
def test_an_agent_may_be_called_like_what_speaks_elsewhere(
    ledger: Ledger, tmp_path: Path, name: str
) -> None:
    folder = tmp_path / ".openclaw" / "agents" / name / "sessions"
    for number, session_id in enumerate((ONE, TWO)):
        log = Transcript(folder, session_id)
        log.user(f"Hello {number}.")
        log.say("Yes.")
        log.save()
    keys = {f"agent_{name}_main": ONE, f"agent_{name}_{name}_1": TWO}
    store(folder, **{key: {"sessionId": each, "updatedAt": 1} for key, each in keys.items()})

    import_paths(ledger, folder)

    asked = "SELECT source FROM messages WHERE role = 'user' ORDER BY content"
    spoke = {"cron": "cron", "hook": "webhook", "subagent": "agent"}[name]
    assert ledger.query(asked)[1] == [("human",), (spoke,)]
    assert not ledger.session(f"openclaw:{ONE}").is_subagent


def test_who_speaks_is_told_by_key_and_text(ledger: Ledger, tmp_path: Path) -> None:
    folder = openclaw(tmp_path)
    log = Transcript(folder)
    asked = {
        "[cron:job1 daily] Report.": "cron",
        "Read HEARTBEAT.md if it exists.": "trigger",
        "[OpenClaw heartbeat poll]": "trigger",
        "System: [2026-03-01 10:00:00 PDT] up\n\nRead HEARTBEAT.md if it exists.": "trigger",
        "System: up": "event",
        "System (untrusted): [2026-03-01 10:00:00 PDT] up\nSystem (untrusted): still": "event",
        "[Sun 2026-03-01 10:00 GMT+8] [Subagent Context] You are a subagent.": "agent",
        "[Queued announce messages while agent was busy]\n\n---\nQueued #1\nDone.": "event",
        'A background task "look" just completed successfully.\n\nFindings:\nNone.': "event",
        "A background task of mine fails: why?": "human",
        'Sender (untrusted metadata):\n```json\n{"id": "dev"}\n```\n\nHello': "human",
        "System: [2026-03-01 10:00:00 PDT] up\n\nHello": "human",
    }
    for text in asked:
        log.user(text)
        log.say("HEARTBEAT_OK")
    log.save()
    hook = Transcript(folder, TWO)
    hook.user("A push came.")
    hook.say("Seen.")
    hook.save()
    store(folder, hook_abc={"sessionId": TWO, "updatedAt": 1})

    import_paths(ledger, folder)

    turns = ledger.thread(f"openclaw:{ONE}").turns
    assert [turn.query[0].source for turn in turns] == list(asked.values())
    assert [line.text for line in ledger.headlines([t.id for t in turns[-2:]])] == ["Hello"] * 2
    assert ledger.thread("hook:abc").turns[0].query[0].source == "webhook"


def test_a_map_that_is_broken_is_a_fault(ledger: Ledger, tmp_path: Path) -> None:
    folder = openclaw(tmp_path)
    folder.mkdir(parents=True)
    path = folder / "sessions.json"
    path.write_text('{"agent:main:main":{"sessionId":"x","updatedAt":1}')
    odd = folder.parent / "odd" / "sessions.json"
    odd.parent.mkdir()
    odd.write_text('{"a":{"sessionId":"x","updatedAt":[]},"b":3,"c":{"sessionId":null}}')

    report = import_paths(ledger, path, odd)

    assert [fault.what for fault in report.faults] == ["not a map of sessions"]
    assert report.counts.failed == 0


def test_where_they_look(tmp_path: Path) -> None:
    home = Home(tmp_path, {}, "darwin")
    chosen = {"PI_CODING_AGENT_DIR": "/data/pi", "OPENCLAW_STATE_DIR": "/data/claw"}

    assert Pi().roots(home) == [tmp_path / ".pi/agent/sessions"]
    names = [path.parent.name for path in OpenClaw().roots(home)]
    assert names == [".openclaw", ".clawdbot", ".moltbot"]
    assert Pi().roots(home._replace(environment=chosen)) == [Path("/data/pi/sessions")]
    assert OpenClaw().roots(home._replace(environment=chosen)) == [Path("/data/claw/agents")]
    assert not OpenClaw().wants(Path("agents/main/sessions/x.jsonl.lock"))


def test_a_turn_knows_what_was_set_when_it_was_answered(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.add("model_change", provider="anthropic", modelId="claude-opus-5")
    start = log.add("thinking_level_change", thinkingLevel="low")
    log.user("One")
    log.add("thinking_level_change", thinkingLevel="high")
    log.say("Hard.")
    log.last = start  # another branch, where it was never raised
    log.user("Two")
    log.say("Easy.")

    report = import_paths(ledger, log.save())

    asked = (
        "SELECT m.content, t.effective_config_json FROM turns t JOIN messages m ON m.turn_id = t.id"
        " WHERE m.role = 'user' ORDER BY m.content"
    )
    levels = {said: json.loads(config)["thinking_level"] for said, config in ledger.query(asked)[1]}
    assert levels == {"One": "high", "Two": "low"}
    assert report.records["pi", "thinking_level_change", "derived"] == 2


def test_a_header_with_letters_cut_in_two_is_known(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path, cwd="/home/dev/LONE")
    log.user("Hello")
    log.say("Hi.")
    path = log.save()
    path.write_text(path.read_text().replace("LONE", "\\ud83d"))

    assert import_paths(ledger, path).unrecognised == []
    assert ledger.session(f"pi:{ONE}").thread_id is not None


def test_a_transcript_without_its_header_is_told_by_a_later_entry(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Transcript(tmp_path)
    log.user("Hello")
    log.say("Hi.")
    del log.lines[0]
    path = log.save()

    assert import_paths(ledger, path).unrecognised == []
    (session,) = ledger.sessions()
    assert session.label.startswith("pi:")
    assert [m.content for m in ledger.thread(session.label).turns[0].messages] == ["Hello", "Hi."]


def test_messages_as_others_write_them_too_are_none_of_pis(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    log.user("Hello")
    log.add("message", message={"role": "assistant", "content": [{"type": "text", "text": "Hi."}]})
    del log.lines[0]
    path = log.save()

    assert import_paths(ledger, path).unrecognised == [str(path)]


BODY = "References are relative to /skills/tidy.\n\nTidy up.\n</skill> is how a skill ends."
TIDY = f'<skill name="tidy" location="/skills/tidy/SKILL.md">\n{BODY}\n</skill>'


@pytest.mark.parametrize(
    ("text", "typed"),
    [
        (TIDY, "/skill:tidy"),
        (
            f"{TIDY}\n\nthe cart, please\n\nand the till",
            "/skill:tidy the cart, please\n\nand the till",
        ),
    ],
)
def test_a_skill_that_was_called_reads_as_it_was_typed(
    ledger: Ledger, tmp_path: Path, text: str, typed: str
) -> None:
    log = Transcript(tmp_path)
    entry = log.user(text)
    log.say("Tidied.")

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"pi:{ONE}").turns
    assert [(m.content, m.source) for m in turn.query] == [(typed, "human"), (TIDY, "event")]
    said = {"entry_id": entry, "skill": "tidy"}
    assert json.loads(turn.query[1].metadata_json or "") == said
    assert [line.text for line in ledger.headlines([turn.id])] == [typed]
    assert not ledger.audit()


@pytest.mark.parametrize(
    "text", [f"What is this?\n\n{TIDY}", f"{TIDY} and then?", '<skill name="tidy">', "<skill>"]
)
def test_a_prompt_that_only_speaks_of_a_skill_stays_as_it_is(
    ledger: Ledger, tmp_path: Path, text: str
) -> None:
    log = Transcript(tmp_path)
    log.user(text)
    log.say("A skill.")

    import_paths(ledger, log.save())

    (turn,) = ledger.thread(f"pi:{ONE}").turns
    assert [(m.content, m.source) for m in turn.query] == [(text, "human")]
