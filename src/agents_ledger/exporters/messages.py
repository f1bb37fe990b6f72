"""What a model is shown at a turn, as a provider takes it: one message a line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agents_ledger.exporters.secrets import Masker
from agents_ledger.ledger.ledger import Ledger

_LISTS = ("messages", "input")


def as_messages(ledger: Ledger, target: str, provider: str, masker: Masker) -> Iterator[str]:
    """The lines; what a provider takes beside them, such as a system prompt, is the first."""
    rendered = ledger.context(target).rendered(provider)
    [name] = [name for name in _LISTS if name in rendered]
    beside = {key: value for key, value in rendered.items() if key != name and value}
    if beside:
        yield _line(_masked(beside, masker, "beside the messages"))
    for number, message in enumerate(rendered[name], 1):
        yield _line(_masked(message, masker, f"message {number}"))


def _masked(value: Any, masker: Masker, where: str) -> Any:
    """The value with every text in it looked through."""
    if isinstance(value, str):
        return masker.text(value, where)
    if isinstance(value, dict):
        return {key: _masked(each, masker, where) for key, each in value.items()}
    if isinstance(value, list):
        return [_masked(each, masker, where) for each in value]
    return value


def _line(value: Any) -> str:
    return json.dumps(value) + "\n"
