"""The HTTP API: what it takes, what it gives, and what it says when it refuses."""

from __future__ import annotations

import threading
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger.ledger.maintenance.access_tokens import Tokens
from tests.waiting import PATIENCE_S
from tests.web.conftest import Running
from tests.web.fuzz import fuzz

CASES = 150  # `make soak` sends thousands


@pytest.mark.usefixtures("ticking")
def test_the_list_of_sessions_is_paged(running: Running) -> None:
    for number in range(5):
        running.ledger.record(f"page-{number}", "1", "1")
    seen: list[str] = []
    after = ""
    while True:
        page = running.ask(f"/api/v1/sessions?q=page-&limit=2&after={after}").json
        seen += [line["session"]["label"] for line in page["items"]]
        if page["next"] is None:
            break
        after = page["next"]

    assert seen == [f"page-{number}" for number in reversed(range(5))]


def test_a_session_can_be_created_forked_moved_and_archived(running: Running) -> None:
    def post(path: str, body: object = None) -> Any:
        answer = running.ask(f"/api/v1{path}", method="POST", body=body or {})
        assert answer.status == 201, answer.body
        return answer.json

    head = running.ledger.head("demo")
    first = running.ledger.ancestor_at("demo", 1)
    made = post("/sessions", {"label": "api / made", "turn": head, "title": "By hand"})
    assert (made["thread_id"], made["title"]) == (head, "By hand")
    moved = post("/sessions/api%20%2F%20made/moves", {"target": first, "expected": head})
    assert moved["thread_id"] == first
    late = {"target": first, "expected": head}
    answer = running.ask("/api/v1/sessions/api%20%2F%20made/moves", method="POST", body=late)
    assert (answer.status, answer.json["kind"]) == (409, "head_moved")
    assert post("/sessions/api%20%2F%20made/undo")["thread_id"] == head
    fork = post("/forks", {"target": "demo", "before": True})
    assert fork["thread_id"] == running.ledger.ancestor_at("demo", 4)
    assert post("/sessions/api%20%2F%20made/aliases", {"alias": "hand"})["alias"] == "hand"
    changed = running.ask(
        "/api/v1/sessions/hand", method="PATCH", body={"status": "archived", "note": "Done"}
    ).json
    assert (changed["status"], changed["note"]) == ("archived", "Done")
    moves = running.ask("/api/v1/sessions/hand/history").json["items"]
    assert [move["reason"] for move in moves] == ["undo", "move", "move"]
    assert running.ask("/api/v1/resolve/hand").json["turn_id"] == head


def test_a_thread_is_read_in_windows(running: Running) -> None:
    thread = running.ask("/api/v1/threads/demo?limit=2&to_depth=3").json

    assert [turn["depth"] for turn in thread["turns"]] == [2, 3]
    assert thread["depth"] == 5
    turn = thread["turns"][0]["id"]
    [line] = running.ledger.headlines([turn])
    assert running.ask(f"/api/v1/turns/{line.short_id.lower()}").json["id"] == turn
    calls = running.ask(f"/api/v1/turns/{turn}/tool-calls").json
    assert [call["tool_name"] for call in calls] == ["Edit", "Bash"]
    tree = running.ask("/api/v1/threads/demo/tree").json
    assert tree["turn_count"] == 7


def test_search_files_context_and_usage_are_served(running: Running) -> None:
    hits = running.ask("/api/v1/search?q=seconds").json["hits"]
    assert hits
    assert running.ask("/api/v1/files/durations.py").json["touches"]
    context = running.ask("/api/v1/context/demo?form=openai").json
    assert context["shown"]["messages"]
    assert running.ask("/api/v1/usage?by=model").json["total"]["turns"] > 6
    assert any(tool["tool_name"] == "Bash" for tool in running.ask("/api/v1/tools").json)
    assert running.ask("/api/v1/compare?a=demo&b=demo-strict").json["ancestor"]
    assert running.ask("/api/v1/audit").json == {"findings": []}
    done = running.ask("/api/v1/bus/bus:list", method="POST", body={}).json
    assert done["type"] == "success"


def test_an_unchanged_response_is_not_sent_again(running: Running) -> None:
    first = running.ask("/api/v1/sessions/demo-strict")
    tag = {"If-None-Match": first.headers["etag"]}

    assert running.ask("/api/v1/sessions/demo-strict", headers=tag).status == 304
    running.ledger.annotate("demo-strict", note="changed")
    assert running.ask("/api/v1/sessions/demo-strict", headers=tag).status == 200


