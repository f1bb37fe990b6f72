"""Routing: from a target to a turn.

One grammar for the command line, the bus and the API: `thread:ID`, `session:KEY`, `persona:ID`,
`thread_key:KEY`, `routing_key:KEY`, `smart:TEXT`. A target without a kind is a session, else a
turn, else a thread key, else a routing key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Ambiguous, NotFound, Refused
from agents_ledger.model.reports.routing import (
    Proposal,
    Route,
    SmartFork,
    Target,
    TargetKind,
)
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

_KINDS: dict[str, TargetKind] = {kind: kind for kind in get_args(TargetKind)}
PROPOSALS = 5
WORDS_SHOWN = 5


def parse(text: str) -> Target:
    """A target from its text; a label may contain colons."""
    kind, colon, value = text.partition(":")
    if colon and kind.lower() in _KINDS:
        if not value.strip():
            raise Refused(f"{text!r} has no value", f"Add one after {kind}:.")
        return Target(_KINDS[kind.lower()], value)
    if not text.strip():
        raise Refused("the target is empty")
    return Target(None, text)


def route(
    tx: Transaction,
    target: Target,
    *,
    personas: Mapping[str, str],
    budget: int | None = None,
    embedder: Embedder | None = None,
) -> Route:
    """The turn a target leads to; see Ledger.route."""
    value = target.value
    if target.kind == "smart":
        return _smart(tx, value, budget, embedder)
    if target.kind == "persona":
        return _persona(tx, value, personas)
    if target.kind == "session":
        session = heads.get(tx, value)
        return Route("session", session.thread_id, session.label)
    if target.kind == "thread":
        return Route("thread", threads.resolve_turn(tx, value))
    if target.kind is not None:
        keyed = _by_key(tx, target.kind, value)
        if keyed is None:
            raise NotFound(f"there is no {target.kind} {value!r}")
        return keyed
    return _any(tx, value)


def lookup(tx: Transaction, typed: str, *, beginnings: bool = True) -> str:
    """The label or turn id of a user's input: a target, or what threads.lookup() accepts. A label
    that looks like a target is a label."""
    return explained(tx, typed, beginnings=beginnings)[0]


def explained(tx: Transaction, typed: str, *, beginnings: bool = True) -> tuple[str, Route | None]:
    """lookup(), with the route of a smart target: its confidence, and proposals with reasons."""
    target = parse(typed) if typed.strip() else Target(None, typed)
    if target.kind is None or tx.run("session", key=typed):
        return threads.lookup(tx, typed, beginnings=beginnings), None
    routed = route(tx, target, personas={})
    if target.kind != "smart":
        return str(routed.session_label or routed.turn_id), None
    if routed.turn_id is None:
        best = "; ".join(map(_described, routed.proposals))
        raise Ambiguous(
            f"no turn fits that text well enough (confidence {routed.confidence:.2f})",
            f"Name one. The best are {best}.",
        )
    return routed.turn_id, routed


def _described(proposal: Proposal) -> str:
    words = [word for reason in proposal.reasons[:1] for word in (*reason.terms, *reason.files)]
    about = f", which mentions {', '.join(words[:WORDS_SHOWN])}" if words else ""
    return f"{proposal.turn_id}{about}"


def _any(tx: Transaction, value: str) -> Route:
    rows = tx.run("session", key=value)  # unlike heads.find() this locks nothing
    if rows:
        return Route("session", rows[0][1], rows[0][0])
    try:
        return Route("thread", threads.resolve_turn(tx, value))
    except NotFound:
        keyed = _by_key(tx, "thread_key", value) or _by_key(tx, "routing_key", value)
        if keyed is None:
            raise
        return keyed


def _persona(tx: Transaction, persona_id: str, personas: Mapping[str, str]) -> Route:
    label = personas.get(persona_id, persona_id)
    rows = tx.run("session", key=label)
    if not rows:
        raise NotFound(
            f"persona {persona_id!r} has no main session: there is no session {label!r}",
            "Record a turn on it, or set another main session in the policy.",
        )
    return Route("persona", rows[0][1], rows[0][0])


def _by_key(tx: Transaction, kind: TargetKind, value: str) -> Route | None:
    if kind == "thread_key":
        rows = tx.run("turn_by_thread_key", key=value)
        return Route("thread_key", rows[0][0]) if rows else None
    rows = tx.run("session_by_routing_key", key=value)
    return Route("routing_key", rows[0][1], rows[0][0]) if rows else None


def _smart(tx: Transaction, text: str, budget: int | None, embedder: Embedder | None) -> Route:
    fork = proposed(tx, text, budget=budget, embedder=embedder)
    if not fork.proposals:
        raise NotFound("no turn matches that text", "Name a session or a persona.")
    best = fork.proposals[0]
    if not is_sure(fork):
        return Route("smart", None, None, fork.confidence, fork.proposals)
    return Route("smart", best.turn_id, best.session_label, fork.confidence, fork.proposals)


def proposed(
    tx: Transaction, text: str, *, budget: int | None, embedder: Embedder | None
) -> SmartFork:
    """Where to fork for a text. Nothing is forked."""
    from agents_ledger.ledger.search import smart_routing

    confidence, proposals = smart_routing.propose(
        tx, text, limit=PROPOSALS, budget=budget, embedder=embedder
    )
    return SmartFork(None, confidence, proposals)


def is_sure(fork: SmartFork) -> bool:
    from agents_ledger.ledger.search import smart_routing

    return bool(fork.proposals) and fork.confidence >= smart_routing.CONFIDENT
