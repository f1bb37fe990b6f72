"""What the HTTP API has in common: its answers, its bounds, and how its routes are told."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Annotated, Any, Generic, TypeVar, cast

import msgspec
from litestar import Response, delete, get, patch, post
from litestar.openapi.datastructures import ResponseSpec
from litestar.params import QueryParameter
from msgspec import Meta, Struct

from agents_ledger.web.errors import Problem
from agents_ledger.web.site import Asked, tag_of

T = TypeVar("T")

PER_PAGE = 50
PAGE_MAX = 200
NUMBER_MAX = 2**53
TEXT_MAX = 1 << 20

Limit = Annotated[int, QueryParameter(ge=1, le=PAGE_MAX)]
Number = Annotated[int, QueryParameter(ge=0, le=NUMBER_MAX)]
Text = Annotated[str, Meta(max_length=TEXT_MAX)]

_TOLD = {
    304: "not changed",
    400: "not understood",
    401: "no valid token",
    403: "the token does not allow it",
    404: "no such thing",
    405: "no such method",
    409: "the ledger moved, or holds something else there",
    413: "too large",
    422: "against the rules; nothing was changed",
    429: "too many requests",
    503: "the store cannot be used",
}
ERRORS = {
    status: ResponseSpec(Problem if status != 304 else None, description=told)  # noqa: PLR2004
    for status, told in _TOLD.items()
}
_encode = msgspec.json.Encoder().encode


class Page(Struct, Generic[T], frozen=True):
    """A part of a list; `next` asks for the next one."""

    items: list[T]
    next: str | None = None


def reads(path: str, **options: Any) -> Callable[[Any], Any]:
    """A route that reads."""
    return get(path, sync_to_thread=True, responses=ERRORS, **options)


def makes(path: str, *, scope: str = "write", **options: Any) -> Callable[[Any], Any]:
    """A route that makes something."""
    return post(path, sync_to_thread=True, responses=ERRORS, opt={"scope": scope}, **options)


def changes(path: str, **options: Any) -> Callable[[Any], Any]:
    """A route that changes something."""
    return patch(path, sync_to_thread=True, responses=ERRORS, **options)


def removes(path: str, *, scope: str = "write", **options: Any) -> Callable[[Any], Any]:
    """A route that ends something."""
    return delete(
        path,
        sync_to_thread=True,
        responses=ERRORS,
        opt={"scope": scope},
        status_code=200,
        **options,
    )


def answer(value: T, request: Asked | None = None) -> Response[T]:
    """A value as JSON. To a question, with the tag of its content: the same is not sent twice."""
    body = as_json(value)
    headers = {}
    if request is not None:
        headers["etag"] = tag_of(body)
        if request.headers.get("if-none-match") == headers["etag"]:
            empty = Response(b"", status_code=304, headers=headers)
            return cast(Response[T], empty)
    made = Response(body, media_type="application/json", headers=headers)
    return cast(Response[T], made)


def as_json(value: object) -> bytes:
    """JSON; halves of characters stand escaped in it."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        return json.dumps(msgspec.to_builtins(value)).encode("ascii")
