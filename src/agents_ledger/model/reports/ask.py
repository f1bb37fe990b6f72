"""What the ledger answers to fix(), how() and recall(), as values."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from agents_ledger.model.turns import CallStatus


class CallStep(Struct, frozen=True):
    """A tool call as one line of an answer."""

    turn_id: str
    sequence: int  # in its turn
    tool_name: str
    command: str  # the command of a shell, or else the parameters, shortened
    status: CallStatus


class Fix(Struct, frozen=True):
    """An error that ended: the call that failed, what followed, and the call that succeeded."""

    turn_id: str  # of the error
    session_label: str | None
    session_title: str | None
    started_at: int
    likeness: float  # share of the error's distinctive words, 0 to 1
    error: str  # its lines that report a problem
    failed: CallStep
    steps: tuple[CallStep, ...]  # between the two, without those that only looked
    fixed_by: CallStep  # the last change before the success, or the corrected call
    succeeded: CallStep
    times: int = 1  # how often the same error ended in the same way


class Fixes(Struct, frozen=True):
    """A page of fixes, most similar error first."""

    fixes: tuple[Fix, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[Fix]:
        return iter(self.fixes)

    def __len__(self) -> int:
        return len(self.fixes)


class ToolExample(Struct, frozen=True):
    """A call that succeeded, with the number of equal ones."""

    call: CallStep
    session_label: str | None
    session_title: str | None
    started_at: int
    succeeded: int
    failed: int
    output: str  # how its result begins


class ToolExamples(Struct, frozen=True):
    """A page of successful calls, the most frequent first."""

    examples: tuple[ToolExample, ...]
    next: str | None = None

    def __iter__(self) -> Iterator[ToolExample]:
        return iter(self.examples)

    def __len__(self) -> int:
        return len(self.examples)


class Passage(Struct, frozen=True):
    """A part of a turn that answers a question, with its context."""

    turn_id: str
    session_label: str | None
    session_title: str | None
    started_at: int
    prompt: str | None  # how the turn was asked for, unless the text is from there
    text: str
    answer: str | None  # how the turn ended, unless the text is from there
    tokens: int


class Recalled(Struct, frozen=True):
    """The best passages that fit a budget."""

    passages: tuple[Passage, ...]
    tokens: int
    next: str | None = None

    def __iter__(self) -> Iterator[Passage]:
        return iter(self.passages)

    def __len__(self) -> int:
        return len(self.passages)
