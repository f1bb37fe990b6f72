"""Trees with their runs folded, and turns in one line each."""

from __future__ import annotations

import random

import pytest

from agents_ledger import Compaction, Ledger, NotFound, Refused, ToolCall
from agents_ledger.ledger.reports.pages import Pages
from tests.builders import chain, grow


def a_random_tree(ledger: Ledger, seed: int) -> list[str]:
    """The ids of turns that stand in one tree, in some shape, the root first."""
    chance = random.Random(seed)
    ids = chain(ledger, "main", 3)
    for number in range(12):
        label = f"fork-{number}"
        ledger.fork(chance.choice(ids), label=label)
        for _ in range(chance.randrange(6)):
            if chance.random() < 0.2:
                ledger.record(label, "fails", status="failed", error="no")
            else:
                ids.append(ledger.record(label, "a turn", "answer").id)
        if chance.random() < 0.3:
            ledger.clear(label)
    return ids


@pytest.mark.parametrize("seed", range(4))
def test_a_folded_tree_tells_every_turn_and_every_place(ledger: Ledger, seed: int) -> None:
    root, *_ = a_random_tree(ledger, seed)
    everything = {turn.id: turn for turn in ledger.subtree(root)}

    tree = ledger.tree(root)

    nodes = {node.headline.turn.id: node for node in tree.nodes}
    assert tree.turn_count == len(everything)
    assert tree.left_out == 0
    for turn_id, node in nodes.items():
        assert node.headline.turn == everything[turn_id]
        if node.above_id is None:
            assert turn_id == root
            continue
        assert node.above_id in nodes
        assert ledger.is_ancestor(node.above_id, turn_id)
        assert node.folded == everything[turn_id].depth - everything[node.above_id].depth - 1
        assert node.folded != 1
    heads = {head.label for node in tree.nodes for head in node.heads}
    assert heads == {session.label for session in ledger.sessions() if session.thread_id}
    parents = [turn.parent_turn_id for turn in everything.values()]
    forks = {turn_id for turn_id in everything if parents.count(turn_id) > 1}
    assert forks <= set(nodes)
    folded = sum(node.folded for node in tree.nodes)
    assert len(nodes) + folded == len(everything)


def test_nothing_is_folded_if_so_asked(ledger: Ledger) -> None:
    root, *_ = ids = chain(ledger, "main", 6)

    tree = ledger.tree(root, fold=False)

    assert [node.headline.turn.id for node in tree.nodes] == ids
    assert [node.headline.turn.id for node in ledger.tree(root).nodes] == [ids[0], ids[-1]]


def test_too_many_nodes_leave_the_oldest_folded(ledger: Ledger) -> None:
    ids = chain(ledger, "main", 10)

    tree = ledger.tree(ids[0], fold=False, limit=4)

    assert [node.headline.turn.id for node in tree.nodes] == [ids[0], *ids[-3:]]
    assert [node.folded for node in tree.nodes] == [0, 6, 0, 0]
    assert tree.left_out == 6
    assert tree.turn_count == 10
    with pytest.raises(Refused, match="must be positive"):
        ledger.tree(ids[0], limit=0)


