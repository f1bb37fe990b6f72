"""Pages: lists and threads a screen at a time, with what a screen says of them."""

from __future__ import annotations

import pytest

from agents_ledger import Compaction, Ledger, NotFound, Refused, ToolCall, Usage
from agents_ledger.ledger.reports.pages import Pages
from tests.builders import chain


@pytest.fixture
def pages(ledger: Ledger) -> Pages:
    return Pages(ledger._core)


def test_a_session_in_a_line_has_the_size_of_its_thread(ledger: Ledger, pages: Pages) -> None:
    first = ledger.record("main", "One", "1", usage=Usage(10, 5), model="m-1")
    ledger.record("main", "Two", "2", workspace_path="/home/me/project")
    ledger.fork(first.id, label="other")
    ledger.record("other", "Else", "e")
    call = ToolCall("Task", spawned_session_label="helper")
    ledger.record("main", "Three", "3", steps=[call], workspace_path="/home/me/project")

    [other, main] = sorted(pages.session_lines(), key=lambda line: line.depth)

    assert (main.depth, main.total_tokens, main.model) == (3, 15, "m-1")
    assert (main.last_prompt, main.workspace_path) == ("Three", "/home/me/project")
    assert (main.branch_count, main.subagent_count, main.head_status) == (1, 1, "completed")
    assert (other.depth, other.last_prompt, other.branch_count) == (2, "Else", 0)


def test_sessions_are_filtered_by_all_that_is_asked(ledger: Ledger, pages: Pages) -> None:
    ledger.record("a", "1", "1", model="m-1", workspace_path="/p")
    ledger.record("b", "1", "1", model="m-2", persona_id="atlas")
    ledger.update_session("b", origin="cursor")
    ledger.annotate("b", title="100% Sure", starred=True)
    ledger.record("c", "1", "1")
    ledger.archive("c")

    def labels(**asked: object) -> list[str]:
        lines = pages.session_lines(**asked)  # type: ignore[arg-type]
        return sorted(line.session.label for line in lines)

    assert labels() == ["a", "b"]
    assert labels(status=None) == ["a", "b", "c"]
    assert labels(origin="native") == ["a"]
    assert labels(origin="cursor", model="m-2", persona_id="atlas", starred=True) == ["b"]
    assert labels(project="/p") == ["a"]
    assert labels(model="m-3") == []
    assert labels(text="100% s") == ["b"]
    assert labels(text="%") == ["b"]
    assert labels(text="_") == []
    assert labels(since=1 << 60) == []
    assert pages.choices() == {
        "origin": ["cursor", "native"],
        "persona": ["atlas", "main"],
        "model": ["m-1", "m-2"],
        "project": ["/p"],
    }
    with pytest.raises(Refused):
        labels(limit=0)


def test_a_model_is_found_by_words_of_its_name_as_a_search_does(
    ledger: Ledger, pages: Pages
) -> None:
    for number, model in enumerate(("claude-opus-5", "anthropic/claude-opus-5-1", "gpt-5")):
        ledger.record(f"s{number}", "1", "1", model=model)

    def labels(model: str) -> list[str]:
        lines = pages.session_lines(model=model)
        found = {line.session.label for line in lines}
        assert found == {hit.session_label for hit in ledger.search(f"model:{model}").hits}
        return sorted(found)

    assert labels("opus") == labels("OPUS-5") == labels("op*") == ["s0", "s1"]
    assert labels("opus-5-1") == ["s1"]
    assert labels("5") == ["s0", "s1", "s2"]
    assert labels("op") == labels("gemini") == []
    (named,) = pages.session_lines(model="claude-opus-5")  # which is the whole name of one
    assert named.session.label == "s0"


def test_pages_of_sessions_follow_each_other(ledger: Ledger, pages: Pages) -> None:
    for number in range(5):
        ledger.record(f"s{number}", "1", "1")

    seen = []
    page = pages.session_lines(limit=2)
    while page:
        seen += [line.session.label for line in page]
        page = pages.session_lines(limit=2, after=page[-1].session)

    assert seen == ["s4", "s3", "s2", "s1", "s0"]


