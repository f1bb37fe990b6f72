"""The first `up`: nothing is missing, the page opens at once, and printed commands work."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import sysconfig
import threading
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import pytest

from agents_ledger import Ledger
from agents_ledger.cli.servers.serve import REQUIRED_PACKAGES
from agents_ledger.importers.background_import import BackgroundImport, ImportJob
from agents_ledger.importers.discovery import FileSelection, HistoryFile, find
from agents_ledger.importers.pipeline import Importer, Progress, Report
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.limits import ImportLimits
from agents_ledger.model.installation.program import command_of
from tests.edges.conftest import Run, call
from tests.importers.claude_log import Log, text
from tests.waiting import PATIENCE_S

ROOT = Path(__file__).parents[2]
SCRIPT = Path(sys.executable).with_name("agents-ledger")
SITE = Path(sysconfig.get_path("purelib"))
BARE = ("msgspec", "platformdirs", "zstandard")
COMMAND = ("click", "rich", "markdown_it", "mdurl", "pygments")
needs_signals = pytest.mark.skipif(os.name == "nt", reason="signals")


def sessions_of_claude(folder: Path, count: int) -> list[Path]:
    """Logs of one turn each; the last one is the newest."""
    paths = []
    for number in range(count):
        log = Log(folder, f"{number:08}-0000-4000-8000-000000000000")
        log.user(f"{number}a", f"question {number}")
        log.assistant(f"{number}b", text("answer"))
        paths.append(log.save())
        os.utime(paths[-1], (1_700_000_000 + number, 1_700_000_000 + number))
    return paths


def history(home: Path) -> list[HistoryFile]:
    return find(Home(home, {}, "linux"))


def environment(home: Path, **more: str) -> dict[str, str]:
    """Without what could put the program on PATH, or the ledger elsewhere."""
    return {"HOME": str(home), "PATH": "/usr/bin:/bin", "COLUMNS": "100", **more}


# -- what is installed ------------------------------------------------------------------------


@pytest.mark.finding("users-16")
def test_the_page_and_mcp_need_no_extra() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    names = {re.split(r"[\[><=]", line)[0].replace("-", "_") for line in project["dependencies"]}

    assert {name.removesuffix("_py") for name in names} >= {*REQUIRED_PACKAGES, "mcp", "watchfiles"}


def only(packages: tuple[str, ...], tmp_path: Path) -> str:
    """The beginning of a script for a Python that has only these packages."""
    folder = tmp_path / "packages"
    folder.mkdir()
    for name in packages:
        spec = find_spec(name)
        assert spec is not None
        assert spec.origin is not None
        (folder / name).symlink_to(Path(spec.origin).parent)
    # How the program was installed.
    installed = next(SITE.glob("agents_ledger-*.dist-info"))
    (folder / installed.name).symlink_to(installed)
    return f"import sys; sys.path[:0] = [{str(ROOT / 'src')!r}, {str(folder)!r}]\n"


def bare_python(script: str, home: Path) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, "-I", "-S", "-c", script]
    env = environment(home)
    return subprocess.run(words, env=env, capture_output=True, text=True, check=False)


USES = """
from pathlib import Path
from agents_ledger import Ledger
from agents_ledger.importers.pipeline import import_paths

with Ledger.open("{folder}/ledger.db") as ledger:
    turn = ledger.record("main", "What changed?", "Two fixes.")
    ledger.fork("main", label="other")
    print(import_paths(ledger, [Path("{folder}/logs")]).counts.imported)
    print(len(ledger.search("fixes").hits), len(ledger.context("main").as_openai()["messages"]))
    print(ledger.audit())
"""


@pytest.mark.finding("users-16")
def test_the_bare_library_needs_three_packages(tmp_path: Path) -> None:
    sessions_of_claude(tmp_path / "logs", 2)

    done = bare_python(only(BARE, tmp_path) + USES.format(folder=tmp_path), tmp_path)

    assert (done.stdout, done.stderr) == ("2\n1 2\n()\n", "")


@pytest.mark.finding("users-16")
@pytest.mark.parametrize("word", ["up", "serve"])
def test_without_the_page_up_refuses_before_it_does_anything(word: str, tmp_path: Path) -> None:
    script = f"""