@pytest.mark.parametrize(
    ("asked", "body", "told"),
    [
        ("GET /sessions/nobody", None, "404 not_found"),
        ("GET /nowhere", None, "404 not_found"),
        ("GET /sessions?limit=0", None, "400 bad_request"),
        ("GET /sessions?after=nonsense", None, "422 refused"),
        ("POST /sessions", {"label": ""}, "400 bad_request"),
        ("POST /sessions", {"label": "x", "colour": 1}, "400 bad_request"),
        ("POST /sessions", {"label": "demo"}, "409 name_taken"),
        ("DELETE /sessions", None, "405 method_not_allowed"),
        ("POST /forks", {"target": "zzzz"}, "404 not_found"),
        ("POST /imports", {"source": 1}, "422 request_refused"),
        ("POST /chat/demo", {"text": "Hello"}, "422 refused"),
    ],
)
def test_errors_name_the_problem(running: Running, asked: str, body: object, told: str) -> None:
    method, path = asked.split(" ")

    answer = running.ask(f"/api/v1{path}", method=method, body=body)

    assert f"{answer.status} {answer.json['kind']}" == told, answer.body
    assert answer.json["message"]
    assert set(answer.json) == {"kind", "message", "hint"}


def test_the_cursor_of_a_page_of_children_must_be_a_child(running: Running) -> None:
    turns = running.ledger.thread("demo").turns
    path = f"/api/v1/turns/{turns[0].id}/children"
    [*_, last] = running.ask(path).json["items"]

    assert running.ask(f"{path}?after={last['turn']['id']}").json["items"] == []
    for after in ("junk", turns[0].id, "demo", "zzzzzzzz"):
        answer = running.ask(f"{path}?after={after}")
        assert (answer.status, answer.json["kind"]) == (422, "refused")


def test_a_body_that_is_not_json_is_refused(running: Running) -> None:
    answer = running.ask("/api/v1/sessions", method="POST", body=b"{nothing")

    assert answer.status == 400
    assert answer.json["kind"] == "bad_request"


def test_only_administrators_create_and_revoke_tokens(running: Running) -> None:
    made = running.ask("/api/v1/tokens", method="POST", body={"name": "ci", "scopes": ["write"]})
    secret, token_id = made.json["secret"], made.json["token"]["id"]

    assert running.ask("/api/v1/tokens", token=secret).status == 403
    assert running.ask("/api/v1/sessions", token=secret).status == 200  # write includes read
    assert running.ask("/api/v1/imports", method="POST", body={}, token=secret).status == 403
    assert "secret" not in str(running.ask("/api/v1/tokens").json)
    assert running.ask(f"/api/v1/tokens/{token_id}", method="DELETE").status == 200
    assert Tokens(running.ledger._core).find(secret) is None


class Listener:
    """Reads server-sent events until it has heard enough."""

    def __init__(self, running: Running, path: str, **headers: str) -> None:
        sent = {"Authorization": f"Bearer {running.server.secret}", **headers}
        request = urllib.request.Request(running.server.address.rstrip("/") + path, headers=sent)  # noqa: S310
        self.answer = urllib.request.urlopen(request, timeout=PATIENCE_S)  # noqa: S310
        self.lines: list[str] = []

    def until(self, done: Callable[[list[str]], bool]) -> list[str]:
        end = time.monotonic() + PATIENCE_S
        with self.answer:
            while not done(self.lines):
                assert time.monotonic() < end, f"not told after {PATIENCE_S} s: {self.lines}"
                line = self.answer.readline()
                assert line, f"the server ended it: {self.lines}"
                self.lines.append(line.decode().rstrip("\r\n"))
        return self.lines


def test_changes_are_streamed_as_they_happen(running: Running) -> None:
    listener = Listener(running, "/api/v1/changes?session=told")
    heard = threading.Event()

    def write() -> None:
        with running.ledger.turn("told", "Now?") as turn:
            turn.stream("Yes")
            assert heard.wait(PATIENCE_S)
            turn.respond("Yes.")

    def is_over(lines: list[str]) -> bool:
        if any('"text":"Yes"' in line for line in lines):
            heard.set()
        return "event: sealed" in lines and "event: move" in lines

    writer = threading.Thread(target=write)
    writer.start()
    lines = listener.until(is_over)
    writer.join()
    assert heard.is_set()
    assert "event: live" in lines


def test_a_client_that_reconnects_receives_the_missed_events(running: Running) -> None:
    running.ledger.record("missed", "1", "1")
    last = running.ledger.history("missed")[0].id
    running.ledger.record("missed", "2", "2")
    running.ledger.record("missed", "3", "3")
    third, second = (f"id: {move.id}" for move in running.ledger.history("missed")[:2])

    header = {"Last-Event-ID": str(last)}
    listener = Listener(running, "/api/v1/changes?session=missed", **header)
    lines = listener.until(lambda lines: sum("event: move" in line for line in lines) == 2)
    assert [line for line in lines if line.startswith("id: ")] == [second, third]


def test_no_request_makes_the_server_fail(own_server: Callable[[], Running]) -> None:
    from agents_ledger.cli.servers.demonstration import Demonstration

    running = own_server()
    Demonstration(running.ledger).record()

    assert fuzz(running, CASES) > 35
    assert running.ledger.audit() == ()
