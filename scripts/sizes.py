"""Name every file and function that has grown too long to read in one sitting."""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

FILE_LINES = 600
FUNCTION_LINES = 70


def too_long(path: Path) -> Iterator[str]:
    text = path.read_text(encoding="utf-8")
    if (lines := len(text.splitlines())) > FILE_LINES:
        yield f"{path}: {lines} lines, at most {FILE_LINES}"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > FUNCTION_LINES:
                yield f"{path}:{node.lineno}: {node.name}, {lines} lines, at most {FUNCTION_LINES}"


files = [file for top in ("src", "tests", "benchmarks") for file in sorted(Path(top).rglob("*.py"))]
offenders = [offender for file in files for offender in too_long(file)]
print("\n".join(offenders) or f"sizes: {len(files)} files, none too long")
sys.exit(bool(offenders))
