"""Requests made from the API's own description, as many as are asked for.

No answer may be a failure of the server, and every answer is as the description says.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    response_schema_conformance,
    status_code_conformance,
)

from tests.web.conftest import Running

# Its stream never ends; its work is that of another part.
LEFT_OUT = ("/api/v1/changes", "/api/v1/chat/{key}")
WANTED = [not_a_server_error, status_code_conformance, response_schema_conformance]


def operations(running: Running) -> list[Any]:
    """Every route, with what it takes and gives."""
    described = running.ask("/api/openapi/v1.json").json
    schema = schemathesis.openapi.from_dict(described)
    found: list[Any] = list(schema.get_all_operations())
    return [made.ok() for made in found if made.ok().path not in LEFT_OUT]


def fuzz(running: Running, cases: int, chance: int = 0) -> int:
    """Send so many requests, evenly over all routes; how many routes there are."""
    routes = operations(running)
    for operation, number in zip(routes, _shares(cases, len(routes)), strict=True):
        _fuzz_one(running, operation, number, chance)
    return len(routes)


def _shares(cases: int, routes: int) -> Iterator[int]:
    each, rest = divmod(cases, routes)
    return itertools.chain(itertools.repeat(each + 1, rest), itertools.repeat(each, routes - rest))


def _fuzz_one(running: Running, operation: Any, number: int, chance: int) -> None:
    keys = st.sampled_from(["demo", "demo-strict", str(running.ledger.head("demo")), "nobody"])

    @settings(
        max_examples=number,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @seed(chance)
    @given(case=operation.as_strategy(), key=keys, known=st.booleans())
    def send(case: Any, key: str, known: bool) -> None:
        if known:
            case.path_parameters = dict.fromkeys(case.path_parameters or {}, key)
        case.call_and_validate(
            base_url=running.server.address.rstrip("/"),
            headers={"Authorization": f"Bearer {running.server.secret}"},
            checks=WANTED,
        )

    send()
