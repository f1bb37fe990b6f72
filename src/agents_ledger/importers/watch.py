"""Following the sources: what changes on disk is imported as it changes."""

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

from agents_ledger.importers.discovery import Found, Wanted, below
from agents_ledger.importers.parsing import databases
from agents_ledger.importers.pipeline import Importer, Report
from agents_ledger.importers.port.source import Home, Reader
from agents_ledger.importers.sources.registry import READERS
from agents_ledger.ledger.ledger import Ledger

SETTLE_MS = 400  # changes that come together are imported together
LOOK_MS = 60_000
PACE_MS = 5_000
LONG_SECONDS = 0.5  # an import that takes no longer is made at every change
REST = 20  # times as long as the last import took: until the next
SERVICE = "agents-ledger-watch"


def watch(
    ledger: Ledger,
    home: Home,
    *,
    sources: Iterable[str] = (),
    wanted: Wanted | None = None,
    told: Callable[[Report], None] = lambda _: None,
    stop: threading.Event | None = None,
    wait_ms: int = LOOK_MS,
) -> None:
    """Import every change below the sources' folders, until stopped. The system tells of changes;
    whether a folder has come, or was made anew, is looked at every PACE_MS; every `wait_ms` at
    most, and so often while there is none at all."""
    chosen = set(sources) or set(READERS)
    wanted = wanted or Wanted()
    stop = stop or threading.Event()
    pace = Pace()
    while not stop.is_set():
        roots = _roots(home, chosen)
        if not roots:
            stop.wait(wait_ms / 1000)
            continue
        is_told = False  # whether the system tells of changes already
        for changes in _changes_below(roots, stop, min(wait_ms, PACE_MS)):
            if not is_told:  # what changed before
                _import(ledger, list(_changed(roots, roots, wanted)), told)
                is_told = True
            with pace.due(_changed((Path(path) for path in changes), roots, wanted)) as due:
                _import(ledger, due, told)
            if _roots(home, chosen) != roots:
                break
        else:
            stop.wait(min(wait_ms, PACE_MS) / 1000)


def _changes_below(
    roots: Iterable[Path], stop: threading.Event, pause_ms: int
) -> Iterator[list[str]]:
    """What the system tells of, or nothing after each pause. It ends where a folder is gone before
    it is followed."""
    from watchfiles import watch as changes_below

    with suppress(FileNotFoundError):
        for changes in changes_below(
            *roots,
            watch_filter=None,
            stop_event=stop,
            debounce=SETTLE_MS,
            yield_on_timeout=True,
            rust_timeout=pause_ms,
            raise_interrupt=True,
            ignore_permission_denied=True,
        ):
            yield [path for _, path in changes]


def _import(ledger: Ledger, found: Sequence[Found], told: Callable[[Report], None]) -> None:
    report = Importer(ledger).run(found) if found else Report()
    if report.read_bytes or report.written_turns or report.faults:
        told(report)


class Root(Struct, frozen=True):
    """A folder of a source; one that is made anew is another."""

    reader: Reader
    made: int


