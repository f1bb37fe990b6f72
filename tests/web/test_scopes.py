"""What a token may do: personas, the engine, imports."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Session
from agents_ledger.ledger.maintenance.access_tokens import Tokens
from tests.web.conftest import Running

POLICY = """
[engine]
name = "echo"

[personas.main]
[personas.root]
session = "root-home"
"""


@pytest.fixture
def served(own_server: Callable[..., Running], tmp_path: Path) -> Running:
    (tmp_path / "own-0.policy.toml").write_text(POLICY, encoding="utf-8")
    running = own_server()
    running.ledger.record("talk", "Hello", "Good day")
    running.ledger.create_session(Session("guests", persona_id="guest"))
    running.ledger.record("guests", "Hello", "Good day")
    return running


def token(running: Running, *scopes: Any) -> str:
    return Tokens(running.ledger._core).create("+".join(scopes), scopes)[1]


def imported(persona: str, name: str = "personaId") -> dict[str, Any]:
    return {
        "source": "aix",
        "mode": "backfill",
        "idempotencyKey": f"{persona}-{name}",
        name: persona,
        "items": [
            {
                "sourceProvider": "cursor",
                "sourceSessionId": f"{persona}-{name}",
                "sourceSessionFingerprint": "f1",
                "session": {},
                "turns": [],
                "messages": [],
                "toolCalls": [],
            }
        ],
    }


WIDENING: list[tuple[str, str, dict[str, Any]]] = [
    ("PATCH", "/sessions/talk", {"persona_id": "root"}),
    ("PATCH", "/sessions/talk", {"title": "x", "persona_id": "root"}),
    ("POST", "/forks", {"target": "talk", "persona_id": "root"}),
    ("POST", "/forks", {"target": "guests", "label": "own", "persona_id": "main"}),
    ("POST", "/sessions", {"label": "new", "persona_id": "root"}),
    ("POST", "/imports", imported("root")),
    ("POST", "/imports", imported("root", "persona_id")),
    ("POST", "/chat/persona:root", {"text": "Hello"}),
    ("POST", "/chat/PERSONA:root", {"text": "Hello"}),
    ("POST", "/chat/Persona%3Aroot", {"text": "Hello"}),
    ("POST", "/bus/ldg:session:fork", {"target": "talk", "persona_id": "root"}),
]


def test_another_persona_is_chosen_by_administrators_alone(served: Running) -> None:
    def personas() -> dict[str, str | None]:
        return {session.label: session.persona_id for session in served.ledger.sessions()}

    before = personas()
    most = token(served, "read", "write", "import", "chat")
    for method, path, body in WIDENING:
        answer = served.ask(f"/api/v1{path}", method=method, body=body, token=most)
        assert answer.status == 403, (method, path, answer)
        assert "admin" in answer.json["message"]
        assert personas() == before
        assert served.ledger.session("talk").title is None

    admin = token(served, "read", "admin")
    for method, path, body in WIDENING:
        answer = served.ask(f"/api/v1{path}", method=method, body=body, token=admin)
        assert answer.status in (200, 201), (method, path, answer)
    assert served.ledger.audit() == ()


def test_the_run_of_a_request_can_be_looked_up(served: Running) -> None:
    both = token(served, "import", "read")
    sent = served.ask("/api/v1/imports", method="POST", body=imported("main"), token=both).json

    run = served.ask(f"/api/v1/imports/{sent['runId']}", token=both)

    assert run.status == 200
    assert run.json["id"] == sent["runId"]
    assert (run.json["imported"], run.json["failed"]) == (sent["imported"], sent["failed"])
    missing = served.ask("/api/v1/imports/no-such-run", token=both)
    assert missing.status == 404


def test_an_import_can_be_sent_in_chunks(served: Running) -> None:
    item = imported("main")["items"][0]
    packed = gzip.compress(json.dumps(item).encode())
    data = base64.b64encode(packed).decode()
    middle = len(data) // 2
    chunks = [
        {
            "source": "aix",
            "mode": "backfill",
            "idempotencyKey": "in chunks",
            "uploadId": "upload",
            "chunkIndex": index,
            "chunkTotal": 2,
            "encoding": "gzip+base64",
            "data": part,
            "payloadSha256": hashlib.sha256(json.dumps(item).encode()).hexdigest(),
            **{name: item[name] for name in list(item)[:3]},
        }
        for index, part in enumerate((data[:middle], data[middle:]))
    ]
    importer, admin = token(served, "import"), token(served, "read", "admin")

    widened = served.ask(
        "/api/v1/imports",
        method="POST",
        body={**chunks[0], "personaId": "root"},
        token=importer,
    )
    first, last = (
        served.ask("/api/v1/imports", method="POST", body=chunk, token=importer).json
        for chunk in chunks
    )
    again = served.ask(
        "/api/v1/bus/ldg:session:import",
        method="POST",
        body={"request": chunks[1]},
        token=admin,
    )

    assert widened.status == 403
    assert first["ok"], first
    assert last["status"] == "completed", last
    assert again.json["type"] == "success", again.json


def test_a_form_of_a_page_cannot_choose_a_persona(served: Running) -> None:
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    most = token(served, "read", "write", "import", "chat")
    head = served.ledger.head("talk")

    answer = served.ask(
        f"/t/{head}/fork",
        method="POST",
        body=b"label=forked&persona_id=root",
        token=most,
        headers=headers,
    )
    said = served.ask(
        "/s/persona:root/chat", method="POST", body=b"text=Hi", token=most, headers=headers
    )

    assert answer.status == 303
    assert served.ledger.session("forked").persona_id == "main"
    assert said.status == 403


def test_the_own_persona_of_a_session_can_be_named(served: Running) -> None:
    writer = token(served, "read", "write", "import")
    head = served.ledger.head("guests")

    def asked(method: str, path: str, body: dict[str, Any]) -> Any:
        answer = served.ask(f"/api/v1{path}", method=method, body=body, token=writer)
        assert answer.status in (200, 201), answer
        return answer.json

    assert asked("PATCH", "/sessions/talk", {"persona_id": "main"})["persona_id"] == "main"
    fork = asked("POST", "/forks", {"target": "guests", "persona_id": "guest"})
    assert fork["persona_id"] == "guest"
    assert asked("POST", "/forks", {"target": "guests"})["persona_id"] == "guest"
    at_turn = asked("POST", "/sessions", {"label": "at", "turn": head})
    assert at_turn["persona_id"] == "guest"
    assert asked("POST", "/sessions", {"label": "empty"})["persona_id"] == "main"
    assert asked("POST", "/imports", imported("main"))["imported"] == 1


def test_a_token_needs_the_scope_chat_to_run_the_engine(served: Running) -> None:
    writer, talker = token(served, "read", "write"), token(served, "read", "chat")
    body = {"text": "What did I say?"}

    refused = served.ask("/api/v1/chat/talk", method="POST", body=body, token=writer)
    assert refused.status == 403
    assert "'chat'" in refused.json["message"]
    assert served.ledger.thread("talk").depth == 1
    assert served.ask("/api/v1/chat/talk", method="POST", body=body, token=talker).status == 200
    assert served.ledger.thread("talk").depth == 2
    for secret in (writer, talker):
        assert served.ask("/api/v1/chat/talk/stop", method="POST", token=secret).status == 200
    form = "Message to talk"
    assert form not in served.ask("/s/talk", token=writer).text
    assert form in served.ask("/s/talk", token=talker).text


def test_a_fork_has_the_persona_of_its_session_not_of_its_turns(served: Running) -> None:
    """The session was moved to a persona that may do less."""
    served.ledger.create_session(Session("demoted", persona_id="root"))
    served.ledger.record("demoted", "Hello", "Good day")
    served.ledger.update_session("demoted", persona_id="main")
    writer = token(served, "read", "write")

    for body in ({}, {"persona_id": "main"}):
        answer = served.ask(
            "/api/v1/forks", method="POST", body={"target": "demoted", **body}, token=writer
        )
        assert answer.status == 201, answer
        assert answer.json["persona_id"] == "main"


@pytest.mark.finding("users-24")
@pytest.mark.parametrize(
    ("engine", "told"),
    [
        ('model = "nowhere:one"', (502, "engine_error")),
        ('name = "pydantic-ai"', (422, "refused")),
    ],
)
def test_a_model_that_cannot_run_is_an_answer_with_a_status_and_leaves_nothing(
    own_server: Callable[..., Running], tmp_path: Path, engine: str, told: tuple[int, str]
) -> None:
    (tmp_path / "own-0.policy.toml").write_text(f"[engine]\n{engine}\n", encoding="utf-8")
    running = own_server()
    turn = running.ledger.record("talk", "Hello", "Good day")
    secret = token(running, "read", "write", "chat")

    for target in ("talk", turn.id, "new"):
        path, body = f"/api/v1/chat/{target}", {"text": "Hello"}
        answer = running.ask(path, method="POST", body=body, token=secret)
        assert (answer.status, answer.json["kind"]) == told
        assert answer.json["hint"]

    assert [session.label for session in running.ledger.sessions()] == ["talk"]
    assert running.ledger.head("talk") == turn.id
