"""Sessions are pointers to turns. This is the only module that moves a head.

Every move is a compare-and-set in move_head(), which raises HeadMoved if another writer was first.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace as Row
from typing import Any, NamedTuple, get_args

from agents_ledger.ledger.evidence import leaves
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Conflict, HeadMoved, NameTaken, NotFound, Refused
from agents_ledger.model.ids import new_id, now_ms
from agents_ledger.model.sessions import (
    DEFAULT_PERSONA,
    NATIVE,
    MoveReason,
    Session,
    SessionStatus,
    TaskStatus,
)
from agents_ledger.model.turns import check_number, check_text
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_session

LABEL_MAX = 512
LATEST = 1 << 62
CHANGEABLE = (
    "persona_id",
    "agent_id",
    "routing_key",
    "task_description",
    "task_status",
    "origin",
    "origin_session_id",
)
ANNOTATIONS = ("title", "starred", "note")


class Pointer(NamedTuple):
    label: str
    thread_id: str | None
    persona_id: str
    status: SessionStatus


def find(tx: Transaction, key: str, *, exact: bool = False) -> Pointer | None:
    """The session a key leads to, locked until the transaction ends."""
    rows, before = _look(tx, key, exact=exact), None
    # On a server it may have been merged while we waited for the lock: then follow its key again.
    # A merged session is never active.
    while rows and rows != before and rows[0][-1] != "active":
        rows, before = _look(tx, key, exact=exact), rows
    return Pointer(*rows[0]) if rows else None


def _look(tx: Transaction, key: str, *, exact: bool) -> list[tuple[Any, ...]]:
    check_text(key, "the name of a session")
    return tx.run("find_session_exactly" if exact else "find_session", key=key)


def existing(tx: Transaction, key: str, *, exact: bool = False) -> Pointer:
    """find(), or NotFound."""
    pointer = find(tx, key, exact=True) if exact else _find_renamed(tx, key)
    if pointer is None:
        raise NotFound(f"there is no session {key!r}")
    return pointer


def _find_renamed(tx: Transaction, key: str) -> Pointer | None:
    """find(), also if the session was renamed while we waited for its lock on a server: its row is
    gone then, and its key leads to another."""
    pointer = find(tx, key)
    while pointer is None and tx.engine == "postgresql" and tx.run("name", name=key):
        pointer = find(tx, key)
    return pointer


def writable(tx: Transaction, key: str, **details: Any) -> Pointer:
    """The session to write to: pointer by label, then by alias, else created with `details`."""
    pointer = _find_renamed(tx, key)
    if pointer is None:
        try:
            return _create(tx, Session(key, **details))
        except NameTaken:
            # On a server another writer may have created the session between our look and the
            # insert.
            pointer = find(tx, key)
            # The name is a turn's or an alias of another session: the caller must not write there.
            if pointer is None or pointer.label != key:
                raise
    if pointer.status != "active":
        raise Refused(
            f"session {pointer.label!r} is {pointer.status}",
            "Make it active again, or fork from it.",
        )
    return pointer


def _create(tx: Transaction, session: Session, reason: MoveReason = "record") -> Pointer:
    now = session.created_at or now_ms()
    check_label(tx, session.label)
    values: dict[str, object] = {
        name: getattr(session, name) for name in Session.__struct_fields__[:14]
    }
    values |= {"is_subagent": int(session.is_subagent), "origin": session.origin or NATIVE}
    if not tx.change("insert_session", **values, created_at=now):
        raise NameTaken(f"there is a session {session.label!r} already")
    named = tx.change(
        "insert_name", name=session.label, session_label=session.label, created_at=now, reason=None
    )
    if not named:
        raise NameTaken(f"{session.label!r} is an alias already")
    if session.thread_id is not None:
        tx.run("log_move", label=session.label, reason=reason)
        leaves.cover_move(tx, session.label)
    return Pointer(session.label, session.thread_id, session.persona_id, "active")


def check_label(tx: Transaction, label: str) -> None:
    """Refuse what cannot be a label or an alias."""
    check_text(label, "the name of a session")
    if not label or len(label) > LABEL_MAX:
        raise Refused(f"a label has 1 to {LABEL_MAX} characters, this one {len(label)}")
    check_is_no_turn(tx, label)


def check_is_no_turn(tx: Transaction, name: str) -> None:
    """Refuse a name that is a turn's id: the session would hide the turn."""
    if tx.run("turn_status", id=name):
        raise NameTaken(
            f"{name!r} is the id of a turn, and cannot name a session",
            "Choose another name; to go on from that turn, fork from it.",
        )


