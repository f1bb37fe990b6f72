"""Lanes: the tree as rows, drawn from a tree alone."""

from __future__ import annotations

from agents_ledger import Headline, Node, Session, Subagent, Tree, Turn
from agents_ledger.web.pages.tree_rows import (
    BRANCHES_MAX,
    LANES_MAX,
    Lanes,
    Row,
    without_short_runs,
)


def a_node(name: str, above: str | None = None, folded: int = 0, **fields: object) -> Node:
    heads = tuple(Session(label, name) for label in fields.pop("heads", ()))  # type: ignore[attr-defined]
    subagents = tuple(
        Subagent(Session(label), 2, 10)
        for label in fields.pop("subagents", ())  # type: ignore[attr-defined]
    )
    turn = Turn(name, above, **fields)  # type: ignore[arg-type]
    return Node(Headline(turn, name, f"says {name}"), above, folded, heads, subagents)


def drawn(*nodes: Node, head: str | None, **asked: object) -> list[Row]:
    tree = Tree(nodes, len(nodes))
    return Lanes(tree, head_id=head, **asked).rows()  # type: ignore[arg-type]


def shape(rows: list[Row]) -> list[str]:
    return [
        f"{row.lane}{row.kind[0]}{row.node.headline.turn.id if row.node else ''}" for row in rows
    ]


def test_a_line_stays_in_the_first_lane() -> None:
    rows = drawn(a_node("a"), a_node("b", "a"), a_node("c", "b", heads=["main"]), head="c")

    assert shape(rows) == ["0ta", "0tb", "0tc"]
    assert [(row.above, row.below) for row in rows] == [(False, True), (True, True), (True, False)]
    assert rows[-1].is_head


def test_the_path_to_the_head_is_straight_whatever_was_recorded_later() -> None:
    rows = drawn(
        a_node("a"),
        a_node("b", "a"),
        a_node("x", "a", heads=["other"]),
        a_node("c", "b", heads=["main"]),
        a_node("y", "x", heads=["newer"]),
        head="c",
    )

    assert shape(rows) == ["0ta", "1tx", "1ty", "0tb", "0tc"]
    assert rows[0].mark == "fork"
    assert rows[1].joins
    assert not rows[1].above
    assert [row.on_path for row in rows] == [True, False, False, True, True]


def test_a_branch_nobody_points_to_is_one_row_until_it_is_opened() -> None:
    nodes = (a_node("a"), a_node("b", "a", heads=["main"]), a_node("x", "a"), a_node("y", "x", 3))

    folded = drawn(*nodes, head="b")
    opened = drawn(*nodes, head="b", opened=["x"])
    unfolded = drawn(*nodes, head="b", unfold=True)

    assert shape(folded) == ["0ta", "1bx", "0tb"]
    assert folded[1].turns == 5
    assert shape(opened) == shape(unfolded) == ["0ta", "1tx", "1ry", "1ty", "0tb"]


def test_a_run_is_a_row_of_its_own_before_its_end() -> None:
    rows = drawn(a_node("a"), a_node("z", "a", 37, heads=["main"]), head="z")

    assert shape(rows) == ["0ta", "0rz", "0tz"]
    assert rows[1].turns == 37


def test_marks_tell_what_a_turn_is() -> None:
    rows = drawn(
        a_node("a", subagents=["helper"]),
        a_node("b", "a", turn_type="compaction"),
        a_node("c", "b", status="failed"),
        a_node("d", "c", status="streaming"),
        head="d",
    )

    assert [row.mark for row in rows] == ["turn", "subagent", "compaction", "failed", "live"]
    assert rows[1].below


def test_a_live_turn_is_never_hidden() -> None:
    live = a_node("x", "a", status="pending")
    rows = drawn(a_node("a"), a_node("b", "a", heads=["m"]), live, head="b")

    assert shape(rows) == ["0ta", "1tx", "0tb"]


def test_many_branches_are_counted_instead_of_drawn() -> None:
    branches = [a_node(f"x{number:02}", "a") for number in range(BRANCHES_MAX + 5)]
    rows = drawn(a_node("a"), *branches, a_node("b", "a", heads=["main"]), head="b")

    assert rows[1].kind == "more"
    assert rows[1].turns == 5
    assert len(rows) == BRANCHES_MAX + 3


def test_lanes_do_not_run_off_the_page() -> None:
    nodes = [a_node("n0")]
    for number in range(LANES_MAX + 4):
        nodes.append(a_node(f"s{number}", f"n{number}", heads=[f"main{number}"]))
        nodes.append(a_node(f"n{number + 1}", f"n{number}", heads=[f"h{number}"]))
    rows = drawn(*nodes, head="s0")

    assert max(row.lane for row in rows) == LANES_MAX
    assert any(row.kind == "branch" for row in rows)


def test_of_too_many_rows_the_last_are_shown_and_how_many_turns_are_above() -> None:
    nodes = [a_node("n1", depth=1)]
    nodes += [a_node(f"n{i}", f"n{i - 1}", depth=i) for i in range(2, 31)]

    rows = drawn(*nodes, head="n30", rows_max=10)

    assert shape(rows) == ["0a", *(f"0tn{number}" for number in range(21, 31))]
    assert rows[0].turns == 20
    assert rows[-1].is_head


def test_a_cut_is_made_at_the_path_never_within_a_branch() -> None:
    nodes = [a_node("a", depth=7), a_node("b", "a", depth=8)]
    nodes += [a_node(f"x{i}", "a", depth=8) for i in range(5)]
    nodes += [a_node("c", "b", depth=9), a_node("d", "c", depth=10)]

    rows = drawn(*nodes, head="d", rows_max=5)

    assert shape(rows) == ["0a", "0tb", "0tc", "0td"]
    assert rows[0].turns == 7


def test_a_node_that_only_begins_a_run_is_folded_with_it() -> None:
    tree = Tree((a_node("a"), a_node("b", "a"), a_node("z", "b", 10, heads=["main"])), 12)

    short = without_short_runs(tree)

    assert [(node.headline.turn.id, node.above_id, node.folded) for node in short.nodes] == [
        ("a", None, 0),
        ("z", "a", 11),
    ]
    assert without_short_runs(tree, keep="b") == tree
