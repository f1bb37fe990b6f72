"""What was said, as values."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct


class Event(Struct, frozen=True):
    """One side of a turn in plain text: what was asked, or what was answered."""

    id: str
    timestamp: int
    channel: str  # where it came from; native: recorded here
    direction: Literal["inbound", "outbound"]
    content: str
    thread_id: str  # the turn
    source_adapter: str
    source_id: str | None  # the message
    metadata_json: str


class Digest(Struct, frozen=True):
    """What was discussed within a time, session by session, each in its order."""

    since: int
    until: int
    sessions: tuple[DigestSession, ...]
    left_out: bool = False  # there were more turns than could be shown


class DigestSession(Struct, frozen=True):
    """A session's part of a digest."""

    label: str | None
    title: str | None
    events: tuple[Event, ...]
