"""Meaning: turns that say it in other words, by a model made here."""

from __future__ import annotations

import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import patch
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from agents_ledger import Embedder, Ledger, NotFound, Refused, embedder
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.search import vectors
from agents_ledger.ledger.search.ranking import Candidate
from agents_ledger.model.installation.settings import settings_file
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import Transaction, open_database
from agents_ledger.store.postgres import pgvector
from tests.raw import Raw
from tests.waiting import PATIENCE_S, until

CONCEPTS = {
    "car": ("car", "automobile", "vehicle"),
    "food": ("bread", "soup", "meal"),
    "time": ("slow", "sluggish", "late"),
}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A static model of nine words: those of one concept have nearly the same vector."""
    import numpy as np
    from model2vec import StaticModel
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Whitespace

    vocabulary, rows = {"[UNK]": 0}, [[0.01, 0.01, 0.01]]
    for number, known in enumerate(CONCEPTS.values()):
        for at, word in enumerate(known):
            vocabulary[word] = len(vocabulary)
            row = [0.05 * at] * 3
            row[number] = 1.0
            rows.append(row)
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    folder = tmp_path_factory.mktemp("model") / "tiny"
    StaticModel(np.array(rows, dtype="float32"), tokenizer).save_pretrained(folder)
    return str(folder)


@pytest.fixture
def chosen(model: str) -> Embedder:
    return embedder(model)


def test_other_words_are_found_by_meaning_alone(ledger: Ledger, chosen: Embedder) -> None:
    car = ledger.record("main", "the automobile", "ok").id
    ledger.record("main", "a bowl of soup", "ok")
    assert ledger.embed(chosen) == 2

    assert ledger.search("vehicle").hits == ()
    found = ledger.search("vehicle", order="meaning", embedder=chosen)

    assert found.hits[0].turn_id == car
    assert found.hits[0].score is not None


def test_words_and_meaning_together_stand_highest(ledger: Ledger, chosen: Embedder) -> None:
    meant = ledger.record("main", "the vehicle", "ok").id
    both = ledger.record("main", "the car", "ok").id
    ledger.record("main", "the soup", "ok")
    ledger.embed(chosen)

    found = ledger.search("car", order="meaning", embedder=chosen, limit=2)

    assert [hit.turn_id for hit in found.hits] == [both, meant]
    rest = ledger.search("car", order="meaning", embedder=chosen, limit=2, after=found.next)
    assert len(rest.hits) == 1
    assert rest.next is None


def test_operators_hold_for_meaning_too(ledger: Ledger, chosen: Embedder) -> None:
    here = ledger.record("main", "the automobile", "ok", workspace_path="/a/here").id
    ledger.record("main", "the automobile", "ok", workspace_path="/a/there")
    ledger.record("main", "the automobile is rusty", "ok", workspace_path="/a/here")
    ledger.embed(chosen)

    found = ledger.search("vehicle project:here -rusty", order="meaning", embedder=chosen)

    assert [hit.turn_id for hit in found.hits] == [here]


def test_only_turns_that_lack_a_vector_get_one(ledger: Ledger, chosen: Embedder, raw: Raw) -> None:
    ledger.record("main", "soup", "ok")
    assert ledger.embed(chosen) == 1
    ledger.record("main", "bread", "ok")

    assert (ledger.embed(chosen), ledger.embed(chosen)) == (1, 0)
    assert raw.one("SELECT count(*) FROM search_vectors") == 2


def test_what_has_no_vector_yet_is_found_by_its_words(ledger: Ledger, chosen: Embedder) -> None:
    turn = ledger.record("main", "the soup", "ok").id

    found = ledger.search("soup", order="meaning", embedder=chosen)

    assert [hit.turn_id for hit in found.hits] == [turn]


def test_bad_embedders_are_refused(ledger: Ledger, tmp_path: Path, chosen: Embedder) -> None:
    class Longer:
        name = chosen.name

        def encode(self, texts: Any) -> Any:
            return [[1.0] * 5 for _ in texts]

    ledger.record("main", "soup", "ok")
    ledger.embed(chosen)

    with pytest.raises(Refused, match="needs an embedder"):
        ledger.search("soup", order="meaning")
    with pytest.raises(Refused, match="have 3 numbers, not 5"):
        ledger.search("soup", order="meaning", embedder=Longer())
    with pytest.raises(NotFound, match="no embedder at"):
        embedder(str(tmp_path))


@pytest.fixture
def server_with_pgvector(postgres_server: str) -> Iterator[str]:
    """A database of its own, with the extension in a schema of a name that needs quotes."""
    name = f"vectors_{uuid.uuid4().hex}"
    parts = urlsplit(postgres_server)
    with psycopg.connect(postgres_server, autocommit=True) as admin:
        if not admin.execute(
            "SELECT 1 FROM pg_available_extensions WHERE name = 'vector'"
        ).fetchone():
            pytest.skip("this server has no pgvector")
        admin.execute(f"CREATE DATABASE {name}")
        address = urlunsplit(parts._replace(path=f"/{name}"))
        with psycopg.connect(address, autocommit=True) as own:
            own.execute('CREATE SCHEMA "Its own"')
            own.execute('CREATE EXTENSION vector SCHEMA "Its own"')
        yield address
        admin.execute(f"DROP DATABASE {name} WITH (FORCE)")


def _here(server: str) -> str:
    return f"{server}{'&' if '?' in server else '?'}schema=here"


def test_pgvector_finds_what_the_scan_finds(server_with_pgvector: str, chosen: Embedder) -> None:
    address = _here(server_with_pgvector)
    with Ledger.open(address) as ledger:
        for text in ("the car", "a vehicle", "bread and soup", "a late meal", "slow bread"):
            ledger.record("main", text, "ok")
        ledger.embed(chosen)
        everything = {"low": 0, "high": 1 << 62}

        def both(tx: Transaction) -> tuple[list[Candidate], list[Candidate]]:
            with patch.object(type(tx), "nearest", lambda *_: None):
                scanned = vectors.nearest(tx, chosen, "sluggish automobile", **everything)
            asked = [0.0, 0.0, 1.0]
            assert tx.nearest(chosen.name, asked, 0, 1 << 62, 3) is not None
            return vectors.nearest(tx, chosen, "sluggish automobile", **everything), scanned

        by_server, by_scan = ledger._core.db.read(both)
        assert [each.turn_id for each in by_server] == [each.turn_id for each in by_scan]
        assert [each.score for each in by_server] == pytest.approx([each.score for each in by_scan])
        assert len(ledger.search("vehicle", order="meaning", embedder=chosen).hits) == 5


def test_many_vectors_get_an_index_that_finds_what_the_scan_finds(
    server_with_pgvector: str, chosen: Embedder
) -> None:
    with (
        _limited(_here(server_with_pgvector), vector_index_from=5) as ledger,
        psycopg.connect(server_with_pgvector) as own,
    ):
        for text in ("the car", "a vehicle", "bread and soup", "a late meal"):
            ledger.record("main", text, "ok")
        ledger.embed(chosen)
        assert _hnsw(own) == 0
        ledger.record("main", "slow bread", "ok")
        ledger.embed(chosen)
        ledger.record("main", "slow car", "ok")
        ledger.embed(chosen)
        assert _hnsw(own) == 1

        def both(tx: Any) -> tuple[list[Candidate], list[Candidate], str]:
            tx.execute("SET LOCAL enable_seqscan TO off")
            tx.execute("SET LOCAL enable_sort TO off")
            by_index = vectors.nearest(tx, chosen, "sluggish automobile", low=0, high=1 << 62)
            by_scan = vectors.nearest(tx, chosen, "sluggish automobile", low=0, high=1 << 61)
            index = pgvector._index('"Its own"', chosen.name, 3)
            asked = {"asked": "[0,0,1]", "limit": 9}
            text = f"EXPLAIN {pgvector._text('indexed', index.words)}"
            plan = tx.cursor.execute(text.encode(), asked).fetchall()
            return by_index, by_scan, str(plan)

        by_index, by_scan, plan = ledger._core.db.read(both)
        assert "Index Scan using idx_vectors_near_" in plan
        assert [each.turn_id for each in by_index] == [each.turn_id for each in by_scan]
        assert [each.score for each in by_index] == pytest.approx([each.score for each in by_scan])
        assert len(by_index) == 6


def _limited(address: str, *, vector_index_from: int, vector_pause_s: float = 10.0) -> Ledger:
    limits = LedgerLimits(vector_index_from=vector_index_from, vector_pause_s=vector_pause_s)
    return Ledger(Core(open_database(address, limits=limits)))


def _hnsw(own: psycopg.Connection[Any]) -> int:
    found = own.execute("SELECT count(*) FROM pg_indexes WHERE indexdef LIKE '%hnsw%'").fetchone()
    assert found
    return int(found[0])


def test_two_that_index_the_vectors_at_once_make_one_index(
    server_with_pgvector: str, chosen: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    both, waited = threading.Barrier(2, timeout=PATIENCE_S), set()
    real = pgvector._exists

    def exists(*given: Any) -> bool:
        found = real(*given)
        if threading.get_ident() not in waited:
            waited.add(threading.get_ident())
            both.wait()
        return found

    with (
        Ledger.open(_here(server_with_pgvector)) as ledger,
        psycopg.connect(server_with_pgvector, autocommit=True) as own,
        ThreadPoolExecutor(2) as pool,
    ):
        ledger.record("main", "the car", "ok")
        ledger.embed(chosen)
        monkeypatch.setattr(pgvector, "_exists", exists)
        made = [
            pool.submit(ledger._core.db.write, lambda tx: tx.index_nearest(chosen.name, 3))
            for _ in range(2)
        ]
        assert [each.result() for each in made] == [None, None]
        assert _hnsw(own) == 1


def test_a_pgvector_that_cannot_index_scans(server_with_pgvector: str, chosen: Embedder) -> None:
    with (
        Ledger.open(_here(server_with_pgvector)) as ledger,
        psycopg.connect(server_with_pgvector, autocommit=True) as own,
    ):
        own.execute("UPDATE pg_am SET amname = 'unheard_of' WHERE amname = 'hnsw'")
        car = ledger.record("main", "the car", "ok").id
        ledger.embed(chosen)

        ledger._core.db.write(lambda tx: tx.index_nearest(chosen.name, 3))

        (hit,) = ledger.search("vehicle", order="meaning", embedder=chosen).hits
        assert hit.turn_id == car


def test_a_server_that_refuses_the_index_gets_vectors_all_the_same(
    server_with_pgvector: str, chosen: Embedder, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)

    def refuse(*_: object) -> None:
        asked.release()
        raise psycopg.errors.UndefinedObject("no such thing")

    monkeypatch.setattr(pgvector, "make_index", refuse)
    address = _here(server_with_pgvector)
    with _limited(address, vector_index_from=1, vector_pause_s=0.05) as ledger:
        ledger.record("main", "the car", "ok")
        assert ledger.embed(chosen) == 1
        ledger.embed(chosen, behind=True)
        assert asked.acquire(timeout=PATIENCE_S)
        assert asked.acquire(timeout=PATIENCE_S)
        ledger.record("main", "soup", "ok")
        assert asked.acquire(timeout=PATIENCE_S)
        with Raw(_here(server_with_pgvector)) as raw:
            _wait_for_vectors(raw, 2)


def test_a_file_is_not_locked_for_an_index_that_it_cannot_have(
    tmp_path: Path, chosen: Embedder
) -> None:
    with Ledger.open(str(tmp_path / "ledger.db")) as ledger:
        db = ledger._core.db
        with patch.object(db, "write", wraps=db.write) as written:
            vectors._index(db, chosen.name)
        assert written.call_count == 0


def test_a_scan_in_parts_finds_the_nearest_of_all(
    limited: Callable[..., Ledger], chosen: Embedder
) -> None:
    ledger = limited(compared_vectors=2, near_turns=3)
    cars = [ledger.record("main", f"the {word}", "ok").id for word in CONCEPTS["car"]]
    for word in (*CONCEPTS["food"], *CONCEPTS["time"]):
        ledger.record("main", word, "ok")
    ledger.embed(chosen)

    near = ledger._core.db.read(lambda tx: vectors.nearest(tx, chosen, "car", low=0, high=1 << 62))

    assert [each.turn_id for each in near] == cars


def test_turns_get_their_vectors_behind_the_writer(
    limited: Callable[..., Ledger], chosen: Embedder, raw: Raw
) -> None:
    ledger = limited(index_writes=2)
    ledger.record("main", "soup", "ok")
    assert ledger.embed(chosen, behind=True) == 0
    for word in ("bread", "meal", "car"):
        ledger.record("main", word, "ok")
    _wait_for_vectors(raw, 4)

    ledger.close()

    assert not any(each.name == "agents-ledger-vectors" for each in threading.enumerate())


def test_a_few_turns_get_their_vectors_too_a_little_later(
    limited: Callable[..., Ledger], chosen: Embedder, raw: Raw
) -> None:
    ledger = limited(vector_pause_s=0.05)
    ledger.embed(chosen, behind=True)
    for word in ("bread", "meal", "car"):
        ledger.record("main", word, "ok")

    _wait_for_vectors(raw, 3)


def test_a_server_gives_turns_their_vectors(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings_file().parent.mkdir()
    settings_file().write_text(f'embedder = "{model}"')
    file = str(tmp_path / "ledger.db")
    with Ledger.open(file) as ledger:
        ledger.record("main", "soup", "ok")
    command = [sys.executable, "-m", "agents_ledger.cli.main", "serve", "--ledger", file]

    with subprocess.Popen([*command, "--port", "0", "--no-browser"], stdout=subprocess.PIPE) as it:
        try:
            with Raw(file) as raw:
                _wait_for_vectors(raw, 1)
        finally:
            it.terminate()


def _wait_for_vectors(raw: Raw, count: int) -> None:
    until(lambda: raw.one("SELECT count(*) FROM search_vectors") == count)


def test_a_turn_that_changes_loses_its_vector(ledger: Ledger, chosen: Embedder, raw: Raw) -> None:
    turn = ledger.record("main", "soup", "ok").id
    ledger.embed(chosen)
    raw.execute("INSERT INTO search_waiting (turn_id) VALUES (?)", (turn,))

    ledger._core.index(least=1)

    assert raw.one("SELECT count(*) FROM search_vectors") == 0
    assert ledger.embed(chosen) == 1


def test_a_text_in_other_words_is_routed_by_meaning(ledger: Ledger, chosen: Embedder) -> None:
    car = ledger.record("cars", "the automobile", "ok").id
    ledger.record("kitchen", "bread and soup", "ok")
    ledger.embed(chosen)

    with pytest.raises(NotFound):
        ledger.route("smart:vehicle")
    found = ledger.route("smart:vehicle", embedder=chosen)
    forked = ledger.smart_fork("vehicle", embedder=chosen)

    assert found.proposals[0].turn_id == forked.proposals[0].turn_id == car
    assert (found.turn_id, forked.session) == (
        None,
        None,
    )  # it shares no word, so it is only proposed