class Pace:
    """A source that takes long to derive, as a large database does, is not derived at every change:
    it gets a small part of the time, and what changed meanwhile is imported together."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._waiting: dict[Path, Found] = {}
        self._not_before: dict[str, float] = {}  # by family

    @contextmanager
    def due(self, found: Iterable[Found]) -> Iterator[list[Found]]:
        """What is to be imported now, of this and of what waits; how long it takes is noted."""
        self._waiting |= {each.path: each for each in found}
        began = self._clock()
        due = {
            each.path: each.family
            for each in self._waiting.values()
            if self._not_before.get(each.family, began) <= began
        }
        yield [self._waiting.pop(path) for path in due]
        took = self._clock() - began
        if took >= LONG_SECONDS:
            self._not_before |= dict.fromkeys(due.values(), self._clock() + took * REST)


def _roots(home: Home, chosen: set[str]) -> dict[Path, Root]:
    found = {}
    for reader in (READERS[name] for name in READERS if name in chosen):
        for root in reader.roots(home):
            with suppress(OSError):  # not there, or not for us
                found[root] = Root(reader, root.stat().st_ino)
    return found


def _changed(paths: Iterable[Path], roots: dict[Path, Root], wanted: Wanted) -> Iterator[Found]:
    """The files of history among what changed, and in folders that did; a database stands for its
    log."""
    seen: set[Path] = set()
    for path in map(_of_database, paths):
        for root, source in roots.items():
            if path == root or root in path.parents:
                for found in wanted.of(below(path, source.reader, [])):
                    if found.path not in seen:
                        seen.add(found.path)
                        yield found


def _of_database(path: Path) -> Path:
    suffix = next((each for each in databases.SIDECARS if path.name.endswith(each)), "")
    return path.with_name(path.name.removesuffix(suffix))


def install(home: Home, command: list[str]) -> tuple[Path, list[str]]:
    """Write a user service that watches from login on; its file, and the command that starts it."""
    places = chosen_places(home)
    if home.platform == "darwin":
        file = home.home / "Library" / "LaunchAgents" / f"{SERVICE}.plist"
        text, start = _plist(command, places), ["launchctl", "load", "-w", str(file)]
    elif home.platform == "win32":
        file = home.config("Microsoft") / f"Windows/Start Menu/Programs/Startup/{SERVICE}.cmd"
        text, start = _script(command, places), [str(file)]
    else:
        file = home.config("systemd") / "user" / f"{SERVICE}.service"
        text, start = _unit(command, places), ["systemctl", "--user", "enable", "--now", SERVICE]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.touch(0o600)  # an address may hold a password
    file.write_text(text, encoding="utf-8")
    return file, start


class _Noted(dict[str, str]):
    """An environment that notes what it is asked for."""

    def __init__(self, environment: Mapping[str, str]) -> None:
        super().__init__(environment)
        self.asked: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)


def chosen_places(home: Home) -> dict[str, str]:
    """The variables by which the user told where the sources are: a service would not know them."""
    noted = _Noted(home.environment)
    for reader in READERS.values():
        reader.roots(home._replace(environment=noted))
    said = {name: noted[name] for name in sorted(noted.asked) if noted.get(name)}
    return {name: os.path.abspath(v) if os.path.exists(v) else v for name, v in said.items()}


def _script(command: list[str], places: Mapping[str, str]) -> str:
    lines = [f'@set "{name}={_for_cmd(value)}"' for name, value in places.items()]
    call = " ".join(f'"{_for_cmd(part)}"' if " " in part else _for_cmd(part) for part in command)
    return "\r\n".join([*lines, f'@start "" /min {call}', ""])


def _for_cmd(part: str) -> str:
    return part.replace("%", "%%")


def _escaped(part: str) -> str:
    """Text as systemd reads it in quotes: it fills in after %, and unescapes."""
    for plain, told in (("%", "%%"), ("\\", "\\\\"), ('"', '\\"'), ("\n", "\\n")):
        part = part.replace(plain, told)
    return part


def _for_systemd(part: str) -> str:
    """A word of a command, where it fills in after $ too."""
    word = _escaped(part).replace("$", "$$")
    return word if re.fullmatch(r"[\w@%+=:,./$-]+", word) else f'"{word}"'


def _unit(command: list[str], places: Mapping[str, str]) -> str:
    said = " ".join(f'"{name}={_escaped(value)}"' for name, value in places.items())
    environment = f"Environment={said}\n" if said else ""
    return f"""[Unit]
Description=Agents Ledger: import the history of AI agents as it is written

[Service]
ExecStart={" ".join(_for_systemd(part) for part in command)}
{environment}Restart=on-failure
Nice=10

[Install]
WantedBy=default.target
"""


def _plist(command: list[str], places: Mapping[str, str]) -> str:
    import plistlib

    said = {
        "Label": SERVICE,
        "ProgramArguments": command,
        "EnvironmentVariables": dict(places),
        "RunAtLoad": True,
        "KeepAlive": {"SuccessfulExit": False},
    }
    return plistlib.dumps(said).decode()


def this_command(address: str, sources: Sequence[str], exclude: Sequence[str]) -> list[str]:
    """How to call this program's watch again, for the same ledger and with the same choice."""
    return [
        sys.executable,
        "-m",
        "agents_ledger.cli.main",
        "--ledger",
        address if "://" in address else os.path.abspath(address),
        "watch",
        *sources,
        *(f"--exclude={pattern}" for pattern in exclude),
    ]
