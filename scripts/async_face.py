"""Write the asyncio face of the ledger from the synchronous one; `--check` only compares.

A method becomes `async` if it awaits: the store (`_read`, `_write` and the other verbs of
`AsyncFace`) or another method that does. What a verb begins at once, `X(...)._start()`, is
returned unstarted, because it begins when it is awaited or entered.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

LEDGER = Path(__file__).parent.parent / "src" / "agents_ledger" / "ledger"
FILES = {
    "reading.py": "aio/async_reading.py",
    "ledger.py": "aio/async_ledger.py",
    "sessions/queue.py": "aio/async_queue.py",
}
DOCSTRING = '"""Generated from ledger/{source} by `make async`. Do not edit."""'
MODULES = {
    "face": "aio.async_face",
    "subjects": "aio.async_reading",
    "ledger": "aio.async_ledger",
}
NAMES = {
    "Face": "AsyncFace",
    "Begins": "AsyncBegins",
    "ReadVerbs": "AsyncReadVerbs",
    "Subjects": "AsyncReadVerbs",  # they are for synchronous callers only
    "Ledger": "AsyncLedger",
    "Batch": "AsyncBatch",
    "LiveTurn": "AsyncLiveTurn",
    "LiveCall": "AsyncLiveCall",
    "Queue": "AsyncQueue",
    "compact_and_wait": "compact",
    "__enter__": "__aenter__",
    "__exit__": "__aexit__",
}
# Inserted after the first paragraph of a class's docstring, by the name of the asyncio class.
PARAGRAPHS = {
    "AsyncLedger": "`async with AsyncLedger.open(address) as ledger:`,"
    " or `await AsyncLedger.open(address)`.",
}
ALWAYS_ASYNC = {"__enter__", "__exit__"}
STORE = {"_read", "_write", "_call", "_begin", "_writer_id", "_start"}
FUNCTIONS = {"uninterrupted", "compact_and_wait"}

Edit = tuple[int, int, str]  # start and end offset in the source, replacement


class AsyncWriter:
    def __init__(self, text: str) -> None:
        self._text = text
        self._lines = [0]
        for line in text.encode().splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._tree = ast.parse(text)
        self._methods = [
            node
            for owner in self._tree.body
            if isinstance(owner, ast.ClassDef)
            for node in owner.body
            if isinstance(node, ast.FunctionDef)
        ]
        self._async = set(ALWAYS_ASYNC)
        while more := {m.name for m in self._methods if any(self._awaited(m))} - self._async:
            self._async |= more

    def text(self) -> str:
        data = self._text.encode()
        for start, end, replacement in sorted(self._edits(), reverse=True):
            data = data[:start] + replacement.encode() + data[end:]
        return self._renamed(data.decode())

    def _edits(self) -> Iterator[Edit]:
        for method in self._methods:
            if method.name in self._async:
                start = self._offset(method.lineno, method.col_offset)
                yield start, start, "async "
            for call, is_base in self._awaited(method):
                start = self._offset(call.lineno, call.col_offset)
                end = self._offset(call.end_lineno or 0, call.end_col_offset or 0)
                yield start, start, "(await " if is_base else "await "
                if is_base:
                    yield end, end, ")"
            for call in self._begun(method):
                receiver = call.func.value  # type: ignore[attr-defined]
                start = self._offset(receiver.end_lineno, receiver.end_col_offset)
                end = self._offset(call.end_lineno or 0, call.end_col_offset or 0)
                yield start, end, ""

    def _awaited(self, method: ast.FunctionDef) -> Iterator[tuple[ast.Call, bool]]:
        """The calls to await, and whether something is taken from their results."""
        for node, parent in _walk(method):
            if isinstance(node, ast.Call) and self._is_awaited(node.func):
                yield node, isinstance(parent, ast.Attribute | ast.Subscript)

    def _is_awaited(self, function: ast.expr) -> bool:
        if isinstance(function, ast.Name):
            return function.id in FUNCTIONS
        if not isinstance(function, ast.Attribute) or isinstance(function.value, ast.Call):
            return False
        is_own = isinstance(function.value, ast.Name) and function.value.id == "self"
        return function.attr in STORE | FUNCTIONS or (is_own and function.attr in self._async)

    def _begun(self, method: ast.FunctionDef) -> Iterator[ast.Call]:
        for node, _ in _walk(method):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "_start"
                and isinstance(node.func.value, ast.Call)
            ):
                yield node

    def _offset(self, line: int, column: int) -> int:
        return self._lines[line - 1] + column

    def _renamed(self, text: str) -> str:
        for module, other in MODULES.items():
            text = text.replace(
                f"from agents_ledger.ledger.{module} import",
                f"from agents_ledger.ledger.{other} import",
            )
        text = re.sub(r"\b\w+\b", lambda word: NAMES.get(word[0], word[0]), text)
        for name, paragraph in PARAGRAPHS.items():
            first = rf'^(class {name}\b.*:\n    """.+\n\n)'
            text = re.sub(first, rf"\g<1>    {paragraph}\n\n", text, flags=re.MULTILINE)
        return text


def _walk(node: ast.AST) -> Iterator[tuple[ast.AST, ast.AST]]:
    """Nodes with their parents, but not those of nested functions: these stay synchronous."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.Lambda):
            yield child, node
            yield from _walk(child)


def generate(source: str) -> str:
    """The asyncio module of a synchronous one, formatted."""
    text = (LEDGER / source).read_text(encoding="utf-8")
    text = re.sub(r'^""".*?"""', DOCSTRING.format(source=source), text, count=1, flags=re.DOTALL)
    text = AsyncWriter(text).text()
    target = str(LEDGER / FILES[source])
    for command in (
        ("check", "--quiet", "--select", "F401,I", "--fix", "--stdin-filename", target, "-"),
        ("format", "--quiet", "--stdin-filename", target, "-"),
    ):
        run = subprocess.run(
            [sys.executable, "-m", "ruff", *command],
            input=text,
            capture_output=True,
            text=True,
            encoding="utf-8",
            check=True,
        )
        text = run.stdout
    return text


def main() -> int:
    outdated = []
    for source, target in FILES.items():
        path, text = LEDGER / target, generate(source)
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            outdated.append(target)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if outdated and "--check" in sys.argv:
        print(f"not up to date, run `make async`: {', '.join(outdated)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
