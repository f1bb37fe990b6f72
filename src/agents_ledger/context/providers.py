"""The providers whose form a context can take, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agents_ledger.context import anthropic, openai_chat, openai_responses
from agents_ledger.model.context.items import Item, Problem


class Provider(NamedTuple):
    """How a context is written for a provider, and what it refuses."""

    render: Callable[[str | None, Iterable[Item]], dict[str, Any]]
    problems: Callable[[Sequence[Any]], Iterator[Problem]]
    messages: str  # the name under which the list of messages is passed


PROVIDERS: dict[str, Provider] = {
    anthropic.NAME: Provider(anthropic.render, anthropic.problems, "messages"),
    openai_chat.NAME: Provider(openai_chat.render, openai_chat.problems, "messages"),
    openai_responses.NAME: Provider(openai_responses.render, openai_responses.problems, "input"),
}
