"""Where the ledger lives."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

VARIABLE = "AGENTS_LEDGER"


def address(given: str | None, environment: Mapping[str, str] = os.environ) -> str:
    """The ledger's address: as given, else from AGENTS_LEDGER, else in the user's data folder."""
    return given or environment.get(VARIABLE) or str(default_file())


def default_file() -> Path:
    """The ledger file of this user."""
    from platformdirs import user_data_path

    return user_data_path("agents-ledger", appauthor=False) / "ledger.db"


def make_default_folder(chosen: str) -> None:
    """Make the folder of this user's ledger, for nobody else to read, if that one was chosen."""
    if Path(chosen) == (file := default_file()):
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
