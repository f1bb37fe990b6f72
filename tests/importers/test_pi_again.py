"""Entries that pi or OpenClaw write again, and calls of models that answer nobody."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.sources.pi.source import Pi
from tests.importers.helping import import_paths, result
from tests.importers.test_pi import ONE, TWO, USAGE, Transcript, call, openclaw

LONG, SHORT = "x" * 900, "[... truncated]"
BEGUN = 1772359200000  # milliseconds


class Timed(Transcript):
    """Messages that know when they were said."""

    def add(self, kind: str, **fields: Any) -> str:
        if "message" in fields:
            fields["message"].setdefault("timestamp", BEGUN + 1000 * self.clock)
        return super().add(kind, **fields)

    def rewrite(self, first: int, **texts: str) -> None:
        """As OpenClaw shortens results: from a line on all is written again, on what it hung on,
        with other ids, and at another time."""
        renamed: dict[str, str] = {}
        now = self.now()
        for line in self.lines[first:]:
            entry = json.loads(line)
            above = entry["parentId"]
            renamed[entry["id"]] = f"{len(self.lines):08x}"
            entry |= {"id": renamed[entry["id"]], "parentId": renamed.get(above, above)}
            if entry.get("message", {}).get("toolCallId") in texts:
                text = texts[entry["message"]["toolCallId"]]
                entry["message"]["content"] = [{"type": "text", "text": text}]
            self.write({**entry, "timestamp": now})
            self.last = entry["id"]


def shortened(folder: Path) -> Timed:
    log = Timed(folder)
    log.user("Read a.")
    log.say("Reading.", call("t1", "read", path="a"))
    at = len(log.lines)
    log.result("t1", LONG, tool="read")
    log.say("It is x.")
    log.add("compaction", summary="So far.", tokensBefore=9)
    log.add("custom_message", customType="hook", content="Noted.", display=True)
    log.user("Thanks.")
    log.say("Welcome.")
    log.rewrite(at, t1=SHORT)
    log.user("And b?")
    log.say("It is y.")
    return log


def test_what_is_written_again_is_no_branch_and_costs_nothing(
    ledger: Ledger, tmp_path: Path
) -> None:
    report = import_paths(ledger, shortened(openclaw(tmp_path)).save())

    assert not report.faults
    turns = ledger.thread(f"openclaw:{ONE}").turns
    asked = [message.content for turn in turns for message in turn.query]
    assert asked == ["Read a.", "Noted.", "Thanks.", "And b?"]
    assert [turn.turn_type for turn in turns] == ["normal", "compaction", "normal", "normal"]
    (counts,) = ledger.query("SELECT count(*), sum(input_tokens), sum(total_tokens) FROM turns")[1]
    assert counts == (len(turns), 4, 40)
    (held,) = ledger.query("SELECT result_json FROM tool_calls")[1]
    assert LONG in held[0]
    whole = result(ledger)
    rederive(ledger)
    assert result(ledger) == whole


def test_the_longer_result_is_shown_whichever_file_has_it(ledger: Ledger, tmp_path: Path) -> None:
    folder = openclaw(tmp_path)
    log = Timed(folder)
    log.user("Read a.")
    log.say("Reading.", call("t1", "read", path="a"))
    log.result("t1", LONG, tool="read")
    log.say("It is x.")
    short = Timed(folder, TWO, timestamp="2026-02-01T10:00:00.000Z")
    short.lines += [line.replace(LONG, SHORT) for line in log.lines[1:]]

    import_paths(ledger, short.save())
    (held,) = ledger.query("SELECT result_json FROM tool_calls")[1]
    assert SHORT in held[0]
    import_paths(ledger, log.save())

    (held,) = ledger.query("SELECT result_json FROM tool_calls")[1]
    assert LONG in held[0]
    assert len(ledger.query("SELECT id FROM turns")[1]) == 1


@pytest.mark.parametrize("zeroed", ["origin", "fork"])
def test_of_copies_the_one_that_counts_is_shown_in_any_order(tmp_path: Path, zeroed: str) -> None:
    log = Timed(tmp_path)
    log.user("One.")
    log.say("First.")
    fork = Timed(tmp_path, TWO, timestamp="2026-03-01T10:00:30.000Z")
    fork.lines += [line.replace("10:00:0", "10:00:2") for line in log.lines[1:]]
    fork.last, fork.clock = log.last, 40
    fork.user("Two.")
    fork.say("Second.")
    less = log if zeroed == "origin" else fork
    less.lines[2] = less.lines[2].replace(
        json.dumps(USAGE), json.dumps({"input": 0, "x": "y" * 99})
    )
    log.save()
    fork.save()

    seen = []
    for number, order in enumerate(([log, fork], [fork, log])):
        with Ledger.open(str(tmp_path / f"{number}.db")) as ledger:
            for each in order:
                import_paths(ledger, each.path)
            seen.append(result(ledger))
            first, _ = ledger.thread(f"pi:{TWO}").turns
            assert first.total_tokens == 10
            rederive(ledger)
            assert result(ledger) == seen[-1]
    assert seen[0] == seen[1]


def test_files_of_one_age_with_the_same_entries_are_ordered_by_what_they_say(
    tmp_path: Path,
) -> None:
    log = Timed(tmp_path)
    log.user("One.")
    log.say("First.")
    other = Timed(tmp_path)
    other.lines = [line.replace('"stop"', '"length"') for line in log.lines]

    seen = []
    for number, names in enumerate((("a", "b"), ("b", "a"))):
        with Ledger.open(str(tmp_path / f"{number}.db")) as ledger:
            for each, name in zip((log, other), names, strict=True):
                each.path = tmp_path / str(number) / f"{name}.jsonl"
                import_paths(ledger, each.save())
            seen.append(result(ledger))
    assert seen[0] == seen[1]


def test_a_number_that_is_no_time_tells_no_message(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    for _ in range(2):
        log.add("message", message={"role": "user", "content": "Again.", "timestamp": 1})
        log.say("Done.", message={"timestamp": 2})

    import_paths(ledger, log.save())

    assert len(ledger.thread(f"pi:{ONE}").turns) == 2


def test_calls_that_summarise_or_warm_count_too(ledger: Ledger, tmp_path: Path) -> None:
    log = Transcript(tmp_path)
    usage = {"input": 5000, "output": 300, "totalTokens": 5300, "cost": {"total": 0.1}}
    log.add("usage", usage={"input": 1})  # before anything was said
    log.user("Begin.")
    first = log.say("Done.")
    for _ in range(2):
        log.add("usage", provider="x", model="m", usage={"input": 7, "output": 0})
    log.add("compaction", summary="So far.", firstKeptEntryId=first, tokensBefore=9, usage=usage)
    log.add("usage", usage={"input": 2})
    log.say("Going on.")
    log.add("branch_summary", summary="Tried.", fromId=first, usage=usage)
    log.say("Elsewhere.")

    report = import_paths(ledger, log.save())

    assert report.records["pi", "usage", "unmapped"] == 1
    turns = ledger.thread(f"pi:{ONE}").turns
    assert [turn.input_tokens for turn in turns] == [15, 5002, 1, 5001]
    assert [turn.turn_type for turn in turns] == ["normal", "compaction", "normal", "normal"]
    (summary,) = ledger.query("SELECT metadata_json FROM messages WHERE content = 'So far.'")[1]
    assert json.loads(summary[0])["cost"] == 0.1


def test_what_openclaw_itself_asks_is_of_no_human(ledger: Ledger, tmp_path: Path) -> None:
    said = {
        "A new session was started via /new or /reset. Greet the user.": "trigger",
        "Pre-compaction memory flush. Store durable memories now.": "trigger",
        "System: [2026-04-18T11:00:00Z] Cron: Daily!\n\nWhat was done?\n\n"
        "Read HEARTBEAT.md if it exists. Follow it strictly.": "trigger",
        "Continue where you left off. The previous model attempt failed or timed out.": "trigger",
        "System: [2026-04-18 11:00:00 UTC] Exec completed\n\nAn async command you ran earlier has"
        " completed.": "event",
        "[Sun 2026-04-05 05:08 GMT+2] An async command the user already approved has completed.\n"
        "Do not run the command again.\n\nExact completion details:\nExec denied": "event",
        "System: [2026-04-18 11:00:00 UTC] Water!\n\nA scheduled reminder has been triggered. The"
        " reminder content is:\n\nWater!\n\nHandle this reminder internally.": "cron",
        "System: up\n\n[Sun 2026-04-05 05:08 GMT+2] A scheduled reminder has been triggered.\n\n"
        "More.": "cron",
        "[Thu 2026-03-12 02:03 GMT+8] OpenClaw runtime context (internal):\nThis context is"
        " runtime-generated, not user-authored.": "event",
        "System: [2026-04-18T11:00:00Z] Node connected\n\nWhat is for lunch?": "human",
        "Read this.\n\nRead HEARTBEAT.md, and tell me what is wrong with it.": "human",
    }
    log = Transcript(openclaw(tmp_path))
    for text in said:
        log.user(text)
        log.say("Yes.")

    import_paths(ledger, log.save())

    notice = "System: [2026-04-18T11:00:00Z] Node connected\n\n"
    shown = {text.removeprefix(notice): source for text, source in said.items()}
    rows = ledger.query("SELECT content, source FROM messages WHERE role = 'user'")[1]
    assert dict(rows) == shown


def test_sessions_may_have_a_folder_of_their_own() -> None:
    usual = Path("/home/dev/.pi/agent/sessions")
    chosen = {"PI_CODING_AGENT_SESSION_DIR": "/data/pi"}
    assert list(Pi().roots(Home(Path("/home/dev"), chosen, "linux"))) == [usual, Path("/data/pi")]
    assert list(Pi().roots(Home(Path("/home/dev"), {}, "linux"))) == [usual]
