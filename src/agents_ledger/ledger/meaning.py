"""Turns by what they mean: vectors beside the word index, and a ranking of words and meaning.

The scan is exact: every vector is compared. Without an embedder nothing of this is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agents_ledger.ledger import waiting
from agents_ledger.ledger.documents import Document, documents
from agents_ledger.ledger.search import Candidate
from agents_ledger.model.errors import Refused
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.text import ids_of

if TYPE_CHECKING:
    from agents_ledger.model.embedding import Embedder

BATCH = 200
TEXT_MAX = 4_000  # letters of a turn that its vector is made of
NEAREST = 200
FUSION = 60  # the usual constant of reciprocal rank fusion


class Vector(NamedTuple):
    """A turn's vector, under its number in the index."""

    doc_id: int
    model: str
    vector: bytes


def numpy() -> Any:
    """numpy, which only this needs."""
    try:
        import numpy
    except ModuleNotFoundError as error:
        raise Refused(
            "searching by meaning needs numpy, which is not installed",
            "Install it with: pip install 'agents-ledger[meaning]'",
        ) from error
    return numpy


def embed(db: Database, embedder: Embedder) -> int:
    """Give every indexed turn that lacks it a vector; how many."""
    waiting.catch_up(db)
    done = 0
    while True:
        found = db.read(lambda tx: _lacking(tx, embedder.name))
        if not found:
            return done
        vectors = _vectors(embedder, found)
        db.write(partial(_keep, vectors=vectors))
        done += len(vectors)


def _keep(tx: Transaction, vectors: Sequence[Vector]) -> None:
    tx.run_many("insert_vector", vectors)


def _lacking(tx: Transaction, model: str) -> list[tuple[int, str]]:
    rows = tx.run("docs_without_vector", model=model, limit=BATCH)
    numbers = {turn_id: number for number, turn_id in rows}
    if not numbers:
        return []
    found = documents(tx, ids_of(list(numbers)))
    return [(numbers[turn_id], text_of(document)) for turn_id, document in found.items()]


def text_of(document: Document) -> str:
    """What a turn's vector is made of: what was asked, then what was answered."""
    said = f"{document.part('user')}\n{document.part('assistant')}".strip()
    return said[:TEXT_MAX] or " ".join(document.tools) or "-"


def _vectors(embedder: Embedder, found: Sequence[tuple[int, str]]) -> list[Vector]:
    rows = _normal(embedder.encode([text for _, text in found]))
    return [
        Vector(number, embedder.name, row.tobytes())
        for (number, _), row in zip(found, rows, strict=True)
    ]


def _normal(rows: Any) -> Any:
    np = numpy()
    rows = np.asarray(rows, dtype="<f4")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9).astype("<f4")


def nearest(
    tx: Transaction, embedder: Embedder, text: str, *, low: int, high: int
) -> list[Candidate]:
    """The turns whose vectors are nearest to that of a text, nearest first."""
    np = numpy()
    rows = tx.run("vectors", model=embedder.name, low=low, high=high)
    if not rows:
        return []
    asked = _normal(embedder.encode([text[:TEXT_MAX]]))[0]
    joined = b"".join(bytes(row[4]) for row in rows)
    known = np.frombuffer(joined, dtype="<f4").reshape(len(rows), -1)
    if known.shape[1] != asked.shape[0]:
        raise Refused(
            f"the vectors of {embedder.name} have {known.shape[1]} numbers, not {asked.shape[0]}",
            "Another model had that name: choose it by another path.",
        )
    likeness = known @ asked
    best = np.argsort(-likeness, kind="stable")[:NEAREST]
    found = []
    for at in best:
        number, turn_id, segment_id, depth, _ = rows[at]
        found.append(Candidate(number, turn_id, segment_id, depth, float(likeness[at])))
    return found


def fused(*rankings: Sequence[Candidate]) -> list[Candidate]:
    """Several rankings as one: who stands high in any, and higher who does so in several."""
    scores: dict[str, float] = {}
    found: dict[str, Candidate] = {}
    for ranking in rankings:
        for rank, candidate in enumerate(ranking, 1):
            scores[candidate.turn_id] = scores.get(candidate.turn_id, 0.0) + 1 / (FUSION + rank)
            found.setdefault(candidate.turn_id, candidate)
    merged = [found[turn_id]._replace(score=score) for turn_id, score in scores.items()]
    return sorted(merged, key=lambda each: (each.score, each.number), reverse=True)
