"""The command as a process: it starts quickly, ends cleanly, and asks nothing."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.cli.main import COMMANDS
from tests.builders import chain
from tests.waiting import PATIENCE_S

PROGRAM = (sys.executable, "-c", "from agents_ledger.cli.main import main; main()")


def started(*words: str, **options: object) -> subprocess.Popen[str]:
    given = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([*PROGRAM, *words], text=True, **{**given, **options})  # type: ignore[call-overload,no-any-return]


def finished(*words: str) -> tuple[int, str, str]:
    process = started(*words)
    out, err = process.communicate(timeout=PATIENCE_S)
    return process.returncode, out, err


def imported(words: Sequence[str]) -> set[str]:
    """The modules that a call of the program imports."""
    script = f"""
import sys
sys.argv = ["agents-ledger", *{list(words)!r}]
from agents_ledger.cli.main import main
try:
    main()
except SystemExit:
    print("", *sys.modules, sep="\\n", file=sys.stderr)
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(done.stderr.split())


def test_help_imports_neither_commands_nor_what_they_need() -> None:
    modules = imported(["--help"])

    assert {name for name in modules if name.startswith("agents_ledger")} == {
        "agents_ledger",
        "agents_ledger.cli",
        "agents_ledger.cli.main",
    }
    assert not modules & {"rich", "sqlite3", "msgspec", "platformdirs", "importlib.metadata"}


# Each takes milliseconds to import, and none of these commands needs it.
SLOW = {
    "asyncio", "csv", "difflib", "hashlib", "importlib.metadata", "jinja2", "logging",
    "markdown_it", "rich.console", "shutil", "subprocess", "tempfile", "zoneinfo",
    "agents_ledger.ledger.search.words.tokenizer", "agents_ledger.model.reports.prices",
}  # fmt: skip
OURS_MAX = 130  # modules of this package; a command that only reads needs about 125


@pytest.mark.parametrize(
    ("words", "needed"),
    [
        (["sessions"], set()),
        (["show", "main"], set()),
        (["tree"], set()),
        (["history", "main"], set()),
        (["alias", "main"], set()),
        (["sql", "SELECT 1"], set()),
        (["usage", "--utc"], {"csv", "agents_ledger.model.reports.prices"}),
        (["search", "question"], {"agents_ledger.ledger.search.words.tokenizer"}),
    ],
)
def test_a_command_imports_little(
    file: str, words: list[str], needed: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "A question · with a sign", "An answer…")
    monkeypatch.setenv("AGENTS_LEDGER", file)

    modules = imported(words)

    assert modules & SLOW <= needed
    assert len([name for name in modules if name.startswith("agents_ledger")]) <= OURS_MAX


