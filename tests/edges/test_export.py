"""export, for people and in JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from agents_ledger import Ledger
from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, Log, text

SECRET = "ghp_" + "aB3dE6gH9jK2mN5pQ8rS1tU4vW7xY0zA3bC6"


@pytest.fixture
def ledger(file: str) -> Iterator[Ledger]:
    with Ledger.open(file) as opened:
        opened.record("main", f"Use {SECRET}.", "Done.")
        yield opened


@pytest.mark.parametrize(
    ("name", "begins"),
    [
        ("a.md", "# main"),
        ("a.json", "{"),
        ("a.jsonl", '{"role"'),
        ("a.html", "<!doctype html>"),
    ],
)
def test_the_file_extension_selects_the_format(
    run: Run, ledger: Ledger, tmp_path: Path, name: str, begins: str
) -> None:
    answer = run("export", "main", "-o", str(tmp_path / name))

    assert answer.code == 0
    assert answer.out.strip() == str(tmp_path / name)
    assert answer.err.startswith("masked 1 GitHub token; --review")
    told = (tmp_path / name).read_text(encoding="utf-8")
    assert told.lstrip().startswith(begins)
    assert SECRET not in told


def test_it_is_printed_without_an_output(run: Run, ledger: Ledger) -> None:
    assert run("export", "main", "--format", "markdown").out.startswith("# main\n")
    assert json.loads(run("export", "main", "--format", "json").out)["turns"]
    assert SECRET in run("export", "main", "--format", "markdown", "--no-mask").out


def test_the_review_writes_nothing(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    answer = run("export", "main", "--review", "--output", str(tmp_path / "a.md"))

    assert "GitHub token" in answer.out
    assert "user message, content" in answer.out
    assert SECRET not in answer.out
    assert not (tmp_path / "a.md").exists()
    [one] = run("export", "main", "--review", "--json").json["masked"]
    assert (one["kind"], one["count"]) == ("GitHub token", 1)
    clean = ledger.record("clean", "q", "a")
    assert run("export", clean.id, "--review").err == "No secrets detected.\n"


def test_json_names_the_file_and_what_was_masked(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    file = str(tmp_path / "a.html")

    answer = run("export", "main", "--output", file, "--json").json

    assert answer["files"] == [file]
    assert answer["masked"][0]["kind"] == "GitHub token"


def test_nothing_is_written_over(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    there = tmp_path / "a.md"
    there.write_text("mine", encoding="utf-8")

    assert run("export", "main", "--output", str(there)).code == 5
    assert there.read_text(encoding="utf-8") == "mine"
    assert run("export", "main", "--output", str(tmp_path / "no" / "a.md")).code == 5
    assert run("export", "nobody", "--output", str(tmp_path / "b.md")).code == 3
    assert not (tmp_path / "b.md").exists()


def test_recorded_sessions_are_exported_as_markdown_by_default(
    run: Run, ledger: Ledger, tmp_path: Path
) -> None:
    turn = ledger.thread("main").turn_id
    answer = run("export", "main", "--format", "source")

    assert answer.code == 3
    assert "choose another format" in answer.err
    assert run("export", "main").out.startswith("# main\n")
    assert run("export", str(turn)).out == run("export", str(turn), "--format", "markdown").out
    assert run("export", "main", "--output", str(tmp_path / "plain")).code == 0
    assert (tmp_path / "plain").read_text(encoding="utf-8").startswith("# main\n")


@pytest.mark.parametrize("name", ["a.pdf", "a.md.gz"])
def test_an_unknown_file_extension_is_refused(
    run: Run, ledger: Ledger, tmp_path: Path, name: str
) -> None:
    answer = run("export", "main", "--output", str(tmp_path / name))

    assert answer.code == 5
    assert "has the unknown extension" in answer.err
    assert not (tmp_path / name).exists()
    assert run("export", "main", "--output", str(tmp_path / name), "--format", "json").code == 0


def test_a_folder_is_not_written_to(run: Run, ledger: Ledger, tmp_path: Path) -> None:
    answer = run("export", "main", "--output", str(tmp_path))

    assert answer.code == 5
    assert "is a folder" in answer.err


@pytest.mark.finding("users-22")
def test_an_imported_session_is_exported_as_masked_markdown(run: Run, tmp_path: Path) -> None:
    log = Log(tmp_path / "claude")
    log.user("a1", f"Use {SECRET}.")
    log.assistant("a2", text("Done."))
    run("import", str(log.save()))

    answer = run("export", f"claude-code:{SESSION}")

    assert answer.code == 0
    assert answer.out.startswith("# ")
    assert SECRET not in answer.out
    assert "masked 1 GitHub token" in answer.err
    assert SECRET in run("export", f"claude-code:{SESSION}", "--format", "source").out


@pytest.mark.finding("users-32")
def test_all_sessions_are_exported_to_a_private_folder(
    run: Run, ledger: Ledger, tmp_path: Path
) -> None:
    ledger.record("dm: Ann/Bob", "Hello", "Hi", model="claude-opus-4-8")
    ledger.record("DM ann bob", "Hello", "Hi", workspace_path="/home/dev/shop")
    ledger.record("売上" * 250, "Hello", "Hi")  # longer than a file name may be
    ledger.create_session("empty")
    folder = tmp_path / "out" / "all"

    answer = run("export", "--all", "-o", str(folder), "--json")

    names = {Path(path).name for path in answer.json["files"]}
    assert "main.md" in names
    assert len({name.lower() for name in names}) == 4
    assert {path.name for path in folder.iterdir()} == names
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o600}
    assert not any(SECRET in path.read_text(encoding="utf-8") for path in folder.iterdir())
    assert "not an empty folder" in run("export", "--all", "-o", str(folder)).err

    def selected(*words: str) -> list[str]:
        target = tmp_path / "-".join(words).strip("-")
        answer = run("export", "--all", *words, "-o", str(target), "--format", "json")
        assert answer.code == 0
        return sorted(path.name for path in target.iterdir())

    assert selected("--model", "opus") == ["dm-Ann-Bob.json"]
    assert selected("--project", "shop") == ["DM-ann-bob.json"]
    assert len(selected("--since", "1h")) == 4
    assert selected("--until", "1h") == []
    assert selected("--origin", "codex") == []


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["main", "--all"], "Give a TARGET, --all"),
        (["--all"], "--all needs a folder"),
        (["main", "--origin", "codex"], "--origin require --all"),
        (["--all", "--format", "source", "-o", "x"], "--file SOURCE"),
        (["main", "--format", "source", "--last", "1"], "--last does not apply"),
        (["--all", "--file", "codex"], "--all does not apply to source files"),
    ],
)
def test_contradicting_options_are_refused(
    run: Run, ledger: Ledger, words: list[str], message: str
) -> None:
    answer = run("export", *words)

    assert answer.code == 2
    assert message in answer.err


def test_the_secrets_of_all_sessions_can_be_reviewed(run: Run, ledger: Ledger) -> None:
    ledger.record("other", f"Use {SECRET}.", "Done.")

    assert len(run("export", "--all", "--review", "--json").json["masked"]) == 2
