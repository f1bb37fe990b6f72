"""Masks secrets in answers, as in exports.

Answers quote parts of turns. A secret that is cut, or that was separated from the name that gives
it away, no longer looks like one; so the turns that an answer cites are searched for secrets first.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import NotFound
from agents_ledger.model.secrets.detection import MARK, find_secrets
from agents_ledger.model.secrets.masking import Masker
from agents_ledger.model.turns import Turn

PART_MIN = 6  # characters of a secret that are masked where it is cut
# A key of which only the beginning is left, as in the title of a session.
_CUT_KEY = re.compile(
    r"(?<![A-Za-z0-9_-])(?:sk-|gh[pousr]_|github_pat_|glpat-|xox[abeprs]-|xapp-|AKIA|ASIA|AIza"
    r"|GOCSPX-|[prs]k_live_|npm_|pypi-|hf_|eyJ)(?=[A-Za-z_-]*\d)[A-Za-z0-9._-]{4,}…(?!\[masked)"
)


def masked(ledger: Ledger, answer: Any) -> Any:
    """An answer, as plain values, with the secrets in its texts masked."""
    known = _Secrets()
    for turn_id in dict.fromkeys(_turn_ids(answer)):
        # An id may be an argument that was given back.
        with suppress(NotFound):
            known.add(ledger.get_turn(turn_id))
    masker = Masker()
    return _mapped(answer, lambda text: masker.text(known.removed_from(text), ""))


class _Secrets:
    """The secrets of whole turns."""

    def __init__(self) -> None:
        self._words: dict[str, None] = {}

    def add(self, turn: Turn) -> None:
        for text in _texts(turn):
            for start, end, _ in find_secrets(text):
                # White space may have changed: a snippet is one line.
                words = (word for word in text[start:end].split() if len(word) >= PART_MIN)
                self._words.update(dict.fromkeys(words))

    def removed_from(self, text: str) -> str:
        text = _CUT_KEY.sub(MARK, text)
        for word in self._words:
            text = text.replace(word, MARK)
            text = _without_end(_without_beginning(text, word), word)
        return text


def _without_beginning(text: str, word: str) -> str:
    """The text without the end of a word that it begins with, after a mark of a cut."""
    start = len(text) - len(text.lstrip("…"))
    for size in range(len(word) - 1, PART_MIN - 1, -1):
        if text.startswith(word[-size:], start):
            return f"{MARK}{text[start + size :]}"
    return text


def _without_end(text: str, word: str) -> str:
    """The text without the beginning of a word where it ends, before a mark of a cut."""
    at = text.rfind("…")
    end = at if at >= 0 and "\n" not in text[at:] else len(text)
    for size in range(len(word) - 1, PART_MIN - 1, -1):
        if text.endswith(word[:size], 0, end):
            return f"{text[: end - size]}{MARK}{text[end:]}"
    return text


def _texts(turn: Turn) -> Iterator[str]:
    for message in turn.messages:
        yield from filter(None, (message.content, message.thinking))
    for call in turn.tool_calls:
        yield from filter(None, (call.params_json, call.result_json, call.error))


def _turn_ids(value: Any) -> Iterator[str]:
    if isinstance(value, list):
        for item in value:
            yield from _turn_ids(item)
    elif isinstance(value, dict):
        for name, item in value.items():
            if name == "turn_id" and isinstance(item, str):
                yield item
            else:
                yield from _turn_ids(item)


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) for item in value]
    if isinstance(value, dict):
        return {name: _mapped(item, change) for name, item in value.items()}
    return value
