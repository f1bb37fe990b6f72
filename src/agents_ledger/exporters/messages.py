"""The context of a model at a turn in the format of a provider, one message per line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.secrets.masking import Masker

_LISTS = ("messages", "input")


def as_messages(ledger: Ledger, target: str, provider: str, masker: Masker) -> Iterator[str]:
    """The lines. Other parameters of the request, such as a system prompt, are the first line."""
    rendered = ledger.context(target).rendered(provider)
    [name] = [name for name in _LISTS if name in rendered]
    parameters = {key: value for key, value in rendered.items() if key != name and value}
    if parameters:
        yield _line(_masked(parameters, masker, "parameters"))
    for number, message in enumerate(rendered[name], 1):
        yield _line(_masked(message, masker, f"message {number}"))


def _masked(value: Any, masker: Masker, where: str) -> Any:
    if isinstance(value, str):
        return masker.text(value, where)
    if isinstance(value, dict):
        return {key: _masked(member, masker, where) for key, member in value.items()}
    if isinstance(value, list):
        return [_masked(item, masker, where) for item in value]
    return value


def _line(value: Any) -> str:
    return json.dumps(value) + "\n"