def check_is_no_name(tx: Transaction, turn_id: str) -> None:
    """Refuse a turn id that is the name of a session, which would hide the turn."""
    if tx.run("session", key=turn_id):
        raise NameTaken(
            f"{turn_id!r} is the name of a session, and cannot be the id of a turn",
            "Choose another id.",
        )


def create(tx: Transaction, session: Session) -> Session:
    """Create a session, empty or at a turn."""
    if session.parent_turn_id is not None or session.spawn_tool_call_id is not None:
        raise Refused(
            "a session cannot name the call that spawned it",
            "Spawn it from the call: ToolCall(spawned_session_label=...), or call.spawn() live.",
        )
    if session.thread_id is not None:
        session = _at(session, _sealed_turn(tx, session.thread_id))
    _create(tx, session, "fork" if session.created_as == "fork" else "move")
    annotations = {name: getattr(session, name) for name in ANNOTATIONS}
    if any(annotations.values()):
        annotate(tx, session.label, annotations)
    if session.status != "active":
        tx.run("set_session_status", label=session.label, status=session.status)
    return get(tx, session.label, exact=True)


def _at(session: Session, turn_id: str | None) -> Session:
    fields = {name: getattr(session, name) for name in Session.__struct_fields__}
    return Session(**{**fields, "thread_id": turn_id})


def _sealed_turn(tx: Transaction, target: str) -> str:
    """The id of a target's turn. Refused unless it is sealed: only then a head may point to it."""
    turn_id = threads.resolve_turn(tx, target)
    _check_sealed(tx, turn_id)
    return turn_id


def _check_sealed(tx: Transaction, turn_id: str) -> None:
    status = tx.run("turn_status", id=turn_id)[0][0]
    if status in ("pending", "streaming"):
        raise Refused(f"turn {turn_id} is still being written", "Wait until it is sealed.")


def fork(
    tx: Transaction,
    target: str,
    *,
    label: str | None = None,
    before: bool = False,
    persona_id: str | None = None,
) -> Session:
    """Create a session at a turn, or at its parent. Nothing is copied.

    It gets the persona of the target session, which may be narrower than that of its turns, or else
    of the turn.
    """
    # Locked before its head is read: a task that is derived again may replace its last turn.
    pointer = _find_renamed(tx, target)
    turn_id = pointer.thread_id if pointer else threads.resolve_turn(tx, target)
    if turn_id is None:
        raise Refused(f"session {target!r} is empty", "Fork from a turn.")
    _check_sealed(tx, turn_id)
    # The session's own persona first: it may have been demoted since its last turn, and a fork must
    # not regain what it lost.
    own = pointer.persona_id if pointer else threads.place_of(tx, turn_id).persona_id
    persona = persona_id or own or DEFAULT_PERSONA
    head: str | None = turn_id
    if before:
        head = tx.run("turn_parent", id=turn_id)[0][0]
    session = Session(label or f"fork-{new_id()}", head, persona, created_as="fork")
    _create(tx, session, "fork")
    return get(tx, session.label, exact=True)