def test_a_window_cuts_long_texts_and_says_how_long_they_are(ledger: Ledger, pages: Pages) -> None:
    call = ToolCall.of("Bash", {"command": "x" * 50}, "r" * 70)
    turn = ledger.record("main", "q" * 30, "short", steps=[call])

    window = pages.window("main", from_depth=1, to_depth=9, text_max=20)

    [shown] = window.turns
    assert shown.query[0].content == "q" * 20
    assert shown.tool_calls[0].result_json is None
    assert window.sizes == {
        (turn.id, turn.query[0].id, "content"): 30,
        (turn.id, turn.tool_calls[0].id, "params_json"): 64,
        (turn.id, turn.tool_calls[0].id, "result_json"): 72,
    }


def test_a_window_names_what_hangs_beside_its_thread(ledger: Ledger, pages: Pages) -> None:
    turns = chain(ledger, "main", 4)
    ledger.fork(turns[1], label="aside")
    aside = ledger.record("aside", "Aside", "a")
    ledger.fork(turns[3], label="on")
    after = ledger.record("on", "On", "o")

    whole = pages.window("main", from_depth=1, to_depth=9)
    third = pages.window("main", from_depth=3, to_depth=3)

    assert [line.turn.id for line in whole.branches] == [aside.id, after.id]
    assert [line.turn.id for line in third.branches] == [aside.id]
    assert pages.window("main", from_depth=1, to_depth=1).branches == ()


def test_a_compaction_comes_with_its_record(ledger: Ledger, pages: Pages) -> None:
    turns = chain(ledger, "main", 2)
    record = Compaction("what was said", turns[0], turns[1])
    ledger.record("main", compaction=record)

    window = pages.window("main", from_depth=3, to_depth=3)

    assert window.turns[0].compaction
    assert window.turns[0].compaction.summary == "what was said"


def test_an_empty_session_has_an_empty_window(ledger: Ledger, pages: Pages) -> None:
    ledger.create_session("empty")

    assert pages.window("empty", from_depth=1, to_depth=9).turns == ()
    assert pages.session_lines()[0].depth == 0


def test_the_session_that_holds_a_turn_is_the_latest(ledger: Ledger, pages: Pages) -> None:
    turns = chain(ledger, "main", 2)
    ledger.fork(turns[0], label="later")
    ledger.record("later", "More", "m")

    assert pages.session_holding(turns[0]) == "later"
    assert pages.session_holding(turns[1]) == "main"
    ledger.archive("main")
    assert pages.session_holding(turns[1]) is None


def test_raw_rows_have_every_column(ledger: Ledger, pages: Pages) -> None:
    turn = ledger.record("main", "One", "1", steps=[ToolCall("Read")])

    assert pages.raw("turn", turn.id)[0]["status"] == "completed"
    assert pages.raw("message", turn.messages[0].id)[0]["content"] == "One"
    assert pages.raw("calls", turn.id)[0]["tool_name"] == "Read"
    assert pages.raw("place", turn.id)[0]["depth"] == 1
    assert pages.raw("session", "main")[0]["label"] == "main"
    with pytest.raises(NotFound, match="no turn 'x'"):
        pages.raw("turn", "x")
    with pytest.raises(NotFound, match="no kind of record 'secrets'"):
        pages.raw("secrets", "x")


def test_moves_of_all_sessions_can_be_followed(ledger: Ledger, pages: Pages) -> None:
    ledger.record("a", "1", "1")
    seen = pages.last_move()
    ledger.record("b", "1", "1")
    turn = ledger.record("a", "2", "2")

    moves = pages.moves_since(seen)

    assert [move.session_label for move in moves] == ["b", "a"]
    assert moves[-1].thread_id == turn.id
    assert pages.moves_since(pages.last_move()) == ()
