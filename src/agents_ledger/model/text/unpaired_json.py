"""JSON with unpaired surrogates: JavaScript writes them where it cuts a text within a character."""

from __future__ import annotations

import json
import re
from typing import Any, NoReturn

_ESCAPED = re.compile(r"\\u[dD][89a-fA-F]")


def decode_unpaired(data: str | bytes) -> Any:
    """The value of JSON that strict decoders refuse for its surrogates. Raises ValueError if it is
    not JSON, or has none."""
    text = data.decode() if isinstance(data, bytes) else data
    if not _ESCAPED.search(text):
        raise ValueError("no surrogate is escaped")
    return json.loads(text, parse_constant=_refuse)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")
