"""Two threads side by side, as values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.reports.usage import ModelUsage, Spent
from agents_ledger.model.turns import FileKind

Side = Literal["a", "b"]


class TouchedFile(Struct, frozen=True):
    """A file that turns read, wrote, referred to or carried, and how many turns did."""

    file_path: str
    kinds: tuple[FileKind, ...]
    turns: int


class ToolCount(Struct, frozen=True):
    """How often a tool was called, and how often that failed."""

    tool_name: str
    calls: int
    failed: int


class Branch(Struct, frozen=True):
    """What one of two threads did after they parted."""

    turn_id: str  # its head
    turn_count: int
    turns: tuple[Headline, ...]  # the latest of them, oldest first
    spent: Spent
    models: tuple[ModelUsage, ...]
    tools: tuple[ToolCount, ...]  # most used first
    files: tuple[TouchedFile, ...]  # by path
    answer: str | None  # how its last response begins


class Comparison(Struct, frozen=True):
    """Where two threads part, and what each did from there on."""

    ancestor: Headline | None  # the last turn they share; None: they share none
    a: Branch
    b: Branch
    files_in_both: tuple[str, ...]


class Replaced(Struct, frozen=True):
    """Text of a file before and after."""

    old: str
    new: str


class WrittenFile(Struct, frozen=True):
    """A file that one of two branches wrote, or both."""

    file_path: str
    by: tuple[Side, ...]
    diff: str | None  # from A's last content to B's, "" if they are equal; None: one is not known
    a: tuple[Replaced, ...] = ()  # without a diff: the changes themselves, oldest first
    b: tuple[Replaced, ...] = ()
