"""The ranking of turns for a question."""

from __future__ import annotations

from datetime import datetime

import pytest

from agents_ledger import Ledger
from agents_ledger.ledger.search.ranking import (
    RECENT_NUMBERS,
    Candidate,
    WordMatches,
    favouring,
    ranked,
)
from agents_ledger.ledger.search.words.questions import spellings
from agents_ledger.ledger.search.words.word_forms import word_forms
from agents_ledger.model.text.question_times import time_of

NOW = datetime(2026, 11, 18, 12)  # a Wednesday


def ms(*date: int) -> int:
    return int(datetime(*date).timestamp() * 1000)  # type: ignore[arg-type]


def test_a_word_is_searched_in_its_forms() -> None:
    assert {"paint", "paints", "painted", "painting"} <= set(word_forms("painted"))
    assert {"study", "studies", "studied"} <= set(word_forms("studies"))
    assert {"choose", "chosen", "choosing"} <= set(word_forms("chose"))
    assert {"decide", "decided"} <= set(word_forms("decision"))
    assert word_forms("E0425") == ["E0425"]
    assert word_forms("decision")[0] == "decision"


def test_an_identifier_is_searched_however_it_is_written() -> None:
    assert {"parseconfig", "parse Config"} <= set(spellings("parseConfig"))
    assert "parseconfig" in spellings("parse_config")
    assert "HTTP Server" in spellings("HTTPServer")
    assert spellings("E0425") == ("e0425",)


def first(*words: list[Candidate], titled: list[Candidate] | None = None) -> str:
    matches = [WordMatches(turns) for turns in words]
    if titled:
        matches.append(WordMatches([], titled))
    return ranked(matches, 30, 30)[0].turn_id


def test_rare_words_and_neighbours_count_more() -> None:
    common = [Candidate(n, f"t{n}", n, 1, 1.0) for n in range(1, 9)]
    rare = [Candidate(20, "rare", 20, 1, 1.0)]
    assert first(common, rare) == "rare"
    beside = [Candidate(30, "a", 30, 1, 1.0), Candidate(31, "b", 30, 2, 1.0)]
    alone = Candidate(40, "alone", 40, 1, 1.0)
    assert first([*beside, alone]) in {"a", "b"}


def test_the_words_of_the_whole_thread_count() -> None:
    one = [Candidate(1, "a", 1, 1, 1.0), Candidate(20, "newer", 2, 9, 1.0)]
    other = [Candidate(9, "b", 1, 9, 1.0), Candidate(30, "newest", 3, 9, 1.0)]

    assert ranked([WordMatches(one), WordMatches(other)], 30, 30)[0].segment_id == 1


def test_a_title_counts_for_the_turns_of_its_session_and_for_its_end_alone() -> None:
    turns = [Candidate(20, "other", 2, 1, 1.0), Candidate(1, "in the titled one", 1, 1, 1.0)]
    end = Candidate(5, "end", 1, 4)

    assert first(turns, titled=[end]) == "in the titled one"
    assert first(titled=[end]) == "end"


def test_recency_decides_between_equals_and_no_more() -> None:
    month = RECENT_NUMBERS
    old, new = Candidate(0, "old", 1, 1, 1.0), Candidate(3 * month, "new", 2, 1, 1.0)
    better = Candidate(0, "better", 3, 1, 1.5)

    assert first([old, new]) == "new"
    assert first([new, better, old]) == "better"


def test_turns_of_the_time_that_is_named_come_first() -> None:
    turns = [Candidate(30, "later", 1, 1, 2.0), Candidate(10, "then", 2, 1, 1.0)]

    assert [turn.turn_id for turn in favouring(turns, 5, 15)] == ["then", "later"]


@pytest.mark.parametrize(
    ("text", "begins", "ends"),
    [
        ("what broke yesterday", (2026, 11, 17), (2026, 11, 18)),
        ("what did we decide last week", (2026, 11, 9), (2026, 11, 16)),
        ("the plan of this month", (2026, 11, 1), (2026, 12, 1)),
        ("the failure 2 weeks ago", (2026, 11, 4), (2026, 11, 11)),
        ("what changed in June", (2026, 6, 1), (2026, 7, 1)),
        ("what changed in December", (2025, 12, 1), (2026, 1, 1)),
        ("who was there on 3 June, 2023?", (2023, 6, 3), (2023, 6, 4)),
        ("who was there on June 3rd 2023?", (2023, 6, 3), (2023, 6, 4)),
        ("a release in 2024", (2024, 1, 1), (2025, 1, 1)),
        ("the run of 2026-02-28", (2026, 2, 28), (2026, 3, 1)),
    ],
)
def test_times_in_questions(text: str, begins: tuple[int, ...], ends: tuple[int, ...]) -> None:
    named = time_of(text, int(NOW.timestamp() * 1000))

    assert named is not None
    assert (named.from_ms, named.until_ms) == (ms(*begins), ms(*ends))


