"""Text as it is stored: every text comes back, and most is stored as it is."""

from __future__ import annotations

from hypothesis import example, given
from hypothesis import strategies as st

from agents_ledger.store.text import escape, escape_row, unescape, unescape_rows

ANY = st.text(
    st.one_of(st.characters(), st.characters(categories=["Cs"]), st.sampled_from("\x00\x1a0d")),
    max_size=30,
)


@given(ANY)
@example("\x1a0000")
@example("\x1a\x1a001a")
@example("\ud83d\ude00")
def test_every_text_comes_back(text: str) -> None:
    stored = escape(text)

    assert unescape(stored) == text
    stored.encode()
    assert "\x00" not in stored


@given(ANY, ANY)
def test_texts_that_differ_are_stored_differently(first: str, second: str) -> None:
    assert (escape(first) == escape(second)) == (first == second)


@given(st.text(st.characters(exclude_characters="\x00\x1a", exclude_categories=["Cs"])))
def test_plain_text_is_stored_as_it_is(text: str) -> None:
    assert escape(text) == text
    assert unescape(text) == text


@given(st.lists(st.one_of(ANY, st.integers(), st.none(), st.binary()), min_size=1, max_size=4))
def test_rows_come_back_whatever_is_in_them(values: list[object]) -> None:
    stored = escape_row(tuple(values))

    assert unescape_rows([stored]) == [tuple(values)]
