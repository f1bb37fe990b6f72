"""What all providers want of a list of messages."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from typing import Any

from agents_ledger.model.context.items import Problem


def known_as(value: Any) -> str:
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


def content_problems(index: int, content: Any) -> Iterator[Problem]:
    """What is wrong with the content of a message, whatever it holds."""
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, Mapping):
                yield Problem(index, f"content holds {type(part).__name__}, not an object")
    elif content is not None and not isinstance(content, str):
        yield Problem(index, f"content is {type(content).__name__}, neither text nor a list")
    if not content:
        yield Problem(index, "there is no content")
