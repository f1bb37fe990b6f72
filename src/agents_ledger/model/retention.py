"""How long conversations are kept, as values: rules, holds, and what a run did."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta, Struct

RetentionAction = Literal["archive", "redact", "purge"]


class RetentionRule(Struct, frozen=True, forbid_unknown_fields=True):
    """What is done with sessions that fit all that a rule names; `*` matches any characters."""

    name: str  # in the record of each run
    action: RetentionAction  # archive, redact (content goes, the skeleton stays) or purge
    older_than_days: Annotated[int, Meta(ge=0)] | None = None  # since the session changed last
    larger_than_mb: Annotated[float, Meta(ge=0)] | None = None  # text of its turns
    origins: tuple[str, ...] = ()  # such as codex, claude-code or native
    projects: tuple[str, ...] = ()  # folders that its turns worked in, or patterns
    personas: tuple[str, ...] = ()  # their ids, or patterns


class LegalHold(Struct, frozen=True, forbid_unknown_fields=True):
    """Sessions that no rule touches."""

    reason: str  # in the record of each run
    sessions: tuple[str, ...] = ()  # labels, or patterns
    projects: tuple[str, ...] = ()  # folders, or patterns
    personas: tuple[str, ...] = ()  # ids, or patterns


class RetentionPolicy(Struct, frozen=True, forbid_unknown_fields=True):
    """How long conversations are kept. Without rules, for ever."""

    keep_at_least_days: Annotated[int, Meta(ge=0)] = 0  # nothing that changed since is touched
    rules: tuple[RetentionRule, ...] = ()  # applied in this order
    holds: tuple[LegalHold, ...] = ()  # they win over every rule


class RetainedSession(Struct, frozen=True):
    """What a rule did, or would do, with a session."""

    label: str  # of the session
    rule: str  # its name
    action: RetentionAction  # archive, redact or purge
    # Why it was not done, or not in full.
    kept_because: str | None = None


class RetentionReport(Struct, frozen=True):
    """One run of the retention policy."""

    id: str  # ULID
    started_at: int
    finished_at: int | None
    actor: str  # who started it
    dry_run: bool  # nothing was done
    sessions: tuple[RetainedSession, ...]  # that were due
    redactions: tuple[str, ...] = ()  # ids
