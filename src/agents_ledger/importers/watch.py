"""Imports the files of agents as they change, and installs that as a user service."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from agents_ledger.importers.discovery import FileSelection, HistoryFile, files_below
from agents_ledger.importers.parsing import databases
from agents_ledger.importers.pipeline import Importer, Report
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.source import Source
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.installation import settings
from agents_ledger.model.installation.extras import needed

DEBOUNCE_MS = 400  # changes within this time are imported together
# Between two searches for new folders while there is none.
ROOTS_MS = 60_000
ROOTS_PACE_MS = 5_000  # the same while some are watched
# A family that takes no longer is imported at every change.
LONG_SECONDS = 0.5
# A slower one waits this many times as long as its last import took.
REST = 20
SERVICE = "agents-ledger-watch"


def watch(
    ledger: Ledger,
    home: Home,
    *,
    sources: Iterable[str] = (),
    selection: FileSelection | None = None,
    on_report: Callable[[Report], None] = lambda _: None,
    stop: threading.Event | None = None,
    wait_ms: int = ROOTS_MS,
) -> None:
    """Import every change below the folders of the sources, until stopped.

    The operating system reports changes. Whether a folder was created, or created anew, is checked
    every ROOTS_PACE_MS, and every `wait_ms` while there is none.
    """
    chosen = set(sources) or set(SOURCES)
    selection = selection or FileSelection()
    stop = stop or threading.Event()
    throttle = Throttle()
    while not stop.is_set():
        roots = _roots(home, chosen)
        if not roots:
            stop.wait(wait_ms / 1000)
            continue
        is_watching = False
        for changes in _changes_below(roots, stop, min(wait_ms, ROOTS_PACE_MS)):
            if not is_watching:  # import what changed before
                _import(ledger, list(_changed_files(roots, roots, selection)), on_report, stop)
                is_watching = True
            changed = _changed_files((Path(path) for path in changes), roots, selection)
            with throttle.due(changed) as due:
                _import(ledger, due, on_report, stop)
            if _roots(home, chosen) != roots:
                break
        else:
            stop.wait(min(wait_ms, ROOTS_PACE_MS) / 1000)


def _changes_below(
    roots: Iterable[Path], stop: threading.Event, pause_ms: int
) -> Iterator[list[str]]:
    """Changed paths, or an empty list after each pause. Ends if a folder is deleted before it is
    watched."""
    with needed("watch", "watching folders"):
        from watchfiles import watch as watch_folders

    with suppress(FileNotFoundError):
        for changes in watch_folders(
            *roots,
            watch_filter=None,
            stop_event=stop,
            debounce=DEBOUNCE_MS,
            yield_on_timeout=True,
            rust_timeout=pause_ms,
            raise_interrupt=True,
            ignore_permission_denied=True,
        ):
            yield [path for _, path in changes]


def _import(
    ledger: Ledger,
    files: Sequence[HistoryFile],
    on_report: Callable[[Report], None],
    stop: threading.Event,
) -> None:
    report = Importer(ledger).run(files, stop=stop) if files else Report()
    if report.read_bytes or report.written_turns or report.faults:
        on_report(report)


class WatchedRoot(Struct, frozen=True):
    """A folder of a source; one that is created anew has another inode."""

    source: Source
    inode: int


class Throttle:
    """Families that take long to derive, like large databases, are not derived at every change:
    they get a small share of the time, and what changed meanwhile is imported together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Path, HistoryFile] = {}
        self._not_before: dict[str, float] = {}  # by family

    @contextmanager
    def due(self, changed: Iterable[HistoryFile]) -> Iterator[list[HistoryFile]]:
        """What to import now, of these and of what waits. The time until the context ends decides
        when their families are due again."""
        self._waiting |= {file.path: file for file in changed}
        started = self._clock()
        due = {
            file.path: file.family
            for file in self._waiting.values()
            if self._not_before.get(file.family, started) <= started
        }
        yield [self._waiting.pop(path) for path in due]
        seconds = self._clock() - started
        if seconds >= LONG_SECONDS:
            self._not_before |= dict.fromkeys(due.values(), self._clock() + seconds * REST)


def _roots(home: Home, chosen: set[str]) -> dict[Path, WatchedRoot]:
    roots = {}
    for source in (SOURCES[name] for name in SOURCES if name in chosen):
        for root in source.roots(home):
            with suppress(OSError):  # missing, or not readable for us
                roots[root] = WatchedRoot(source, root.stat().st_ino)
    return roots


