"""Compacting: what stays, what the record says, and that a failure changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import pytest

from agents_ledger import (
    AsyncLedger,
    Chosen,
    Engine,
    EngineError,
    Finished,
    HeadMoved,
    Ledger,
    MessageDone,
    Refused,
    Request,
    Strategy,
    TextItem,
    ToolCall,
    Turn,
    Usage,
    add_strategy,
    validate,
)
from agents_ledger.broker.engines.echo import EchoEngine
from agents_ledger.ledger.context import compaction
from agents_ledger.model.agents.engine import EngineEvent
from tests.builders import chain
from tests.raw import Raw


class Summariser:
    """Says what it is told to, and remembers what it was asked."""

    name = "summariser"

    def __init__(self, text: str = "They talked.", **finished: Any) -> None:
        self.text = text
        self.finished = {"usage": Usage(100, 10), "model": "small", "provider": "here", **finished}
        self.asked: list[Request] = []

    async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
        self.asked.append(request)
        yield MessageDone(self.text)
        yield Finished(**self.finished)

    @property
    def question(self) -> str:
        [item] = self.asked[-1].items
        assert isinstance(item, TextItem)
        return item.text


def talk(ledger: Ledger, session: str, count: int, size: int = 300) -> list[str]:
    """Turns of about 100 tokens each."""
    return [
        ledger.record(session, f"question {n} " + "q" * size, f"answer {n}").id
        for n in range(1, count + 1)
    ]


def record_of(turn: Turn) -> Any:
    assert turn.turn_type == "compaction"
    assert turn.compaction is not None
    return turn.compaction


def shown_turns(ledger: Ledger, target: str = "main") -> list[str | None]:
    """The turns of a context, in order, its summary left out."""
    items = [item for item in ledger.context(target).items if item.part != "summary"]
    return list(dict.fromkeys(item.turn_id for item in items))


def test_a_summary_stands_for_what_does_not_stay_and_its_record_is_full(ledger: Ledger) -> None:
    turns = talk(ledger, "main", 6)
    before = ledger.context("main").total_tokens
    engine = Summariser()

    turn = ledger.compact(
        "main", engine=engine, model="small", budget=400, instructions="mention names"
    )

    record = record_of(turn)
    after = ledger.context("main")
    assert shown_turns(ledger) == turns[-2:]
    assert after.items[0].turn_id == turn.id
    assert "They talked." in after.items[0].text  # type: ignore[union-attr]
    assert (record.summarized_through_turn_id, record.first_kept_turn_id) == (turns[3], turns[4])
    assert (record.turns_summarized, record.compaction_type) == (4, "summary")
    assert (record.model, record.provider, record.trigger) == ("small", "here", "manual")
    assert (record.tokens_before, record.tokens_after) == (before, after.total_tokens)
    assert record.summary_tokens == 4
    assert (record.summarization_input_tokens, record.summarization_output_tokens) == (100, 10)
    assert record.duration_ms is not None
    assert json.loads(record.metadata_json) == {
        "budget": 400,
        "turns_kept": 2,
        "engine": "summariser",
        "summary_tokens_max": 100,
        "pieces": 1,
        "instructions": "mention names",
    }
    assert (turn.total_tokens, turn.model, turn.provider) == (110, "small", "here")
    assert ledger.get_turn("main") == turn
    assert "question 4" in engine.question
    assert "question 5" not in engine.question
    assert "mention names" in engine.question
    assert engine.asked[0].config.max_tokens == 100


@pytest.mark.finding("spec-P")
def test_a_compaction_turn_names_the_model_that_summarised_and_its_thread_the_one_that_answers(
    ledger: Ledger,
) -> None:
    talk(ledger, "main", 5)
    ledger.record("main", "q" * 300, "r", model="large", provider="there")
    turn = ledger.compact("main", engine=Summariser(), budget=400)

    assert (turn.model, turn.provider) == ("small", "here")
    thread = ledger.thread("main")
    assert (thread.model, thread.provider) == ("large", "there")
    window = ledger.compact("main", strategy="sliding_window", budget=200)
    assert (window.model, window.provider) == (None, None)
    assert ledger.audit() == ()


def test_a_summary_of_summaries_carries_on_the_one_before(ledger: Ledger) -> None:
    talk(ledger, "main", 4)
    ledger.compact("main", engine=Summariser("First summary."), budget=250)
    later = talk(ledger, "main", 4)
    engine = Summariser("Second summary.")

    record = record_of(ledger.compact("main", engine=engine, budget=250))

    assert "<earlier_summary>\nFirst summary.\n</earlier_summary>" in engine.question
    assert shown_turns(ledger) == later[-1:]
    assert record.turns_summarized == 4
    context = ledger.context("main")
    assert [item.text for item in context.items if item.part == "summary"] == [  # type: ignore[union-attr]
        "[Previous conversation summary]\nSecond summary."
    ]
    assert len(ledger.ancestry("main")) == 10


def test_a_last_turn_too_long_for_the_budget_is_summarised_too(ledger: Ledger) -> None:
    talk(ledger, "main", 2)
    [last] = talk(ledger, "main", 1, size=6000)

    record = record_of(ledger.compact("main", engine=Summariser(), budget=300))

    assert (record.summarized_through_turn_id, record.first_kept_turn_id) == (last, None)
    assert shown_turns(ledger) == []


def test_a_sliding_window_needs_no_model_and_says_so(ledger: Ledger) -> None:
    turns = talk(ledger, "main", 5)

    turn = ledger.compact("main", strategy="sliding_window", budget=250, trigger="periodic")

    record = record_of(turn)
    assert shown_turns(ledger) == turns[-2:]
    assert (record.model, record.provider, record.summary) == ("none", None, "")
    assert (record.compaction_type, record.trigger) == ("sliding_window", "periodic")
    assert record.summarization_input_tokens is None
    assert json.loads(record.metadata_json) == {"budget": 250, "turns_kept": 2}
    assert turn.total_tokens is None
    assert record.tokens_after == ledger.context("main").total_tokens


def test_a_window_goes_on_with_the_summary_that_was_there(ledger: Ledger) -> None:
    talk(ledger, "main", 3)
    told = ledger.compact("main", engine=Summariser("Told."), budget=200)
    for _ in range(2):
        talk(ledger, "main", 3)
        record = record_of(ledger.compact("main", strategy="sliding_window", budget=250))

        assert json.loads(record.metadata_json)["summary_turn_id"] == told.id
        assert record.summary == ""
        context = ledger.context("main")
        assert context.items[0].turn_id == told.id
        assert context.items[0].text.endswith("Told.")  # type: ignore[union-attr]
        assert record.tokens_after == context.total_tokens


def test_selective_keeps_older_turns_that_matter(ledger: Ledger) -> None:
    parser, recent = speak_of_the_parser(ledger, 1), speak_of_the_parser(ledger, 0)

    record = record_of(ledger.compact("main", strategy="selective", budget=250))

    assert shown_turns(ledger) == [parser, recent]
    assert json.loads(record.metadata_json)["kept_turn_ids"] == [parser]
    assert record.turns_summarized == 3
    assert record.tokens_after == ledger.context("main").total_tokens


@pytest.mark.finding("spec-K")
def test_selective_summarises_what_it_does_not_keep_if_an_engine_is_passed(ledger: Ledger) -> None:
    old, recent = speak_of_the_parser(ledger, 2), speak_of_the_parser(ledger, 0)
    engine = Summariser("They baked bread.")

    turn = ledger.compact("main", strategy="selective", engine=engine, budget=400)

    record = record_of(turn)
    assert (record.summary, record.model) == ("They baked bread.", "small")
    assert record.compaction_type == "selective"
    assert shown_turns(ledger) == [old, recent]
    assert "parser" not in engine.question  # what stays is not summarised
    assert ledger.context("main").tokens["summary"] > 0
    assert ledger.context("main").total_tokens == record.tokens_after <= 400


def test_a_fallback_is_without_the_engine_that_failed(ledger: Ledger) -> None:
    speak_of_the_parser(ledger, 6)
    engine = Summariser("", stop_reason="refusal")

    turn = ledger.compact("main", engine=engine, budget=400, fallback="selective")

    assert len(engine.asked) == 1
    assert record_of(turn).summary == ""


def test_turns_picked_out_stay_so_and_what_lies_between_them_hidden(ledger: Ledger) -> None:
    first, second, recent = (speak_of_the_parser(ledger, n) for n in (1, 1, 0))
    ledger.compact("main", strategy="selective", budget=400)
    assert shown_turns(ledger) == [first, second, recent]
    later = talk(ledger, "main", 1)

    record = record_of(ledger.compact("main", strategy="sliding_window", budget=380))

    assert shown_turns(ledger) == [second, recent, *later]
    assert record.first_kept_turn_id == recent
    assert json.loads(record.metadata_json)["kept_turn_ids"] == [second]


def speak_of_the_parser(ledger: Ledger, others: int) -> str:
    """A turn of 100 tokens, with three of other things after it, or none."""
    said = ledger.record("main", "The parser fails on quotes." + "f" * 280, "I see.")
    talk(ledger, "main", 3 * others)
    return said.id


def test_no_call_is_parted_from_its_result(ledger: Ledger) -> None:
    for n in range(6):
        calls = [ToolCall.of("Read", {"n": n}, "x" * 200), ToolCall.of("Read", {"n": n}, "y")]
        ledger.record("main", f"q {n}", f"a {n}", steps=calls)
    whole = ledger.context("main").total_tokens

    for budget in range(whole - 1, whole // 3, -40):
        ledger.fork("main", label=f"cut-{budget}")
        ledger.compact(f"cut-{budget}", strategy="sliding_window", budget=budget)
        context = ledger.context(f"cut-{budget}")
        assert context.repairs == ()
        assert validate(context.as_anthropic(), "anthropic") == ()


def test_a_plan_says_what_would_be_done_and_does_nothing(ledger: Ledger, raw: Raw) -> None:
    turns = talk(ledger, "main", 6)
    before = raw.dump()

    plan = ledger.plan_compaction("main", budget=400)
    window = ledger.plan_compaction("main", strategy="sliding_window")

    assert raw.dump() == before
    assert (plan.summarized_through_turn_id, plan.first_kept_turn_id) == (turns[3], turns[4])
    assert (plan.turns_summarized, plan.turns_kept, plan.summary_tokens_max) == (4, 2, 100)
    assert plan.tokens_after <= 400 < plan.tokens_before
    assert window.budget == int(window.tokens_before * 0.4)
    assert window.tokens_after <= window.budget
    turn = ledger.compact("main", strategy="sliding_window")
    assert record_of(turn).tokens_after == window.tokens_after


FAILING: list[tuple[Engine, str, str]] = [
    (
        EchoEngine(context_window=10),
        "overflow",
        "the summary failed, nothing was changed: .* context window",
    ),
    (Summariser(" \n"), "bad_request", "gave no summary"),
    (Summariser(stop_reason="refusal"), "bad_request", "gave no summary"),
]


@pytest.mark.parametrize(("engine", "kind", "why"), FAILING)
def test_a_failed_summary_changes_nothing_and_offers_a_way_without_a_model(
    ledger: Ledger, raw: Raw, engine: Engine, kind: str, why: str
) -> None:
    talk(ledger, "main", 4)
    before = raw.dump()

    with pytest.raises(EngineError, match=why) as failed:
        ledger.compact("main", engine=engine, budget=200)

    assert raw.dump() == before
    assert failed.value.kind == kind
    assert "sliding_window" in failed.value.hint


def test_a_fallback_steps_in_and_says_for_what(ledger: Ledger) -> None:
    turns = talk(ledger, "main", 4)

    turn = ledger.compact(
        "main",
        engine=EchoEngine(context_window=10),
        budget=250,
        fallback="sliding_window",
        trigger="overflow_recovery",
    )

    record = record_of(turn)
    assert (record.compaction_type, record.trigger) == ("sliding_window", "overflow_recovery")
    assert json.loads(record.metadata_json)["instead_of"].startswith("summary: EngineError: ")
    assert shown_turns(ledger) == turns[-2:]


def test_other_errors_of_an_engine_come_through_and_change_nothing(
    ledger: Ledger, raw: Raw
) -> None:
    class Broken:
        name = "broken"

        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            raise ZeroDivisionError
            yield

    talk(ledger, "main", 4)
    before = raw.dump()

    with pytest.raises(ZeroDivisionError):
        ledger.compact("main", engine=Broken(), budget=200)

    assert raw.dump() == before
    saved = ledger.compact("main", engine=Broken(), budget=200, fallback="selective")
    said = json.loads(record_of(saved).metadata_json)
    assert said["instead_of"] == "summary: ZeroDivisionError"


def test_a_summary_that_saves_nothing_is_refused(ledger: Ledger, raw: Raw) -> None:
    talk(ledger, "main", 3)
    before = raw.dump()

    with pytest.raises(Refused, match="nothing is gained"):
        ledger.compact("main", engine=Summariser("w" * 2000), budget=200)

    assert raw.dump() == before


def test_what_cannot_be_compacted_is_refused_in_words(ledger: Ledger, raw: Raw) -> None:
    talk(ledger, "main", 3)
    ledger.create_session("empty")
    before = raw.dump()
    for words, why in (
        ({"budget": 100_000}, "there is nothing to compact: the .* tokens of 'main' fit"),
        ({"strategy": "other"}, "there is no strategy 'other'"),
        ({"budget": 200}, "strategy 'summary' needs an engine"),
        ({"trigger": "moon"}, "there is no trigger 'moon'"),
        ({"strategy": "sliding_window", "session": "empty"}, "is empty: there is nothing"),
    ):
        said: dict[str, Any] = {"session": "main", **words}
        with pytest.raises(Refused, match=why):
            ledger.compact(said.pop("session"), **said)

    assert raw.dump() == before


def test_turns_recorded_meanwhile_are_kept(ledger: Ledger, address: str) -> None:
    turns = talk(ledger, "main", 5)

    class Slow(Summariser):
        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            turns.extend(talk(ledger, "main", 1))
            async for event in super().run(request):
                yield event

    record = record_of(ledger.compact("main", engine=Slow(), budget=250))

    assert shown_turns(ledger) == turns[-2:]
    assert record.tokens_after == ledger.context("main").total_tokens
    nothing_kept = record_of(ledger.compact("main", engine=Slow(), budget=90))
    assert nothing_kept.first_kept_turn_id == turns[-1]


def test_a_head_that_went_elsewhere_or_was_compacted_meanwhile_is_told(ledger: Ledger) -> None:
    turns = talk(ledger, "main", 4)

    class Moving(Summariser):
        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            ledger.move("main", turns[1])
            async for event in super().run(request):
                yield event

    with pytest.raises(HeadMoved):
        ledger.compact("main", engine=Moving(), budget=200)
    assert ledger.head("main") == turns[1]
    ledger.move("main", turns[3])

    class Racing(Summariser):
        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            ledger.compact("main", strategy="sliding_window", budget=200)
            async for event in super().run(request):
                yield event

    with pytest.raises(HeadMoved):
        ledger.compact("main", engine=Racing(), budget=200)
    assert ledger.thread("main", last=0).compaction_count == 1


def test_a_long_transcript_is_summarised_piece_by_piece(
    limited: Callable[..., Ledger],
) -> None:
    ledger = limited(summary_piece_tokens=250)
    talk(ledger, "main", 6)
    engine = Summariser("So far.")

    record = record_of(ledger.compact("main", engine=engine, budget=250))

    assert len(engine.asked) == 3
    assert "<earlier_summary>\nSo far.\n</earlier_summary>" in engine.question
    assert json.loads(record.metadata_json)["pieces"] == 3
    assert record.summarization_input_tokens == 300


def test_the_echo_engine_will_do(ledger: Ledger) -> None:
    talk(ledger, "main", 6)

    record = record_of(ledger.compact("main", engine=EchoEngine()))

    assert (record.model, record.provider) == ("echo", "echo")
    assert record.summary_tokens is not None
    assert record.summary_tokens <= json.loads(record.metadata_json)["summary_tokens_max"]
    assert json.loads(record.metadata_json)["cut"] is True


@pytest.fixture
def oldest() -> Iterator[str]:
    """A strategy of one's own."""
    add_strategy(Strategy("oldest", lambda turns, room: Chosen(len(turns), (0,)), summarises=True))
    add_strategy(Strategy("absurd", lambda turns, room: Chosen(len(turns) + 1)))
    yield "oldest"
    del compaction._added["oldest"], compaction._added["absurd"]


