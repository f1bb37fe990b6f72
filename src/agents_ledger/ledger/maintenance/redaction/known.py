"""Removed values stay out of what is imported later: recognised by digests whose key is not in the
ledger, and in a file imported before by their place."""

from __future__ import annotations

import hashlib
from typing import NamedTuple, cast

from msgspec import Struct

from agents_ledger.ledger.core import SECRETS
from agents_ledger.ledger.maintenance.redaction.archived_files import record_edits, records_of
from agents_ledger.ledger.maintenance.redaction.finders import ANY_KIND, any_of, secrets_of_kind
from agents_ledger.ledger.maintenance.redaction.plan import ANYWHERE_MIN, RedactionPlan
from agents_ledger.ledger.projection.archive_reader import Edit
from agents_ledger.model.installation.settings import redaction_key_file
from agents_ledger.model.secrets.known_values import (
    KnownValue,
    KnownValues,
    keyed,
    known_value,
)
from agents_ledger.model.secrets.nested_json import Find
from agents_ledger.store.database import Transaction
from agents_ledger.store.files import private_key


class RedactionKey(NamedTuple):
    """The key of the digests, and how rows name it."""

    id: str
    key: bytes


def redaction_key(*, create: bool) -> RedactionKey | None:
    """The key of this user, made when it is needed first."""
    key = private_key(redaction_key_file(), create=create)
    if key is None:
        return None
    return RedactionKey(hashlib.blake2b(key, digest_size=8).hexdigest(), key)


class _RedactedValue(Struct, frozen=True):
    digest: bytes
    key_id: str
    length: int
    word: bytes
    word_start: int
    word_length: int
    kind: str
    family: str
    redaction_id: str


def remember(tx: Transaction, planned: RedactionPlan, redaction_id: str, *, content: bool) -> None:
    """Keep digests of the removed values."""
    key = cast("RedactionKey", redaction_key(create=True))
    digest = keyed(key.key)
    families = sorted({file.file.family for file in planned.files.values()})
    is_part_of_turn = planned.scope.is_part_of_turn
    rows = []
    for value, kind in planned.values.items():
        known = known_value(value, digest, kind)
        if content and len(value) < ANYWHERE_MIN:
            # Of one message or call, a short text may be said again in the same session.
            within = [] if is_part_of_turn else families
        elif known.word:
            within = [""]
        else:
            within = families
        rows += [
            _RedactedValue(
                known.digest,
                key.id,
                known.length,
                known.word,
                known.word_start,
                known.word_length,
                kind,
                family,
                redaction_id,
            )
            for family in within
        ]
    tx.run_many("insert_redacted_value", rows)


class ImportFilter:
    """Takes out of the bytes of files, before they are archived, what must not come in."""

    def __init__(self, known: dict[str, KnownValues], find_secrets: Find | None) -> None:
        self._known = known
        self._find_secrets = find_secrets

    @classmethod
    def of(cls, tx: Transaction) -> ImportFilter:
        """The filter that a ledger asks for."""
        redacts = tx.run("setting", name=SECRETS) == [("redact",)]
        find_secrets = secrets_of_kind(ANY_KIND) if redacts else None
        if not tx.run("redacted_value_keys"):
            return cls({}, find_secrets)
        key = redaction_key(create=False)
        rows = tx.run("redacted_values", key_id=key.id) if key is not None else []
        by_family: dict[str, list[KnownValue]] = {}
        for digest, length, word, word_start, word_length, kind, family in rows:
            by_family.setdefault(family, []).append(
                KnownValue(bytes(digest), length, bytes(word), word_start, word_length, kind)
            )
        digests = keyed(key.key if key is not None else b"")
        return cls(
            {family: KnownValues(values, digests) for family, values in by_family.items()},
            find_secrets,
        )

    def __bool__(self) -> bool:
        return bool(self._known) or self._find_secrets is not None

    def edits(self, data: bytes, kind: str, family: str) -> tuple[Edit, ...]:
        """What is overwritten in the next bytes of a file, which end with a record."""
        finders: list[Find] = [
            known for name in ("", family) if (known := self._known.get(name)) is not None
        ]
        if self._find_secrets is not None:
            finders.append(self._find_secrets)
        if not finders:
            return ()
        find = any_of(*finders)
        return tuple(
            Edit(start + edit.start, edit.data)
            for start, record in records_of([data], kind)
            for edit in record_edits(record, find)
        )
