"""The tree of a session or a turn, and all children of one turn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, NamedTuple

from litestar import Response, get
from litestar.params import FromPath, FromQuery, QueryParameter

from agents_ledger.model.sessions import Session, Thread
from agents_ledger.render.tree_layout import BRANCHES_MAX, TreeLayout, TreeRow, last_rows
from agents_ledger.web.requests import WebRequest, decode_part
from agents_ledger.web.site import Site, ThisSite

PER_PAGE = 50
RAIL_ROWS = 120
TREE_ROWS = 400
REACH = 1000  # turns of the path in one tree
REACH_BELOW = 200  # turns below its end
UNFOLDED_BRANCHES_MAX = 50  # at one turn

Opened = Annotated[str, QueryParameter(name="open")]


class TreeView(NamedTuple):
    """Which part of a tree is requested."""

    opened: tuple[str, ...] = ()  # branches that would otherwise be one row
    unfold: bool = False
    upto: int | None = None  # the depth the path ends at; None: the head's


def rail(site: Site, thread: Thread) -> list[TreeRow]:
    """The tree at the end of a thread, for the side of its page."""
    return tree_rows(site, thread, TreeView(), RAIL_ROWS)


class Head(NamedTuple):
    """A session whose head is in a tree, with the prompt there."""

    session: Session
    prompt: str | None


def heads_of(rows: Iterable[TreeRow]) -> list[Head]:
    return [
        Head(session, row.node.headline.text)
        for row in rows
        if row.node
        for session in row.node.heads
    ]


def tree_rows(site: Site, thread: Thread, view: TreeView, rows_max: int) -> list[TreeRow]:
    """The rows of the tree around a thread."""
    if thread.turn_id is None:
        return []
    key = (thread.turn_id, view, rows_max)
    return site.cached_rows(key, lambda: _rows(site, thread, view, rows_max))


def _rows(site: Site, thread: Thread, view: TreeView, rows_max: int) -> list[TreeRow]:
    """A window of the path with its branches: the cost does not grow with the tree."""
    head_id = str(thread.turn_id)
    last = max(1, min(view.upto or thread.depth, thread.depth))
    reach = rows_max // 2 if view.unfold else REACH
    top = site.ledger.ancestor_at(head_id, max(1, last - reach + 1)) or head_id
    path_id = site.ledger.ancestor_at(head_id, last) if last < thread.depth else head_id
    # At the head, branches may reach further down than the path itself.
    below = last + REACH_BELOW if last == thread.depth else last
    tree = site.ledger.tree(top, fold=not view.unfold, limit=2 * rows_max, to_depth=below)
    layout = TreeLayout(
        tree,
        head_id=head_id,
        path_id=path_id,
        opened=view.opened,
        unfold=view.unfold,
        branches_max=UNFOLDED_BRANCHES_MAX if view.unfold else BRANCHES_MAX,
    )
    rows = last_rows(list(layout.rows()), rows_max)
    if last < thread.depth:
        rows.append(TreeRow("below", 0, turns=thread.depth - last, on_path=True))
    return rows


@get("/s/{label:str}/tree", sync_to_thread=True)
def session_tree_page(
    request: WebRequest,
    site: ThisSite,
    *,
    label: FromPath[str],
    opened: Opened = "",
    unfold: FromQuery[bool] = False,
    upto: FromQuery[int | None] = None,
) -> Response[str]:
    session = site.ledger.session(decode_part(label))
    view = TreeView(_opened(opened), unfold, upto)
    return _tree_page(request, site, session, session.label, view)


@get("/t/{turn:str}/tree", sync_to_thread=True)
def turn_tree_page(
    request: WebRequest,
    site: ThisSite,
    *,
    turn: FromPath[str],
    opened: Opened = "",
    unfold: FromQuery[bool] = False,
    upto: FromQuery[int | None] = None,
) -> Response[str]:
    head_id = site.ledger.get_turn(decode_part(turn)).id
    return _tree_page(request, site, None, head_id, TreeView(_opened(opened), unfold, upto))


def _opened(text: str) -> tuple[str, ...]:
    return tuple(filter(None, text.split(",")))[:PER_PAGE]


def _tree_page(
    request: WebRequest, site: Site, session: Session | None, target: str, view: TreeView
) -> Response[str]:
    with site.pages.snapshot():
        site.ledger.check_shown(target)
        thread = site.ledger.thread(target, last=0)
        name = site.name_of(session) if session else f"turn {thread.depth}"
        rows = tree_rows(site, thread, view, TREE_ROWS)
    return site.page(
        "tree.html",
        request,
        title=f"Tree of {name}",
        session=session,
        thread=thread,
        rows=rows,
        view=view,
    )


@get("/t/{turn:str}/branches", sync_to_thread=True)
def branches_page(
    request: WebRequest, site: ThisSite, turn: FromPath[str], after: FromQuery[str] = ""
) -> Response[str]:
    parent = site.ledger.get_turn(decode_part(turn))
    lines = site.pages.branches(parent.id, limit=PER_PAGE + 1, after=after or None)
    return site.page(
        "branches.html",
        request,
        title=f"Branches at turn {parent.depth}",
        turn=parent,
        lines=lines[:PER_PAGE],
        further=lines[PER_PAGE - 1].turn.id if len(lines) > PER_PAGE else None,
    )


ROUTES = (session_tree_page, turn_tree_page, branches_page)
