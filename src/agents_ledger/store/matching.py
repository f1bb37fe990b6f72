"""A search in the words of each engine's index."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from agents_ledger.store.database import Engine

# Characters. PostgreSQL accepts words of up to 2,046 bytes, and a character takes at most four.
WORD_MAX = 500


class QueryTerm(msgspec.Struct, frozen=True):
    """Words one after the other in any of these columns of the index."""

    words: tuple[str, ...]
    columns: tuple[str, ...]
    prefix: bool = False


class TermGroup(msgspec.Struct, frozen=True):
    """At least one of these must be found; `negated`: none may."""

    wanted: tuple[QueryTerm, ...]
    negated: bool = False


def match(engine: Engine, groups: Sequence[TermGroup], fold: Callable[[str], str]) -> str:
    """What the statements of queries/search.sql take as :match. At least one group is not
    negated."""
    return _match_sqlite(groups) if engine == "sqlite" else _match_postgres(groups, fold)


def _match_sqlite(groups: Sequence[TermGroup]) -> str:
    required = " AND ".join(_either(group) for group in groups if not group.negated)
    avoided = [_either(group) for group in groups if group.negated]
    return f"({required}) NOT ({' OR '.join(avoided)})" if avoided else required


def _either(group: TermGroup) -> str:
    return f"({' OR '.join(_phrase(wanted) for wanted in group.wanted)})"


def _phrase(wanted: QueryTerm) -> str:
    words = " ".join(wanted.words).replace('"', '""')
    return f'{{{" ".join(wanted.columns)}}} : "{words}"{" *" if wanted.prefix else ""}'


def _match_postgres(groups: Sequence[TermGroup], fold: Callable[[str], str]) -> str:
    """TermGroup 0 is what may not be found."""
    rows = []
    for number, group in enumerate(groups, 1):
        for wanted in group.wanted:
            lexemes = [_lexeme(fold(word)) for word in wanted.words]
            if wanted.prefix:
                lexemes[-1] += ":*"
            rows.append(
                {
                    "n": 0 if group.negated else number,
                    "parts": f" {' '.join(wanted.columns)} ",
                    "words": " <-> ".join(lexemes),
                }
            )
    return msgspec.json.encode(rows).decode()


def _lexeme(word: str) -> str:
    word = word[:WORD_MAX]
    return "'" + word.replace("\\", "\\\\").replace("'", "''") + "'"


def vector(words: Sequence[str]) -> str:
    places: dict[str, list[str]] = {}
    for number, word in enumerate(words, 1):
        places.setdefault(word, []).append(str(number))
    return " ".join(f"{_lexeme(word)}:{','.join(at)}" for word, at in places.items())