def test_completing_a_label_does_not_import_what_prints_turns(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    Ledger.open(file).close()
    for name, value in {
        "AGENTS_LEDGER": file,
        "_AGENTS_LEDGER_COMPLETE": "bash_complete",
        "COMP_WORDS": "agents-ledger show m",
        "COMP_CWORD": "2",
    }.items():
        monkeypatch.setenv(name, value)

    modules = imported([])

    assert "agents_ledger.ledger.ledger" in modules
    assert not modules & {*SLOW, "agents_ledger.cli.explore.turn_printer", "rich.cells"}


def test_help_lists_every_command() -> None:
    code, out, err = finished("--help")

    assert (code, err) == (0, "")
    for name, (_, about) in COMMANDS.items():
        assert name in out
        assert about in out


def test_the_version_is_printed() -> None:
    code, out, _ = finished("--version")

    assert code == 0
    assert out.split()[-1][0].isdigit()


def test_a_reader_that_stops_reading_is_no_error(file: str) -> None:
    with Ledger.open(file) as ledger:
        chain(ledger, "main", 300)
    reading, writing = os.pipe()
    process = started("--ledger", file, "show", "main", "--last", "300", stdout=writing)
    os.close(writing)
    os.read(reading, 100)
    os.close(reading)

    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 141
    assert err == ""


READS = """
import io, signal, sys
from agents_ledger.cli.main import main

class Told(io.StringIO):
    def read(self, *_):
        print("reads", flush=True)
        return sys.__stdin__.read()

signal.signal(signal.SIGINT, signal.default_int_handler)
sys.stdin = Told()
main()
"""


@pytest.mark.skipif(os.name == "nt", reason="signals")
def test_an_interrupt_ends_with_130_and_no_trace(file: str) -> None:
    Ledger.open(file).close()
    process = subprocess.Popen(
        [sys.executable, "-c", READS, "--ledger", file, "sql", "-"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "reads\n"
    process.send_signal(signal.SIGINT)

    _, err = process.communicate(timeout=PATIENCE_S)

    assert process.returncode == 130
    assert "Traceback" not in err


EARLY = """
import sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == {module!r}:
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
sys.argv = ["agents-ledger", "sessions"]
from agents_ledger.__main__ import main
main()
"""


@pytest.mark.finding("users-29")
@pytest.mark.parametrize("module", ["click", "agents_ledger.cli.sessions.sessions"])
def test_an_interrupt_while_modules_are_imported_leaves_no_trace(module: str) -> None:
    script = EARLY.format(module=module)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert (done.returncode, done.stderr.strip()) == (130, "")


AT_EXIT = """
import atexit, sys, threading, time

class Heavy:
    def __del__(self):
        print("freed")

heavy = Heavy()
atexit.register(print, "at exit")
sys.argv = ["agents-ledger", {word!r}]
def write_late():
    time.sleep(1.5)
    print("thread")

if {threads}:
    threading.Thread(target=write_late).start()
from agents_ledger.__main__ import main
main()
"""


@pytest.mark.parametrize(("word", "code"), [("--version", 0), ("no-such-command", 2)])
def test_a_process_ends_without_freeing_its_objects(word: str, code: int) -> None:
    def run(*, threads: bool) -> tuple[int, list[str]]:
        script = AT_EXIT.format(word=word, threads=threads)
        # Buffered, so that output that is not flushed would be lost.
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
        done = subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=False,
            env=environment,
        )
        return done.returncode, [
            line for line in done.stdout.splitlines() if not line.startswith("agents-ledger")
        ]

    assert run(threads=False) == (code, ["at exit"])
    assert run(threads=True) == (code, ["thread", "at exit", "freed"])


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_shells_can_complete(shell: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("_AGENTS_LEDGER_COMPLETE", f"{shell}_source")
    script = "import sys; sys.argv[0] = 'agents-ledger'; " + PROGRAM[2]

    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False
    )

    assert "_AGENTS_LEDGER_COMPLETE" in done.stdout


def test_names_of_commands_and_sessions_are_completed(
    file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Ledger.open(file) as ledger:
        ledger.create_session("release-notes")
        ledger.create_session("release\x1b[2J")
        ledger.create_session("claude-code:6b6f4218")
        ledger.create_session("claude-code:d1d5001b")
    monkeypatch.setenv("_AGENTS_LEDGER_COMPLETE", "bash_complete")
    monkeypatch.setenv("AGENTS_LEDGER", file)

    def completions(line: str) -> list[str]:
        words = line.split(" ")
        monkeypatch.setenv("COMP_WORDS", line)
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        script = "import sys; sys.argv[0] = 'agents-ledger'; " + PROGRAM[2]
        done = subprocess.run(
            [sys.executable, "-c", script], capture_output=True, text=True, check=False
        )
        return [entry.split(",", 1)[1] for entry in done.stdout.split()]

    assert completions("agents-ledger ses") == ["sessions"]
    assert completions("agents-ledger show rel") == ["release-notes"]
    assert "--last" in completions("agents-ledger show --")
    # Bash splits a word at its colons, and replaces what follows the last of them.
    assert completions("agents-ledger show claude-code : d1") == ["d1d5001b"]
    assert set(completions("agents-ledger show claude-code :")) == {"6b6f4218", "d1d5001b"}
    assert completions("agents-ledger compare claude-code : d1d5001b rel") == ["release-notes"]
    # Unless COMP_WORDBREAKS has none.
    assert completions("agents-ledger show claude-code:d1") == ["claude-code:d1d5001b"]
    monkeypatch.setenv("AGENTS_LEDGER", str(Path(file).with_name("none.db")))
    assert completions("agents-ledger show rel") == []
