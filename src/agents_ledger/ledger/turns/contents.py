"""The messages and tool calls of turns.

Triggers of the database guarantee that those of a sealed turn never change, so they are cached; the
turn's own row is read each time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import Struct, structs

from agents_ledger.model.turns import (
    SEALED,
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

# What a turn, message or call takes in memory besides its text, in characters.
VALUE_CHARS = 400
# Longer stretches are not cached: they would evict everything else.
TURNS_MAX = 200
_STATUS = Turn.__struct_fields__.index("status")
_PROJECTED = Turn.__struct_fields__.index("projected")


class Stretch(Struct, frozen=True, gc=False):
    """A part of a turn's thread; `segment_id` is the turn's, and begins below `fork_depth`."""

    turn_id: str
    segment_id: int
    fork_depth: int
    from_depth: int
    to_depth: int

    @property
    def in_segment(self) -> bool:
        """Whether it lies in that segment as a whole."""
        return self.from_depth > self.fork_depth


class Steps(Struct, frozen=True, gc=False):
    messages: tuple[Message, ...] = ()
    tool_calls: tuple[ToolCall, ...] = ()

    @property
    def letters(self) -> int:
        """What they take in memory, in characters."""
        values = 1 + len(self.messages) + len(self.tool_calls)
        count = 0
        for message in self.messages:
            count += len(message.content or "") + len(message.thinking or "")
            count += len(message.context_json or "") + len(message.metadata_json or "")
            if message.files or message.lints or message.codeblocks:
                values += len(message.files) + len(message.lints) + len(message.codeblocks)
                count += sum(len(block.content or "") for block in message.codeblocks)
                count += sum(len(lint.message or "") for lint in message.lints)
        for call in self.tool_calls:
            count += len(call.params_json) + len(call.result_json or "") + len(call.error or "")
        return VALUE_CHARS * values + count


NO_STEPS = Steps()


def steps_of(tx: Transaction, stretch: Stretch, rows: Sequence[Row]) -> dict[str, Steps]:
    """The steps of the turns of a stretch, by id. `rows` are the turns' rows, root first.

    Only several turns at the end of a thread are cached: they are read again when the thread is
    continued. A single turn is mostly read once.
    """
    cache = tx.cache
    if cache is None or not 1 < len(rows) <= TURNS_MAX or rows[-1][0] != stretch.turn_id:
        return _read(tx, stretch)
    by_turn = {row[0]: steps for row in rows if (steps := cache.get(row[0])) is not None}
    missing = [row for row in rows if row[0] not in by_turn]
    if not missing:
        return by_turn
    first, last = missing[0][-1], missing[-1][-1]
    by_turn |= _read(tx, structs.replace(stretch, from_depth=first, to_depth=last))
    for row in missing:
        steps = by_turn.setdefault(row[0], NO_STEPS)
        # An imported turn may be derived again from its files, so only turns recorded here are
        # kept.
        if row[_STATUS] in SEALED and not row[_PROJECTED]:
            cache.keep(row[0], steps, steps.letters)
    return by_turn


def _read(tx: Transaction, stretch: Stretch) -> dict[str, Steps]:
    within = structs.asdict(stretch)
    if stretch.in_segment:
        messages = tx.read_as("segment_messages", Message, **within)
        calls = tx.read_as("segment_tool_calls", ToolCall, **within)
    else:
        messages = tx.read_as("thread_messages", Message, **within)
        calls = tx.read_as("thread_tool_calls", ToolCall, **within)
    messages_of, calls_of = _by_turn(messages), _by_turn(calls)
    for turn_id, own in messages_of.items():
        if own[0].sequence < 0:
            messages_of[turn_id] = _with_details(tx, turn_id, own)
    return {
        turn_id: Steps(tuple(messages_of.get(turn_id, ())), tuple(calls_of.get(turn_id, ())))
        for turn_id in messages_of | calls_of
    }


_BY_SEQUENCE = attrgetter("sequence")


def _by_turn(steps: Iterable[S]) -> dict[str, list[S]]:
    """The steps of each turn, in order. Those of one turn mostly come together, but need not."""
    by_turn: dict[str, list[S]] = {}
    turn_id = None
    for step in steps:
        if step.turn_id != turn_id:
            turn_id = step.turn_id
            own = by_turn.setdefault(turn_id, [])
        own.append(step)
    for own in by_turn.values():
        own.sort(key=_BY_SEQUENCE)
    return by_turn


def _with_details(tx: Transaction, turn_id: str, messages: Sequence[Message]) -> list[Message]:
    """The messages with their files, lints and codeblocks.

    A negative sequence marks a message that has any, so that others need no further statements.
    """
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
    details: dict[str, tuple[Any, ...]] = {}
    for message_id, *values in rows:
        of_kind(kind).check_named(tuple(values))
        details[message_id] = (*details.get(message_id, ()), kind(*values))
    return details
