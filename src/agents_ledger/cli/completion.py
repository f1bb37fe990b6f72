"""Completion of labels with colons in bash, which takes a colon for the end of a word."""

from __future__ import annotations

import os

from click.shell_completion import (
    BashComplete,
    CompletionItem,
    add_completion_class,
    split_arg_string,
)


@add_completion_class
class BashWithColons(BashComplete):
    """Joins the words that bash has split at colons; bash replaces only the last of them."""

    _already_typed = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        current = int(os.environ["COMP_CWORD"])
        words = split_arg_string(os.environ["COMP_WORDS"])[: current + 1]
        joined: list[str] = []
        before = ""
        for word in words:
            if joined and (_is_colon(word) or _is_colon(before)):
                joined[-1] += word
            else:
                joined.append(word)
            before = word
        if len(words) <= current:
            return joined[1:], ""
        incomplete = joined.pop()
        self._already_typed = incomplete if _is_colon(before) else incomplete.removesuffix(before)
        return joined[1:], incomplete

    def format_completion(self, item: CompletionItem) -> str:
        return f"{item.type},{item.value.removeprefix(self._already_typed)}"


def _is_colon(word: str) -> bool:
    return word != "" and not word.strip(":")
