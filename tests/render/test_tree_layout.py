"""The rows and lanes of a tree."""

from __future__ import annotations

from agents_ledger import Headline, Node, Session, Subagent, Tree, Turn
from agents_ledger.render.tree_layout import (
    BRANCHES_MAX,
    LANES_MAX,
    TreeLayout,
    TreeRow,
    last_rows,
)


def a_node(name: str, above: str | None = None, folded: int = 0, **fields: object) -> Node:
    heads = tuple(Session(label, name) for label in fields.pop("heads", ()))  # type: ignore[attr-defined]
    subagents = tuple(
        Subagent(Session(label), 2, 10)
        for label in fields.pop("subagents", ())  # type: ignore[attr-defined]
    )
    turn = Turn(name, above, **fields)  # type: ignore[arg-type]
    return Node(Headline(turn, name, f"says {name}"), above, folded, heads, subagents)


def layout(*nodes: Node, head: str | None, **options: object) -> list[TreeRow]:
    tree = Tree(nodes, len(nodes))
    return list(TreeLayout(tree, head_id=head, **options).rows())  # type: ignore[arg-type]


def shape(rows: list[TreeRow]) -> list[str]:
    return [
        f"{row.lane}{row.kind[0]}{row.node.headline.turn.id if row.node else ''}" for row in rows
    ]


def test_a_thread_without_forks_stays_in_the_first_lane() -> None:
    rows = layout(a_node("a"), a_node("b", "a"), a_node("c", "b", heads=["main"]), head="c")

    assert shape(rows) == ["0ta", "0tb", "0tc"]
    assert [(row.above, row.below) for row in rows] == [(False, True), (True, True), (True, False)]
    assert rows[-1].is_head


def test_the_path_to_the_head_is_straight_even_if_a_branch_is_newer() -> None:
    rows = layout(
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


def test_a_branch_without_sessions_is_one_row_until_it_is_opened() -> None:
    nodes = (a_node("a"), a_node("b", "a", heads=["main"]), a_node("x", "a"), a_node("y", "x", 3))

    folded = layout(*nodes, head="b")
    opened = layout(*nodes, head="b", opened=["x"])
    unfolded = layout(*nodes, head="b", unfold=True)

    assert shape(folded) == ["0ta", "1bx", "0tb"]
    assert folded[1].turns == 5
    assert shape(opened) == shape(unfolded) == ["0ta", "1tx", "1ry", "1ty", "0tb"]


def test_a_folded_run_is_a_row_before_its_last_turn() -> None:
    rows = layout(a_node("a"), a_node("z", "a", 37, heads=["main"]), head="z")

    assert shape(rows) == ["0ta", "0rz", "0tz"]
    assert rows[1].turns == 37


def test_a_mark_shows_the_kind_of_a_turn() -> None:
    rows = layout(
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
    rows = layout(a_node("a"), a_node("b", "a", heads=["m"]), live, head="b")

    assert shape(rows) == ["0ta", "1tx", "0tb"]


def test_many_branches_are_counted_instead_of_layout() -> None:
    branches = [a_node(f"x{number:02}", "a") for number in range(BRANCHES_MAX + 5)]
    rows = layout(a_node("a"), *branches, a_node("b", "a", heads=["main"]), head="b")

    assert rows[1].kind == "more"
    assert rows[1].turns == 5
    assert len(rows) == BRANCHES_MAX + 3


def test_the_number_of_lanes_is_limited() -> None:
    nodes = [a_node("n0")]
    for number in range(LANES_MAX + 4):
        nodes.append(a_node(f"s{number}", f"n{number}", heads=[f"main{number}"]))
        nodes.append(a_node(f"n{number + 1}", f"n{number}", heads=[f"h{number}"]))
    rows = layout(*nodes, head="s0")

    assert max(row.lane for row in rows) == LANES_MAX
    assert any(row.kind == "branch" for row in rows)


def test_the_last_rows_are_preceded_by_the_number_of_turns_above() -> None:
    nodes = [a_node("n1", depth=1)]
    nodes += [a_node(f"n{i}", f"n{i - 1}", depth=i) for i in range(2, 31)]

    rows = last_rows(layout(*nodes, head="n30"), 10)

    assert shape(rows) == ["0a", *(f"0tn{number}" for number in range(21, 31))]
    assert rows[0].turns == 20
    assert rows[-1].is_head


def test_the_last_rows_begin_with_a_turn_of_the_path() -> None:
    nodes = [a_node("a", depth=7), a_node("b", "a", depth=8)]
    nodes += [a_node(f"x{i}", "a", depth=8) for i in range(5)]
    nodes += [a_node("c", "b", depth=9), a_node("d", "c", depth=10)]

    rows = last_rows(layout(*nodes, head="d"), 5)

    assert shape(rows) == ["0a", "0tb", "0tc", "0td"]
    assert rows[0].turns == 7


def test_a_turn_that_only_begins_a_run_is_folded_with_it() -> None:
    nodes = (a_node("a"), a_node("b", "a"), a_node("z", "b", 10, heads=["main"]))

    folded = layout(*nodes, head="z")

    assert shape(folded) == ["0ta", "0rz", "0tz"]
    assert folded[1].turns == 11
    assert shape(layout(*nodes, head="z", path_id="b")) == ["0ta", "0tb", "0rz", "0tz"]


def test_the_first_turn_of_a_branch_is_never_folded() -> None:
    nodes = (a_node("a"), a_node("b", "a", heads=["main"]), a_node("x", "a"), a_node("y", "x", 9))

    assert shape(layout(*nodes, head="b", opened=["x"])) == ["0ta", "1tx", "1ry", "1ty", "0tb"]
