"""Responses of pages and of the HTTP API, and how the API declares its routes."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from agents_ledger.web.errors import ErrorBody
from agents_ledger.web.requests import WebRequest

T = TypeVar("T")

PER_PAGE = 50
PAGE_MAX = 200
NUMBER_MAX = 2**53
TEXT_MAX = 1 << 20
TURN_BODY_MAX = 16 << 20
OK = 200
NOT_MODIFIED = 304

Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)]
Number = Annotated[int, QueryParameter(ge=0, le=NUMBER_MAX)]
OptionalNumber = Annotated[int | None, QueryParameter(ge=0, le=NUMBER_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]

_DESCRIPTIONS = {
    NOT_MODIFIED: "not modified",
    400: "malformed request",
    401: "no valid token",
    403: "the token lacks a scope",
    404: "not found",
    405: "method not allowed",
    409: "the ledger changed in the meantime, or the name is taken",
    413: "too large",
    422: "refused by a rule of the ledger; nothing was changed",
    429: "too many requests",
    503: "the store is unavailable",
}
ERRORS = {
    status: ResponseSpec(ErrorBody if status != NOT_MODIFIED else None, description=description)
    for status, description in _DESCRIPTIONS.items()
}
_encode = msgspec.json.Encoder().encode


class ResultPage(Struct, Generic[T], frozen=True):
    """Part of a list. Pass `next` to get the following part."""

    items: list[T]
    next: str | None = None


def reads(path: str, **options: Any) -> Callable[[Any], Any]:
    return get(path, sync_to_thread=True, responses=ERRORS, **options)


def creates(path: str, *, scope: str = "write", **options: Any) -> Callable[[Any], Any]:
    return post(path, sync_to_thread=True, responses=ERRORS, opt={"scope": scope}, **options)


def changes(path: str, **options: Any) -> Callable[[Any], Any]:
    return patch(path, sync_to_thread=True, responses=ERRORS, **options)


def removes(path: str, *, scope: str = "write", **options: Any) -> Callable[[Any], Any]:
    return delete(
        path, sync_to_thread=True, responses=ERRORS, opt={"scope": scope}, status_code=OK, **options
    )


def answer(value: T, request: WebRequest | None = None) -> Response[T]:
    """A value as JSON. With the request, it has an entity tag, and is not sent if the client has
    it already."""
    body = as_json(value)
    headers = {}
    if request is not None:
        headers["etag"] = etag_of(body)
        if request.headers.get("if-none-match") == headers["etag"]:
            return cast(Response[T], Response(b"", status_code=NOT_MODIFIED, headers=headers))
    return cast(Response[T], Response(body, media_type="application/json", headers=headers))


def html_response(text: str, request: WebRequest, *, status: int = OK) -> Response[str]:
    # Unpaired surrogates cannot be encoded, but logs contain them.
    content = text.encode("utf-8", "backslashreplace")
    tag = etag_of(content)
    if status == OK and request.headers.get("if-none-match") == tag:
        headers = {"etag": tag}
        return Response("", status_code=NOT_MODIFIED, headers=headers, media_type="text/html")
    page = Response(content, status_code=status, media_type="text/html", headers={"etag": tag})
    return cast(Response[str], page)


def as_json(value: object) -> bytes:
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")


def etag_of(content: bytes) -> str:
    return f'W/"{hashlib.blake2b(content, digest_size=12).hexdigest()}"'
