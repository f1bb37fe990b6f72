"""A thread as one JSON document, whole: every field of every turn."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import msgspec

from agents_ledger.exporters.material import Material

SCHEMA_VERSION = 1


def as_json(material: Material) -> Iterator[str]:
    """The document, piece by piece; what was masked stands at its end."""
    yield "{\n"
    yield f'"schema_version": {SCHEMA_VERSION},\n'
    yield from _conversation(material)
    yield f',\n"masked": {_dump(material.masked)}\n}}\n'


def _conversation(material: Material) -> Iterator[str]:
    thread = msgspec.to_builtins(material.thread)
    del thread["turns"]
    yield f'"session": {_dump(material.session)},\n'
    yield f'"thread": {_dump(thread)},\n"turns": ['
    spawned: dict[str, Material] = {}
    comma = "\n"
    for turn in material.turns():
        yield comma + _dump(turn)
        comma = ",\n"
        for call in turn.tool_calls:
            subagent = material.subagent(call)
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
    """Control characters, and halves of characters, stand escaped in it."""
    return json.dumps(msgspec.to_builtins(value))
