"""What was discussed: each side of a turn in plain text, without what tools and harnesses add."""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import structs

from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.events import Digest, DigestSession, Event
from agents_ledger.store.database import Row, Transaction

TURNS_MAX = 1000
# Blocks that harnesses put around or between what people say. Only these, and only if they are
# closed: anything else in angle brackets is somebody's text.
_BLOCKS = (
    "system-reminder", "local-command-caveat", "local-command-stdout", "command-message",
    "environment_context", "environment_details", "user_instructions", "additional_data",
    "ide_opened_file", "ide_selection", "task-notification", "agent-notification",
    "bash-notification",
)  # fmt: skip
_BLOCK = re.compile(rf"<({'|'.join(_BLOCKS)})(?: [^<>]*)?>")
# A command as somebody typed it: its name, and what was given to it.
_COMMAND = re.compile(r"<(command-name)>")
_GIVEN = re.compile(r"\s*<(command-args)>")
_SPACE = re.compile(r"\s*")
# What OpenClaw puts before a message: notices, who wrote it and where, and when.
_TOLD = re.compile(
    r"(?:System(?: \(untrusted\))?: \[\d{4}-[^\n]*(?:\nSystem(?: \(untrusted\))?:[^\n]*)*(?:\n|$)"
    r"|[A-Z][A-Za-z ]{2,40} \(untrusted metadata\):\n```json\n[^`]*```"
    r"|\[Bootstrap pending\]\n(?:[^\n]+\n)*"
    r")\s*"
)
_OPENINGS = ("System", "Conversation info", "Sender (untrusted", "[Bootstrap pending]")


def of_thread(tx: Transaction, target: str, *, last: int) -> tuple[Event, ...]:
    """What was said in the last turns of a thread, oldest first."""
    if last < 1:
        raise Refused(f"last is {last}; it must be positive")
    turn_id = threads.resolve(tx, target)
    if turn_id is None:
        return ()
    depth = threads.place_of(tx, turn_id).depth
    rows = tx.run(
        "thread_events",
        turn_id=turn_id,
        from_depth=max(1, depth - last + 1),
        to_depth=depth,
    )
    return tuple(_events(rows))


def _events(rows: Iterable[Row]) -> Iterable[Event]:
    for *columns, _ in sorted(rows, key=lambda row: (row[-1], row[0])):
        event = Event(*columns)
        said = readable(event.content)
        if said:
            yield structs.replace(event, content=said)


def readable(text: str) -> str:
    """A message without the blocks that a harness put into it, and commands as they were typed."""
    if text.startswith(_OPENINGS):
        text = _without_told(text)
    return _as_typed(_without_blocks(text)).strip() if "</" in text else text.strip()


def _without_told(text: str) -> str:
    at = 0
    while found := _TOLD.match(text, at):
        at = found.end()
    return text[at:] or text


class _Closers:
    """The closing tags of a text that is gone through once. One that is not found is not looked
    for again: a text may have any number of tags that are never closed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lacking: set[str] = set()

    def after(self, opener: re.Match[str]) -> tuple[int, int] | None:
        """Where what was opened is closed: where that tag begins, and where it ends."""
        tag = f"</{opener[1]}>"
        at = -1 if tag in self._lacking else self._text.find(tag, opener.end())
        if at < 0:
            self._lacking.add(tag)
            return None
        return at, at + len(tag)


def _without_blocks(text: str) -> str:
    closers, parts, done = _Closers(text), [], 0
    for opener in _BLOCK.finditer(text):
        closer = closers.after(opener) if opener.start() >= done else None
        if closer:
            parts.append(text[done : opener.start()])
            space = _SPACE.match(text, closer[1])
            done = space.end() if space else closer[1]
    return "".join(parts) + text[done:]


def _as_typed(text: str) -> str:
    closers, parts, done = _Closers(text), [], 0
    for opener in _COMMAND.finditer(text):
        closer = closers.after(opener) if opener.start() >= done else None
        if closer:
            parts.append(text[done : opener.start()])
            typed, done = [text[opener.end() : closer[0]]], closer[1]
            given = _GIVEN.match(text, done)
            closer = closers.after(given) if given else None
            if given and closer:
                typed.append(text[given.end() : closer[0]])
                done = closer[1]
            parts.append(" ".join(filter(None, typed)))
    return "".join(parts) + text[done:]


def digest(tx: Transaction, *, since: int, until: int) -> Digest:
    """What was discussed between two times, session by session."""
    if until <= since:
        raise Refused("the time ends before it begins")
    rows = tx.run("events_between", since=since, until=until, limit=TURNS_MAX)
    by_session: dict[str | None, list[Row]] = {}
    titles: dict[str | None, str | None] = {}
    turns = list(dict.fromkeys(row[5] for row in rows))
    held = holders(tx, turns)
    for row in sorted(rows, key=lambda row: (row[1], row[0])):
        label, titles[label], _ = held[row[5]]
        by_session.setdefault(label, []).append(row)
    parts = (
        DigestSession(label, titles[label], tuple(_events(own)))
        for label, own in by_session.items()
    )
    return Digest(
        since, until, tuple(part for part in parts if part.events), len(turns) == TURNS_MAX
    )
