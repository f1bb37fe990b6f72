"""How a command line is run in a terminal of this machine's desktop."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress

from agents_ledger.model.errors import Refused

FAILS_WITHIN_S = 0.5

# What opens a terminal, and what comes before the program that it runs.
_LINUX = (
    ("x-terminal-emulator", "-e"),
    ("gnome-terminal", "--"),
    ("konsole", "-e"),
    ("kitty", "--"),
    ("alacritty", "-e"),
    ("foot", "--"),
    ("xfce4-terminal", "-x"),
    ("xterm", "-e"),
)
_MACOS = (
    "on run argv",
    'tell application "Terminal" to do script (item 1 of argv)',
    'tell application "Terminal" to activate',
    "end run",
)


def can_open() -> bool:
    """Whether this machine has a desktop with a terminal."""
    return _command("") is not None


def open_terminal(line: str) -> None:
    """Run a shell's line in a new terminal, which stays open. Refused if none can be opened."""
    command = _command(line)
    if command is None:
        raise _refusal("no terminal was found on this machine")
    try:
        process = subprocess.Popen(  # noqa: S603 - a terminal found on this machine
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:
        raise _refusal(f"the terminal {command[0]} did not open: {error}") from error
    with suppress(subprocess.TimeoutExpired):
        if process.wait(FAILS_WITHIN_S):
            raise _refusal(f"the terminal {command[0]} ended with status {process.returncode}")
    threading.Thread(target=process.wait, daemon=True).start()  # so that it leaves no zombie


def _refusal(problem: str) -> Refused:
    return Refused(problem, "Copy the command, and run it in a terminal.")


def _command(line: str) -> list[str] | None:
    return terminal_command(line, sys.platform, os.environ, shutil.which)


def terminal_command(
    line: str,
    platform: str,
    environment: Mapping[str, str],
    find: Callable[[str], str | None],
) -> list[str] | None:
    """The program and arguments that run a shell's line in a new terminal, which stays open; None:
    there is no desktop, or no terminal that `find` knows the path of."""
    if platform == "darwin":
        script = [part for text in _MACOS for part in ("-e", text)]
        return ["osascript", *script, line] if find("osascript") else None
    if not platform.startswith("linux"):
        return None
    if not (environment.get("DISPLAY") or environment.get("WAYLAND_DISPLAY")):
        return None
    chosen = shlex.split(environment.get("TERMINAL", ""))
    own = ((chosen[0], "-e"),) if chosen else ()
    for name, before in (*own, *_LINUX):
        path = find(name)
        if path is not None:
            shell = environment.get("SHELL", "sh")
            return [path, before, shell, "-c", f"{line}; exec {shlex.quote(shell)}"]
    return None
