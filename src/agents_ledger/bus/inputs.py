"""The kinds of value that inputs of abilities are made of, each with its bounds."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from agents_ledger.model.ids import LATEST_MS

COUNT_MAX = 1 << 53  # what a JSON number carries exactly
PAGE_MAX = 1000

Name = Annotated[str, Meta(min_length=1, max_length=512)]
Target = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=512,
        description="A session's label or alias, or a turn's id or the first letters of it.",
    ),
]
Time = Annotated[int, Meta(ge=0, le=LATEST_MS, description="Unix milliseconds.")]
Count = Annotated[int, Meta(ge=0, le=COUNT_MAX)]
Limit = Annotated[int, Meta(ge=1, le=PAGE_MAX, description="So many at most.")]


class Input(Struct, forbid_unknown_fields=True):
    """What an ability takes. A field it does not know is an error, never ignored."""
