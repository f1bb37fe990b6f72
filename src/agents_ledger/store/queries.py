"""Loads the named statements of sql/."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import takewhile
from operator import attrgetter, itemgetter
from pathlib import Path
from typing import NamedTuple

_SQL = Path(__file__).parent / "sql"
_HEADER = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_PIECE = re.compile(r"<(\w+)>")
PARAMETER = re.compile(r"(?<!:):([a-z_]+)")
_COMMENT = re.compile(r"^\s*--.*\n?", re.MULTILINE)


class Positional(NamedTuple):
    """A statement that takes its values as a sequence."""

    sql: str
    values: Callable[[Mapping[str, object]], tuple[object, ...]]  # by their names
    attributes: Callable[[object], tuple[object, ...]]  # of a thing that has such


def read(path: str) -> str:
    return (_SQL / path).read_text(encoding="utf-8")


def _named(text: str) -> Iterator[tuple[str, str]]:
    parts = _HEADER.split(text)
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        yield name, _COMMENT.sub("", body).strip().rstrip(";").rstrip()


@cache
def _statements() -> tuple[dict[str, str], dict[str, str]]:
    pieces = dict(_named(read("fragments.sql")))
    statements: dict[str, str] = {}
    for path in sorted((_SQL / "queries").glob("*.sql")):
        for name, body in _named(path.read_text(encoding="utf-8")):
            if name in statements:
                raise ValueError(f"statement {name} is defined twice")
            statements[name] = body
    return pieces, statements


def pieces(path: str) -> dict[str, str]:
    """The named pieces of one file of sql/: words that an engine spells its own way."""
    return dict(_named(read(path)))


def fill(text: str, words: Mapping[str, str]) -> str:
    """The text with every <word> in its engine's spelling."""
    filled = _PIECE.sub(lambda found: words[found[1]], text)
    # Twice, because a piece may name another.
    return _PIECE.sub(lambda found: words[found[1]], filled)


def load(words: Mapping[str, str]) -> dict[str, str]:
    """Every statement by name; `words` are the engine's spellings."""
    return {name: one(name, words) for name in names()}


def one(name: str, words: Mapping[str, str]) -> str:
    pieces, statements = _statements()
    return fill(statements[name], {**pieces, **words}).rstrip()


def positional(sql: str) -> Positional:
    """The statement with ? for every :name: given names, a driver looks them up for every row."""
    names = PARAMETER.findall(sql)
    marked = PARAMETER.sub("?", sql)
    if len(names) > 1:
        return Positional(marked, itemgetter(*names), attrgetter(*names))
    if not names:
        return Positional(marked, lambda _: (), lambda _: ())
    (name,) = names
    return Positional(marked, lambda values: (values[name],), lambda thing: (getattr(thing, name),))


def names() -> tuple[str, ...]:
    return tuple(_statements()[1])


def remarks(path: str) -> dict[str, str]:
    """What the comment under each statement of one file of sql/ says."""
    parts = _HEADER.split(read(path))
    statements = {}
    for name, body in zip(parts[1::2], parts[2::2], strict=True):
        lines = takewhile(lambda line: line.startswith("--"), body.strip().splitlines())
        statements[name] = " ".join(line.removeprefix("--").strip() for line in lines)
    return statements


@cache
def split(script: str) -> tuple[str, ...]:
    """The statements of a script, one by one; a trigger or function body counts as one."""
    statements: list[str] = []
    lines: list[str] = []
    inside = False
    for line in script.splitlines():
        code = line.partition("--")[0].rstrip()
        if not code and not lines:
            continue
        lines.append(line)
        if code.count("$$") == 1:
            inside = not inside
        if code.endswith(";") and not inside:
            statement = "\n".join(lines)
            is_body = statement.startswith("CREATE TRIGGER") and "BEGIN" in statement
            if not is_body or code.endswith("END;"):
                statements.append(statement)
                lines = []
    return tuple(statements)


def migration_files() -> list[Path]:
    """The migrations, oldest first: sql/migrations/0001_name.sql and on."""
    return sorted((_SQL / "migrations").glob("[0-9]*.sql"))
