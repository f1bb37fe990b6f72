"""watch, as a user calls it."""

from __future__ import annotations

import json
import os
import plistlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from configparser import ConfigParser
from pathlib import Path

import pytest
import watchfiles

from agents_ledger import Ledger
from agents_ledger.importers import watch
from agents_ledger.importers.pipeline import Report
from agents_ledger.importers.port.homes import Home
from tests.edges.conftest import Run
from tests.importers.claude_log import SESSION, a_log, text
from tests.waiting import PATIENCE_S, until

IDLE_S = 10
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="it is measured by /proc")
OTHER = "22222222-2222-4222-8222-222222222222"


class Watched:
    """A watch that runs beside the test."""

    def __init__(self, file: str, home: Path) -> None:
        self.reports: list[Report] = []
        self.ledger = Ledger.open(file)
        self.stop = threading.Event()
        self.thread = threading.Thread(
            target=watch.watch,
            args=(self.ledger, Home(home, {}, "linux")),
            kwargs={"on_report": self.reports.append, "stop": self.stop, "wait_ms": 200},
        )
        self.thread.start()

    def close(self) -> None:
        self.stop.set()
        self.thread.join(PATIENCE_S)
        self.ledger.close()


def test_what_is_written_is_imported_as_it_is_written(
    projects: Path, file: str, tmp_path: Path
) -> None:
    log = a_log(projects)
    watched = Watched(file, tmp_path / "home")
    try:
        time.sleep(0.5)  # until the system tells of changes
        log.user("b1", "More.")
        log.assistant("b2", text("Said."))
        log.save()
        until(lambda: bool(watched.reports))

        assert watched.ledger.session(f"claude-code:{SESSION}").thread_id
        codex = tmp_path / "home" / ".codex" / "sessions"
        codex.mkdir(parents=True)  # an agent that was installed meanwhile
        time.sleep(0.6)
        head = {"id": OTHER, "cwd": "/shop", "timestamp": "2026-03-01T10:00:00Z"}
        asked = {"type": "user_message", "message": "Begin."}
        (codex / f"rollout-2026-03-01T10-00-00-{OTHER}.jsonl").write_text(
            json.dumps({"timestamp": head["timestamp"], "type": "session_meta", "payload": head})
            + "\n"
            + json.dumps({"timestamp": head["timestamp"], "type": "event_msg", "payload": asked})
            + "\n"
        )
        until(lambda: len(watched.reports) > 1)
        assert watched.ledger.sessions(limit=10)
    finally:
        watched.close()


def test_whole_folders_that_come_and_go_are_followed(
    projects: Path, file: str, tmp_path: Path
) -> None:
    a_log(projects)
    watched = Watched(file, tmp_path / "home")

    def is_in(name: str) -> bool:
        return f"claude-code:{name}" in {each.label for each in watched.ledger.sessions(limit=20)}

    try:
        until(lambda: is_in(SESSION))  # it stood there before
        a_log(tmp_path / "moved", OTHER)
        (tmp_path / "moved").rename(projects.with_name("moved"))
        until(lambda: is_in(OTHER))
        shutil.rmtree(projects.parent)
        time.sleep(0.3)
        a_log(projects, third := OTHER.replace("2", "3"))
        until(lambda: is_in(third))
        a_log(projects, fourth := OTHER.replace("2", "4"))
        until(lambda: is_in(fourth))
    finally:
        watched.close()


class Once(threading.Event):
    """Ends what waits for it after a few times, and knows how long it would have waited."""

    def __init__(self) -> None:
        super().__init__()
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        self.waited.append(timeout)
        if len(self.waited) == 3:
            self.set()
        return self.is_set()