def test_a_strategy_of_ones_own_is_chosen_by_its_name(ledger: Ledger, oldest: str) -> None:
    turns = talk(ledger, "main", 4)

    record = record_of(ledger.compact("main", strategy=oldest, engine=Summariser()))

    assert record.compaction_type == "oldest"
    assert shown_turns(ledger) == turns[:1]
    with pytest.raises(Refused, match="'absurd' chose turns that do not exist"):
        ledger.compact("main", strategy="absurd", budget=50)
    with pytest.raises(Refused, match="a strategy 'summary' already"):
        add_strategy(Strategy("summary", lambda turns, room: Chosen(0)))


def test_a_compaction_is_due_when_the_window_is_nearly_full_or_turns_have_passed(
    ledger: Ledger,
) -> None:
    ledger.create_session("main")
    assert ledger.compaction_due("main", window=1, every=1) is None
    talk(ledger, "main", 4)
    tokens = ledger.context("main").total_tokens

    assert ledger.compaction_due("main", window=tokens, every=100) == "context_limit"
    assert ledger.compaction_due("main", window=tokens * 2) is None
    assert ledger.compaction_due("main", every=4) == "periodic"
    assert ledger.compaction_due("main", every=5) is None
    ledger.compact("main", strategy="sliding_window")
    assert ledger.compaction_due("main", every=1) is None
    chain(ledger, "main", 1)
    assert ledger.compaction_due("main", every=1) == "periodic"


