"""The history of an imported session on its page and over HTTP."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.importers.claude_log import SESSION, Log, text
from tests.importers.helping import import_paths
from tests.web.conftest import Running

LABEL = f"claude-code:{SESSION}"


@pytest.mark.finding("spec-D")
def test_an_imported_session_has_a_history_and_can_be_seen_as_of_a_time(
    own_server: Callable[[], Running], tmp_path: Path
) -> None:
    running = own_server()
    log = Log(tmp_path)
    for name in "abc":
        log.user(f"{name}1", f"Question {name}?")
        log.assistant(f"{name}2", text(f"Answer {name}."))
    import_paths(running.ledger, log.save())
    first, second, third = running.ledger.thread(LABEL).turns

    page = running.ask(f"/s/{LABEL}/history").text
    assert page.count(">computed<") == 2
    assert "Question a?" in page
    then = running.ask(f"/s/{LABEL}?at={second.completed_at}").text
    assert "Answer b." in then
    assert "Answer c." not in then
    api = f"/api/v1/sessions/{LABEL}"
    assert running.ask(f"{api}/head?at={second.completed_at}").json["turn_id"] == second.id
    answer = running.ask(f"{api}/history?limit=2").json
    rest = running.ask(f"{api}/history?before={answer['next']}").json
    lines = [(line["thread_id"], line["computed"]) for line in answer["items"] + rest["items"]]
    assert lines == [(third.id, False), (second.id, True), (first.id, True)]
    wrong = running.ask(f"{api}/history?before=yesterday")
    assert (wrong.status, wrong.json["kind"]) == (422, "refused")
