"""The ledger is used through its public verbs: nothing outside reaches into it."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from types import ModuleType

from tests.architecture.conftest import Modules

INNER = "agents_ledger.ledger"
INSIDE = {"ledger", "store"}  # the store has connections and cores of its own
# What the verbs of Ledger are made of; a function that takes one of these is not for others.
INTERNAL_PARAMETERS = ("Transaction", "Database", "Core")
# They open a database themselves, for commands that must work on a damaged or closed ledger.
BY_ADDRESS = {
    "agents_ledger.ledger.maintenance.copying",
    "agents_ledger.ledger.maintenance.doctor",
    "agents_ledger.ledger.maintenance.salvage",
}


def outside(modules: Modules) -> Iterator[tuple[str, ast.Module]]:
    return ((str(path), tree) for path, tree in modules.items() if path.parts[0] not in INSIDE)


def test_nothing_outside_the_ledger_reaches_its_core_or_its_database(modules: Modules) -> None:
    private = {"_core", "_read", "_write"}
    places = [
        f"{name}:{node.lineno} {ast.unparse(node)}"
        for name, tree in outside(modules)
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and (
            (node.attr in private and ast.unparse(node.value).endswith("ledger"))
            or node.attr == "_core"
        )
    ]

    assert places == []


def test_nothing_outside_the_ledger_uses_a_function_that_takes_a_transaction(
    modules: Modules,
) -> None:
    places = [
        f"{name}: {value.__module__}.{value.__qualname__}"
        for name, tree in outside(modules)
        for value in used_of_ledger(tree)
        if inspect.isfunction(value) and is_internal(value)
    ]

    assert places == []


def used_of_ledger(tree: ast.Module) -> Iterator[object]:
    """The names imported from modules of the ledger, and the attributes used of those modules."""
    imported = {
        alias.asname or alias.name: named(node.module or "", alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith(INNER)
        for alias in node.names
    }
    yield from imported.values()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            value = imported.get(node.value.id)
            if isinstance(value, ModuleType):
                yield getattr(value, node.attr, None)


def named(module: str, name: str) -> object:
    try:
        return getattr(importlib.import_module(module), name)
    except AttributeError:
        return importlib.import_module(f"{module}.{name}")


def is_internal(function: object) -> bool:
    if getattr(function, "__module__", "") in BY_ADDRESS:
        return False
    parameters = inspect.signature(function).parameters.values()  # type: ignore[arg-type]
    return any(str(parameter.annotation) in INTERNAL_PARAMETERS for parameter in parameters)
