"""The modules of the package, parsed once for the tests of a file."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import agents_ledger

PACKAGE = Path(agents_ledger.__file__).parent
Modules = dict[Path, ast.Module]


@pytest.fixture(scope="module")
def modules() -> Modules:
    """Every module by its path within the package. They are not kept for other files: every garbage
    collection would go through their millions of objects."""
    return {
        path.relative_to(PACKAGE): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
    }
