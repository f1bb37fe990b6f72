"""Search by meaning: vectors of turns, and a ranking that fuses words and meaning.

Every vector is compared, by the server if it has pgvector, otherwise here. A server with pgvector
gets an index once there are many vectors. Without an embedder, none of this is used.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.model.errors import LedgerError, Refused, StoreUnavailable
from agents_ledger.model.installation.extras import needed
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.text import ids_of

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

BATCH = 200
# Characters of a turn that its vector is computed from.
TEXT_MAX = 4_000
# 32-bit words before the elements of an array in PostgreSQL's binary format: dimensions, flags,
# element type, and length and lower bound of the only dimension.
ARRAY_HEAD = 5
# Weight of the nearest turn by meaning, relative to the best by words. Measured with MiniLM, whose
# vectors alone find far less than words do, everything from .1 to .8 gains; from 1.2 on, it loses.
MEANING = 0.4


class Vector(NamedTuple):
    """A turn's vector, under its number in the index."""

    doc_id: int
    model: str
    vector: bytes | list[float]


def numpy() -> Any:
    with needed("meaning", "searching by meaning"):
        import numpy
    return numpy


def embed(db: Database, embedder: Embedder) -> int:
    """Compute the missing vectors of indexed turns; returns how many."""
    index_queue.catch_up(db)
    done = 0
    while made := embed_some(db, embedder):
        done += made
    if done:
        _index(db, embedder.name)
    return done


def _index(db: Database, model: str) -> None:
    """Have a server index the vectors of a model, once there are many. If it refuses, all of them
    are compared."""

    def make(tx: Transaction) -> None:
        least = tx.limits.vector_index_from
        if tx.run("vector_count", model=model, limit=least)[0][0] == least:
            tx.index_nearest(model, tx.run("vector_length", model=model)[0][0])

    if db.engine == "postgresql":
        with suppress(LedgerError):
            db.write(make)


def embed_some(db: Database, embedder: Embedder) -> int:
    """embed() for one batch, the newest turns."""
    texts = db.read(lambda tx: _lacking(tx, embedder.name))
    if texts:
        rows = _normal(embedder.encode([text for _, text in texts]))
        numbers = [number for number, _ in texts]
        db.write(partial(_keep, model=embedder.name, numbers=numbers, rows=rows))
    return len(texts)


class Filler:
    def __init__(self, db: Database, embedder: Embedder) -> None:
        self._db = db
        self._embedder = embedder
        self._wanted = threading.Event()
        self._stopped = False
        self.written = False  # since it last looked
        self._wanted.set()
        self._thread = threading.Thread(target=self._run, name="agents-ledger-vectors", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        self._wanted.set()

    def stop(self) -> None:
        """Stop after the current batch."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            if not self._wanted.wait(self._db.limits.vector_pause_s) and not self.written:
                continue
            self._wanted.clear()
            self.written = False
            with suppress(StoreUnavailable):  # it is tried again later
                index_queue.catch_up(self._db)
                while not self._stopped and embed_some(self._db, self._embedder):
                    pass
                _index(self._db, self._embedder.name)


def _keep(tx: Transaction, model: str, numbers: Sequence[int], rows: Any) -> None:
    vectors = (row.tobytes() if tx.engine == "sqlite" else row.tolist() for row in rows)
    tx.run_many(
        "insert_vector",
        [Vector(number, model, row) for number, row in zip(numbers, vectors, strict=True)],
    )


def _lacking(tx: Transaction, model: str) -> list[tuple[int, str]]:
    rows = tx.run("docs_without_vector", model=model, limit=BATCH)
    numbers = {turn_id: number for number, turn_id in rows}
    if not numbers:
        return []
    by_id = documents(tx, ids_of(list(numbers)))
    return [(numbers[turn_id], text_of(document)) for turn_id, document in by_id.items()]


def text_of(document: SearchDocument) -> str:
    """The text that a turn's vector is computed from: the query, then the answer."""
    text = f"{document.part('user')}\n{document.part('assistant')}".strip()
    return text[:TEXT_MAX] or " ".join(document.tools) or "-"


def _normal(rows: Any) -> Any:
    np = numpy()
    rows = np.asarray(rows, dtype="<f4")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9).astype("<f4")


def nearest(
    tx: Transaction, embedder: Embedder, text: str, *, low: int, high: int
) -> list[Candidate]:
    """The turns nearest to a text, nearest first."""
    length = tx.run("vector_length", model=embedder.name)
    if not length:
        return []
    vector = _normal(embedder.encode([text[:TEXT_MAX]]))[0]
    if length[0][0] != len(vector):
        raise Refused(
            f"the vectors of {embedder.name} have {length[0][0]} numbers, not {len(vector)}",
            "Another model had that name: use another path for this one.",
        )
    rows = tx.nearest(embedder.name, vector.tolist(), low, high, tx.limits.near_turns)
    if rows is None:
        return _scan(tx, embedder.name, vector, low, high)
    return [Candidate(*row) for row in rows]


def _scan(tx: Transaction, model: str, vector: Any, low: int, high: int) -> list[Candidate]:
    """Compare every vector, many at a time."""
    at_once, near = tx.limits.compared_vectors, tx.limits.near_turns
    best: list[Candidate] = []
    while True:
        rows = tx.run("vectors", model=model, low=low, high=high, limit=at_once)
        if rows:
            likeness = _matrix(tx, [row[4] for row in rows], len(vector)) @ vector
            order = numpy().argsort(-likeness, kind="stable")[:near]
            best += [Candidate(*rows[at][:4])._replace(score=float(likeness[at])) for at in order]
            best.sort(key=lambda turn: (-turn.score, -turn.number))
            del best[near:]
        if len(rows) < at_once:
            return best
        high = rows[-1][0]


def _matrix(tx: Transaction, vectors: Sequence[bytes], length: int) -> Any:
    joined = b"".join(vectors)
    if tx.engine == "sqlite":
        return numpy().frombuffer(joined, "<f4").reshape(-1, length)
    rows = numpy().frombuffer(joined, ">f4").reshape(len(vectors), -1)
    return rows[:, ARRAY_HEAD + 1 :: 2]  # each number is preceded by its length


def fused(words: Sequence[Candidate], near: Sequence[Candidate]) -> list[Candidate]:
    """Rankings by words and by meaning as one: the scores of each relative to its best, because
    places would let many turns that are a little alike outweigh one that has the words."""
    best = max((turn.score for turn in words), default=0.0) or 1.0
    turns = {turn.turn_id: turn._replace(score=turn.score / best) for turn in words}
    least = min((turn.score for turn in near), default=0.0)
    span = (max((turn.score for turn in near), default=0.0) - least) or 1.0
    for turn in near:
        score = MEANING * (turn.score - least) / span
        other = turns.get(turn.turn_id, turn._replace(score=0.0))
        turns[turn.turn_id] = other._replace(score=other.score + score)
    return sorted(turns.values(), key=lambda turn: (turn.score, turn.number), reverse=True)