sys.argv = ["agents-ledger", "--ledger", "{tmp_path}/ledger.db", "{word}"]
from agents_ledger.cli.main import main
main()
"""
    done = bare_python(only((*BARE, *COMMAND), tmp_path) + script, tmp_path)

    assert done.returncode == 5
    assert "litestar" in done.stderr
    assert "Install it with: " in done.stderr
    assert not (tmp_path / "ledger.db").exists()


# -- printed commands -------------------------------------------------------------------------


@pytest.mark.finding("users-23")
def test_labels_in_suggested_commands_are_quoted(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        for number in range(6):
            ledger.record(f"my notes {number}", "q", "r")

    printed = run("up", "--no-serve", "--no-import").err

    assert re.search(r"show 'my notes \d'\n", printed)
    assert "`agents-ledger tree --limit 10`" in printed  # not an option that `up` has not


@pytest.mark.finding("users-30")
@pytest.mark.parametrize(("sessions", "last"), [(0, "claude"), (1, str(SCRIPT)[1:])])
def test_commands_work_as_they_are_printed(tmp_path: Path, sessions: int, last: str) -> None:
    sessions_of_claude(tmp_path / ".claude" / "projects" / "shop", sessions)
    env = environment(tmp_path)
    up = subprocess.run(
        [SCRIPT, "up", "--no-serve"], cwd="/", env=env, capture_output=True, text=True, check=True
    )
    lines = up.stderr.partition("Try next:")[2].strip().splitlines()
    commands = [re.split(r" {2,}", line.strip(), maxsplit=1)[1] for line in lines]

    assert [shlex.split(line)[0] for line in commands] == [str(SCRIPT)[1:]] * 4 + [last]
    for line in commands:
        # Agents start what stands after the dashes, in a folder of their own.
        typed = line.partition(" -- ")[2] or line
        done = subprocess.run(
            ["sh", "-c", typed],
            cwd="/",
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, "Traceback" in done.stderr) == (0, False), (typed, done.stderr)


@pytest.mark.finding("users-30")
def test_hints_name_the_program_as_it_must_be_typed(tmp_path: Path) -> None:
    venv = tmp_path / "clone" / ".venv"
    (venv / "bin").mkdir(parents=True)
    script = venv / "bin" / "agents-ledger"
    shutil.copy(SCRIPT, script)

    done = subprocess.run(
        [script, "sessions"],
        cwd=tmp_path / "clone",
        env=environment(tmp_path),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 3
    assert "`.venv/bin/agents-ledger up`" in done.stderr


@pytest.mark.finding("users-30")
def test_the_name_is_printed_only_where_a_shell_finds_this_program(tmp_path: Path) -> None:
    script = tmp_path / "a venv" / "bin" / "agents-ledger"
    script.parent.mkdir(parents=True)
    script.touch(mode=0o755)
    on_path, elsewhere = {"PATH": str(script.parent)}, {"PATH": "/usr/bin"}

    assert command_of(str(script), on_path, None) == "agents-ledger"
    assert command_of(str(script), elsewhere, None) == shlex.quote(str(script))
    assert command_of(str(script), elsewhere, tmp_path) == "'a venv/bin/agents-ledger'"
    # uv puts the folder on the PATH of this process alone.
    assert command_of(str(script), {**on_path, "UV": "/bin/uv"}, None) == shlex.quote(str(script))
    assert command_of("pytest", elsewhere, None) == "agents-ledger"


# -- a ledger that is not there yet -----------------------------------------------------------


def test_servers_and_tokens_create_the_ledger(tmp_path: Path) -> None:
    env = environment(tmp_path)
    for number, words in enumerate((["token", "create", "ci"], ["mcp"], ["mcp", "--write"])):
        address = tmp_path / f"{number}.db"
        done = subprocess.run(
            [SCRIPT, "--ledger", address, *words],
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )

        assert done.returncode == 0, done.stderr
        assert address.exists()


def test_reading_a_ledger_that_is_not_there_says_how_to_create_it(run: Run, file: str) -> None:
    answer = run("token", "list")

    assert answer.code == 3
    assert f"`agents-ledger --ledger {file} up`" in answer.err
    assert "`agents-ledger up`" in call("token", "list").err


# -- the import behind the page ---------------------------------------------------------------


def test_the_newest_session_is_imported_first(ledger: Ledger, tmp_path: Path) -> None:
    sessions_of_claude(tmp_path / ".claude" / "projects" / "shop", 4)
    stop = threading.Event()

    def stop_at_the_first(_: float) -> None:
        if ledger.sessions():
            stop.set()

    importer = Importer(ledger, limits=ImportLimits(first_batch_bytes=1))
    importer.run(history(tmp_path), stop_at_the_first, stop)
    first = [session.label for session in ledger.sessions()]
    Importer(ledger).run(history(tmp_path))

    assert first == ["claude-code:00000003-0000-4000-8000-000000000000"]
    assert len(ledger.sessions()) == 4
    assert ledger.audit() == ()


def test_an_import_that_is_stopped_is_continued_by_the_next(ledger: Ledger, tmp_path: Path) -> None:
    sessions_of_claude(tmp_path / ".claude" / "projects" / "shop", 4)
    stop = threading.Event()

    def stop_at_once(_: float) -> None:
        stop.set()

    # One file is archived, and nothing is derived of it.
    Importer(ledger).run(history(tmp_path), stop_at_once, stop)
    stopped = len(ledger.sessions())
    report = Importer(ledger).run(history(tmp_path))

    assert stopped == 0
    assert (report.counts.imported, report.counts.failed) == (4, 0)
    assert ledger.audit() == ()


class Gate:
    """A progress bar that stops the import until it is opened."""

    def __init__(self) -> None:
        self.reached = threading.Event()
        self.open = threading.Event()

    @contextmanager
    def progress(self) -> Iterator[Progress]:
        yield self._tick

    def _tick(self, _: float) -> None:
        self.reached.set()
        assert self.open.wait(PATIENCE_S)


def test_an_import_behind_the_page_tells_how_far_it_is(ledger: Ledger, tmp_path: Path) -> None:
    sessions_of_claude(tmp_path / ".claude" / "projects" / "shop", 3)
    home, gate, ended = Home(tmp_path, {}, "linux"), Gate(), threading.Event()
    imports = BackgroundImport(ledger, home, FileSelection())
    files = history(tmp_path)

    imports.start(
        ImportJob(files=files, report=Report(), progress=gate.progress(), on_end=ended.set)
    )
    assert gate.reached.wait(PATIENCE_S)
    status = imports.status
    imports.start_all()  # one at a time
    gate.open.set()

    assert ended.wait(PATIENCE_S)
    assert status is not None
    assert status.sources == ("claude-code",)
    assert 0 < status.done_bytes < status.total_bytes == sum(file.size for file in files)
    assert imports.status is None
    assert len(ledger.sessions()) == 3


@needs_signals
def test_ctrl_c_during_the_import_loses_nothing(tmp_path: Path) -> None:
    sessions_of_claude(tmp_path / ".claude" / "projects" / "shop", 150)
    env = environment(tmp_path)
    process = subprocess.Popen(
        [SCRIPT, "up", "--port", "0", "--no-browser"],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    address = process.stdout.readline()  # before anything is imported
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=PATIENCE_S)
    again = subprocess.run(
        [SCRIPT, "up", "--no-serve"], env=env, capture_output=True, text=True, check=True
    )

    assert address.startswith("http://127.0.0.1:")
    assert "Traceback" not in err
    assert process.returncode in (0, 130, -signal.SIGINT)
    with Ledger.open(str(tmp_path / ".local/share/agents-ledger/ledger.db")) as ledger:
        assert len(ledger.sessions(limit=1000)) == 150
        assert ledger.audit() == ()
    assert "failed 0" in again.stderr