def test_it_is_the_same_for_asyncio(ledger: Ledger, address: str) -> None:
    turns = talk(ledger, "main", 5)

    async def compact() -> Turn:
        async with AsyncLedger.open(address) as other:
            assert await other.compaction_due("main", every=5) == "periodic"
            plan = await other.plan_compaction("main", budget=250)
            assert plan.turns_kept == 1
            return await other.compact("main", engine=Summariser(), budget=250)

    assert record_of(asyncio.run(compact())).first_kept_turn_id == turns[-1]


def test_a_program_with_an_event_loop_may_call_the_blocking_verb(ledger: Ledger) -> None:
    talk(ledger, "main", 4)

    async def compact() -> Turn:
        return ledger.compact("main", engine=Summariser(), budget=250)

    assert record_of(asyncio.run(compact())).summary == "They talked."


def test_cancelling_while_it_is_summarised_changes_nothing(
    ledger: Ledger, raw: Raw, address: str
) -> None:
    talk(ledger, "main", 4)
    before = raw.dump()

    begun = asyncio.Event()

    class Endless(Summariser):
        async def run(self, request: Request) -> AsyncIterator[EngineEvent]:
            begun.set()
            await asyncio.sleep(3600)
            yield MessageDone("never")

    async def compact() -> None:
        async with AsyncLedger.open(address) as other:
            task = asyncio.create_task(other.compact("main", engine=Endless(), budget=200))
            await begun.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(compact())

    assert raw.dump() == before
