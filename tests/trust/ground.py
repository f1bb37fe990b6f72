"""Where the state machine runs."""

from __future__ import annotations

import shutil
from pathlib import Path

from agents_ledger import Ledger
from agents_ledger.model.ids import new_id
from tests.raw import Raw
from tests.trust.server import with_schema

EXAMPLES_PER_LEDGER = 40  # on a server, where making one takes long


class Ground:
    """Where the machines run: a ledger for each, or a part of one."""

    def __init__(self, folder: Path, address: str) -> None:
        self._folder = folder
        self._server = address
        self._examples = 0
        self._kept: Ledger | None = None
        self.address = ""
        if not address:
            Ledger.open(str(folder / "template.db")).close()

    def next(self) -> tuple[Ledger, str]:
        """A ledger, and a prefix for names in it."""
        self._examples += 1
        if not self._server:
            self.close()
            self.address = str(self._folder / f"{self._examples}.db")
            shutil.copy(self._folder / "template.db", self.address)
            self._kept = Ledger.open(self.address)
        elif self._kept is None or self._examples % EXAMPLES_PER_LEDGER == 0:
            self.close()
            self.address = with_schema(self._server, f"machine_{new_id().lower()}")
            self._kept = Ledger.open(self.address)
        assert self._kept is not None
        return self._kept, f"{self._examples}:"

    def close(self) -> None:
        """Close the last ledger and remove it."""
        if self._kept is not None:
            self._kept.close()
            if self._server:
                drop(self.address)
            else:
                for file in self._folder.glob(f"{Path(self.address).name}*"):
                    file.unlink()


def drop(address: str) -> None:
    """Remove a ledger from its server."""
    with Raw(address) as raw:
        raw.execute("SET client_min_messages TO warning")
        raw.execute(f"DROP SCHEMA {raw.one('SELECT current_schema()')} CASCADE")
