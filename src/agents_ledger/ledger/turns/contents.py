"""The messages and tool calls of turns. Those of a sealed turn never change: the guards of the
database see to that. So they are read once; the turn's own row is read each time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, structs

from agents_ledger.model.turns import (
    Message,
    MessageCodeblock,
    MessageFile,
    MessageLint,
    ToolCall,
    Turn,
)
from agents_ledger.store.checks.row_types import of_kind
from agents_ledger.store.database import Row, Transaction

S = TypeVar("S", bound=Message | ToolCall)

VALUE_LETTERS = 400  # a turn, message or call takes as much room as so many letters
TURNS_MAX = 200  # of longer stretches nothing is remembered: they would push out all else
SEALED = ("completed", "failed")
_STATUS = Turn.__struct_fields__.index("status")
_PROJECTED = Turn.__struct_fields__.index("projected")


class Stretch(Struct, frozen=True, gc=False):
    """A part of the thread of a turn, which stands in a segment that begins below `fork_depth`."""

    turn_id: str
    segment_id: int
    fork_depth: int
    from_depth: int
    to_depth: int

    @property
    def in_segment(self) -> bool:
        """Whether all of it stands in that segment."""
        return self.from_depth > self.fork_depth


class Steps(Struct, frozen=True, gc=False):
    """What a turn consists of."""

    messages: tuple[Message, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def letters(self) -> int:
        """How much room they take in memory, about: their texts, and what a value takes itself."""
        texts: list[str | None] = []
        details = 0
        for said in self.messages:
            texts += (said.content, said.thinking, said.context_json, said.metadata_json)
            details += len(said.files) + len(said.lints) + len(said.codeblocks)
            texts += (block.content for block in said.codeblocks)
            texts += (lint.message for lint in said.lints)
        for call in self.tool_calls:
            texts += (call.params_json, call.result_json, call.error)
        values = 1 + len(self.messages) + len(self.tool_calls) + details
        return VALUE_LETTERS * values + sum(len(text) for text in texts if text)


NO_STEPS = Steps()


def steps_of(tx: Transaction, stretch: Stretch, rows: Sequence[Row]) -> dict[str, Steps]:
    """The steps of the turns of a stretch, by id. `rows` are the turns', root first. Remembered are
    those of several turns at the end of a thread: whoever goes on with it reads them again. One
    turn alone is what somebody looks at."""
    known = tx.cache
    if known is None or not 1 < len(rows) <= TURNS_MAX or rows[-1][0] != stretch.turn_id:
        return _read(tx, stretch)
    found = {row[0]: steps for row in rows if (steps := known.get(row[0])) is not None}
    missing = [row for row in rows if row[0] not in found]
    if not missing:
        return found
    first, last = missing[0][-1], missing[-1][-1]
    found |= _read(tx, structs.replace(stretch, from_depth=first, to_depth=last))
    for row in missing:
        steps = found.setdefault(row[0], NO_STEPS)
        if row[_STATUS] in SEALED and not row[_PROJECTED]:
            known.keep(row[0], steps, steps.letters)
    return found


def _read(tx: Transaction, stretch: Stretch) -> dict[str, Steps]:
    within = structs.asdict(stretch)
    if stretch.in_segment:
        messages = tx.read_as("segment_messages", Message, **within)
        calls = tx.read_as("segment_tool_calls", ToolCall, **within)
    else:
        messages = tx.read_as("thread_messages", Message, **within)
        calls = tx.read_as("thread_tool_calls", ToolCall, **within)
    said, called = _by_turn(messages), _by_turn(calls)
    for owner, own in said.items():
        if own[0].sequence < 0:
            said[owner] = _with_details(tx, owner, own)
    return {
        owner: Steps(tuple(said.get(owner, ())), tuple(called.get(owner, ())))
        for owner in said | called
    }


_BY_SEQUENCE = attrgetter("sequence")


def _by_turn(steps: Iterable[S]) -> dict[str, list[S]]:
    """The steps of each turn, in order. A turn's mostly come together, but need not."""
    found: dict[str, list[S]] = {}
    turn_id = None
    for step in steps:
        if step.turn_id != turn_id:
            turn_id = step.turn_id
            own = found.setdefault(turn_id, [])
        own.append(step)
    for own in found.values():
        own.sort(key=_BY_SEQUENCE)
    return found


def _with_details(tx: Transaction, turn_id: str, messages: Sequence[Message]) -> list[Message]:
    """The same messages with their files, lints and codeblocks, and their true sequence."""
    files = _by_message(tx.run("turn_files", turn_id=turn_id), MessageFile)
    lints = _by_message(tx.run("turn_lints", turn_id=turn_id), MessageLint)
    blocks = _by_message(tx.run("turn_codeblocks", turn_id=turn_id), MessageCodeblock)
    own = (
        structs.replace(
            message,
            sequence=-1 - message.sequence,
            files=files.get(message.id, ()),
            lints=lints.get(message.id, ()),
            codeblocks=blocks.get(message.id, ()),
        )
        if message.sequence < 0
        else message
        for message in messages
    )
    return sorted(own, key=_BY_SEQUENCE)


def _by_message(rows: Iterable[Row], kind: Any) -> Mapping[str, tuple[Any, ...]]:
    found: dict[str, tuple[Any, ...]] = {}
    for message_id, *values in rows:
        of_kind(kind).check_named(tuple(values))
        found[message_id] = (*found.get(message_id, ()), kind(*values))
    return found
