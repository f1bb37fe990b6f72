"""What was discussed: the messages of turns as plain text, without tools and harness blocks.

Events are rows of the view of that name, which removes the blocks: whoever selects from it reads
the same. readable() does so for one text, as in headlines.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from agents_ledger.ledger.sessions.lookup import holders
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Refused
from agents_ledger.model.reports.events import Digest, DigestSession, Event
from agents_ledger.store.database import Row, Transaction

TURNS_MAX = 1000
# Blocks that harnesses and models add to messages. Only these are removed, and only if they are
# closed: other text in angle brackets was written by the user. The view harness_tags, which events
# are made with, has the same.
_BLOCKS = (
    "system-reminder", "local-command-caveat", "local-command-stdout", "command-message",
    "environment_context", "environment_details", "user_instructions", "additional_data",
    "ide_opened_file", "ide_selection", "task-notification", "agent-notification",
    "bash-notification", "function_calls", "antml:function_calls", "function_results",
    "antml:function_results",
)  # fmt: skip
_BLOCK = re.compile(rf"<({'|'.join(_BLOCKS)})(?: [^<>]*)?>")
# A slash command: its name and its arguments.
_COMMAND = re.compile(r"<(command-name)>")
_ARGUMENTS = re.compile(r"\s*<(command-args)>")
_SPACE = re.compile(r"\s*")
# What OpenClaw puts before a message: notices, sender, channel and time.
_NOTICE = re.compile(
    r"(?:System(?: \(untrusted\))?: \[\d{4}-[^\n]*(?:\nSystem(?: \(untrusted\))?:[^\n]*)*(?:\n|$)"
    r"|[A-Z][A-Za-z ]{2,40} \(untrusted metadata\):\n```json\n[^`]*```"
    r"|\[Bootstrap pending\]\n(?:[^\n]+\n)*"
    r")\s*"
)
_OPENINGS = ("System", "Conversation info", "Sender (untrusted", "[Bootstrap pending]")


def of_thread(tx: Transaction, target: str, *, last: int) -> tuple[Event, ...]:
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
        yield Event(*columns)


def readable(text: str) -> str:
    """A message without harness blocks, and with slash commands as the user typed them."""
    if text.startswith(_OPENINGS):
        text = _without_told(text)
    return _as_typed(_without_blocks(text)).strip() if "</" in text else text.strip()


def _without_told(text: str) -> str:
    at = 0
    while notice := _NOTICE.match(text, at):
        at = notice.end()
    return text[at:] or text


class _Closers:
    """Finds closing tags in one pass. A missing tag is not searched for again: a text may have any
    number of tags that are never closed."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._lacking: set[str] = set()

    def after(self, opener: re.Match[str]) -> tuple[int, int] | None:
        """Start and end of the closing tag of an opening one."""
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
            arguments = _ARGUMENTS.match(text, done)
            closer = closers.after(arguments) if arguments else None
            if arguments and closer:
                typed.append(text[arguments.end() : closer[0]])
                done = closer[1]
            parts.append(" ".join(filter(None, typed)))
    return "".join(parts) + text[done:]


def digest(tx: Transaction, *, since: int, until: int) -> Digest:
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
