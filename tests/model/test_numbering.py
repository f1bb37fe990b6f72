"""Numbers for names, packed or not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agents_ledger.model.imports.interning import Numbering, Sets, packed

UUIDS = st.uuids().map(str)
LIKE_ONE = UUIDS.flatmap(
    lambda uuid: st.sampled_from(
        [uuid.upper(), uuid.replace("-", ""), uuid[:-1] + " ", uuid[:-2] + "-a", uuid + "0"]
    )
)
AS_LONG = st.text("ab\u00ff", min_size=16, max_size=17)
NAMES = st.lists(UUIDS | LIKE_ONE | AS_LONG | st.text(max_size=5), max_size=60)


@given(NAMES, NAMES)
def test_names_have_the_number_they_were_given_and_others_none(
    names: list[str], others: list[str]
) -> None:
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    numbers = Numbering(held=4)

    assert [numbers.add(name) for name in names] == [known[name] for name in names]
    assert [numbers.name(number) for number in range(len(numbers))] == list(known)
    assert [numbers.get(name) for name in [*names, *others]] == [
        known.get(name, -1) for name in [*names, *others]
    ]
    forgetful = Numbering(forgets=True, held=4)
    assert [forgetful.add(name) for name in names] == [known[name] for name in names]


@pytest.mark.parametrize(
    "name",
    [
        "AAAAAAAA-1111-4111-8111-111111111111",
        "11111111-1111-4111-8111-1111 1111111",
        "11111111-1111-4111-8111-1111-1111111",
        "g1111111-1111-4111-8111-111111111111",
        "1111111111-11-4111-8111-111111111111",
    ],
)
def test_what_would_not_come_back_as_it_was_is_not_packed(name: str) -> None:
    assert packed(name) is None


def test_a_set_has_one_number_whoever_asks() -> None:
    sets = Sets()
    first, second = sets.of([1, 2]), sets.of([3])

    assert sets.of([2, 1, 1]) == first
    assert sets[sets.joined([first, second])] == {1, 2, 3}
    assert sets.joined([second, second]) == second
