"""What is redacted goes from the archived records, and stays out when they are imported again."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.importers.pipeline import rederive
from agents_ledger.ledger.maintenance.copying import copy
from agents_ledger.model.reports.redaction import Selection
from tests.contract.test_redaction import PHRASE, TOKEN, left
from tests.importers.claude_log import SESSION, Log
from tests.importers.codex_log import Rollout
from tests.importers.helping import import_paths, result
from tests.importers.test_opencode import SAMPLE, database, part

STARS = "*" * len(TOKEN)


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "keys" / "redaction.key"
    monkeypatch.setenv("AGENTS_LEDGER_REDACTION_KEY", str(path))
    return path


def text(content: str) -> dict[str, str]:
    return {"type": "text", "text": content}


def call(name: str, command: str) -> dict[str, object]:
    return {"type": "tool_use", "id": name, "name": "Bash", "input": {"command": command}}


def log_of(folder: Path, said: str = TOKEN) -> Log:
    folder.mkdir(exist_ok=True)
    log = Log(folder)
    log.user("a", f"use {said} for this")
    log.assistant("b", text("I will"), call("toolu_1", f"curl -u x:{said}"))
    log.user("c", [{"type": "tool_result", "tool_use_id": "toolu_1", "content": f"{said} ok\n"}])
    log.assistant("d", text("All is done."))
    log.user("e", "what next?")
    log.assistant("f", text("Nothing at all."))
    return log


def write(log: Log) -> Path:
    log.path.write_text("".join(line + "\n" for line in log.lines))
    return log.path


def redact(ledger: Ledger, **selection: str) -> None:
    ledger.redactions.redact(Selection(**selection), reason="leaked", actor="ada")


def label_of(ledger: Ledger) -> str:
    return str(ledger.query("SELECT label FROM sessions")[1][0][0])


def archived(ledger: Ledger) -> bytes:
    return b"".join(
        data for file in ledger.sources.all_files() for data in ledger.sources.stream(file.id)
    )


@pytest.mark.parametrize(
    "selection", [{"text": TOKEN}, {"kind": "GitHub token"}, {"session": f"claude-code:{SESSION}"}]
)
def test_records_and_rows_lose_it_and_keep_their_ids(
    ledger: Ledger, address: str, tmp_path: Path, selection: dict[str, str]
) -> None:
    path = write(log_of(tmp_path / "logs"))
    import_paths(ledger, path)
    before = result(ledger)

    redact(ledger, **selection)

    after = result(ledger)
    for name in ("turns", "messages", "tool_calls"):
        assert [row[:2] for row in after[name]] == [row[:2] for row in before[name]]
    assert after["threads"] == before["threads"]
    assert TOKEN.encode() not in archived(ledger)
    assert len(archived(ledger)) == path.stat().st_size
    if "text" in selection:
        assert archived(ledger) == path.read_bytes().replace(TOKEN.encode(), STARS.encode())
    assert TOKEN not in repr(after)
    rederive(ledger)
    assert result(ledger) == after
    verification = ledger.verify()
    assert verification.findings == ()
    assert verification.redacted > 0
    ledger.close()
    assert left(address, TOKEN) == []


def test_the_same_file_stays_out_and_goes_on_growing(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    log = log_of(tmp_path / "logs")
    path = write(log)
    import_paths(ledger, path)
    redact(ledger, text=TOKEN)
    after = result(ledger)

    again = import_paths(ledger, path)
    path.touch()
    touched = import_paths(ledger, path)
    log.user("g", f"and {TOKEN} once more")
    log.assistant("h", text("As you like."))
    grown = import_paths(ledger, write(log))

    assert (again.counts.skipped, touched.counts.skipped) == (1, 1)
    assert grown.counts.upserted == 1
    assert len(ledger.sources.all_files()) == 1
    assert result(ledger)["turns"][: len(after["turns"]) - 1] == after["turns"][:-1]
    thread = ledger.thread(label_of(ledger))
    assert thread.turns[-1].messages[0].content == f"and {STARS} once more"
    ledger.close()
    assert left(address, TOKEN) == []


def test_a_copy_of_the_file_and_a_rewritten_one_stay_out(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    log = log_of(tmp_path / "logs")
    path = write(log)
    import_paths(ledger, path)
    redact(ledger, text=TOKEN)
    after = result(ledger)

    moved = tmp_path / "elsewhere" / path.name
    moved.parent.mkdir()
    moved.write_bytes(path.read_bytes())
    import_paths(ledger, moved)
    path.write_bytes(b'{"type": "summary", "summary": "s"}\n' + path.read_bytes())
    import_paths(ledger, path)

    assert result(ledger)["messages"] == after["messages"]
    assert TOKEN.encode() not in archived(ledger)
    ledger.close()
    assert left(address, TOKEN) == []


def test_the_key_is_private_and_not_in_the_ledger(
    ledger: Ledger, address: str, tmp_path: Path, key_of_this_test: Path
) -> None:
    import_paths(ledger, write(log_of(tmp_path / "logs")))
    redact(ledger, text=TOKEN)

    assert key_of_this_test.stat().st_mode & 0o777 == 0o600
    key = key_of_this_test.read_bytes()
    assert len(key) == 32
    ledger.close()
    assert not left(address, key.hex())
    if not address.startswith("postgresql"):
        assert all(key not in path.read_bytes() for path in Path(address).parent.glob("*.db*"))


def test_a_value_that_json_spells_otherwise_is_found(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    log = log_of(tmp_path / "logs", PHRASE)
    log.assistant("x", call("toolu_2", json.dumps({"body": json.dumps([PHRASE])})))
    import_paths(ledger, write(log))

    redact(ledger, text=PHRASE)

    kept = archived(ledger).decode()
    assert "heron" not in kept
    assert all(json.loads(line) for line in kept.splitlines())
    assert "heron" not in repr(result(ledger))
    ledger.close()
    assert left(address, "heron flies") == []


def test_rows_of_a_database_lose_it_and_it_stays_out(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    sessions, messages, parts = SAMPLE
    parts = [*parts, part("prt_0", "msg_1", "text", text=f"with {TOKEN}")]
    path = database(tmp_path / "agent" / "opencode.db", (sessions, messages, parts))
    import_paths(ledger, path)
    assert TOKEN.encode() in archived(ledger)
    before = result(ledger)

    redact(ledger, text=TOKEN)
    after = result(ledger)
    import_paths(ledger, path)
    with sqlite3.connect(path) as changed:
        changed.execute("UPDATE session SET title = 'other'")
    import_paths(ledger, path)

    assert [row[0] for row in after["turns"]] == [row[0] for row in before["turns"]]
    assert result(ledger)["messages"] == after["messages"]
    assert TOKEN.encode() not in archived(ledger)
    ledger.close()
    assert left(address, TOKEN) == []


def test_what_is_set_to_be_redacted_never_comes_in(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    ledger.secrets.set_handling("redact")
    log = log_of(tmp_path / "logs")
    import_paths(ledger, write(log))
    log.user("g", f"and {TOKEN} once more")
    import_paths(ledger, write(log))

    assert len(ledger.sources.all_files()) == 1
    assert ledger.thread(label_of(ledger)).turns[0].messages[0].content == (f"use {STARS} for this")
    assert ledger.secrets.report().total == 0
    ledger.close()
    assert left(address, TOKEN) == []


def test_a_copy_of_the_ledger_knows_what_stays_out(
    ledger: Ledger, address: str, tmp_path: Path
) -> None:
    path = write(log_of(tmp_path / "logs"))
    import_paths(ledger, path)
    redact(ledger, text=TOKEN)
    target = str(tmp_path / "copy" / "ledger.db")
    Path(target).parent.mkdir()

    copy(address, target)

    with Ledger.open(target) as other:
        assert other.redactions.latest() == ledger.redactions.latest()
        import_paths(other, path)
        path.write_bytes(b"\n" + path.read_bytes())
        import_paths(other, path)
        assert TOKEN.encode() not in archived(other)
    assert left(target, TOKEN) == []


def test_a_session_without_ids_of_its_own_keeps_those_it_got(
    ledger: Ledger, tmp_path: Path
) -> None:
    log = Rollout(tmp_path)
    for prompt in (f"use {TOKEN}", "what next?"):
        log.ask(prompt)
        log.say("It is done.")
    import_paths(ledger, log.save())
    before = result(ledger)

    redact(ledger, text=TOKEN)
    rederive(ledger)

    assert [row[0] for row in result(ledger)["turns"]] == [row[0] for row in before["turns"]]
    assert result(ledger)["sessions"] == before["sessions"]
