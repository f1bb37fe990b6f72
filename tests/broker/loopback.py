"""A server on this machine that speaks the providers' protocols: streams of events, and errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple


class Failure(NamedTuple):
    """An answer that is an error."""

    status: int
    body: dict[str, Any]


Script = Sequence[dict[str, Any]] | Failure


class Loopback:
    """Answers each request with the next of its scripts, and keeps what was asked."""

    def __init__(self, scripts: Sequence[Script]) -> None:
        self._scripts = list(scripts)
        self.asked: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.url = ""

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        length = next(
            int(line.split(":")[1])
            for line in head.splitlines()
            if line.lower().startswith("content-length")
        )
        self.asked.append(json.loads(await reader.readexactly(length)))
        self.paths.append(head.split()[1])
        script = self._scripts.pop(0)
        if isinstance(script, Failure):
            body = json.dumps(script.body).encode()
            self._head(writer, f"{script.status} Error", "application/json", len(body))
            writer.write(body)
        else:
            self._head(writer, "200 OK", "text/event-stream", None)
            for event in script:
                name = f"event: {event['type']}\n" if "type" in event else ""
                writer.write(f"{name}data: {json.dumps(event)}\n\n".encode())
                await writer.drain()
            writer.write(b"data: [DONE]\n\n" if "type" not in script[0] else b"")
        await writer.drain()
        writer.close()

    @staticmethod
    def _head(writer: asyncio.StreamWriter, status: str, kind: str, length: int | None) -> None:
        sized = f"content-length: {length}\r\n" if length is not None else ""
        said = f"content-type: {kind}\r\n{sized}x-should-retry: false\r\nconnection: close\r\n"
        writer.write(f"HTTP/1.1 {status}\r\n{said}\r\n".encode())


@asynccontextmanager
async def loopback(*scripts: Script) -> AsyncIterator[Loopback]:
    """A server for the time of a test."""
    made = Loopback(scripts)
    server = await asyncio.start_server(made.answer, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    async with server:
        yield made


# -- OpenAI's chat completions ------------------------------------------------------------------


def openai_chunk(delta: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "gpt-test-2026",
        "choices": [choice],
    }


def openai_usage(prompt: int, completion: int) -> dict[str, Any]:
    return {
        **openai_chunk({}),
        "choices": [],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 2},
        },
    }


def openai_text(*pieces: str, finish: str = "stop") -> list[dict[str, Any]]:
    chunks = [openai_chunk({"role": "assistant", "content": piece}) for piece in pieces]
    return [*chunks, openai_chunk({}, finish), openai_usage(20, 5)]


def openai_call(name: str, arguments: str, call_id: str = "call_1") -> list[dict[str, Any]]:
    function = {"name": name, "arguments": ""}
    begin = {"index": 0, "id": call_id, "type": "function", "function": function}
    half = len(arguments) // 2
    return [
        openai_chunk({"role": "assistant", "content": "Let me look."}),
        openai_chunk({"tool_calls": [begin]}),
        *(
            openai_chunk({"tool_calls": [{"index": 0, "function": {"arguments": piece}}]})
            for piece in (arguments[:half], arguments[half:])
        ),
        openai_chunk({}, "tool_calls"),
        openai_usage(10, 7),
    ]


# -- OpenAI's responses -------------------------------------------------------------------------


def _response(status: str, **more: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "status": status,
        "model": "gpt-test-2026",
        "output": [],
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
        **more,
    }


def _responses(
    items: Sequence[tuple[dict[str, Any], Sequence[dict[str, Any]]]],
    status: str = "completed",
    **more: Any,
) -> list[dict[str, Any]]:
    """The events of one response: each item begins, is said in pieces, and is done."""
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": _response("in_progress")}
    ]
    for index, (item, pieces) in enumerate(items):
        events.append({"type": "response.output_item.added", "output_index": index, "item": item})
        events += ({"item_id": item["id"], "output_index": index, **piece} for piece in pieces)
        done = {**item, "status": "completed"}
        events.append({"type": "response.output_item.done", "output_index": index, "item": done})
    usage = {
        "input_tokens": 20,
        "input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0},
        "output_tokens": 5,
        "output_tokens_details": {"reasoning_tokens": 2},
        "total_tokens": 25,
    }
    last = _response(status, usage=usage, output=[item for item, _ in items], **more)
    events.append({"type": f"response.{status}", "response": last})
    return [{**event, "sequence_number": number} for number, event in enumerate(events)]


def responses_text(*pieces: str, status: str = "completed", **more: Any) -> list[dict[str, Any]]:
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "in_progress"}
    deltas = [
        {"type": "response.output_text.delta", "content_index": 0, "delta": piece, "logprobs": []}
        for piece in pieces
    ]
    return _responses([({**item, "content": []}, deltas)], status, **more)


def responses_call(name: str, arguments: str, thought: str) -> list[dict[str, Any]]:
    reasoning = {
        "id": "rs_1", "type": "reasoning", "summary": [], "encrypted_content": "sealed",
    }  # fmt: skip
    call = {
        "id": "fc_1", "type": "function_call", "call_id": "call_1", "name": name,
        "arguments": "", "status": "in_progress",
    }  # fmt: skip
    half = len(arguments) // 2
    said = [
        {"type": "response.function_call_arguments.delta", "delta": piece}
        for piece in (arguments[:half], arguments[half:])
    ]
    part = {"type": "summary_text", "text": ""}
    thinking = [
        {"type": "response.reasoning_summary_part.added", "summary_index": 0, "part": part},
        {"type": "response.reasoning_summary_text.delta", "summary_index": 0, "delta": thought},
    ]
    return _responses([(reasoning, thinking), (call, said)])


# -- Anthropic's messages -----------------------------------------------------------------------


def anthropic_message(
    *blocks: list[dict[str, Any]], stop: str = "end_turn"
) -> list[dict[str, Any]]:
    usage = {
        "input_tokens": 11,
        "output_tokens": 1,
        "cache_read_input_tokens": 3,
        "cache_creation_input_tokens": 2,
    }
    message: dict[str, Any] = {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-test-2026",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": usage,
    }
    events: list[dict[str, Any]] = [{"type": "message_start", "message": message}]
    for index, block in enumerate(blocks):
        events += ({**event, "index": index} for event in block)
    delta = {"stop_reason": stop, "stop_sequence": None}
    return [
        *events,
        {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def anthropic_block(start: dict[str, Any], *deltas: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        {"type": "content_block_start", "content_block": start},
        *({"type": "content_block_delta", "delta": delta} for delta in deltas),
        {"type": "content_block_stop"},
    ]


def anthropic_text(*pieces: str) -> list[dict[str, Any]]:
    deltas = ({"type": "text_delta", "text": piece} for piece in pieces)
    return anthropic_block({"type": "text", "text": ""}, *deltas)


def anthropic_thinking(text: str, signature: str) -> list[dict[str, Any]]:
    return anthropic_block(
        {"type": "thinking", "thinking": "", "signature": ""},
        {"type": "thinking_delta", "thinking": text},
        {"type": "signature_delta", "signature": signature},
    )


def anthropic_call(name: str, arguments: str) -> list[dict[str, Any]]:
    half = len(arguments) // 2
    return anthropic_block(
        {"type": "tool_use", "id": "toolu_1", "name": name, "input": {}},
        *(
            {"type": "input_json_delta", "partial_json": piece}
            for piece in (arguments[:half], arguments[half:])
        ),
    )
