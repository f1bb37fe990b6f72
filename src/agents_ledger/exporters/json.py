"""A thread as one JSON document with every field of every turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from agents_ledger.exporters.exported_thread import ExportedThread

SCHEMA_VERSION = 1


def as_json(exported: ExportedThread) -> Iterator[str]:
    """The document in chunks. What was masked is its last member."""
    yield "{\n"
    yield f'"schema_version": {SCHEMA_VERSION},\n'
    yield from _conversation(exported)
    yield f',\n"masked": {_dump(exported.masked)}\n}}\n'


def _conversation(exported: ExportedThread) -> Iterator[str]:
    thread = msgspec.to_builtins(exported.thread)
    del thread["turns"]
    yield f'"session": {_dump(exported.session)},\n'
    yield f'"thread": {_dump(thread)},\n"turns": ['
    spawned: dict[str, ExportedThread] = {}
    comma = "\n"
    for turn in exported.turns():
        yield comma + _dump(turn)
        comma = ",\n"
        for call in turn.tool_calls:
            subagent = exported.subagent(call)
            if subagent is not None:
                spawned[str(call.spawned_session_label)] = subagent
    yield '\n],\n"subagents": {'
    comma = "\n"
    for label, subagent in spawned.items():
        yield f"{comma}{_dump(label)}: {{\n"
        yield from _conversation(subagent)
        yield "\n}"
        comma = ",\n"
    yield "\n}"


def _dump(value: Any) -> str:
    """ASCII only: control characters and unpaired surrogates are escaped."""
    return json.dumps(msgspec.to_builtins(value))
