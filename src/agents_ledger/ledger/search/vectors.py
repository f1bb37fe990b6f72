"""Turns by what they mean: vectors beside the word index, and a ranking of words and meaning.

The scan is exact: every vector is compared, by the server where it has pgvector, else here. Such
a server gets an index once they are many. Without an embedder nothing of this is used.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from agents_ledger.ledger.search import index_queue
from agents_ledger.ledger.search.documents import SearchDocument, documents
from agents_ledger.ledger.search.turn_search import Candidate
from agents_ledger.model.errors import LedgerError, Refused, StoreUnavailable
from agents_ledger.store.database import Database, Transaction
from agents_ledger.store.text import ids_of

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

BATCH = 200
TEXT_MAX = 4_000  # letters of a turn that its vector is made of
NEAREST = 200
COMPARED_AT_ONCE = 20_000
INDEX_FROM = 20_000  # vectors: fewer are compared in less time than an index is worth
ARRAY_HEAD = 5  # words before the numbers of an array that PostgreSQL sends
PAUSE_S = 10.0  # after a few writes turns have their vectors within so many seconds
FUSION = 60  # the usual constant of reciprocal rank fusion


class Vector(NamedTuple):
    """A turn's vector, under its number in the index."""

    doc_id: int
    model: str
    vector: bytes | list[float]


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
    index_queue.catch_up(db)
    done = 0
    while made := embed_some(db, embedder):
        done += made
    if done:
        _index(db, embedder.name)
    return done


def _index(db: Database, model: str) -> None:
    """Have a server index the vectors of a model, once they are many. It may refuse: what is
    nearest is found without."""

    def make(tx: Transaction) -> None:
        if tx.run("vector_count", model=model, limit=INDEX_FROM)[0][0] == INDEX_FROM:
            tx.index_nearest(model, tx.run("vector_length", model=model)[0][0])

    if db.engine == "postgresql":
        with suppress(LedgerError):
            db.write(make)


def embed_some(db: Database, embedder: Embedder) -> int:
    """The same for a batch of them, the newest."""
    found = db.read(lambda tx: _lacking(tx, embedder.name))
    if found:
        rows = _normal(embedder.encode([text for _, text in found]))
        numbers = [number for number, _ in found]
        db.write(partial(_keep, model=embedder.name, numbers=numbers, rows=rows))
    return len(found)


class Filler:
    """Gives turns their vectors behind the writer, in a thread of its own."""

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
        """There may be many turns without a vector."""
        self._wanted.set()

    def stop(self) -> None:
        """Finish what is begun, and no more."""
        self._stopped = True
        self._wanted.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopped:
            if not self._wanted.wait(PAUSE_S) and not self.written:
                continue
            self._wanted.clear()
            self.written = False
            with suppress(StoreUnavailable):  # it is tried again later
                index_queue.catch_up(self._db)
                while not self._stopped and embed_some(self._db, self._embedder):
                    pass
                _index(self._db, self._embedder.name)


def _keep(tx: Transaction, model: str, numbers: Sequence[int], rows: Any) -> None:
    kept = (row.tobytes() if tx.engine == "sqlite" else row.tolist() for row in rows)
    tx.run_many(
        "insert_vector",
        [Vector(number, model, row) for number, row in zip(numbers, kept, strict=True)],
    )


def _lacking(tx: Transaction, model: str) -> list[tuple[int, str]]:
    rows = tx.run("docs_without_vector", model=model, limit=BATCH)
    numbers = {turn_id: number for number, turn_id in rows}
    if not numbers:
        return []
    found = documents(tx, ids_of(list(numbers)))
    return [(numbers[turn_id], text_of(document)) for turn_id, document in found.items()]


def text_of(document: SearchDocument) -> str:
    """What a turn's vector is made of: what was asked, then what was answered."""
    said = f"{document.part('user')}\n{document.part('assistant')}".strip()
    return said[:TEXT_MAX] or " ".join(document.tools) or "-"


def _normal(rows: Any) -> Any:
    np = numpy()
    rows = np.asarray(rows, dtype="<f4")
    return rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-9).astype("<f4")


def nearest(
    tx: Transaction, embedder: Embedder, text: str, *, low: int, high: int
) -> list[Candidate]:
    """The turns whose vectors are nearest to that of a text, nearest first."""
    length = tx.run("vector_length", model=embedder.name)
    if not length:
        return []
    asked = _normal(embedder.encode([text[:TEXT_MAX]]))[0]
    if length[0][0] != len(asked):
        raise Refused(
            f"the vectors of {embedder.name} have {length[0][0]} numbers, not {len(asked)}",
            "Another model had that name: choose it by another path.",
        )
    rows = tx.nearest(embedder.name, asked.tolist(), low, high, NEAREST)
    if rows is None:
        return _scan(tx, embedder.name, asked, low, high)
    return [Candidate(*row) for row in rows]


def _scan(tx: Transaction, model: str, asked: Any, low: int, high: int) -> list[Candidate]:
    """Every vector compared, so many at a time."""
    best: list[Candidate] = []
    while True:
        rows = tx.run("vectors", model=model, low=low, high=high, limit=COMPARED_AT_ONCE)
        if rows:
            likeness = _matrix(tx, [row[4] for row in rows], len(asked)) @ asked
            found = numpy().argsort(-likeness, kind="stable")[:NEAREST]
            best += [Candidate(*rows[at][:4])._replace(score=float(likeness[at])) for at in found]
            best.sort(key=lambda each: (-each.score, -each.number))
            del best[NEAREST:]
        if len(rows) < COMPARED_AT_ONCE:
            return best
        high = rows[-1][0]


def _matrix(tx: Transaction, vectors: Sequence[bytes], length: int) -> Any:
    """Vectors as the engine gives them, a row each."""
    joined = b"".join(vectors)
    if tx.engine == "sqlite":
        return numpy().frombuffer(joined, "<f4").reshape(-1, length)
    rows = numpy().frombuffer(joined, ">f4").reshape(len(vectors), -1)
    return rows[:, ARRAY_HEAD + 1 :: 2]  # its length stands before each number


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
