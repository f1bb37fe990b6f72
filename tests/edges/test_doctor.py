"""What doctor finds."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.maintenance import doctor
from tests.builders import chain
from tests.edges.conftest import Answer, Run, call
from tests.importers.claude_log import Log
from tests.trust.server import own_server, with_schema
from tests.waiting import until


def facts(answer: Answer) -> dict[str, Any]:
    """The facts by name."""
    assert answer.json["schema_version"] == 1
    return {fact["name"]: fact for fact in answer.json["facts"]}


def test_a_sound_ledger_file(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 3)
        with ledger.turn("main", "now"):
            answer = run("doctor", "--json")

    found = facts(answer)
    assert answer.code == 0
    assert found["engine"]["value"] == "sqlite"
    assert found["file_mode"]["value"] == 0o600
    assert found["file_bytes"]["value"] > 0
    assert found["wal_bytes"]["value"] > 0
    assert found["lock_holder"]["value"] is None
    assert found["turns"]["value"] == 4
    assert found["live_turns"]["value"] == 1
    assert found["writers"]["value"] == 1
    assert "dead_writers" not in found
    text = run("doctor").out
    assert "file mode       0600" in text
    assert "lock holder     nobody" in text


def test_standbys_that_may_miss_acknowledged_turns_are_noted(tmp_path: Path) -> None:
    """pg_receivewal is what a standby is to its server: a client of its log."""

    def standbys(ledger: str) -> dict[str, Any]:
        return {
            name: (fact["value"], fact["level"])
            for name, fact in facts(call("doctor", "--json", "--ledger", ledger)).items()
            if name.endswith("standbys")
        }

    with own_server() as server:
        ledger = with_schema(server.address, "team")
        Ledger.open(ledger).close()
        assert standbys(ledger) == {"standbys": (0, "ok"), "asynchronous_standbys": (0, "ok")}
        with server.standby(tmp_path):
            until(lambda: standbys(ledger)["standbys"][0] == 1)
            assert standbys(ledger)["asynchronous_standbys"] == (1, "note")

            server.set("synchronous_standby_names = '*'")
            until(lambda: standbys(ledger)["asynchronous_standbys"] == (0, "ok"))

            with psycopg.connect(server.address, autocommit=True) as connection:
                connection.execute("CREATE ROLE plain LOGIN")
                connection.execute("GRANT USAGE ON SCHEMA team TO plain")
                connection.execute("GRANT SELECT ON ALL TABLES IN SCHEMA team TO plain")
            plain = ledger.replace("//postgres:", "//plain:")
            assert standbys(plain)["asynchronous_standbys"] == (None, "note")


def test_a_file_that_others_can_read_is_a_problem(run: Run, file: str) -> None:
    Ledger.open(file).close()
    Path(file).chmod(0o644)

    answer = run("doctor")

    assert answer.code == 1
    assert "problem: others can read it" in answer.out
    assert facts(run("doctor", "--json"))["file_mode"]["level"] == "problem"


def test_the_holder_of_the_lock_is_named(run: Run, file: str) -> None:
    Ledger.open(file).close()
    script = f"""
import sys
from pathlib import Path
from agents_ledger.store.concurrency.locks import WriteQueue
with WriteQueue(Path({file!r}), 5):
    print(flush=True)
    sys.stdin.read()
"""
    with subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout
        holder.stdout.readline()
        found = facts(run("doctor", "--json"))
        holder.communicate(b"")

    assert found["lock_holder"]["value"] == holder.pid


def test_an_unreadable_ledger_is_reported_after_the_known_facts(run: Run, file: str) -> None:
    answer = run("doctor")

    assert answer.code == 3
    assert file in answer.out
    assert "python" in answer.out
    assert answer.err.startswith("error: there is no ledger")
    Path(file).write_bytes(b"x" * 9000)
    assert run("doctor").code == 6


@pytest.mark.parametrize(
    ("version", "level"),
    [
        ("3.40.1", "note"),
        ("3.44.5", "note"),
        ("3.44.6", "ok"),
        ("3.45.0", "note"),
        ("3.50.6", "note"),
        ("3.50.7", "ok"),
        ("3.51.2", "note"),
        ("3.51.3", "ok"),
        ("3.52.0", "ok"),
    ],
)
def test_versions_of_sqlite_that_can_damage_their_log(version: str, level: str) -> None:
    assert doctor._judge("sqlite_version", version).level == level


def test_a_server_must_keep_what_it_acknowledges(new_schema: Any) -> None:
    address = new_schema()
    Ledger.open(address).close()
    with psycopg.connect(address.partition("?schema")[0].partition("&schema")[0]) as connection:
        row = connection.execute("SELECT current_setting('fsync')").fetchone()

    answer = call("--ledger", address, "doctor", "--json")

    found = facts(answer)
    assert found["engine"]["value"] == "postgresql"
    assert found["fsync"]["value"] == (row or ("",))[0]
    assert found["bytes"]["value"] > 0
    assert found["schema"]["value"].startswith("test_")
    levels = {found[name]["level"] for name in ("fsync", "synchronous_commit", "full_page_writes")}
    assert answer.code == int("problem" in levels)
    assert found["fsync"]["level"] == ("ok" if found["fsync"]["value"] == "on" else "problem")
    assert doctor._judge("fsync", "off").level == "problem"
    assert doctor._judge("synchronous_commit", "remote_apply").level == "ok"


def test_files_that_their_agent_will_delete_are_named(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "elsewhere"
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", str(folder))
    for name, days in (("old", 9), ("older", 12), ("new", 1)):
        log = Log(folder / "projects" / "shop", name)
        log.user(name, "Begin.")
        at = time.time() - days * 86400
        os.utime(log.save(), (at, at))
    (folder / "settings.json").write_text('{"cleanupPeriodDays": 10}')

    remark = facts(run("doctor", "--json"))["source_claude-code"]["remark"]

    assert remark.startswith("3 not imported yet; claude-code will soon delete ")
    named = [Path(each).name for each in remark.split(" delete ")[1].split(", ")]
    assert named == ["older.jsonl (0 days left)", "old.jsonl (1 day left)"]
    run("import")
    assert facts(run("doctor", "--json"))["source_claude-code"]["remark"] == ""
