"""Context assembly: what a model is shown at any turn of any thread, and what reading it takes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import pytest

from agents_ledger import (
    AsyncLedger,
    CallItem,
    Compaction,
    Context,
    Ledger,
    Message,
    NotFound,
    Refused,
    TextItem,
    ToolCall,
    validate,
)
from agents_ledger.ledger.core import Core
from agents_ledger.store.database import Database
from tests.builders import chain
from tests.statements import Watched


def shown(context: Context) -> list[tuple[str, str]]:
    """The part and the words of every item that is text."""
    return [(item.part, item.text) for item in context.items if isinstance(item, TextItem)]


def said(*numbers: int, part: str = "since") -> list[tuple[str, str]]:
    """What turns of a chain look like."""
    return [(part, f"{word} {n}") for n in numbers for word in ("question", "answer")]


SUMMARY = "[Previous conversation summary]\n"


def test_without_a_compaction_the_whole_thread_is_shown(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)

    context = ledger.context("main", query="Now?")

    assert shown(context) == [*said(1, 2), ("query", "Now?")]
    assert [item.turn_id for item in context.items] == [first, first, second, second, None]
    assert (context.turn_id, context.compaction_turn_id) == (second, None)
    assert context.turns == {"since": 2, "query": 1}
    assert context.total_tokens == sum(context.tokens.values()) > 0


def test_the_latest_compaction_hides_what_it_summarised_and_shows_what_it_kept(
    ledger: Ledger,
) -> None:
    turns = chain(ledger, "main", 5)
    made = ledger.record("main", compaction=Compaction("They greeted.", turns[2], turns[3]))
    chain(ledger, "main", 1)

    context = ledger.context("main")

    assert shown(context) == [
        ("summary", f"{SUMMARY}They greeted."),
        *said(4, 5, part="kept"),
        *said(1),
    ]
    assert context.items[0].turn_id == context.compaction_turn_id == made.id
    assert shown(ledger.context(turns[4])) == said(1, 2, 3, 4, 5)
    assert shown(ledger.context(made.id))[0] == ("summary", f"{SUMMARY}They greeted.")


def test_a_compaction_of_compactions_shows_the_last_summary_alone(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 3)
    one = ledger.record("main", compaction=Compaction("first summary", turns[0], turns[1]))
    later = chain(ledger, "main", 2)
    ledger.record("main", compaction=Compaction("second summary", one.id, later[0]))

    assert shown(ledger.context("main")) == [
        ("summary", f"{SUMMARY}second summary"),
        *said(1, 2, part="kept"),
    ]
    kept_across = ledger.record("main", compaction=Compaction("third", turns[0], turns[2]))
    assert shown(ledger.context(kept_across.id)) == [
        ("summary", f"{SUMMARY}third"),
        *said(3, 1, 2, part="kept"),
    ]


def test_a_compaction_that_keeps_nothing_shows_its_summary_and_what_it_says_itself(
    ledger: Ledger,
) -> None:
    turns = chain(ledger, "main", 2)
    ledger.record("main", "Go on.", "I do.", compaction=Compaction("all", turns[1]))

    assert shown(ledger.context("main")) == [
        ("summary", f"{SUMMARY}all"),
        ("since", "Go on."),
        ("since", "I do."),
    ]


def test_a_compaction_that_neither_says_nor_keeps_anything_hides_nothing(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 3)
    ledger.record("main", compaction=Compaction("told", turns[0], turns[1]))
    ledger.record("main", compaction=Compaction("", turns[2]))
    ledger.record("main", compaction=Compaction("", turns[2]))
    chain(ledger, "main", 1)

    assert shown(ledger.context("main")) == [
        ("summary", f"{SUMMARY}told"),
        *said(2, 3, part="kept"),
        *said(1),
    ]


def test_turns_that_a_compaction_picked_out_stand_before_those_it_kept(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 6)
    told = ledger.record("main", compaction=Compaction("so far", turns[0], turns[1]))
    [stranger] = chain(ledger, "other", 1)
    ids = f'["{turns[1]}", "{turns[3]}", "{stranger}", "nothing", "{turns[5]}"]'
    ledger.record(
        "main",
        compaction=Compaction(
            "",
            turns[4],
            turns[5],
            metadata_json=f'{{"kept_turn_ids": {ids}, "summary_turn_id": "{told.id}"}}',
        ),
    )

    assert shown(ledger.context("main")) == [
        ("summary", f"{SUMMARY}so far"),
        *said(2, 4, 6, part="kept"),
    ]


def test_metadata_of_others_means_nothing(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 2)
    for metadata in ("[]", "not json", '{"kept_turn_ids": 3}'):
        ledger.record("main", compaction=Compaction("s", turns[0], metadata_json=metadata))

        assert shown(ledger.context("main")) == [("summary", f"{SUMMARY}s")]


def test_a_fork_is_shown_its_own_thread(ledger: Ledger) -> None:
    turns = chain(ledger, "main", 3)
    ledger.fork(turns[0], label="other")
    ledger.record("other", "else", "yes")
    ledger.record("main", compaction=Compaction("s", turns[1], turns[2]))

    assert shown(ledger.context("other")) == [*said(1), ("since", "else"), ("since", "yes")]


def test_the_system_prompt_in_force_comes_first(ledger: Ledger) -> None:
    first = ledger.record("main", "a", "b", system_prompt="Be brief.")
    ledger.record("main", "c", "d", system_prompt="Be kind.")

    context = ledger.context("main")

    assert context.as_anthropic()["system"] == "Be kind."
    assert context.as_openai()["messages"][0] == {"role": "system", "content": "Be kind."}
    assert context.as_openai_responses()["instructions"] == "Be kind."
    assert context.tokens["system"] == 7
    assert ledger.context(first.id).system_prompt == "Be brief."


def test_before_a_turn_is_what_the_model_was_shown_when_it_was_asked(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    turn = ledger.record("main", ["one", "two"], "three", system_prompt="New.")

    context = ledger.context(turn.id, before=True)

    assert shown(context) == [*said(1), ("query", "one"), ("query", "two")]
    assert context.system_prompt == "New."
    assert context.turn_id == turn.parent_turn_id
    other = ledger.context(turn.id, before=True, query="else")
    assert shown(other) == [*said(1), ("query", "else")]


def test_an_empty_session_is_shown_the_query_alone(ledger: Ledger) -> None:
    ledger.create_session("main")

    assert ledger.context("main").items == ()
    assert shown(ledger.context("main", query=["a", Message("user", "b")])) == [
        ("query", "a"),
        ("query", "b"),
    ]


def test_what_a_live_turn_has_done_so_far_is_valid_for_every_provider(ledger: Ledger) -> None:
    with ledger.turn("main", "Read both.") as turn:
        turn.message("Reading.")
        turn.tool_call("Read", {"path": "a"}).complete({"text": "x"})
        turn.tool_call("Read", {"path": "b"})

        context = ledger.context(turn.id)

        assert [repair.what for repair in context.repairs] == ["call without a result"]
        assert validate(context.as_anthropic(), "anthropic") == ()
        assert validate(context.as_openai(), "openai") == ()
        assert validate(context.as_openai_responses(), "openai-responses") == ()
        turn.respond("Done.")


def test_a_budget_takes_old_results_first_then_old_turns_and_says_so(ledger: Ledger) -> None:
    big = ToolCall.of("Read", {"path": "a"}, "x" * 4000)
    first = ledger.record("main", "look", "seen", steps=[big])
    chain(ledger, "main", 4)
    whole = ledger.context("main", query="Now?")

    shorter = ledger.context("main", query="Now?", budget=whole.total_tokens - 1)
    tight = ledger.context("main", query="Now?", budget=100)

    assert [(cut.kind, cut.turn_id) for cut in shorter.cuts] == [("result", first.id)]
    assert shorter.total_tokens < whole.total_tokens
    assert shown(tight) == [*said(1, 2, 3, 4), ("query", "Now?")]
    assert (tight.turns_left_out, tight.budget) == (1, 100)
    assert shown(ledger.context("main", budget=30, last=1)) == said(3, 4)
    with pytest.raises(Refused, match=r"need 45 tokens .* room for 20"):
        ledger.context("main", budget=20)


def test_nonsense_is_refused(ledger: Ledger) -> None:
    chain(ledger, "main", 1)
    for budget, last in ((0, 3), (-1, 3), (None, -1)):
        with pytest.raises(Refused, match=r"(budget|last) is (0|-1)"):
            ledger.context("main", budget=budget, last=last)
    with pytest.raises(NotFound):
        ledger.context("nowhere")
    with pytest.raises(Refused, match="no provider format 'x'"):
        ledger.context("main").rendered("x")


def test_tokens_are_counted_by_whoever_the_caller_names(ledger: Ledger) -> None:
    chain(ledger, "main", 1)

    context = ledger.context("main", count=lambda text: 1000)

    assert context.tokens["since"] == 2008


def test_it_is_the_same_for_asyncio(ledger: Ledger, address: str) -> None:
    chain(ledger, "main", 2)

    async def read() -> Context:
        async with AsyncLedger.open(address) as other:
            return await other.context("main", query="Now?", budget=1000)

    assert asyncio.run(read()) == ledger.context("main", query="Now?", budget=1000)


# -- what reading takes -----------------------------------------------------------------------


@pytest.fixture
def watched(db: Database) -> Iterator[tuple[Watched, Ledger]]:
    """A ledger whose reads are noted."""
    statements, database = Watched.over(db)
    with Ledger(Core(database)) as ledger:
        yield statements, ledger


def test_what_a_compaction_hides_is_not_read(watched: tuple[Watched, Ledger]) -> None:
    statements, ledger = watched
    taken = []
    for session, depth in (("short", 5), ("long", 60)):
        turns = chain(ledger, session, depth)
        ledger.record(session, compaction=Compaction("s", turns[-3], turns[-2]))
        chain(ledger, session, 2)

        context = ledger.context(session)

        assert context.turns == {"summary": 1, "kept": 2, "since": 2}
        taken.append(statements.ran)

    assert taken[0] == taken[1]
    assert len(taken[0]) <= 12
    assert dict(taken[0])["segment_messages"] == 8


def test_with_a_budget_no_more_is_read_than_can_fit(watched: tuple[Watched, Ledger]) -> None:
    statements, ledger = watched
    chain(ledger, "main", 150)
    each = ledger.context("main").tokens["since"] // 150

    context = ledger.context("main", budget=each * 20)

    read = [rows for name, rows in statements.ran if name == "segment_turns"]
    assert sum(read) == 32
    assert context.turns["since"] + context.turns_left_out == 150
    assert context.turns["since"] == 18
    everything = ledger.context("main", budget=each * 200)
    assert everything.items == ledger.context("main").items


def test_a_budget_gives_the_same_whether_all_is_read_or_not(
    ledger: Ledger, limited: Callable[..., Ledger]
) -> None:
    for number in range(40):
        call = ToolCall.of("Read", {"n": number}, "x" * (number % 7) * 500)
        ledger.record("main", f"q {number}", f"a {number}", steps=[call])
    budgets = (1600, 2000, 5000, 9000)
    read_in_part = [ledger.context("main", budget=budget).items for budget in budgets]

    whole = limited(context_turns=1000)

    assert [whole.context("main", budget=budget).items for budget in budgets] == read_in_part


def test_each_request_of_a_turn_begins_with_the_one_before(ledger: Ledger) -> None:
    requests = []
    with ledger.turn("main", "q") as turn:
        for text in ("Looking.", "", "Once more.", ""):
            requests.append(ledger.context(turn.id).as_anthropic()["messages"])
            turn.message(text)
            for _ in range(2):
                turn.tool_call("Read").complete("found")
        requests.append(ledger.context(turn.id).as_anthropic()["messages"])
        turn.respond("a")

    assert [len(request) for request in requests] == [1, 3, 5, 7, 9]
    assert all(requests[-1][: len(request)] == request for request in requests)


def test_a_call_id_that_came_before_is_replaced_also_when_its_turn_was_shown_without(
    ledger: Ledger,
) -> None:
    def call() -> ToolCall:
        return ToolCall("Bash", '{"command":"make"}', '"done"', id="call-1")

    first = ledger.record("main", "Build it.", "Built.", steps=[call()])
    second = ledger.record("main", "Again.", "Built again.", steps=[call()])
    summary = Compaction("It was built.", first.id, second.id, turns_summarized=1)
    ledger.record("main", compaction=summary)

    def call_ids(target: str) -> list[str]:
        context = ledger.context(target)
        assert validate(context.as_openai(), "openai") == ()
        return [item.id for item in context.items if isinstance(item, CallItem)]

    assert call_ids("main") == call_ids("main") == ["call-1"]
    for _ in range(2):
        earlier, later = call_ids(second.id)
        assert earlier == "call-1"
        assert later != "call-1"
    assert call_ids("main") == ["call-1"]
