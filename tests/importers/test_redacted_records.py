"""The content of a scope goes from archived records, also if it is short or in no row."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from tests.contract.test_redaction import left
from tests.importers.claude_log import SESSION, Log, text, tool
from tests.importers.codex_log import Rollout
from tests.importers.helping import import_paths, result
from tests.importers.test_redacted_sources import archived, label_of, redact, write

PROMPT, CALLED, PRINTED, SHOWN = "k7Qx2mZp", "w3Rt8vLs", "n5Hy1cBd", "j9Fg4tNe"
AROUND = "The answer of another turn."


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTS_LEDGER_REDACTION_KEY", str(tmp_path / "keys" / "redaction.key"))


def claude(folder: Path) -> Log:
    folder.mkdir(exist_ok=True)
    log = Log(folder)
    log.user("a", "What is up?")
    log.assistant("b", text(AROUND))
    log.user("c", PROMPT)
    log.assistant("d", tool("toolu_1", "Bash", command=CALLED))
    log.result("e", "toolu_1", PRINTED, toolUseResult={"stdout": PRINTED, "file": {"id": SHOWN}})
    log.add("file-history-snapshot", snapshot={"of": SHOWN}, messageId="00000000")
    log.assistant("f", text("It is done."))
    log.user("g", "Next?")
    log.assistant("h", text("Nothing at all."))
    return log


def codex(folder: Path) -> Rollout:
    log = Rollout(folder)
    log.exchange(1, "What is up?", AROUND)
    log.start(2)
    log.ask(PROMPT)
    log.call("call_1", cmd=CALLED)
    log.event("exec_command_end", call_id="call_1", stdout=PRINTED, aggregated_output=SHOWN)
    log.item("function_call_output", call_id="call_1", output=PRINTED)
    log.item("reasoning", summary=[], encrypted_content=SHOWN)
    log.say("It is done.")
    log.tokens(300)
    log.end(2)
    log.exchange(3, "Next?", "Nothing at all.")
    return log


def middle_turn(ledger: Ledger) -> str:
    return ledger.thread(label_of(ledger)).turns[1].id


def ids(ledger: Ledger) -> dict[str, list[tuple[object, ...]]]:
    rows = result(ledger)
    return {name: [row[:2] for row in rows[name]] for name in ("turns", "messages", "tool_calls")}


def check_gone(ledger: Ledger, words: tuple[str, ...], kept: tuple[str, ...]) -> None:
    data = archived(ledger)
    assert [word for word in words if word.encode() in data] == []
    assert [word for word in kept if word.encode() not in data] == []
    assert [word for word in words if word in repr(result(ledger))] == []


@pytest.mark.parametrize("scope", ["session", "project", "turn", "call", "message"])
@pytest.mark.parametrize("kind", ["claude", "codex"])
def test_records_keep_no_content_of_a_scope(
    ledger: Ledger, address: str, tmp_path: Path, kind: str, scope: str
) -> None:
    log: Log | Rollout = (claude if kind == "claude" else codex)(tmp_path / "logs")
    path = write(log) if isinstance(log, Log) else log.save()
    import_paths(ledger, path)
    before, size = ids(ledger), len(archived(ledger))
    turn = middle_turn(ledger)
    [prompt] = ledger.query(f"SELECT id FROM messages WHERE content = '{PROMPT}'")[1]
    everything = (PROMPT, CALLED, PRINTED, SHOWN)
    selection, words, kept = {
        "session": ({"session": label_of(ledger)}, (*everything, AROUND), ()),
        "project": ({"project": "/home/dev/shop"}, (*everything, AROUND), ()),
        "turn": ({"turn": turn}, everything, (AROUND,)),
        "call": (
            {"call": f"{turn}/{'toolu_1' if kind == 'claude' else 'call_1'}"},
            (CALLED, PRINTED),
            (AROUND, PROMPT),
        ),
        "message": ({"message": str(prompt[0])}, (PROMPT,), (AROUND, CALLED, PRINTED)),
    }[scope]

    redact(ledger, **selection)

    assert "partly" not in ledger.redactions.latest()[0].selection
    check_gone(ledger, words, kept)
    assert ids(ledger) == before
    assert len(archived(ledger)) == size
    rederive(ledger)
    check_gone(ledger, words, kept)
    assert ids(ledger) == before

    if isinstance(log, Log):
        log.user("x", "One more?")
        log.assistant("y", text("Yes."))
        path = write(log)
    else:
        log.exchange(4, "One more?", "Yes.")
        path = log.save()
    grown = import_paths(ledger, path)
    assert grown.counts.failed == 0
    assert len(ledger.sources.all_files()) == 1
    check_gone(ledger, words, kept)
    assert set(before["turns"]) < set(ids(ledger)["turns"])
    assert ledger.thread(label_of(ledger)).turns[-1].messages[-1].content == "Yes."
    assert ledger.verify().findings == ()
    assert ledger.audit() == ()
    ledger.close()
    assert [word for word in words if left(address, word)] == []


def test_what_the_screen_was_shown_of_a_call_goes_with_it(ledger: Ledger, tmp_path: Path) -> None:
    import_paths(ledger, write(claude(tmp_path / "logs")))

    redact(ledger, call=f"{middle_turn(ledger)}/toolu_1")

    assert f'"id": "{SHOWN}"'.encode() not in archived(ledger)


def test_words_that_are_structure_elsewhere_stay_structure(ledger: Ledger, tmp_path: Path) -> None:
    log = Rollout(tmp_path / "logs")
    log.start(1)
    log.user(f"<environment_context>\n  <shell>{PROMPT}</shell>\n</environment_context>")
    image = [{"type": "input_text", "text": f"<image name={PROMPT}>"}]
    image += [{"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}]
    image += [{"type": "input_text", "text": "</image>"}]
    image += [{"type": "input_text", "text": "search"}]
    log.item("message", role="user", content=image)
    log.event("user_message", message="search", images=[])
    log.call("call_1", "tool_search", output="result", query="function_call")
    log.say("completed")
    log.end(1)
    import_paths(ledger, log.save())
    before = ids(ledger)
    kinds = "SELECT role, source FROM messages ORDER BY sequence"
    roles = ledger.query(kinds)[1]

    redact(ledger, session=label_of(ledger))

    assert ids(ledger) == before
    assert ledger.query(kinds)[1] == roles
    assert ledger.query("SELECT tool_name, params_json, result_json FROM tool_calls")[1] == [
        ("tool_search", '{"query": "*************"}', '"******"')
    ]
    check_gone(ledger, (PROMPT, '"text": "completed"', '"message": "search"'), ())


def test_only_what_no_other_session_has_goes_with_a_session(ledger: Ledger, tmp_path: Path) -> None:
    log = claude(tmp_path / "logs")
    import_paths(ledger, write(log))
    fork = Log(tmp_path / "logs", SESSION.replace("1", "2"))
    fork.lines = [line.replace(SESSION, fork.session) for line in log.lines[:2]]
    fork.last = log.uuids[1]
    fork.user("x1", CALLED, cwd="/home/dev/else", toolUseResult=PRINTED)
    fork.assistant("x2", text(SHOWN), cwd="/home/dev/else")
    import_paths(ledger, write(fork))
    before = ids(ledger)

    redact(ledger, project="/home/dev/else")

    [file] = [f for f in ledger.sources.all_files() if fork.session in f.path]
    data = b"".join(ledger.sources.stream(file.id))
    assert [w for w in (CALLED, PRINTED, SHOWN) if w.encode() in data] == []
    assert AROUND.encode() in data
    assert ids(ledger) == before
    assert CALLED.encode() in archived(ledger)  # in the other session


def test_what_could_not_be_read_is_reported(ledger: Ledger, tmp_path: Path) -> None:
    log = claude(tmp_path / "logs")
    log.lines.append('{"type": "user", "broken ')
    path = write(log)
    import_paths(ledger, path)

    redact(ledger, session=label_of(ledger))

    assert ledger.redactions.latest()[0].selection["partly"] == str(path)
