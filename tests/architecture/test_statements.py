"""SQL is written as SQL: every named statement is used, and none is missing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from agents_ledger.ledger.maintenance import audit, salvage
from agents_ledger.store import queries
from agents_ledger.store.postgres.statements import WORDS as POSTGRES_WORDS
from agents_ledger.store.sqlite import hook_reader
from agents_ledger.store.sqlite.statements import WORDS as SQLITE_WORDS
from tests.architecture.conftest import PACKAGE, Modules

SQL = PACKAGE / "store" / "sql"
FOREIGN = (  # they read and write databases of other programs
    "databases.py",
    "row_archive.py",
    "source.py",
    "table_scan.py",
)


def used(modules: Modules) -> set[str]:
    """The names passed to run(), read_as(), change() and run_many()."""
    return {name for tree in modules.values() for name in names_in(tree)}


def names_in(tree: ast.AST) -> Iterator[str]:
    """Said in the call itself, or given to the variable that is passed."""
    given = {
        target.id: node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in ("run", "read_as", "change", "run_many")
            and node.args
        ):
            passed = node.args[0]
            said = given.get(passed.id, passed) if isinstance(passed, ast.Name) else passed
            for part in ast.walk(said):
                if isinstance(part, ast.Constant) and isinstance(part.value, str):
                    yield part.value


def texts(modules: Modules) -> Iterator[tuple[Path, str]]:
    """Every text constant of the package, with its module."""
    for path, tree in modules.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield path, node.value


def test_every_statement_is_used_and_none_is_missing(modules: Modules) -> None:
    by_prefix = (audit.PREFIX, salvage.MEND, salvage.TIDY, salvage.FLAG)
    stated = {name for name in queries.names() if not name.startswith(by_prefix)}
    stated |= hook_reader.statements().keys()

    # A statement may be chosen before it is run.
    assert stated - {text for _, text in texts(modules)} == set()
    assert used(modules) - stated == set()


def test_every_fragment_and_every_word_is_used() -> None:
    pieces = set(re.findall(r"^-- (\w+) --$", queries.read("fragments.sql"), re.MULTILINE))
    texts = [
        path.read_text(encoding="utf-8")
        for path in SQL.rglob("*.sql")
        if path.name != "fragments.sql"
    ]
    named = {word for text in texts for word in re.findall(r"<(\w+)>", text)}

    assert pieces <= named
    assert named <= pieces | set(SQLITE_WORDS)
    assert set(SQLITE_WORDS) == set(POSTGRES_WORDS)
    assert set(SQLITE_WORDS) <= named


def test_both_engines_have_the_same_views_and_guard_the_same_tables() -> None:
    made = []
    for engine in ("sqlite", "postgres"):
        views = re.findall(r"^CREATE VIEW (\w+)", queries.read(f"views.{engine}.sql"), re.M)
        guards = queries.read(f"guards.{engine}.sql")
        guarded = set()
        for words, table in re.findall(
            r"^CREATE TRIGGER (?!summaries)\w+ (?:BEFORE|AFTER) ([^;]*?)\s+ON (\w+)", guards, re.M
        ):
            for verb in re.findall(r"INSERT|UPDATE|DELETE", words):
                columns = re.sub(r"\s+", " ", words.partition(" OF")[2]).strip()
                guarded.add((table, verb, columns))
        made.append((views, guarded))

    assert made[0] == made[1]


def test_sql_is_found_only_in_the_store(modules: Modules) -> None:
    sql = re.compile(r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM)\b .*\b(FROM|SET|VALUES|WHERE)\b")
    elsewhere = [
        f"{path}: {text!r}"
        for path, text in texts(modules)
        if "store" not in path.parts and path.name not in FOREIGN and sql.search(text)
    ]

    assert elsewhere == []