def test_a_tree_begins_where_it_is_asked_to(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3-4, 2-a, 3-b")

    tree = ledger.tree(ids["3"])

    assert {node.headline.text for node in tree.nodes} == {"3", "4", "b"}
    assert tree.nodes[0].above_id is None
    ledger.create_session("empty")
    with pytest.raises(Refused, match="is empty"):
        ledger.tree("empty")
    with pytest.raises(NotFound):
        ledger.tree("nobody")


def test_compactions_and_subagents_stand_out(ledger: Ledger) -> None:
    ids = chain(ledger, "main", 5)
    compaction = Compaction("gist", ids[1], ids[2], 2)
    seam = ledger.record("main", compaction=compaction).id
    chain(ledger, "main", 3)
    call = ToolCall("Task", "{}", spawned_session_label="helper")
    spawning = ledger.record("main", "delegate", "done", steps=[call]).id
    chain(ledger, "main", 3)
    helpers = chain(ledger, "helper", 4)

    nodes = {node.headline.turn.id: node for node in ledger.tree(ids[0]).nodes}

    recorded = nodes[seam].headline.turn.compaction
    assert recorded is not None
    assert recorded.summary == "gist"
    [subagent] = nodes[spawning].subagents
    assert (subagent.session.label, subagent.depth) == ("helper", 4)
    assert ledger.latest_roots() == (ids[0],)
    assert ledger.latest_roots(subagents=True) == (helpers[0], ids[0])


def test_roots_come_newest_first_in_pages(ledger: Ledger) -> None:
    ids = [ledger.record(f"s{number}", "q", "a").id for number in range(5)]

    assert ledger.latest_roots() == tuple(reversed(ids))
    assert ledger.latest_roots(limit=2) == (ids[4], ids[3])
    assert ledger.latest_roots(limit=2, before=ids[3]) == (ids[2], ids[1])


@pytest.mark.finding("users-2")
def test_the_newest_root_by_time_comes_first_whatever_its_id(ledger: Ledger) -> None:
    for turn_id, at in (("z-oldest", 1000), ("b", 3000), ("a-newest", 4000), ("c", 3000)):
        ledger.record(f"s-{turn_id}", "q", "r", id=turn_id, started_at=at, completed_at=at)

    assert ledger.latest_roots() == ("a-newest", "c", "b", "z-oldest")
    assert ledger.latest_roots(limit=2, before="c") == ("b", "z-oldest")
    assert ledger.latest_roots(since=3000, until=4000) == ("c", "b")


@pytest.mark.finding("users-2")
def test_of_too_many_nodes_the_oldest_by_time_are_left_out(ledger: Ledger) -> None:
    for number, turn_id in enumerate(("z-root", "y", "x", "w", "v")):
        ledger.record("main", "q", "r", id=turn_id, started_at=1000 + number, completed_at=2000)

    tree = ledger.tree("z-root", fold=False, limit=3)

    assert [node.headline.turn.id for node in tree.nodes] == ["z-root", "w", "v"]
    assert tree.left_out == 2


def test_a_headline_names_its_turn_alone_and_begins_like_its_query(ledger: Ledger) -> None:
    for turn_id in ("same-letters-1", "same-letters-12", "same-letters-2", "other-letters"):
        ledger.record("main", "x" * 1000, "answer", id=turn_id)
    ids = ledger.ancestry("main")

    found = ledger.headlines(ids)

    assert [headline.turn.id for headline in found] == list(ids)
    for headline in found:
        assert ledger.get_turn(headline.short_id).id == headline.turn.id
        assert headline.text is not None
        assert headline.text == "x" * len(headline.text)
        assert len(headline.text) < 1000
    assert found[3].short_id == "other-lett"
    with pytest.raises(NotFound):
        ledger.headlines(["nobody"])


def test_live_turns_of_one_session(ledger: Ledger) -> None:
    with ledger.turn("one", "q") as first, ledger.turn("two", "q") as second:
        ledger.alias("uno", "one")
        assert ledger.live_turns() == tuple(sorted((first.id, second.id)))
        assert ledger.live_turns("uno") == (first.id,)
        first.respond("a")
        second.respond("a")
    with pytest.raises(NotFound):
        ledger.live_turns("three")


def test_a_tree_ends_at_the_depth_asked_for(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2-3-4-5-6, 2-a-b-c, 5-x")

    tree = ledger.tree(ids["2"], to_depth=4)

    assert {node.headline.text for node in tree.nodes} == {"2", "3", "4", "a", "b"}
    assert tree.turn_count == 5
    assert ledger.tree(ids["2"], to_depth=2).turn_count == 1
    whole = ledger.tree(ids["1"], fold=False)
    assert ledger.tree(ids["1"], fold=False, to_depth=99) == whole
    with pytest.raises(Refused, match="above"):
        ledger.tree(ids["3"], to_depth=2)


def test_what_hangs_on_a_turn_comes_in_pages(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2, 1-3, 1-4, 1-5")
    pages = Pages(ledger._core)

    first = pages.branches(ids["1"], limit=3)
    rest = pages.branches(ids["1"], limit=3, after=first[-1].turn.id)

    assert [line.text for line in (*first, *rest)] == ["2", "3", "4", "5"]
    assert pages.branches(ids["5"]) == ()


def test_of_many_branches_a_window_shows_the_first_and_their_number(ledger: Ledger) -> None:
    ids = grow(ledger, "1-2, " + ", ".join(f"1-b{number:02}" for number in range(20)) + ", 1-z")

    window = Pages(ledger._core).window("z", from_depth=1, to_depth=2)

    assert [line.text for line in window.branches] == ["2", *(f"b{n:02}" for n in range(11))]
    assert window.numbers[ids["z"]] == (22, 22)
    assert window.numbers[ids["2"]] == (1, 22)
    assert Pages(ledger._core).session_holding(ids["1"]) is not None


def test_a_turn_is_told_by_what_was_asked_not_by_what_a_harness_put_before_it(
    ledger: Ledger,
) -> None:
    around = "<environment_context>\n<shell>zsh</shell>\n</environment_context>"
    command = "<command-message>plan</command-message>\n<command-name>/plan</command-name>"
    turns = [
        ledger.record("main", [around, "Fix it."], "Yes."),
        ledger.record("main", command, "Yes."),
        ledger.record("main", around, "Yes."),
    ]

    told = [line.text for line in ledger.headlines(turn.id for turn in turns)]

    assert told == ["Fix it.", "/plan", around]
