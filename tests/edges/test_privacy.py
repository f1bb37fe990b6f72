"""secrets, redact, retention and encrypted files, as a user calls them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.contract.test_redaction import TOKEN, left
from tests.edges.conftest import Run

PASSPHRASE = "three plain words"


@pytest.fixture
def ledger(file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Ledger]:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "home" / "config"))
    with Ledger.open(file) as opened:
        opened.record("main", f"use {TOKEN}", "done")
        opened.record("old", "a juniper", "junipers")
        yield opened


def test_a_look_before_it_is_removed(run: Run, ledger: Ledger, file: str, tmp_path: Path) -> None:
    looked = run("redact", "--text", TOKEN, "--dry-run")
    assert (looked.code, TOKEN in looked.out) == (0, False)
    assert "messages.content" in looked.out
    assert "to remove: 1 value in rows" in looked.out

    assert run("redact", "--text", TOKEN).code == 2  # it cannot ask
    assert TOKEN in repr(ledger.thread("main"))
    done = run("redact", "--text", "-", "--reason", "leaked", "--yes", input=TOKEN + "\n")

    assert done.code == 0
    assert TOKEN not in done.out + done.err
    assert "Backups, copies and exports made before still contain it" in done.err
    assert TOKEN not in repr(ledger.thread("main"))
    listed = run("redact", "--list", "--json").json["redactions"]
    assert [(each["reason"], each["selection"]) for each in listed] == [
        ("leaked", {"text": "(not kept)"})
    ]
    assert "leaked" in run("redact", "--list").out
    assert run("redact", "--finish").code == 0
    key = tmp_path / "home" / "config" / "agents-ledger" / "redaction.key"
    assert key.stat().st_mode & 0o777 == 0o600
    ledger.close()
    assert left(file, TOKEN) == []


def test_what_is_no_selection_is_refused(run: Run, ledger: Ledger) -> None:
    assert run("redact", "--yes").code == 5
    assert run("redact", "--text", "a", "--pattern", "b", "--yes").code == 5
    assert run("redact", "--session", "nobody", "--yes").code == 3
    assert "nothing matches" in run("redact", "--text", "no such words", "--yes").out


def test_rules_of_retention_are_shown_then_applied(run: Run, ledger: Ledger, file: str) -> None:
    assert "kept for ever" in run("retention").out
    Path(file).with_suffix(".policy.toml").write_text(
        '[[retention.rules]]\nname = "all"\naction = "redact"\nolder_than_days = 0\n'
        '[[retention.holds]]\nreason = "case"\nsessions = ["ma*"]\n'
    )

    dry = run("retention", "--dry-run")
    assert "old" in dry.out
    assert "main" not in dry.out
    assert run("retention").code == 2
    assert run("retention", "--yes").code == 0

    assert "juniper" not in repr(ledger.thread("old"))
    assert TOKEN in repr(ledger.thread("main"))
    assert len(run("retention", "--list", "--json").json["runs"]) == 1


def test_a_backup_is_encrypted_and_restored(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    backup, target = tmp_path / "ledger.backup", tmp_path / "restored.db"

    assert run("backup", str(backup), "--encrypt").code == 2  # no passphrase
    said = {"AGENTS_LEDGER_PASSPHRASE": PASSPHRASE}
    assert run("backup", str(backup), "--encrypt", **said).code == 0

    assert TOKEN.encode() not in backup.read_bytes()
    assert b"SQLite format" not in backup.read_bytes()
    wrong = run("restore", str(backup), str(target), AGENTS_LEDGER_PASSPHRASE="other words")
    assert "passphrase is wrong" in wrong.err
    assert not target.exists()
    assert run("restore", str(backup), str(target), **said).code == 0
    with Ledger.open(str(target)) as other:
        assert TOKEN in repr(other.thread("main"))
    assert sorted(path.name for path in tmp_path.iterdir() if "unfinished" in path.name) == []


def test_an_export_is_encrypted_and_decrypted(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    path, plain = tmp_path / "main.md", tmp_path / "plain.md"
    said = {"AGENTS_LEDGER_PASSPHRASE": PASSPHRASE}

    assert run("export", "old", "--encrypt", **said).code == 2
    assert run("export", "old", "-o", str(path), "--encrypt", **said).code == 0
    assert b"juniper" not in path.read_bytes()
    assert run("decrypt", str(path), str(plain), AGENTS_LEDGER_PASSPHRASE="x").code == 5
    assert not plain.exists()
    assert run("decrypt", str(path), str(plain), **said).code == 0

    assert "a juniper" in plain.read_text()
