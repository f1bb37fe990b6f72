"""Text as the word index sees it."""

from __future__ import annotations

from itertools import product

from agents_ledger.ledger.search.words import tokenizer

LETTERS = "aé…─✅🎉\ufe0f\ufffd\ue000\ud800\u3000\u3042\u4e2d\uac00\uf900\uff66𠀀𰀀"


def test_a_text_is_taken_apart_wherever_it_has_letters_of_runs() -> None:
    for text in (*LETTERS, *map("".join, product(LETTERS, repeat=2))):
        expected = tokenizer._runs().sub(
            lambda run: f" {' '.join(tokenizer._pairs(run[0]))} ", text
        )
        assert tokenizer.spaced(text) == expected