def spawn(tx: Transaction, child: Session, parent: Pointer, turn_id: str, call_id: str) -> None:
    """Link a subagent's session to the call that spawned it, creating it if need be."""
    if child.label == parent.label:
        raise Refused(f"session {child.label!r} cannot spawn itself")
    pointer = find(tx, child.label, exact=True)
    if pointer is None:
        fields = {name: getattr(child, name) for name in Session.__struct_fields__}
        linked = {
            "persona_id": parent.persona_id if child.persona_id == "main" else child.persona_id,
            "created_as": "subagent",
            "is_subagent": True,
            "parent_session_label": parent.label,
            "parent_turn_id": turn_id,
            "spawn_tool_call_id": call_id,
        }
        _create(tx, Session(**{**fields, **linked}))
        return
    # Matches only a session that nothing has spawned yet: a subagent belongs to one call.
    linked_now = tx.change(
        "link_subagent",
        label=child.label,
        parent_session_label=parent.label,
        parent_turn_id=turn_id,
        spawn_tool_call_id=call_id,
    )
    if not linked_now:
        raise Refused(f"session {child.label!r} was spawned by another call")


# -- the head ---------------------------------------------------------------------------------


def move_head(
    tx: Transaction,
    label: str,
    *,
    from_: str | None,
    to: str | None,
    reason: MoveReason,
    at: int | None = None,
) -> None:
    """Move a session's head by compare-and-set, and log the move.

    Two writers may have read the same head. The first one wins, the second gets HeadMoved. The move
    to a turn that is recorded is covered by the leaf of the turn, which the caller adds.
    """
    if not tx.change(
        "move_head",
        label=label,
        from_turn=from_,
        to_turn=to,
        now=at or now_ms(),
        is_import=int(reason == "import"),
    ):
        raise HeadMoved(label, expected=from_, found=existing(tx, label, exact=True).thread_id)
    tx.run("log_move", label=label, reason=reason)
    if reason != "record":
        leaves.cover_move(tx, label)


def move_heads(tx: Transaction, moves: Sequence[tuple[str, str | None, str]], *, at: int) -> None:
    """move_head() for several sessions, each to a turn that was just recorded."""
    moved = tx.run_many(
        "move_head",
        [
            Row(label=label, from_turn=from_, to_turn=to, now=at, is_import=0)
            for label, from_, to in moves
        ],
    )
    # Which one moved is not known here. After a Conflict group commit runs each turn by itself,
    # where the loser gets its own HeadMoved.
    if moved != len(moves):
        raise Conflict("a session moved while it was written to")
    tx.run_many("log_move", [Row(label=label, reason="record") for label, *_ in moves])


def lead_heads(tx: Transaction, turn_id: str, to: str) -> None:
    """Redirect heads, imported heads and moves from a turn to its successor."""
    for statement in ("lead_history", "lead_heads", "lead_imports"):
        tx.run(statement, turn_id=turn_id, to=to)


def move(tx: Transaction, key: str, target: str, *, expected: Any, reason: MoveReason) -> Session:
    """Move a head to any sealed turn. `expected`: the head the caller saw, `...` for any."""
    session = existing(tx, key)
    to = _sealed_turn(tx, target)
    if reason == "rollback":
        _check_ancestor(tx, to, session)
    from_ = session.thread_id if expected is ... else expected
    move_head(tx, session.label, from_=from_, to=to, reason=reason)
    return get(tx, session.label, exact=True)


def _check_ancestor(tx: Transaction, turn_id: str, session: Pointer) -> None:
    if session.thread_id is None or not threads.on_thread(tx, turn_id, session.thread_id):
        raise Refused(
            f"turn {turn_id} is not on the thread of session {session.label!r}",
            "Roll back to an ancestor of its head, or move it.",
        )


def clear(tx: Transaction, key: str) -> Session:
    session = existing(tx, key)
    move_head(tx, session.label, from_=session.thread_id, to=None, reason="clear")
    return get(tx, session.label, exact=True)


def undo(tx: Transaction, key: str, move_id: int | None = None) -> Session:
    """Move a head to where it was before a move, by default the last. Undoing twice restores it."""
    session = existing(tx, key)
    if move_id is None:
        last = tx.run("last_move_of", label=session.label)
        if not last:
            raise Refused(f"session {session.label!r} never moved: there is nothing to undo")
        move_id = last[0][0]
    elif not tx.run("move_exists", label=session.label, move_id=move_id):
        raise NotFound(
            f"session {session.label!r} has no move {move_id}",
            "List its moves with `agents-ledger history`.",
        )
    rows = tx.run("move_before", label=session.label, move_id=move_id)
    to = rows[0][0] if rows else None
    move_head(tx, session.label, from_=session.thread_id, to=to, reason="undo")
    return get(tx, session.label, exact=True)


