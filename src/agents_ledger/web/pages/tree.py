"""Pages of trees: a window of a path, and what hangs on it."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from agents_ledger.model.sessions import Session, Thread
from agents_ledger.web.pages.tree_rows import Lanes, Row, without_short_runs
from agents_ledger.web.site import Asked, Here, Site, named

PER_PAGE = 50
RAIL_ROWS = 120
TREE_ROWS = 400
REACH = 1000  # turns of a path that a tree shows at once
REACH_BELOW = 200  # beyond its end

Opened = Annotated[str, QueryParameter(name="open")]


class Part(NamedTuple):
    """Which part of a tree is asked for."""

    opened: tuple[str, ...] = ()  # branches that would be one row
    unfold: bool = False
    upto: int | None = None  # the depth the path ends at; None: the head's


def rail(site: Site, thread: Thread) -> list[Row]:
    """The tree a thread stands in, where it ends."""
    return tree_rows(site, thread, Part(), RAIL_ROWS)


def tree_rows(site: Site, thread: Thread, part: Part, rows_max: int) -> list[Row]:
    """The rows of a part of the tree that a thread stands in."""
    if thread.turn_id is None:
        return []
    key = (thread.turn_id, part, rows_max)
    return site.rows_kept(key, lambda: _rows(site, thread, part, rows_max))


def _rows(site: Site, thread: Thread, part: Part, rows_max: int) -> list[Row]:
    """A window of the path, and all that hangs on it: what is read does not grow with the tree."""
    head_id = str(thread.turn_id)
    last = max(1, min(part.upto or thread.depth, thread.depth))
    reach = rows_max // 2 if part.unfold else REACH
    top = site.ledger.ancestor_at(head_id, max(1, last - reach + 1)) or head_id
    path_id = site.ledger.ancestor_at(head_id, last) if last < thread.depth else head_id
    below = last + REACH_BELOW if last == thread.depth else last
    tree = site.ledger.tree(top, fold=not part.unfold, limit=2 * rows_max, to_depth=below)
    if not part.unfold:
        tree = without_short_runs(tree, keep=path_id)
    rows = Lanes(
        tree,
        head_id=head_id,
        path_id=path_id,
        opened=part.opened,
        unfold=part.unfold,
        rows_max=rows_max,
    ).rows()
    if last < thread.depth:
        rows.append(Row("below", 0, turns=thread.depth - last, on_path=True))
    return rows


@get("/s/{label:str}/tree", sync_to_thread=True)
def session_tree_page(
    request: Asked,
    site: Here,
    *,
    label: FromPath[str],
    opened: Opened = "",
    unfold: FromQuery[bool] = False,
    upto: FromQuery[int | None] = None,
) -> Response[str]:
    """The tree of a session, with its forks, compactions, subagents and labels."""
    session = site.ledger.session(named(label))
    part = Part(_opened(opened), unfold, upto)
    return _tree_page(request, site, session, session.label, part)


@get("/t/{turn:str}/tree", sync_to_thread=True)
def turn_tree_page(
    request: Asked,
    site: Here,
    *,
    turn: FromPath[str],
    opened: Opened = "",
    unfold: FromQuery[bool] = False,
    upto: FromQuery[int | None] = None,
) -> Response[str]:
    """The tree of a turn."""
    head_id = site.ledger.get_turn(named(turn)).id
    return _tree_page(request, site, None, head_id, Part(_opened(opened), unfold, upto))


def _opened(text: str) -> tuple[str, ...]:
    return tuple(part for part in text.split(",") if part)[:PER_PAGE]


def _tree_page(
    request: Asked, site: Site, session: Session | None, target: str, part: Part
) -> Response[str]:
    with site.pages.snapshot():
        thread = site.ledger.thread(target, last=0)
        name = site.name_of(session, thread) if session else thread.turn_id
        rows = tree_rows(site, thread, part, TREE_ROWS)
    return site.page(
        "tree.html",
        request,
        title=f"Tree of {name}",
        session=session,
        thread=thread,
        rows=rows,
        part=part,
    )


@get("/t/{turn:str}/branches", sync_to_thread=True)
def branches_page(
    request: Asked, site: Here, turn: FromPath[str], after: FromQuery[str] = ""
) -> Response[str]:
    """All that hangs on a turn, a page at a time."""
    found = site.ledger.get_turn(named(turn))
    lines = site.pages.branches(found.id, limit=PER_PAGE + 1, after=after or None)
    return site.page(
        "branches.html",
        request,
        title=f"What hangs on turn {found.depth}",
        turn=found,
        lines=lines[:PER_PAGE],
        further=lines[PER_PAGE - 1].turn.id if len(lines) > PER_PAGE else None,
    )


ROUTES = (session_tree_page, turn_tree_page, branches_page)
