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
    """The ledger file of this user; its folder is made, for nobody else to read."""
    from platformdirs import user_data_path

    folder = user_data_path("agents-ledger", appauthor=False)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder / "ledger.db"
