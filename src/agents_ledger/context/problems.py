"""What all providers want of a list of messages."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from agents_ledger.model.context import Problem


def known_as(value: Any) -> str:
    """An id as it is compared, whatever stands in its place."""
    return value if isinstance(value, str) else repr(value)


def objects(messages: Sequence[Any]) -> Generator[Problem, None, list[Mapping[str, Any]]]:
    """The messages, if all of them can be looked into."""
    if not messages:
        yield Problem(0, "there are no messages")
    for index, message in enumerate(messages):
        if not isinstance(message, Mapping):
            yield Problem(index, f"a message is {type(message).__name__}, not an object")
            return []
    return list(messages)
