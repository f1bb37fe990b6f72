"""What pgvector adds, where a server has it: the nearest vectors by an exact scan, and by an index
once there are many."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import NamedTuple

from psycopg import Cursor, sql

from agents_ledger.store import queries
from agents_ledger.store.database import Row

# pgvector indexes vectors of at most 2,000 dimensions.
LENGTH_MAX = 2000
# Vectors that the index looks at (hnsw.ef_search): the more, the fewer neighbours it misses.
LOOKED_AT = 400
EVERYTHING = 1 << 62  # no number is above it


INDEX_PREFIX = "idx_vectors_near_"


class _Index(NamedTuple):
    name: str
    words: dict[str, str]  # values of the placeholders {word}


def _index(schema: str, model: str, length: int) -> _Index:
    name = f"{INDEX_PREFIX}{hashlib.sha256(model.encode()).hexdigest()[:16]}"
    values = {"schema": schema, "model": sql.Literal(model).as_string(), "length": str(length)}
    return _Index(name, {"name": name, **values})


def _text(name: str, words: dict[str, str]) -> str:
    text = queries.PARAMETER.sub(r"%(\1)s", queries.pieces("nearest.postgres.sql")[name])
    for word, value in words.items():
        text = text.replace(f"{{{word}}}", value.replace("%", "%%"))
    return text


def _run(cursor: Cursor[Row], text: str, values: dict[str, object]) -> list[Row]:
    return cursor.execute(text.encode(), values).fetchall()


def _schema(cursor: Cursor[Row]) -> str | None:
    rows = _run(cursor, _text("extension", {}), {})
    return str(rows[0][0]) if rows else None


def nearest(
    cursor: Cursor[Row], model: str, vector: Sequence[float], *, low: int, high: int, limit: int
) -> list[Row] | None:
    """The vectors most like the one asked for; None: the server has no pgvector."""
    schema = _schema(cursor)
    if schema is None:
        return None
    index = _index(schema, model, len(vector))
    values: dict[str, object] = {"model": model, "asked": str(list(vector)), "limit": limit}
    # The index applies a range only after it has picked its neighbours and would return too few, so
    # a search within a range compares every vector.
    if low <= 0 and high >= EVERYTHING and _exists(cursor, index):
        _run(cursor, _text("look_at", {}), {"count": str(max(LOOKED_AT, limit))})
        return _run(cursor, _text("indexed", index.words), values)
    return _run(cursor, _text("nearest", index.words), {**values, "low": low, "high": high})


def _exists(cursor: Cursor[Row], index: _Index) -> bool:
    return bool(_run(cursor, _text("index_exists", {}), {"name": index.name}))


def make_index(cursor: Cursor[Row], model: str, length: int) -> None:
    """Index the vectors of a model, if the server can and has not."""
    schema = _schema(cursor) if length <= LENGTH_MAX else None
    if schema is None or not _run(cursor, _text("can_index", {}), {}):
        return
    index = _index(schema, model, length)
    if _exists(cursor, index):
        return
    _run(cursor, _text("lock_index", {}), {"name": index.name})
    if not _exists(cursor, index):  # nobody else made it meanwhile
        cursor.execute(_text("make_index", index.words).replace("%%", "%").encode())
