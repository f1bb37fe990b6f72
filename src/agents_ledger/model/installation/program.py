"""How this program is called from a shell, so that printed commands work as they are printed."""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path

NAME = "agents-ledger"


@cache
def command(*, anywhere: bool = False) -> str:
    """The name of this program if a shell finds it, otherwise its path: as short as possible in
    the current folder, or valid `anywhere`."""
    folder = None if anywhere else Path.cwd()
    return command_of(sys.argv[0], os.environ, folder)


def command_of(script: str, environment: Mapping[str, str], folder: Path | None) -> str:
    """command(), for the first word of a command line typed in a folder."""
    path = Path(os.path.abspath(script))
    if path.name == "__main__.py" and path.parent.name == "agents_ledger":
        # -P, for where others call it: a folder may hold modules named like ours.
        return f"{shlex.quote(sys.executable)} {'-m' if folder else '-P -m'} agents_ledger"
    if path.stem != NAME:  # a program of its own, which uses the library
        return NAME
    import shutil  # takes 2 ms, and few commands print a command

    on_path = shutil.which(NAME, path=environment.get("PATH", ""))
    is_ours = on_path is not None and os.path.realpath(on_path) == os.path.realpath(path)
    # uv adds the folder of the program to PATH, but only for this process.
    if is_ours and "UV" not in environment:
        return NAME
    is_below = folder is not None and folder in path.parents
    return shlex.quote(str(path.relative_to(folder) if folder and is_below else path))


def as_typed(text: str) -> str:
    """A text with the commands in backticks as they must be typed."""
    return text.replace(f"`{NAME} ", f"`{command()} ")
