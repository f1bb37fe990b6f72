"""Where the programs of a user store their files."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple


class Home(NamedTuple):
    """A user's home folder, environment and operating system."""

    home: Path
    environment: Mapping[str, str]
    platform: str  # as sys.platform

    def chosen(self, variable: str, otherwise: Path) -> Path:
        """The folder in an environment variable; an empty variable counts as not set."""
        return Path(self.environment.get(variable) or otherwise)

    def config(self, name: str) -> Path:
        """The data folder of a desktop program."""
        if self.platform == "darwin":
            return self.home / "Library" / "Application Support" / name
        if self.platform == "win32":
            return self.chosen("APPDATA", self.home / "AppData" / "Roaming") / name
        return self.chosen("XDG_CONFIG_HOME", self.home / ".config") / name

    def data(self, name: str) -> Path:
        """The data folder of a command-line program."""
        return self.chosen("XDG_DATA_HOME", self.home / ".local" / "share") / name
