"""search and files as a user calls them."""

from __future__ import annotations

import sqlite3

import pytest

from agents_ledger import Ledger, ToolCall
from agents_ledger.ledger.core import Core
from agents_ledger.model.limits import LedgerLimits
from agents_ledger.store.database import open_database
from tests.edges.conftest import Run


def fill(file: str) -> str:
    with Ledger.open(file) as ledger:
        call = ToolCall.of("Edit", {"path": "src/app.py"}, {"text": "\x1b[31mred\x1b[0m alert"})
        turn = ledger.record("main", "Where is the parser?", "In src.", steps=[call])
        ledger.annotate("main", title="A title")
        ledger.fork(turn.id, label="other")
        return turn.id


def test_hits_are_grouped_by_session(run: Run, file: str) -> None:
    turn_id = fill(file)

    answer = run("search", "parser")

    assert answer.code == 0
    assert answer.out.splitlines()[0] == "main  A title"
    assert turn_id in answer.out
    assert "also in 1 other session" in answer.out
    assert "user: Where is the parser?" in answer.out


def test_what_is_found_is_harmless_and_shown_in_colour_on_request(run: Run, file: str) -> None:
    fill(file)

    plain = run("search", "alert")
    coloured = run("search", "alert", FORCE_COLOR="1")

    assert "\x1b" not in plain.out
    assert "\x1b[1;33malert" in coloured.out
    assert "\x1b[31m" not in coloured.out


def test_quotes_removed_by_the_shell_are_restored(run: Run, file: str) -> None:
    fill(file)

    assert run("search", "after:3 days ago", "parser").code == 0
    assert run("search", "before:3 days ago", "parser").code == 1
    assert "is not a date" in run("search", "after:no such day").err


def test_no_result_is_reported_and_exits_with_1(run: Run, file: str) -> None:
    fill(file)

    for words in (("search", "nonsense"), ("files", "nonsense.py")):
        answer = run(*words)
        assert (answer.code, answer.out) == (1, "")
        assert answer.err
        assert run(*words, "--json").code == 0


def test_pages_continue_with_a_cursor(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        for number in range(3):
            ledger.record("main", f"word {number}", "r")

    first = run("search", "word", "--limit", "2", "--json").json
    second = run("search", "word", "--limit", "2", "--after", first["next"], "--json").json

    assert [len(page["hits"]) for page in (first, second)] == [2, 1]
    assert second["next"] is None
    assert "is not a valid page cursor" in run("search", "word", "--after", "x").err


def test_partial_matches_are_shown_with_a_note(run: Run, file: str) -> None:
    fill(file)

    answer = run("search", "parser", "nonsense")

    assert answer.code == 0
    assert "No turn has all the words" in answer.err


def test_the_most_relevant_turn_comes_first_unless_the_newest_is_asked_for(
    run: Run, file: str
) -> None:
    with Ledger.open(file) as ledger:
        best = ledger.record("a", "the parser, the parser", "parser").id
        newest = ledger.record("b", "a walk", "beside a parser").id
        ledger._core.index(least=1)

    def ids(*options: str) -> list[str]:
        return [hit["turn_id"] for hit in run("search", "parser", *options, "--json").json["hits"]]

    assert ids() == ids("--relevance") == [best, newest]
    assert ids("--newest") == [newest, best]


def test_files_lists_the_turns_that_touched_a_file(run: Run, file: str) -> None:
    turn_id = fill(file)

    answer = run("files", "app.py")

    assert turn_id in answer.out
    assert "written (Edit)" in answer.out
    assert run("files", "app.py", "--read").code == 1
    assert run("files", "/").code != 0


def test_events_are_shown_for_a_thread_and_for_a_day(run: Run, file: str) -> None:
    fill(file)

    thread = run("show", "main", "--events")
    today = run("show", "--events", "--day", "today")

    for answer in (thread, today):
        assert "Where is the parser?" in answer.out
        assert "alert" not in answer.out
    assert today.out.startswith("main  A title")
    assert "No messages" in run("show", "--events", "--day", "2001-02-03").err
    assert run("show", "--day", "someday").code == 2
    assert run("show", "--events").out == thread.out
    assert run("show", "main", "--events", "--day", "today").code == 2
    assert len(run("show", "main", "--events", "--json").json["events"]) == 2


def test_the_index_is_made_anew_on_request(run: Run, file: str) -> None:
    turn_id = fill(file)
    with Ledger.open(file) as ledger:
        ledger._core.index(least=1)
    with sqlite3.connect(file) as raw:
        raw.execute("DELETE FROM search_docs")
    raw.close()
    assert run("search", "parser").code == 1

    answer = run("rederive", "--index")

    assert answer.out == "indexed 1 turn\n"
    assert turn_id in run("search", "parser").out
    assert run("rederive", "--index", "--json").json["turns"] == 1


def test_a_page_that_has_not_looked_at_everything_continues_on_the_next(
    run: Run, file: str
) -> None:
    fill(file)
    with Ledger.open(file) as ledger:
        ledger.record("main", "something else", "r")
    few = LedgerLimits(waiting_turns=1, waiting_read_turns=1)
    with Ledger(Core(open_database(file, limits=few))) as ledger:
        page = ledger.search("parser")

    assert (page.hits, page.capped) == ((), True)
    assert "Where is the parser?" in run("search", "parser", "--after", str(page.next)).out


def test_words_that_may_not_be_found_are_no_options(run: Run, file: str) -> None:
    fill(file)

    assert run("search", "parser", "-the").code == 1
    assert run("search", "parser", "-draft", "-project:there").code == 0
    assert run("search", "-draft", "--limit", "1", "--json").json["hits"]
    assert run("search", "parser", "--no-such").code == 2


def test_a_search_may_be_typed_as_one(run: Run, file: str) -> None:
    fill(file)

    assert run("search", "session:main parser").code == 0
    assert run("search", "after:3 days ago parser").code == 0
    assert run("search", "parser after:last week role:user").code == 0
    assert run("search", "before:last week parser").code == 1


@pytest.mark.finding("users-20")
def test_a_search_and_files_are_limited_to_a_time(run: Run, file: str) -> None:
    turn_id = fill(file)

    for words in (("search", "parser"), ("files", "app.py")):
        assert turn_id in run(*words, "--since", "1h", "--until", "2199-01-01").out
        assert run(*words, "--since", "2199-01-01").code == 1
        assert run(*words, "--until", "1h").code == 1


def test_an_untitled_session_is_headed_by_its_first_prompt(run: Run, file: str) -> None:
    with Ledger.open(file) as ledger:
        ledger.record("main", "Where is\nthe parser?", "In src.")
        ledger.record("main", "And its tests?", "In tests/test_parser.py.")
        ledger.record("hook", "<hook>The parser changed.</hook>", "Noted.")

    lines = run("search", "parser").out.splitlines()

    assert "main  Where is the parser?" in lines
    assert "hook" in lines
