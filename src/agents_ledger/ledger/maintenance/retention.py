"""Applies the retention policy: archives, redacts or purges the sessions that its rules name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from functools import partial
from typing import NamedTuple

import msgspec

from agents_ledger.ledger.core import Core
from agents_ledger.ledger.maintenance.redaction.purge import purge, purgeable
from agents_ledger.ledger.maintenance.redaction.redactions import Redactions
from agents_ledger.ledger.maintenance.redaction.scope import rows_of
from agents_ledger.ledger.sessions import heads
from agents_ledger.model.errors import NotFound
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.retention import (
    LegalHold,
    RetainedSession,
    RetentionPolicy,
    RetentionReport,
    RetentionRule,
)
from agents_ledger.model.turns import to_json
from agents_ledger.store.database import Transaction

DAY_MS = 86_400_000
MEGABYTE = 1_000_000
SHARED = "it shares turns, files or calls with sessions that stay; its own content was redacted"
IN_USE = "it is being written, or messages wait for it"


class _Session(NamedTuple):
    label: str
    origin: str | None
    persona_id: str
    updated_at: int
    status: str
    folder: str | None
    in_use: int


class Retention:
    """Runs of the retention policy."""

    def __init__(self, core: Core) -> None:
        self._core = core

    def run(
        self,
        policy: RetentionPolicy,
        *,
        actor: str,
        dry_run: bool = False,
        at: int | None = None,
    ) -> RetentionReport:
        """Apply every rule; with `dry_run`, only say what it would do. Each run is recorded.

        `at`: the time up to which ages are counted, now by default.
        """
        started_at = now_ms()
        age_at = started_at if at is None else at
        self._core.recover_if_due()
        done: list[RetainedSession] = []
        redactions: list[str] = []
        for rule in policy.rules:
            matched = self._core.db.read(partial(_matched, rule=rule, policy=policy, now=age_at))
            earlier = {session.label for session in done}
            due = [session for session in matched if session.label not in earlier]
            outcomes, made = self._apply(rule, due, actor, dry_run=dry_run)
            done += outcomes
            redactions += made
        report = RetentionReport(
            new_id(), started_at, now_ms(), actor, dry_run, tuple(done), tuple(redactions)
        )
        if not dry_run:
            self._core.db.write(partial(_note, report=report))
        return report

    def latest(self, limit: int = 20) -> tuple[RetentionReport, ...]:
        """The latest runs that were not dry, the last first."""
        return self._core.db.read(
            lambda tx: tuple(
                msgspec.json.decode(row[4], type=RetentionReport)
                for row in tx.run("retention_runs", limit=limit)
            )
        )

    def _apply(
        self, rule: RetentionRule, due: Sequence[_Session], actor: str, *, dry_run: bool
    ) -> tuple[list[RetainedSession], list[str]]:
        idle = [session.label for session in due if not session.in_use]
        outcomes = [
            RetainedSession(session.label, rule.name, rule.action, IN_USE)
            for session in due
            if session.in_use
        ]
        shared: set[str] = set()
        if rule.action == "purge":
            whole = self._core.db.read(partial(purgeable, labels=frozenset(idle)))
            shared = set(idle) - whole
        outcomes += [
            RetainedSession(label, rule.name, rule.action, SHARED if label in shared else None)
            for label in idle
        ]
        if dry_run or not idle:
            return outcomes, []
        return outcomes, self._do(rule, idle, shared, actor)

    def _do(
        self, rule: RetentionRule, idle: Sequence[str], shared: set[str], actor: str
    ) -> list[str]:
        reason = f"retention: {rule.name}"
        if rule.action == "archive":
            for label in idle:
                self._core.db.write(partial(heads.set_status, key=label, status="archived"))
            return []
        redactions = Redactions(self._core)
        made: list[str] = []
        to_redact = idle if rule.action == "redact" else sorted(shared)
        if to_redact:
            with suppress(NotFound):  # all of it was removed before
                made.append(redactions.redact_sessions(to_redact, reason=reason, actor=actor).id)
        whole = frozenset(idle) - shared
        if rule.action == "purge" and whole:
            redaction_id = self._core.db.write(
                partial(purge, labels=whole, reason=reason, actor=actor)
            )
            if redaction_id is not None:
                made.append(redaction_id)
            self._core.forget_read()
            redactions.finish()
        return made


def _note(tx: Transaction, report: RetentionReport) -> None:
    tx.run(
        "insert_retention_run",
        id=report.id,
        started_at=report.started_at,
        finished_at=report.finished_at,
        actor=report.actor,
        report_json=to_json(report),
    )


def _matched(
    tx: Transaction, rule: RetentionRule, policy: RetentionPolicy, now: int
) -> list[_Session]:
    youngest = now - DAY_MS * max(policy.keep_at_least_days, rule.older_than_days or 0)
    sessions = [_Session(*row) for row in tx.run("retention_sessions")]
    return [
        session
        for session in sessions
        if session.updated_at <= youngest
        and _fits(rule, session)
        and not any(_holds(hold, session) for hold in policy.holds)
        and (rule.larger_than_mb is None or _size(tx, session) > rule.larger_than_mb * MEGABYTE)
    ]


def _fits(rule: RetentionRule, session: _Session) -> bool:
    if rule.action == "archive" and session.status != "active":
        return False
    return (
        (not rule.origins or _among(session.origin or "", rule.origins))
        and (not rule.projects or _in_folders(session.folder or "", rule.projects))
        and (not rule.personas or _among(session.persona_id, rule.personas))
    )


def _holds(hold: LegalHold, session: _Session) -> bool:
    return (
        _among(session.label, hold.sessions)
        or _in_folders(session.folder or "", hold.projects)
        or _among(session.persona_id, hold.personas)
    )


def _among(name: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def _in_folders(folder: str, patterns: Iterable[str]) -> bool:
    """Whether a folder is one of these, or within one."""
    plain = [pattern.rstrip("/") for pattern in patterns]
    return _among(folder, [*plain, *(f"{pattern}/*" for pattern in plain)])


def _size(tx: Transaction, session: _Session) -> int:
    turn_ids = rows_of(tx, "turns_of_scope_sessions", [session.label])
    return sum(rows_of(tx, "text_size_of_turns", turn_ids))
