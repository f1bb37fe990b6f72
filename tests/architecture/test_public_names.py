"""The public face: everything a user meets can be imported from the package itself."""

from __future__ import annotations

import ast
import importlib
import importlib.metadata
import inspect
import subprocess
import sys
import types
import typing
from pathlib import Path
from typing import Any

import msgspec
import pytest

import agents_ledger
from agents_ledger import LedgerError
from agents_ledger.model import errors

PACKAGE = Path(agents_ledger.__file__).parent
FACES = (
    agents_ledger.Ledger,
    agents_ledger.AsyncLedger,
    agents_ledger.LiveTurn,
    agents_ledger.AsyncLiveTurn,
    agents_ledger.LiveCall,
    agents_ledger.AsyncLiveCall,
)


def test_every_folder_is_a_package() -> None:
    """Else the check of the layers does not see it."""
    folders = {path.parent for path in PACKAGE.rglob("*.py")}

    assert all((folder / "__init__.py").exists() for folder in folders)


def test_every_public_name_can_be_imported() -> None:
    for name in agents_ledger.__all__:
        value = getattr(agents_ledger, name)
        assert callable(value) or isinstance(value, types.UnionType), name


def test_the_public_names_are_listed_once_and_in_order() -> None:
    assert agents_ledger.__all__ == sorted(set(agents_ledger.__all__))
    assert set(agents_ledger.__all__) <= set(dir(agents_ledger))


def test_the_names_that_checkers_see_are_those_that_can_be_imported() -> None:
    tree = ast.parse((PACKAGE / "__init__.py").read_text(encoding="utf-8"))
    seen = {
        (alias.name, node.module)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("agents_ledger.")
        for alias in node.names
    }

    assert {name for name, _ in seen} == set(agents_ledger.__all__) == set(agents_ledger._MODULE_OF)
    lists = [
        ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    ]
    assert lists == [agents_ledger.__all__]
    for name, module in seen:
        assert getattr(agents_ledger, name) is getattr(importlib.import_module(module or ""), name)


def test_every_error_is_public() -> None:
    assert {kind.__name__ for kind in all_errors()} <= set(agents_ledger.__all__)


def test_every_value_a_verb_takes_or_returns_is_public() -> None:
    names: set[str] = set()
    for face in FACES:
        for name, verb in inspect.getmembers(face, inspect.isfunction):
            if not name.startswith("_"):
                for hint in typing.get_type_hints(verb).values():
                    names |= ours(hint)

    assert names <= set(agents_ledger.__all__), names - set(agents_ledger.__all__)
    assert {"Turn", "Session", "Thread", "Move", "Alias", "Finding", "Compaction"} <= names


def ours(hint: Any) -> set[str]:
    """The names of our own values in a type."""
    found = {name for part in typing.get_args(hint) for name in ours(part)}
    if inspect.isclass(hint) and issubclass(hint, msgspec.Struct):
        found.add(hint.__name__)
    return found


def test_an_unknown_name_is_an_attribute_error() -> None:
    assert not hasattr(agents_ledger, "Nonsense")


def test_the_package_brings_no_server_packages_along() -> None:
    script = "import agents_ledger, sys; agents_ledger.Ledger; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    loaded = set(run.stdout.split())
    assert not loaded & {"psycopg", "psycopg_pool", "click", "rich", "asyncio", "platformdirs"}


# -- the tree of errors -----------------------------------------------------------------------


def all_errors(kind: type[LedgerError] = LedgerError) -> list[type[LedgerError]]:
    """An error and all below it, as they are drawn."""
    own = [sub for sub in kind.__subclasses__() if sub.__module__ == errors.__name__]
    return [kind, *(each for sub in own for each in all_errors(sub))]


def drawn() -> list[tuple[int, str, str]]:
    """Depth, name and remark of each line of the tree in the module's docstring."""
    lines = []
    for line in (errors.__doc__ or "").splitlines():
        name, _, remark = line.lstrip("│├└─ ").partition(" ")
        if hasattr(errors, name) and (line.startswith(name) or line[0] in "│├└ "):
            lines.append(((len(line) - len(line.lstrip("│├└─ "))) // 4, name, remark.strip()))
    return lines


def test_the_tree_of_errors_is_drawn_as_it_is() -> None:
    def depth(kind: type) -> int:
        return sum(issubclass(base, LedgerError) for base in kind.__mro__) - 1

    wanted = [(depth(kind), kind.__name__) for kind in all_errors()]

    assert [(depth, name) for depth, name, _ in drawn()] == wanted
    assert all(remark for depth, _, remark in drawn() if depth)


def test_every_error_below_a_family_says_what_to_do_next() -> None:
    families = {kind for kind in LedgerError.__subclasses__() if kind.__subclasses__()}

    for kind in all_errors():
        assert kind.__doc__
        if kind not in families | {LedgerError}:
            assert kind.hint.endswith("."), kind


# -- the package as a program -----------------------------------------------------------------


@pytest.mark.finding("users-30")
def test_the_version_is_that_of_the_installed_package() -> None:
    assert agents_ledger.__version__ == importlib.metadata.version("agents-ledger")


@pytest.mark.finding("users-30")
def test_python_dash_m_runs_the_command_line() -> None:
    command = [sys.executable, "-m", "agents_ledger", "--help"]
    run = subprocess.run(command, capture_output=True, text=True, check=True)

    assert "import" in run.stdout
