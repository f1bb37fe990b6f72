"""docs/how-to/use-with-frameworks.md: every example runs against its framework, on both engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pydantic_ai.models.test import TestModel

from agents_ledger import Ledger
from tests.docs.console import blocks
from tests.integrations.test_openai_agents import Scripted

EXAMPLES = {
    "claude": ("integrations.claude", lambda: None),
    "openai": ("integrations.openai_agents", Scripted),
    "pydantic": ("integrations.pydantic_ai", TestModel),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_the_example_runs(address: str, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    module, model = EXAMPLES[name]
    make: Callable[[], Any] = model  # type: ignore[assignment]
    [example] = [
        text for text in blocks("docs/how-to/use-with-frameworks.md", "python") if module in text
    ]
    lines = [line for line in example.splitlines() if line and not line.startswith("import")]
    assert len(lines) <= 12

    if name == "openai":
        example = example.replace('name="Assistant"', 'name="Assistant", tools=[add]')
    exec(  # noqa: S102 - our own page
        compile(example.replace('"ledger.db"', repr(address)), name, "exec"),
        {"model": make(), "add": adding()},
    )

    assert capsys.readouterr().out.strip() in ("[]", "It is 3.", "2")
    with Ledger.open(address) as ledger:
        assert ledger.audit() == ()


def adding() -> Any:
    from agents import function_tool

    @function_tool
    def add() -> str:
        return "3"

    return add
