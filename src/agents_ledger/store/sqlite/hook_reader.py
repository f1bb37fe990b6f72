"""Reads a SQLite ledger for a hook: an agent waits for it, so it imports and opens the minimum.

It neither locks nor migrates, and stops after a time limit.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path
from time import monotonic
from typing import Any
from urllib.parse import quote

_SQL = Path(__file__).parents[1] / "sql" / "hooks.sqlite.sql"
_STEPS = 2000  # of SQLite's virtual machine between two looks at the clock
LIMIT_S = 2.0


class TooSlow(Exception):
    """The time limit is over."""


class HookReader:
    def __init__(self, path: str, limit_s: float = LIMIT_S) -> None:
        self._statements = statements()
        self._ends_at = monotonic() + limit_s
        name = quote(str(Path(path).absolute()).replace("\\", "/"))
        self._connection = sqlite3.connect(
            f"file:{name}?mode=ro", uri=True, timeout=0.2, isolation_level=None
        )
        self._connection.set_progress_handler(self._is_late, _STEPS)

    def _is_late(self) -> int:
        return int(monotonic() > self._ends_at)

    def run(self, name: str, /, **values: object) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(self._statements[name], values).fetchall()
        except sqlite3.OperationalError as error:
            if self._is_late():
                raise TooSlow(f"{name} was stopped at the time limit of a hook") from error
            raise

    def close(self) -> None:
        self._connection.close()


def statements() -> dict[str, str]:
    named = re.split(r"^-- (\w+) --$", _SQL.read_text(encoding="utf-8"), flags=re.MULTILINE)
    return dict(zip(named[1::2], named[2::2], strict=True))