def note(tx: Transaction, label: str, reason: MoveReason) -> None:
    """Log what happened to a session whose head stays where it is."""
    head = existing(tx, label, exact=True).thread_id
    move_head(tx, label, from_=head, to=head, reason=reason)


# -- what is known of a session ---------------------------------------------------------------


def get(tx: Transaction, key: str, *, exact: bool = False) -> Session:
    """A session by label or alias; with `exact` only by label, also if it was merged."""
    check_text(key, "the name of a session")
    rows = tx.run("session_exactly" if exact else "session", key=key)
    if not rows:
        raise NotFound(f"there is no session {key!r}")
    return to_session(rows[0])


def list_(
    tx: Transaction,
    *,
    status: SessionStatus | None,
    persona_id: str | None,
    origin: str | None,
    parent: str | None,
    limit: int,
    after: Session | None,
) -> tuple[Session, ...]:
    """Sessions, latest first; see Ledger.sessions."""
    check_number(limit, "limit", 1)
    if after is not None and not isinstance(after, Session):
        raise Refused(f"after is {after!r:.80}", "Pass the last Session of the page before.")
    rows = tx.run(
        "list_sessions",
        status=status,
        persona_id=persona_id,
        origin=origin,
        parent=parent,
        before_at=after.updated_at if after else LATEST,
        after_label=after.label if after else "",
        limit=limit,
    )
    return tuple(to_session(row) for row in rows)


def set_status(tx: Transaction, key: str, status: SessionStatus) -> Session:
    _check_word("status", status, SessionStatus)
    session = existing(tx, key)
    tx.run("set_session_status", label=session.label, status=status)
    return get(tx, session.label, exact=True)


def update(tx: Transaction, key: str, changes: dict[str, Any]) -> Session:
    _check_names(changes, CHANGEABLE)
    _check_texts(changes)
    if changes.get("task_status") is not None:
        _check_word("task_status", changes["task_status"], TaskStatus)
    session = get(tx, key)
    values = {name: changes.get(name, getattr(session, name)) for name in CHANGEABLE}
    values["origin"] = values["origin"] or NATIVE
    tx.run("update_session", label=session.label, **values)
    return get(tx, session.label, exact=True)


def _check_names(changes: dict[str, Any], changeable: tuple[str, ...]) -> None:
    unknown = sorted(set(changes) - set(changeable))
    if unknown:
        raise Refused(
            f"{unknown[0]!r} cannot be changed here", f"What can be: {', '.join(changeable)}."
        )


def _check_word(name: str, value: object, words: object) -> None:
    if value not in get_args(words):
        raise Refused(f"{name} is {value!r:.80}", f"It is one of {', '.join(get_args(words))}.")


def _check_texts(changes: dict[str, Any]) -> None:
    for name, value in changes.items():
        if value is not None and not isinstance(value, str):
            raise Refused(f"{name} is {value!r:.80}", "It is text, or None.")


def annotate(tx: Transaction, key: str, changes: dict[str, Any]) -> Session:
    """Change a session's title, star or note; fields that are not named stay."""
    _check_names(changes, ANNOTATIONS)
    starred = changes.get("starred", False)
    if starred not in (False, True):
        raise Refused(f"starred is {starred!r:.80}", "It is True or False.")
    _check_texts({name: value for name, value in changes.items() if name != "starred"})
    session = get(tx, key)
    tx.run(
        "annotate",
        label=session.label,
        title=changes.get("title", session.title),
        starred=int(changes.get("starred", session.starred)),
        note=changes.get("note", session.note),
    )
    return get(tx, session.label, exact=True)


def sessions_including(tx: Transaction, target: str) -> tuple[str, ...]:
    """The labels of all sessions whose head was ever at a turn or a descendant of it."""
    turn_id = threads.resolve_turn(tx, target)
    return tuple(row[0] for row in tx.run("sessions_including", turn_id=turn_id))
