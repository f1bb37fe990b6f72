"""Retention: what is due goes, what is held or too young stays, and each run is recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from agents_ledger import Ledger, NotFound
from agents_ledger.model.ids import now_ms
from agents_ledger.model.retention import LegalHold, RetentionPolicy, RetentionRule
from tests.contract.test_redaction import left
from tests.importers.claude_log import Log
from tests.importers.helping import import_paths
from tests.importers.test_redacted_sources import call, text, write

YEAR_MS = 366 * 86_400_000


@pytest.fixture(autouse=True)
def key_of_this_test(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AGENTS_LEDGER_REDACTION_KEY", str(tmp_path / "keys" / "redaction.key"))


def policy(action: str, **rule: object) -> RetentionPolicy:
    named = RetentionRule("old", action, **{"older_than_days": 90, **rule})  # type: ignore[arg-type]
    return RetentionPolicy(rules=(named,))


def told(ledger: Ledger) -> None:
    ledger.record("work", "a juniper", "junipers", workspace_path="/home/dev/shop/src")
    ledger.record("play", "a cedar", "cedars", persona_id="games")
    fork = ledger.record("base", "a rowan", "rowans")
    ledger.fork(fork.id, label="branch")
    ledger.record("branch", "a birch", "birches")


def statuses(ledger: Ledger) -> dict[str, str]:
    return dict(ledger.query("SELECT label, status FROM sessions")[1])


def test_what_is_due_is_archived_and_the_run_recorded(ledger: Ledger) -> None:
    told(ledger)
    rules = policy("archive", projects=("/home/dev/shop",))

    dry = ledger.retention.run(rules, actor="ada", at=now_ms() + YEAR_MS, dry_run=True)
    assert statuses(ledger)["work"] == "active"
    assert ledger.retention.latest() == ()
    report = ledger.retention.run(rules, actor="ada", at=now_ms() + YEAR_MS)

    assert [s.label for s in dry.sessions] == [s.label for s in report.sessions] == ["work"]
    assert statuses(ledger) == {
        "work": "archived", "play": "active", "base": "active", "branch": "active"
    }  # fmt: skip
    assert ledger.retention.latest() == (report,)


def test_holds_and_the_minimum_time_win(ledger: Ledger) -> None:
    told(ledger)
    rules = policy("archive")
    held = RetentionPolicy(rules=rules.rules, holds=(LegalHold("case 7", personas=("games",)),))
    young = RetentionPolicy(keep_at_least_days=400, rules=rules.rules)

    assert ledger.retention.run(young, actor="ada", at=now_ms() + YEAR_MS).sessions == ()
    ledger.retention.run(held, actor="ada", at=now_ms() + YEAR_MS)

    assert statuses(ledger)["play"] == "active"
    assert statuses(ledger)["work"] == "archived"


def test_content_is_redacted_and_what_others_share_stays(ledger: Ledger, address: str) -> None:
    told(ledger)
    rules = RetentionPolicy(
        rules=(RetentionRule("old", "redact", older_than_days=1),),
        holds=(LegalHold("in use", sessions=("branch", "play")),),
    )

    ledger.retention.run(rules, actor="ada", at=now_ms() + YEAR_MS)

    texts = [row[0] for row in ledger.query("SELECT content FROM messages")[1]]
    assert {"a cedar", "a rowan", "rowans", "a birch"} <= set(texts)
    assert "a juniper" not in texts
    assert ledger.thread("work").turns[0].messages[0].content == "*********"
    ledger.close()
    assert left(address, "juniper") == []


def test_only_large_sessions_are_due(ledger: Ledger) -> None:
    ledger.record("large", "x" * 3000, "y")
    ledger.record("small", "x", "y")

    report = ledger.retention.run(
        policy("archive", larger_than_mb=0.002), actor="ada", at=now_ms() + YEAR_MS
    )

    assert [session.label for session in report.sessions] == ["large"]


def test_whole_trees_are_purged_and_shared_ones_redacted(ledger: Ledger, address: str) -> None:
    told(ledger)
    ledger._core.index(least=1)
    held = LegalHold("in use", sessions=("branch",))
    rules = RetentionPolicy(rules=policy("purge").rules, holds=(held,))

    report = ledger.retention.run(rules, actor="ada", at=now_ms() + YEAR_MS)

    kept = {session.label: bool(session.kept_because) for session in report.sessions}
    assert kept == {"work": False, "play": False, "base": True}
    assert set(statuses(ledger)) == {"base", "branch"}
    with pytest.raises(NotFound):
        ledger.thread("work")
    assert [t.messages[0].content for t in ledger.thread("branch").turns] == ["a rowan", "a birch"]
    assert ledger.audit() == ()
    assert ledger.verify().findings == ()
    assert ledger.verify().purged > 0
    ledger.close()
    assert left(address, "juniper") == []
    assert left(address, "cedar") == []


def test_a_purged_file_stays_out(ledger: Ledger, address: str, tmp_path: Path) -> None:
    log = Log(tmp_path)
    log.user("a", "plant a juniper")
    log.assistant("b", text("it grows"), call("toolu_1", "echo juniper"))
    path = write(log)
    import_paths(ledger, path)
    path.touch()

    ledger.retention.run(policy("purge", older_than_days=0), actor="ada", at=now_ms() + YEAR_MS)
    import_paths(ledger, path)

    assert ledger.query("SELECT count(*) FROM turns")[1] == [(0,)]
    assert ledger.query("SELECT count(*) FROM sessions")[1] == [(0,)]
    assert b"".join(ledger.sources.stream(ledger.sources.all_files()[0].id)) == b""
    ledger.close()
    path.unlink()
    assert left(address, "juniper") == []
