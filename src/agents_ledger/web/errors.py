"""Errors as responses: one body for all, and a status for each family."""

from __future__ import annotations

import re
from html import escape

import msgspec
from litestar.exceptions import HTTPException, ValidationException
from litestar.types import Send
from msgspec import Struct

from agents_ledger.model.errors import (
    Conflict,
    EngineError,
    LedgerError,
    NotFound,
    Refused,
    StoreUnavailable,
    code_of,
)
from agents_ledger.model.text.json_limits import JsonTooLarge

STATUS = {
    JsonTooLarge: 413,
    NotFound: 404,
    Conflict: 409,
    Refused: 422,
    EngineError: 502,
    StoreUnavailable: 503,
}
KINDS = {
    400: "bad_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "unsupported_media_type",
    421: "wrong_host",
    429: "too_many_requests",
}
BAD_REQUEST = 400
TOO_MANY = 429
SERVER_FAULT = 500

_encode = msgspec.json.Encoder().encode


class ErrorBody(Struct, frozen=True):
    kind: str
    message: str
    hint: str = ""


def problem_of(error: Exception) -> tuple[int, ErrorBody]:
    if isinstance(error, LedgerError):
        status = next(code for family, code in STATUS.items() if isinstance(error, family))
        return status, ErrorBody(code_of(error), str(error), error.hint)
    if isinstance(error, ValidationException):
        faults = error.extra if isinstance(error.extra, list) else []
        details = "; ".join(map(_detail, faults))
        return BAD_REQUEST, ErrorBody(KINDS[400], details or error.detail)
    if isinstance(error, HTTPException):
        status = error.status_code
        return status, ErrorBody(KINDS.get(status, "failed"), error.detail)
    return SERVER_FAULT, ErrorBody("failed", "internal server error", "See the server's log.")


def _detail(fault: dict[str, str]) -> str:
    key, message = fault.get("key", "body"), fault["message"]
    if key != "data":  # Litestar's name of the body
        return f"{key}: {message}"
    return "the body is missing; send JSON" if message == "'data'" else f"body: {message}"


async def send_error(send: Send, is_api: bool, status: int, message: str, hint: str) -> None:
    """Refuse a request before it reaches the application."""
    if is_api:
        body = _encode(ErrorBody(KINDS[status], message, hint))
        kind = b"application/json"
    else:
        body = _PAGE.format(status=status, message=escape(message), hint=_html(hint)).encode()
        kind = b"text/html; charset=utf-8"
    headers = [
        (b"content-type", kind),
        (b"content-length", str(len(body)).encode()),
        (b"cache-control", b"no-store"),
    ]
    if status == TOO_MANY:
        headers.append((b"retry-after", b"1"))
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _html(text: str) -> str:
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", escape(text))


_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{status} · Agents Ledger</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="/static/conversation.css">
<link rel="stylesheet" href="/static/app.css"><link rel="icon" href="/static/icon.svg"></head>
<body class="plain"><main><h1>Agents Ledger</h1><p><strong>{message}</strong></p><p>{hint}</p>
<form method="get" action="/"><label>Token <input name="token" type="password"
autocomplete="current-password" required></label>
<button>Open</button></form></main></body></html>
"""
