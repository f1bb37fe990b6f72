"""Turns over HTTP: the scope `write` records them, at once and live."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from agents_ledger import Config, Ledger, ToolCall
from agents_ledger.bus.live_turns import LiveLimits
from agents_ledger.cli.servers.server import Serving
from tests.bus.test_whole_turns import QUERY, RESPONSE, STEPS, TURN, USAGE
from tests.waiting import until
from tests.web.conftest import Answer, Running


class Client:
    """A program with a token."""

    def __init__(self, running: Running, *scopes: Any) -> None:
        self.running = running
        _, self.secret = running.ledger.tokens.create("+".join(scopes), scopes)

    def post(self, path: str, body: object) -> Answer:
        return self.running.ask(f"/api/v1{path}", method="POST", body=body, token=self.secret)

    def get(self, path: str) -> Answer:
        return self.running.ask(f"/api/v1{path}", token=self.secret)


@pytest.fixture
def served(own_server: Callable[..., Running]) -> Running:
    return own_server()


@pytest.fixture
def writer(served: Running) -> Client:
    return Client(served, "write")


@pytest.mark.finding("spec-C")
@pytest.mark.finding("users-12")
def test_the_scope_write_records_turns_and_reads_them(writer: Client) -> None:
    whole = {**TURN, "query": QUERY, "steps": STEPS, "response": RESPONSE, "usage": USAGE}

    first, again = writer.post("/turns", whole), writer.post("/turns", whole)

    assert (first.status, again.status) == (201, 201)
    turn = writer.get("/turns/turn-1").json
    assert turn == first.json == again.json
    assert (turn["role"], turn["workspace_path"], turn["total_tokens"]) == ("manager", "/work", 20)
    assert [call["tool_name"] for call in turn["tool_calls"]] == ["Bash", "Edit"]
    assert writer.get("/sessions").status == 200


@pytest.mark.finding("spec-C")
def test_a_token_uses_the_abilities_of_its_scopes(served: Running, writer: Client) -> None:
    turn = {"session": "main", "query": "q", "response": "r"}
    reader, importer = Client(served, "read"), Client(served, "import")

    assert writer.post("/bus/ldg:turn:record", turn).json["type"] == "success"
    assert writer.post("/bus/ldg:turn:get", {"target": "main"}).json["type"] == "success"
    assert writer.post("/bus/no:such", {}).json["type"] == "invalid-ability"
    for client in (reader, importer):
        for path in ("/bus/ldg:turn:record", "/turns", "/live-turns"):
            refused = client.post(path, turn if path != "/live-turns" else {"session": "main"})
            assert refused.status == 403, path
            assert "'write'" in refused.json["message"]
    assert importer.post("/bus/ldg:turn:get", {"target": "main"}).status == 403
    for denied, body in (
        ("ldg:session:import", {"request": {}}),
        ("ldg:compaction:run", {"session": "main", "strategy": "summary"}),
    ):
        assert writer.post(f"/bus/{denied}", body).status == 403, denied
    assert len(served.ledger.thread("main").turns) == 1


def test_another_persona_of_a_new_session_needs_the_scope_admin(
    served: Running, writer: Client
) -> None:
    body = {"session": "new", "query": "q", "persona_id": "root"}
    for path in ("/turns", "/live-turns", "/bus/ldg:turn:record", "/bus/ldg:live:begin"):
        refused = writer.post(path, body)
        assert refused.status == 403, path
        assert "/bus/" in path or "choosing the persona 'root'" in refused.json["message"]
        assert "'admin'" in refused.json["message"]
    assert served.ledger.sessions() == ()

    assert Client(served, "admin").post("/turns", {**body, "response": "r"}).status == 201
    assert writer.post("/turns", body).status == 201
    assert served.ledger.session("new").persona_id == "root"


@pytest.mark.finding("spec-B")
def test_a_live_turn_is_written_by_requests(served: Running, writer: Client) -> None:
    ledger = served.ledger
    begun = writer.post("/live-turns", {**TURN, "query": QUERY})
    assert (begun.status, begun.json["status"]) == (201, "pending")
    live = "/live-turns/turn-1"
    assert writer.get("/live-turns?session=main").json == ["turn-1"]

    assert writer.post(f"{live}/messages", {"message": "Looking"}).status == 201
    call = writer.post(f"{live}/tool-calls", {"tool_name": "Bash", "params": "ls", "id": "a/b c"})
    assert (call.status, call.json["status"]) == (201, "running")
    ended = writer.post(f"{live}/tool-calls/a%2Fb%20c/complete", {"result": [1]})
    assert (ended.status, ended.json["status"]) == (200, "completed")
    assert writer.post(f"{live}/stream", {"text": "Do", "piece": 0}).json["pieces"] == 1
    assert writer.post(f"{live}/stream", {"text": "ne", "piece": 1}).json["pieces"] == 2
    assert ledger.partial_text("turn-1") == "Done"
    sealed = writer.post(f"{live}/respond", {"usage": USAGE})

    assert (sealed.status, sealed.json["status"]) == (200, "completed")
    turn = ledger.get_turn("main")
    assert turn.response is not None
    assert (turn.response.content, turn.tool_calls[0].result_json) == ("Done", "[1]")
    assert writer.get("/live-turns").json == []
    late = writer.post(f"{live}/messages", {"message": "late"})
    assert (late.status, late.json["message"]) == (409, "turn turn-1 is completed")
    assert writer.post("/live-turns/nobody/respond", {}).status == 404
    assert writer.post(f"{live}/fail", {}).status == 400


def test_a_failed_turn_and_a_moved_head_are_reported(served: Running, writer: Client) -> None:
    turn = writer.post("/live-turns", {"session": "main", "query": "q"}).json["id"]
    failed = writer.post(f"/live-turns/{turn}/fail", {"error": "interrupted"})
    assert (failed.status, failed.json["error"]) == (200, "interrupted")

    slow = writer.post("/live-turns", {"session": "main", "query": "slow"}).json["id"]
    served.ledger.record("main", "fast", "done")
    moved = writer.post(f"/live-turns/{slow}/respond", {"response": "late"})
    assert (moved.status, moved.json["kind"]) == (409, "head_moved")
    assert "stored as a branch" in moved.json["message"]


@pytest.mark.finding("spec-B")
def test_turns_of_clients_that_vanish_fail_in_time_and_when_the_server_stops(
    own_server: Callable[..., Running],
) -> None:
    running = own_server(Serving(port=0, live=LiveLimits(idle_s=0.2)))
    writer = Client(running, "write")
    vanished = writer.post("/live-turns", {"session": "main", "query": "q"}).json["id"]
    until(lambda: running.ledger.get_turn(vanished).status == "failed")
    late = writer.post(f"/live-turns/{vanished}/respond", {"response": "r"})
    assert late.status == 409
    assert late.json["message"] == f"turn {vanished} is failed: no request for 0.2 seconds"
    gone = writer.post(f"/live-turns/{vanished}/fail", {"error": "e"})
    assert (gone.status, gone.json["message"]) == (409, late.json["message"])

    patient = {"session": "other", "query": "q", "idle_timeout_s": 600, "id": "patient"}
    writer.post("/live-turns", patient)
    running.stop()

    with Ledger.open(running.ledger.address) as ledger:
        turn = ledger.get_turn("patient")
        assert (turn.status, turn.error) == ("failed", "the server stopped")
        assert ledger.live_turns() == ()
        assert ledger.audit() == ()


CUT = {"session": "cut", "query": "a \ud83d", "response": "\ude00 b"}


@pytest.mark.parametrize("path", ["/turns", "/bus/ldg:turn:record"])
def test_a_text_that_is_cut_within_a_character_is_kept(
    served: Running, writer: Client, path: str
) -> None:
    """JSON.stringify writes half a character as an unpaired surrogate."""
    assert writer.post(path, CUT).status in (200, 201)

    [turn] = served.ledger.thread("cut").turns
    assert [message.content for message in turn.messages] == [CUT["query"], CUT["response"]]


def test_pieces_cut_within_a_character_are_joined(writer: Client) -> None:
    live = "/live-turns/" + writer.post("/live-turns", {"session": "s", "query": "q"}).json["id"]
    for piece in ("It is \ud83d", "\ude00."):
        assert writer.post(f"{live}/stream", {"text": piece}).status == 200

    turn = writer.post(f"{live}/respond", {}).json
    assert turn["messages"][-1]["content"] == "It is \N{GRINNING FACE}."


@pytest.mark.parametrize("path", ["/turns", "/live-turns", "/imports", "/bus/ldg:turn:record"])
@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"session": "s", "query": "caf\xe9"}', "the body is not UTF-8"),
        (b"", "the body is missing; send JSON"),
        (b"[1]", "body: Expected `object`, got `array`"),
        (b'{"session": "\\ud83d", "query": NaN}', "JSON is malformed"),
        (b'{"session": "\\ud83d"', "Input data was truncated"),
    ],
)
def test_a_body_that_is_no_json_object_is_refused_in_words(
    running: Running, path: str, body: bytes, message: str
) -> None:
    answer = running.ask(f"/api/v1{path}", method="POST", body=body)

    assert answer.status == 400
    assert answer.json["message"].startswith(message)


def test_an_id_of_another_message_is_refused_in_words(writer: Client) -> None:
    turn = {"session": "s", "query": {"role": "user", "content": "q", "id": "m"}}
    assert writer.post("/turns", turn).status == 201

    refused = writer.post("/turns", {**turn, "session": "other"})

    assert refused.status == 422
    assert refused.json["message"] == "there is a message with this id already"
    assert refused.json["hint"] == "The ids of messages are unique in a ledger: use a new one."


def test_openapi_describes_tokens_and_routes(running: Running) -> None:
    document = running.ask("/api/openapi/v1.json").json

    [name] = document["security"][0]
    scheme = document["components"]["securitySchemes"][name]
    assert (scheme["type"], scheme["scheme"]) == ("http", "bearer")
    for path, methods in document["paths"].items():
        for method, route in methods.items():
            assert route.get("description"), f"{method} {path}"


def test_openapi_describes_every_field_of_a_turn(running: Running) -> None:
    schemas = running.ask("/api/openapi/v1.json").json["components"]["schemas"]

    assert {"session", "query", "steps", "usage", "compaction", "config"} <= set(
        schemas["RecordInput"]["properties"]
    )
    assert schemas["ToolCallStep"]["properties"]["type"]["const"] == "tool_call"
    assert "idle_timeout_s" in schemas["BeginInput"]["properties"]


@pytest.mark.finding("spec-E")
def test_verbs_of_sessions_and_reports_have_routes(served: Running, writer: Client) -> None:
    ledger = served.ledger
    config = Config(directives={"model": "a"})
    ledger.record("long", "q", "r", config=config)
    ledger.record("long", "q", "r", steps=[ToolCall("Bash")], tools_available=[])
    ledger.record("short", "q", "r")
    ledger.record("telegram:42", "q", "r")

    merged = writer.post("/merges", {"first": "short", "second": "long"})
    assert (merged.status, merged.json["label"]) == (201, "long")
    assert writer.post("/sessions/short/unmerge", None).json["label"] == "short"
    renamed = writer.post("/sessions/short/rename", {"label": "brief"})
    assert (renamed.status, renamed.json["label"]) == (201, "brief")
    ledger.alias("a/b", "brief")
    removed = served.ask("/api/v1/aliases/a%2Fb", method="DELETE", token=writer.secret)
    assert (removed.status, removed.json["session_label"]) == (200, "brief")
    promoted = writer.post("/promotions", {"channel": "telegram:42", "entity": "person:ada"})
    assert promoted.json["label"] == ledger.session("person:ada").label
    [misuse] = writer.get("/permissions?persona=main").json["misuses"]
    assert misuse["tool_name"] == "Bash"
    assert len(writer.get("/events/long?last=1").json) == 2
    head = ledger.thread("long").turns[0].id
    assert writer.get(f"/config/{head}").json["model"]["by"] == "directive"
    assert writer.post("/merges", {"first": "long", "second": "nobody"}).status == 404
    reader = Client(served, "read")
    assert reader.post("/merges", {"first": "long", "second": "short"}).status == 403
