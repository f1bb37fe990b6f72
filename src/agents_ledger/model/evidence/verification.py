"""What `verify` found."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

Discrepancy = Literal[
    "changed", "removed", "inserted", "reordered", "rolled back", "forged", "unreadable"
]


class EvidenceFinding(Struct, frozen=True):
    """Something that differs from what was recorded."""

    what: Discrepancy  # how it differs
    kind: str  # turn, move, source, leaf, redaction, purge, coverage, key or checkpoint
    id: str  # of the turn or move, of a block its file and start
    detail: str = ""  # what is known besides

    def __str__(self) -> str:
        return f"{self.what}: {self.kind} {self.id}{f' ({self.detail})' if self.detail else ''}"


class Verification(Struct, frozen=True, kw_only=True):
    """What was compared, and what differs from what was recorded."""

    size: int  # leaves of the log
    root: str  # of the log, in hexadecimal digits
    waiting: int  # leaves that are not sequenced yet
    turns: int  # that are covered
    moves: int  # of sessions
    sources: int  # blocks of source records
    redacted: int  # values that were removed, which their leaves still prove
    purged: int  # turns and blocks that were removed as a whole
    uncovered: int  # rows of before, that are not sealed yet
    covered_since: int | None  # when a ledger from before this was sealed; None: from its beginning
    checkpoints: int  # that agree with the log
    unverified: int  # of them, whose signer's key is not known here
    findings: tuple[EvidenceFinding, ...]  # what differs from what was recorded

    @property
    def holds(self) -> bool:
        """Whether everything that is covered equals what was recorded."""
        return not self.findings
