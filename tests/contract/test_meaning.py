"""Meaning: turns that say it in other words, by a model made here."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from agents_ledger import Embedder, Ledger, NotFound, Refused, embedder
from tests.raw import Raw

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