def test_a_folder_that_is_gone_before_it_is_followed_is_waited_for(
    projects: Path, file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a_log(projects)
    tried = []

    def gone(*roots: Path, **_: object) -> Iterator[set[tuple[int, str]]]:
        tried.append(roots)
        assert len(tried) < 10
        raise FileNotFoundError(2, "No such file or directory")
        yield

    monkeypatch.setattr(watchfiles, "watch", gone)
    stop = Once()

    with Ledger.open(file) as ledger:
        watch.watch(ledger, Home(tmp_path / "home", {}, "linux"), stop=stop, wait_ms=200)

    assert (len(tried), stop.waited) == (3, [0.2] * 3)


def test_a_file_missing_for_another_reason_ends_the_watch(
    projects: Path, file: str, tmp_path: Path
) -> None:
    a_log(projects)
    stop = Once()

    def told(report: Report) -> None:
        stop.set()
        raise FileNotFoundError(2, "No such file or directory")

    home = Home(tmp_path / "home", {}, "linux")
    with Ledger.open(file) as ledger, pytest.raises(FileNotFoundError):
        watch.watch(ledger, home, on_report=told, stop=stop, wait_ms=200)


@LINUX
def test_a_watch_that_has_nothing_to_do_takes_next_to_no_time(
    projects: Path, file: str, tmp_path: Path
) -> None:
    for number in range(50):
        a_log(projects, f"{number:08}-0000-4000-8000-000000000000")
    command = [sys.executable, "-m", "agents_ledger.cli.main", "--ledger", file, "watch"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"imported 50 upserted 0 skipped 0 failed 0\n"
            time.sleep(watch.ROOTS_PACE_MS / 1000 + 1)  # by then it has looked once more
            assert any(_is_idle(process.pid) for _ in range(3))
            process.send_signal(signal.SIGINT)
            process.wait(PATIENCE_S)
        finally:
            process.kill()  # or a failure would wait for it for ever


def _is_idle(pid: int) -> bool:
    """Whether it takes less than half a hundredth of a processor; on a busy machine not always."""
    before = _spent(pid)
    time.sleep(IDLE_S)
    tick = 1 / os.sysconf("SC_CLK_TCK")  # it counts in ticks
    return _spent(pid) - before <= IDLE_S * 0.005 + tick


def _spent(pid: int) -> float:
    """Seconds of processor time, all threads together."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def test_a_service_is_written_for_systemd(
    run: Run, tmp_path: Path, file: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no systemctl here

    answer = run("watch", "--install")

    unit = tmp_path / "config" / "systemd" / "user" / "agents-ledger-watch.service"
    said = ConfigParser(strict=True)
    said.optionxform = str  # type: ignore[method-assign,assignment]
    said.read_string(unit.read_text())
    assert said["Service"]["ExecStart"] == (
        f"{sys.executable} -m agents_ledger.cli.main --ledger {file} watch"
    )
    assert said["Service"]["Restart"] == "on-failure"
    assert said["Install"]["WantedBy"] == "default.target"  # after a reboot too
    assert f"wrote {unit}" in answer.out
    assert "start it with: systemctl --user enable --now agents-ledger-watch" in answer.out


def test_a_service_watches_what_was_chosen(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("PATH", str(tmp_path))  # no systemctl here
    server = "postgresql://dev:secret@db/ledgers"

    run("--ledger", server, "watch", "codex", "--exclude", "/srv/own", "--install")

    unit = tmp_path / "config" / "systemd" / "user" / "agents-ledger-watch.service"
    assert f"--ledger {server} watch codex --exclude=/srv/own\n" in unit.read_text()
    assert unit.stat().st_mode & 0o077 == 0


def test_a_source_to_watch_that_is_not_there_is_named(run: Run) -> None:
    answer = run("watch", "claud-code")

    assert answer.code == 3
    assert "no source 'claud-code'" in answer.err


def test_a_service_is_written_for_launchd_whatever_the_paths(tmp_path: Path) -> None:
    command = ["/usr/bin/python3", "-m", "x", "--ledger", "/Users/dev/My & <Own>.db", "watch"]

    file, start = watch.install(Home(tmp_path, {}, "darwin"), command)

    assert file == tmp_path / "Library" / "LaunchAgents" / "agents-ledger-watch.plist"
    said = plistlib.loads(file.read_bytes())
    assert said["ProgramArguments"] == command
    assert said["RunAtLoad"] is True
    assert said["KeepAlive"] == {"SuccessfulExit": False}
    assert start == ["launchctl", "load", "-w", str(file)]


PLACES = {
    "CODEX_HOME": '/data/100% "mine"/$HOME',
    "CLAUDE_CONFIG_DIR": "/srv/claude one",
    "CURSOR_DATA_DIR": "/srv/cursor",
}


def test_a_service_knows_where_the_user_keeps_the_sources(tmp_path: Path) -> None:
    environment = PLACES | {"OPENAI_API_KEY": "sk-no", "XDG_DATA_HOME": ""}
    files = {
        name: watch.install(Home(tmp_path, environment, name), ["python", "watch"])[0]
        for name in ("linux", "darwin", "win32")
    }

    assert plistlib.loads(files["darwin"].read_bytes())["EnvironmentVariables"] == PLACES
    line = next(x for x in files["linux"].read_text().splitlines() if x.startswith("Env"))
    assert line == (
        'Environment="CLAUDE_CONFIG_DIR=/srv/claude one"'
        ' "CODEX_HOME=/data/100%% \\"mine\\"/$HOME" "CURSOR_DATA_DIR=/srv/cursor"'
    )
    assert '@set "CODEX_HOME=/data/100%% "mine"/$HOME"\n' in files["win32"].read_text()


def test_relative_paths_are_absolute_in_a_service(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own").mkdir()

    home = Home(tmp_path, {"CODEX_HOME": "own", "COPILOT_HOME": "not/there"}, "linux")
    places = watch.source_variables(home)

    assert places == {"CODEX_HOME": str(tmp_path / "own"), "COPILOT_HOME": "not/there"}


def test_every_variable_of_a_source_is_carried() -> None:
    asked = "".join(path.read_text() for path in Path(watch.__file__).parent.rglob("*.py"))
    names = set(re.findall(r'(?:environment\.get|\.chosen)\("(\w+)"', asked)) - {"APPDATA"}
    environment = dict.fromkeys(names, "/x")

    assert len(names) > 6
    assert watch.source_variables(Home(Path("/home/dev"), environment, "linux")).keys() == names


def test_a_unit_quotes_what_systemd_would_read_as_something_else(tmp_path: Path) -> None:
    command = ["/opt/my python/bin/python", "--ledger", '/data/100% "mine"/$HOME.db', "watch"]

    file, _ = watch.install(Home(tmp_path, {}, "linux"), command)

    line = next(x for x in file.read_text().splitlines() if x.startswith("ExecStart="))
    assert line == (
        'ExecStart="/opt/my python/bin/python" --ledger "/data/100%% \\"mine\\"/$$HOME.db" watch'
    )
