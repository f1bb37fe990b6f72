"""Secrets in the ledger: what is there, and what the ledger does about them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple, get_args

from agents_ledger.ledger.core import SECRETS, Core
from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.secrets import SecretCount, SecretHandling, SecretReport
from agents_ledger.model.secrets.detection import find_secrets
from agents_ledger.store.database import Transaction
from agents_ledger.store.tables.texts import TEXT_TABLES, TextRow, text_rows

DEFAULT: SecretHandling = "report"


class _Place(NamedTuple):
    kind: str
    turn_id: str | None
    session_label: str | None


class Secrets:
    def __init__(self, core: Core) -> None:
        self._core = core

    @property
    def handling(self) -> SecretHandling:
        """What is done about secrets: `report` lists them on request, `mask` hides them in what
        people and agents are shown."""
        return self._core.db.read(handling)

    def set_handling(self, value: SecretHandling) -> None:
        """Change what is done about secrets, for everyone who opens this ledger."""
        if value not in get_args(SecretHandling):
            raise Refused(
                f"unknown handling of secrets {value!r}",
                f"Choose {' or '.join(get_args(SecretHandling))}.",
            )
        self._core.recover_if_due()
        self._core.db.write(
            lambda tx: tx.run("set_setting", name=SECRETS, value=value, now=now_ms())
        )
        self._core.show_again()

    def shown(self, text: str) -> str:
        """A text that was not read by a verb, as it is shown."""
        return self._core.as_shown(text)

    def report(self) -> SecretReport:
        """Read every text of the ledger, and count the secrets in it by kind and session."""
        return self._core.db.read(_report)


def handling(tx: Transaction) -> SecretHandling:
    rows = tx.run("setting", name=SECRETS)
    return rows[0][0] if rows else DEFAULT


def _report(tx: Transaction) -> SecretReport:
    places = list(_places(tx))
    turn_ids = list({place.turn_id for place in places if place.turn_id is not None})
    holder_of = holders(tx, turn_ids)
    counts: dict[tuple[str, str | None], int] = defaultdict(int)
    turns: dict[tuple[str, str | None], set[str]] = defaultdict(set)
    for kind, turn_id, session_label in places:
        label = holder_of[turn_id].label if turn_id is not None else session_label
        counts[kind, label] += 1
        if turn_id is not None:
            turns[kind, label].add(turn_id)
    lines = [
        SecretCount(
            kind, label, count, len(turns[kind, label]), max(turns[kind, label], default=None)
        )
        for (kind, label), count in counts.items()
    ]
    lines.sort(key=lambda line: (-line.count, line.kind, line.session_label or ""))
    return SecretReport(handling(tx), tuple(lines))


def _places(tx: Transaction) -> Iterator[_Place]:
    for table in TEXT_TABLES:
        for row in text_rows(tx, table):
            for kind in _kinds(row):
                yield _Place(kind, row.turn_id, row.session_label)


def _kinds(row: TextRow) -> Iterator[str]:
    for text in row.texts:
        if text:
            yield from (span.kind for span in find_secrets(text))
