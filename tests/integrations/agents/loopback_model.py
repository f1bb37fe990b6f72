"""A model on loopback: it speaks the protocols of three providers and answers from a script.

Real agents connect to it instead of a provider. Every request is kept, so that a test sees what
reaches the model.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Any, NamedTuple

ANSWER = "Hello from loopback."
Json = dict[str, Any]
_ids = count()


class ModelRequest(NamedTuple):
    path: str
    body: Json

    @property
    def tools(self) -> list[OfferedTool]:
        return [offered for tool in self.body.get("tools") or [] for offered in _offered(tool)]

    @property
    def text(self) -> str:
        return json.dumps(self.body, ensure_ascii=False)

    def tool(self, server: str, name: str) -> OfferedTool | None:
        """The tool of an MCP server, whatever the agent calls it."""
        wanted = server.replace("-", "_")
        return next(
            (
                tool
                for tool in self.tools
                if tool.name.endswith(name)
                and wanted in f"{tool.namespace}{tool.name}".replace("-", "_")
            ),
            None,
        )


class OfferedTool(NamedTuple):
    name: str
    namespace: str = ""


def _offered(tool: Json) -> list[OfferedTool]:
    inner = tool.get("tools") or tool.get("functionDeclarations") or []
    if inner:
        return [OfferedTool(one["name"], tool.get("name", "")) for one in inner]
    return [OfferedTool(tool.get("name") or tool.get("type", ""))]


class Reply(NamedTuple):
    """A text, or the call of a tool."""

    text: str = ANSWER
    tool: OfferedTool | None = None
    arguments: Json = {}  # noqa: RUF012 - never changed


Script = Callable[[ModelRequest], Reply]


class LoopbackModel:
    def __init__(self, address: str, requests: list[ModelRequest]) -> None:
        self.address = address
        self.requests = requests

    def seen(self, text: str) -> list[ModelRequest]:
        """The requests that contain a text."""
        return [request for request in self.requests if text in request.text]


@contextmanager
def loopback_model(script: Script = lambda _: Reply()) -> Iterator[LoopbackModel]:
    requests: list[ModelRequest] = []

    class Handler(_Handler):
        def answer_of(self, request: ModelRequest) -> Reply:
            requests.append(request)
            return script(request)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield LoopbackModel(f"http://127.0.0.1:{server.server_port}", requests)
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer_of(self, request: ModelRequest) -> Reply:
        raise NotImplementedError

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing is printed."""

    def do_GET(self) -> None:
        self._send("application/json", b'{"data": [], "models": []}')

    def do_HEAD(self) -> None:
        self._send("application/json", b"")

    def do_POST(self) -> None:
        size = int(self.headers.get("content-length") or 0)
        body = json.loads(self.rfile.read(size) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith(("count_tokens", "countTokens")):
            self._send_json({"input_tokens": 10, "totalTokens": 10})
        elif path.endswith("/messages"):
            self._answer(anthropic(body, self.answer_of(ModelRequest(path, body))), named=True)
        elif path.endswith("/responses"):
            self._answer(responses(self.answer_of(ModelRequest(path, body))), named=True)
        elif "enerateContent" in path:
            events = gemini(self.answer_of(ModelRequest(path, body)))
            if "stream" in path:
                self._answer(events, named=False)
            else:
                self._send_json(events[0])
        else:
            self._send_json({})

    def _answer(self, events: list[Json], *, named: bool) -> None:
        if events[0].get("type") == "whole":
            self._send_json(events[0]["message"])
            return
        names = [f"event: {event['type']}\n" if named else "" for event in events]
        lines = (f"{name}data: {json.dumps(e)}\n\n" for name, e in zip(names, events, strict=True))
        self._send("text/event-stream", "".join(lines).encode())

    def _send_json(self, value: Json) -> None:
        self._send("application/json", json.dumps(value).encode())

    def _send(self, kind: str, data: bytes) -> None:
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


# -- protocols --------------------------------------------------------------------------------


def anthropic(body: Json, reply: Reply) -> list[Json]:
    """The Messages API."""
    if reply.tool:
        start: Json = {
            "type": "tool_use",
            "id": f"toolu_{next(_ids)}",
            "name": reply.tool.name,
            "input": {},
        }
        delta = {"type": "input_json_delta", "partial_json": json.dumps(reply.arguments)}
        whole, reason = {**start, "input": reply.arguments}, "tool_use"
    else:
        start = {"type": "text", "text": ""}
        delta = {"type": "text_delta", "text": reply.text}
        whole, reason = {**start, "text": reply.text}, "end_turn"
    message: Json = {
        "id": f"msg_{next(_ids)}",
        "type": "message",
        "role": "assistant",
        "model": body.get("model"),
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 12, "output_tokens": 5},
    }
    if not body.get("stream"):
        done = {**message, "content": [whole], "stop_reason": reason}
        return [{"type": "whole", "message": done}]
    return [
        {"type": "message_start", "message": message},
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {
            "type": "message_delta",
            "delta": {"stop_reason": reason, "stop_sequence": None},
            "usage": {"output_tokens": 5},
        },
        {"type": "message_stop"},
    ]


def responses(reply: Reply) -> list[Json]:
    """OpenAI's Responses API."""
    if reply.tool:
        item: Json = {
            "type": "function_call",
            "id": f"fc_{next(_ids)}",
            "call_id": f"call_{next(_ids)}",
            "name": reply.tool.name,
            "arguments": json.dumps(reply.arguments),
        }
        if reply.tool.namespace:
            item["namespace"] = reply.tool.namespace
    else:
        content = [{"type": "output_text", "text": reply.text}]
        item = {
            "type": "message",
            "id": f"msg_{next(_ids)}",
            "role": "assistant",
            "content": content,
        }
    usage = {
        "input_tokens": 12,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": 17,
    }
    return [
        {"type": "response.created", "response": {"id": "resp_1"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}},
    ]


def gemini(reply: Reply) -> list[Json]:
    """Google's generateContent."""
    parts: list[Json] = [{"text": reply.text}]
    if reply.tool:
        parts = [{"functionCall": {"name": reply.tool.name, "args": reply.arguments}}]
    usage = {"promptTokenCount": 12, "candidatesTokenCount": 5, "totalTokenCount": 17}
    content = {"role": "model", "parts": parts}
    candidate = {"content": content, "finishReason": "STOP", "index": 0}
    return [{"candidates": [candidate], "usageMetadata": usage}]
