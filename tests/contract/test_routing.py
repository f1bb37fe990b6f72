"""Routing: every target leads to a turn, and a text to where its context is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from agents_ledger import Ambiguous, Ledger, NotFound, Refused, Session, ToolCall
from agents_ledger.ledger.search import smart_routing
from tests.builders import chain


def test_every_kind_of_target_leads_to_a_turn(ledger: Ledger) -> None:
    first, second = chain(ledger, "main", 2)
    ledger.alias("nick", "main")
    keyed = ledger.record("keyed", "q", "r", thread_key="dm:alice").id
    ledger.update_session("keyed", routing_key="room-7")
    ledger.record("atlas-main", "q", "r")
    ledger.record("dm:bob:me", "q", "r")

    for target, kind, turn_id, label in (
        ("main", "session", second, "main"),
        ("nick", "session", second, "main"),
        ("session:nick", "session", second, "main"),
        ("dm:bob:me", "session", ledger.head("dm:bob:me"), "dm:bob:me"),
        (first, "thread", first, None),
        (f"thread:{first[:-1]}", "thread", first, None),
        ("thread_key:dm:alice", "thread_key", keyed, None),
        ("dm:alice", "thread_key", keyed, None),
        ("routing_key:room-7", "routing_key", keyed, "keyed"),
        ("room-7", "routing_key", keyed, "keyed"),
        ("persona:main", "persona", second, "main"),
        ("persona:atlas", "persona", ledger.head("atlas-main"), "atlas-main"),
    ):
        route = ledger.route(target, personas={"atlas": "atlas-main"})
        assert (route.kind, route.turn_id, route.session_label) == (kind, turn_id, label), target


def test_a_trigger_goes_to_its_persona(ledger: Ledger) -> None:
    (turn_id,) = chain(ledger, "main", 1)

    assert ledger.route().turn_id == turn_id
    assert ledger.route(persona_id="main").kind == "persona"
    with pytest.raises(NotFound, match="persona 'atlas' has no main session"):
        ledger.route(persona_id="atlas")


def test_an_empty_session_leads_to_no_turn(ledger: Ledger) -> None:
    ledger.create_session(Session("empty"))

    assert ledger.route("empty").turn_id is None


@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        ("", Refused, "the target is empty"),
        ("session:", Refused, "has no value"),
        ("nobody", NotFound, "nobody"),
        ("thread:nobody", NotFound, "nobody"),
        ("session:nobody", NotFound, "nobody"),
        ("routing_key:nobody", NotFound, "routing_key 'nobody'"),
        ("thread_key:nobody", NotFound, "thread_key 'nobody'"),
        ("smart:zebra", NotFound, "no turn matches"),
        ("smart: ", Refused, "has no value"),
    ],
)
def test_a_bad_target_is_an_error(
    ledger: Ledger, target: str, error: type[Exception], said: str
) -> None:
    chain(ledger, "main", 1)

    with pytest.raises(error, match=said):
        ledger.route(target)


def talk(ledger: Ledger) -> dict[str, str]:
    """Two subjects in one session, a third elsewhere."""
    said = {}
    for name, session, query, answer in (
        ("parser", "work", "The duration parser fails on 90m", "It takes m for months."),
        ("fixed", "work", "Then repair the duration parser", "Repaired in durations.py."),
        ("deploy", "work", "Now deploy to the staging cluster", "Deployed with helm."),
        ("again", "work", "Is the staging cluster healthy?", "All pods run."),
        ("garden", "home", "Which tomatoes grow in shade?", "Cherry tomatoes do."),
    ):
        steps = [ToolCall.of("Edit", {"path": "durations.py"})] if name == "fixed" else []
        said[name] = ledger.record(session, query, answer, steps=steps).id
    return said


@pytest.mark.parametrize("indexed", [False, True])
def test_a_text_finds_the_place_whose_context_fits(ledger: Ledger, indexed: bool) -> None:
    said = talk(ledger)
    if indexed:
        ledger._core.index(least=1)

    route = ledger.route("smart:do cherry tomatoes like shade?")

    assert route.turn_id == said["garden"]
    assert route.session_label == "home"
    assert route.confidence >= 0.5
    assert route.proposals[0].reasons[0].turn_id == said["garden"]
    assert {"tomatoes", "shade", "cherry"} <= set(route.proposals[0].reasons[0].terms)


def test_the_place_holds_what_matters_and_leaves_out_what_came_after(ledger: Ledger) -> None:
    said = talk(ledger)
    for number in range(30):
        ledger.record("work", f"unrelated matter {number}", "done")
    ledger._core.index(least=1)

    fork = ledger.smart_fork(
        "the duration parser in durations.py takes 90m for months", label="try"
    )

    assert fork.session is not None
    assert (fork.session.label, fork.session.thread_id) == ("try", said["fixed"])
    assert fork.proposals[0].depth == 2
    assert [reason.files for reason in fork.proposals[0].reasons].count(("durations.py",)) == 1
    assert fork.proposals[0].context_tokens > 0


def test_a_thread_that_has_gone_on_a_little_is_continued_at_its_end(ledger: Ledger) -> None:
    talk(ledger)
    for number in range(10):
        end = ledger.record("work", f"unrelated matter {number}", "done").id

    route = ledger.route("smart:the duration parser in durations.py takes 90m for months")

    assert route.turn_id == end


@pytest.mark.parametrize("indexed", [False, True])
def test_words_side_by_side_tell_more_than_the_same_words_apart(
    ledger: Ledger, indexed: bool
) -> None:
    ledger.record("apart", "The retry queue is empty, the budget of the queue is not", "Yes.")
    together = ledger.record("together", "The retry budget is empty, the queue is not so", "Yes.")
    ledger.record("apart-too", "The budget for a retry of the queue is the empty one", "Yes.")
    if indexed:
        ledger._core.index(least=1)

    best = ledger.route("smart:is the retry budget empty").proposals[0]
    assert best.turn_id == together.id


def test_a_word_that_one_thread_repeats_is_rare_all_the_same(ledger: Ledger) -> None:
    for number in range(12):
        ledger.record("kestrels", f"and the kestrel, part {number}", "done")
        ledger.record(f"other-{number % 6}", f"and the parser, part {number}", "done")
    ledger._core.index(least=1)

    route = ledger.route("smart:kestrel or parser")

    assert route.proposals[0].session_label == "kestrels"


def test_of_a_word_that_very_many_turns_have_the_newest_are_looked_at(
    limited: Callable[..., Ledger],
) -> None:
    ledger = limited(routing_turns=10)
    turn_ids = [ledger.record(f"s{n % 4}", f"kestrel flight {n}", "r").id for n in range(30)]
    ledger._core.index(least=1)

    text = "kestrel flight to nowhere"
    terms = ledger._core.db.read(lambda tx: smart_routing.distinctive_terms(tx, text))

    assert [term.text for term in terms] == ["nowhere", "kestrel", "flight", "kestrel flight"]
    for term in terms[1:]:
        assert {turn.turn_id for turn in term.turns} == set(turn_ids[-10:])
    assert ledger.route("smart:kestrel flight").proposals


def test_where_nothing_fits_well_it_only_proposes(ledger: Ledger) -> None:
    talk(ledger)

    fork = ledger.smart_fork("tomatoes aubergines cucumbers melons pumpkins radishes")

    assert fork.session is None
    assert fork.confidence < 0.5
    assert [proposal.session_label for proposal in fork.proposals] == ["home"]
    assert len(ledger.sessions()) == 2


def test_what_fits_two_threads_equally_well_is_only_proposed(ledger: Ledger) -> None:
    for session in ("one", "other"):
        ledger.record(session, "Where do zebras graze?", "On the savanna.")
    ledger._core.index(least=1)

    fork = ledger.smart_fork("zebras graze on the savanna")

    assert fork.session is None
    assert fork.proposals[0].coverage > 0.9
    assert fork.confidence < 0.5
    ledger.record("one", "Zebras and the savanna: do they graze and sleep there?", "Zebras do.")
    ledger._core.index(least=1)
    ahead = ledger.smart_fork("which zebras graze, and sleep, on the savanna")
    assert ahead.confidence > fork.confidence


def test_a_budget_leaves_out_places_with_too_much_context(ledger: Ledger) -> None:
    early = ledger.record("main", "zebra stripes", "short").id
    ledger.record("main", "zebra stripes again " + "filler " * 3000, "zebra")
    ledger._core.index(least=1)

    assert ledger.route("smart:zebra stripes", budget=1000).proposals[0].turn_id == early
    with pytest.raises(NotFound):
        ledger.route("smart:zebra stripes", budget=1)
    with pytest.raises(Refused, match="budget"):
        ledger.smart_fork("zebra", budget=0)


def test_branches_share_what_stands_above_their_fork(ledger: Ledger) -> None:
    root = ledger.record("main", "The quokka enclosure needs a fence", "Yes.").id
    ledger.record("main", "Build it from wood", "Built.")
    ledger.fork(root, label="other")
    steel = ledger.record("other", "Build it from steel", "Built of steel.").id
    ledger._core.index(least=1)

    best = ledger.route("smart:steel fence of the quokka enclosure").proposals[0]
    assert best.turn_id == steel


def test_what_a_person_types_may_be_a_target(ledger: Ledger) -> None:
    first, _ = chain(ledger, "main", 2)
    kept = ledger.record("notes", "The kestrel parser chokes on tabs", "r", thread_key="key-1")

    assert ledger.lookup("session:main") == ledger.lookup("persona:main") == "main"
    assert ledger.lookup(f"thread:{first}") == first
    assert ledger.lookup("thread_key:key-1") == kept.id
    assert ledger.lookup("smart:kestrel parser chokes on tabs") == kept.id
    with pytest.raises(Ambiguous, match="no turn fits") as told:
        ledger.lookup("smart:the parser that we never spoke of before, with zebras and giraffes")
    assert kept.id in told.value.hint
    ledger.record("session:main", "q", "r")
    assert ledger.lookup("session:main") == "session:main"
    assert ledger.thread(ledger.lookup("session:main")).depth == 1
