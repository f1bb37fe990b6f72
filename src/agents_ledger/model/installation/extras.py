"""Packages that only some features need: how a missing one is reported, and installed here."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from agents_ledger.model.errors import MissingExtra

PACKAGE = "agents-ledger"


@contextmanager
def needed(extra: str, what: str) -> Iterator[None]:
    """Imports in this block need an extra. MissingExtra says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        name = (error.name or "").partition(".")[0]
        # A module of our own that is missing is a defect, and a nested block has reported already.
        if isinstance(error, MissingExtra) or name == "agents_ledger":
            raise
        raise _missing(extra, what, name) from error


def check(extra: str, what: str, *packages: str) -> None:
    """MissingExtra unless these packages are installed. None of them is imported."""
    for package in packages:
        if find_spec(package) is None:
            raise _missing(extra, what, package)


def _missing(extra: str, what: str, package: str) -> MissingExtra:
    return MissingExtra(
        f"{what} requires the package {package}, which is not installed",
        f"Install it with: {install_command(extra, Installation.current())}",
        package,
    )


class Installation(NamedTuple):
    """How this program was installed."""

    prefix: Path  # the environment
    folder: Path | None = None  # of the clone it was installed from; None: from an index
    editable: bool = False
    active: Path | None = None  # the environment whose commands are on the PATH
    here: Path = Path()  # where the user types commands

    @classmethod
    def current(cls) -> Installation:
        """That of the running program."""
        # Imported here: only errors need it, and every command imports this module.
        from importlib import metadata
        from urllib.parse import urlsplit
        from urllib.request import url2pathname

        import msgspec

        origin = metadata.distribution(PACKAGE).read_text("direct_url.json") or "{}"
        direct_url = msgspec.json.decode(origin, type=dict[str, object])
        address, folder_info = urlsplit(str(direct_url.get("url"))), direct_url.get("dir_info")
        folder = Path(url2pathname(address.path)) if address.scheme == "file" else None
        editable = isinstance(folder_info, dict) and bool(folder_info.get("editable"))
        active = os.environ.get("VIRTUAL_ENV")
        return cls(Path(sys.prefix), folder, editable, Path(active) if active else None, Path.cwd())


def install_command(extra: str, installation: Installation) -> str:
    """The command that adds an extra of this package to its environment."""
    from shlex import quote

    prefix, folder, editable, active, here = installation
    package = PACKAGE if folder is None else "." if folder == here else str(folder)
    target = quote(f"{package}[{extra}]")
    # pipx and `uv tool` leave these files in the environment of each program they install; uvx runs
    # programs in environments of its cache.
    if (prefix / "pipx_metadata.json").exists():
        return f"pipx install --force {target}"
    if (prefix / "uv-receipt.toml").exists():
        return f"uv tool install --force {target}"
    if any(part.startswith(("archive-v", "environments-v")) for part in prefix.parts):
        return f"uvx --from {target} {PACKAGE}"
    target = f"--editable {target}" if editable else target
    environment = str(prefix.relative_to(here)) if prefix.is_relative_to(here) else str(prefix)
    if _made_by_uv(prefix):
        named = "" if prefix in (active, here / ".venv") else f"--python {quote(environment)} "
        return f"uv pip install {named}{target}"
    scripts, suffix = ("Scripts", ".exe") if os.name == "nt" else ("bin", "")
    python = quote(str(Path(environment) / scripts / f"python{suffix}"))
    return f"{'pip' if prefix == active else f'{python} -m pip'} install {target}"


def _made_by_uv(prefix: Path) -> bool:
    """Whether uv made a virtual environment: it has no pip then."""
    try:
        settings = (prefix / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        return False
    return any(line.startswith("uv =") for line in settings.splitlines())