@pytest.mark.parametrize(
    "text", ["may I march in", 'the "last week" label', "port 2024", "what is next"]
)
def test_texts_that_name_no_time(text: str) -> None:
    assert time_of(text, int(NOW.timestamp() * 1000)) is None


def test_a_question_prefers_the_time_it_names(ledger: Ledger) -> None:
    may = ledger.record("may", "The parser broke", "Fixed.", started_at=ms(2024, 5, 2)).id
    june = ledger.record("june", "The parser broke", "Fixed.", started_at=ms(2024, 6, 2)).id
    ledger.record("june", "Lunch", "Yes.", started_at=ms(2024, 6, 3))

    def asked(text: str) -> list[str]:
        return [hit.turn_id for hit in ledger.search(text).hits]

    assert asked("what broke in May 2024?")[0] == may
    assert asked("what broke in June 2024?")[0] == june
    assert set(asked("what did we do in May 2024?")) == {may}


def test_a_question_finds_identifiers_in_every_spelling(ledger: Ledger) -> None:
    camel = ledger.record("a", "Where is parseConfig?", "In src/config.ts").id
    snake = ledger.record("b", "Where is parse_config?", "In config.py").id
    apart = ledger.record("c", "Where does it parse config files?", "In main.").id
    ledger.record("d", "Lunch", "Noodles")
    for indexed in (False, True):
        if indexed:
            ledger._core.index(least=1)
        for text in ("parseConfig", "parse_config", "parse config"):
            hits = ledger.search(f"how does {text} work?").hits
            assert {camel, snake, apart} == {hit.turn_id for hit in hits}, (text, indexed)


def test_a_word_that_nobody_wrote_is_found_in_its_parts(ledger: Ledger) -> None:
    watch = ledger.record("a", "I bought a smart watch", "Nice.").id
    event = ledger.record("b", "We host a programming evening", "Good.").id
    ledger._core.index(least=1)

    assert [hit.turn_id for hit in ledger.search("who has a smartwatch?").hits] == [watch]
    found = ledger.search("what programming-related events were there?").hits
    assert found[0].turn_id == event


def test_what_a_question_found_is_marked_in_the_form_it_has(ledger: Ledger) -> None:
    ledger.record("a", "Storage", "We decided on SQLite.")
    for _ in range(2):
        (hit,) = ledger.search("what is our decision about it?").hits
        assert hit.snippets[0].marked("[", "]") == "We [decided] on SQLite."
        ledger._core.index(least=1)


def test_a_session_is_found_by_its_title(ledger: Ledger) -> None:
    ledger.record("a", "Let us begin", "Yes.")
    end = ledger.record("a", "And go on", "Done.").id
    ledger.record("b", "Something else", "Done.")
    ledger.annotate("a", title="Quarterly budget")
    for indexed in (False, True):
        if indexed:
            ledger._core.index(least=1)
        hits = ledger.search("what was in the quarterly budgets?").hits
        assert [hit.turn_id for hit in hits] == [end]
        assert ledger.search("quarterly budget").hits[0].turn_id == end
        assert not ledger.search("quarterly budget", order="newest").hits
        assert not ledger.search("what was the budget? file:x.py").hits


def test_turns_that_wait_for_the_index_rank_as_indexed_ones_do(ledger: Ledger) -> None:
    for number in range(6):
        ledger.record(f"s{number}", "What did we do about the build?", "It was slow.")
    rare = ledger.record("rare", "The quixotic build", "Yes.").id
    orders = []
    for indexed in (False, True):
        if indexed:
            ledger._core.index(least=1)
        hits = ledger.search("what did we say about a quixotic build?").hits
        orders.append([hit.turn_id for hit in hits])
        assert hits[0].turn_id == rare
    assert orders[0] == orders[1]
