"""docs/explanation/architecture.md names every folder and module, and no others."""

from __future__ import annotations

import re

from tests.docs.console import ROOT

SOURCE = ROOT / "src/agents_ledger"
LINES_MAX = 220


def tree() -> str:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")
    found = re.search(r"```\n(src/.*?)```", text, re.DOTALL)
    assert found
    return found[1]


def begins_as(name: str, told: str) -> bool:
    """Whether a pattern stands for a module, as codex_*.py does."""
    return any(name.startswith(start) for start in re.findall(r"\b(\w+_)\*\.py", told))


def test_every_folder_and_module_is_named_under_its_folder() -> None:
    named: dict[str, str] = {}
    folder = ""
    for line in tree().splitlines()[1:]:
        if head := re.match(r"  (\w+)/", line):
            folder = head[1]
        named[folder] = named.get(folder, "") + line + "\n"

    for path in SOURCE.rglob("*"):
        parts = path.relative_to(SOURCE).parts
        if "__pycache__" in parts or path.name in ("__init__.py", "py.typed"):
            continue
        if path.is_dir():
            assert f"{path.name}/" in named[parts[0]], path
        elif path.suffix == ".py":
            told = named[parts[0]] if len(parts) > 1 else tree()
            assert re.search(rf"\b{re.escape(path.name)}\b", told) or begins_as(path.name, told), (
                path
            )
        elif path.parent.name == "queries":
            assert path.stem in named["store"], path


def test_nothing_is_named_that_is_not_there() -> None:
    modules = re.findall(r"\b(\w+\.py)\b", tree())
    there = {path.name for path in SOURCE.rglob("*.py")}

    assert [name for name in modules if name not in there] == []
    for start in re.findall(r"\b(\w+_)\*\.py", tree()):
        assert any(name.startswith(start) for name in there), start


def test_it_is_one_page() -> None:
    text = (ROOT / "docs/explanation/architecture.md").read_text(encoding="utf-8")

    assert len(text.splitlines()) <= LINES_MAX