def _changed_files(
    paths: Iterable[Path], roots: dict[Path, WatchedRoot], selection: FileSelection
) -> Iterator[HistoryFile]:
    """The files of history among changed paths and below changed folders."""
    seen: set[Path] = set()
    # Writers change the log of a database, and the database itself only at a checkpoint.
    for path in map(_without_sidecar_suffix, paths):
        for root, watched in roots.items():
            if path == root or root in path.parents:
                for file in selection.of(files_below(path, watched.source, [])):
                    if file.path not in seen:
                        seen.add(file.path)
                        yield file


def _without_sidecar_suffix(path: Path) -> Path:
    """The database of a write-ahead log or journal."""
    suffix = next((suffix for suffix in databases.SIDECARS if path.name.endswith(suffix)), "")
    return path.with_name(path.name.removesuffix(suffix))


def install(home: Home, command: list[str]) -> tuple[Path, list[str]]:
    """Write a user service that watches from login on; returns its file, and the command that
    starts it."""
    variables = source_variables(home)
    if home.platform == "darwin":
        file = home.home / "Library" / "LaunchAgents" / f"{SERVICE}.plist"
        text, start = _plist(command, variables), ["launchctl", "load", "-w", str(file)]
    elif home.platform == "win32":
        file = home.config("Microsoft") / f"Windows/Start Menu/Programs/Startup/{SERVICE}.cmd"
        text, start = _script(command, variables), [str(file)]
    else:
        file = home.config("systemd") / "user" / f"{SERVICE}.service"
        text, start = _unit(command, variables), ["systemctl", "--user", "enable", "--now", SERVICE]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(0o600)  # the address of the ledger may contain a password
    file.write_text(text, encoding="utf-8")
    return file, start


class _RecordedEnvironment(dict[str, str]):
    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.names: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.names.add(name)
        return super().get(name, default)


def source_variables(home: Home) -> dict[str, str]:
    """The environment variables with which the user moved folders of sources: a service does not
    inherit them."""
    environment = _RecordedEnvironment(home.environment)
    for source in SOURCES.values():
        source.roots(home._replace(environment=environment))
    variables = {
        name: environment[name] for name in sorted(environment.names) if name in environment
    }
    return {
        name: os.path.abspath(value) if os.path.exists(value) else value
        for name, value in variables.items()
        if value
    }


def _script(command: list[str], variables: Mapping[str, str]) -> str:
    lines = [f'@set "{name}={_for_cmd(value)}"' for name, value in variables.items()]
    call = " ".join(f'"{_for_cmd(word)}"' if " " in word else _for_cmd(word) for word in command)
    return "\r\n".join([*lines, f'@start "" /min {call}', ""])


def _for_cmd(word: str) -> str:
    return word.replace("%", "%%")


def _escaped(text: str) -> str:
    """Text for quotes in a systemd unit, where % is a specifier and backslashes escape."""
    for plain, escaped in (("%", "%%"), ("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        text = text.replace(plain, escaped)
    return text


def _for_systemd(word: str) -> str:
    """A word of a command line in a unit, where $ is expanded too."""
    word = _escaped(word).replace("$", "$$")
    return word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else f'"{word}"'


def _unit(command: list[str], variables: Mapping[str, str]) -> str:
    assignments = " ".join(f'"{name}={_escaped(value)}"' for name, value in variables.items())
    environment = f"Environment={assignments}\n" if assignments else ""
    return f"""[Unit]
Description=Agents Ledger: import the history of AI agents as it is written

[Service]
ExecStart={" ".join(map(_for_systemd, command))}
{environment}Restart=on-failure
Nice=10

[Install]
WantedBy=default.target
"""


def _plist(command: list[str], variables: Mapping[str, str]) -> str:
    import plistlib

    settings = {
        "Label": SERVICE,
        "ProgramArguments": command,
        "EnvironmentVariables": dict(variables),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
    }
    return plistlib.dumps(settings).decode()


def this_command(address: str, sources: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """The command that watches the same ledger with the same options."""
    return [
        sys.executable,
        "-m",
        "agents_ledger.cli.main",
        "--ledger",
        settings.absolute(address),
        "watch",
        *sources,
        *(f"--exclude={pattern}" for pattern in exclude),
    ]
