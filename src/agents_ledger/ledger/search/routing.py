"""Routing: whatever is named, it ends at a turn.

One grammar for the command line, the bus and the API: `thread:ID`, `session:KEY`, `persona:ID`,
`thread_key:KEY`, `routing_key:KEY`, `smart:TEXT`. Without a kind, a session is meant, then a turn,
then a thread key, then a routing key.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, get_args

from agents_ledger.ledger.sessions import heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import Ambiguous, NotFound, Refused
from agents_ledger.model.reports.routing import Reason, Route, SmartFork, Target, TargetKind
from agents_ledger.store.database import Transaction

if TYPE_CHECKING:
    from agents_ledger.model.agents.embedding import Embedder

_KINDS: dict[str, TargetKind] = {kind: kind for kind in get_args(TargetKind)}
PROPOSALS = 5


def parse(text: str) -> Target:
    """A target as it was typed; a label may have colons of its own."""
    kind, colon, value = text.partition(":")
    if colon and kind.lower() in _KINDS:
        if not value.strip():
            raise Refused(f"{text!r} names nothing", f"Put what is meant behind {kind}:.")
        return Target(_KINDS[kind.lower()], value)
    if not text.strip():
        raise Refused("no target is named")
    return Target(None, text)


def route(
    tx: Transaction,
    target: Target,
    *,
    personas: Mapping[str, str],
    budget: int | None = None,
    embedder: Embedder | None = None,
) -> Route:
    """The turn a target leads to. `personas` names the main session of each that is not labelled by
    its own id."""
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
        found = _by_key(tx, target.kind, value)
        if found is None:
            raise NotFound(f"nothing has the {target.kind} {value!r}")
        return found
    return _any(tx, value)


def lookup(tx: Transaction, typed: str, *, beginnings: bool = True) -> str:
    """What a person typed, as the label of a session or the id of a turn: a target of this grammar,
    or what threads.lookup() knows. A label that looks like a target is a label."""
    return reasoned(tx, typed, beginnings=beginnings)[0]


def reasoned(
    tx: Transaction, typed: str, *, beginnings: bool = True
) -> tuple[str, tuple[Reason, ...]]:
    """The same, with the reasons that a smart target has for its turn."""
    target = parse(typed) if typed.strip() else Target(None, typed)
    if target.kind is None or tx.run("session", key=typed):
        return threads.lookup(tx, typed, beginnings=beginnings), ()
    found = route(tx, target, personas={})
    if target.kind != "smart":
        return str(found.session_label or found.turn_id), ()
    if found.turn_id is None:
        places = ", ".join(proposal.turn_id for proposal in found.proposals)
        raise Ambiguous("no turn fits that text well enough", f"The best are {places}.")
    return found.turn_id, found.proposals[0].reasons


def _any(tx: Transaction, value: str) -> Route:
    found = tx.run("session", key=value)  # which locks nothing
    if found:
        return Route("session", found[0][1], found[0][0])
    try:
        return Route("thread", threads.resolve_turn(tx, value))
    except NotFound:
        keyed = _by_key(tx, "thread_key", value) or _by_key(tx, "routing_key", value)
        if keyed is None:
            raise
        return keyed


def _persona(tx: Transaction, persona_id: str, personas: Mapping[str, str]) -> Route:
    label = personas.get(persona_id, persona_id)
    found = tx.run("session", key=label)
    if not found:
        raise NotFound(
            f"persona {persona_id!r} has no main session: there is no session {label!r}",
            "Record a turn on it, or name another in the policy.",
        )
    return Route("persona", found[0][1], found[0][0])


def _by_key(tx: Transaction, kind: TargetKind, value: str) -> Route | None:
    if kind == "thread_key":
        rows = tx.run("turn_by_thread_key", key=value)
        return Route("thread_key", rows[0][0]) if rows else None
    rows = tx.run("session_by_routing_key", key=value)
    return Route("routing_key", rows[0][1], rows[0][0]) if rows else None


def _smart(tx: Transaction, text: str, budget: int | None, embedder: Embedder | None) -> Route:
    found = proposed(tx, text, budget=budget, embedder=embedder)
    if not found.proposals:
        raise NotFound("no turn has to do with that text", "Name a session, or a persona.")
    first = found.proposals[0]
    if not is_sure(found):
        return Route("smart", None, None, found.confidence, found.proposals)
    return Route("smart", first.turn_id, first.session_label, found.confidence, found.proposals)


def proposed(
    tx: Transaction, text: str, *, budget: int | None, embedder: Embedder | None
) -> SmartFork:
    """Where to fork for a text; nothing is forked yet."""
    from agents_ledger.ledger.search import smart_routing

    confidence, proposals = smart_routing.propose(
        tx, text, limit=PROPOSALS, budget=budget, embedder=embedder
    )
    return SmartFork(None, confidence, proposals)


def is_sure(found: SmartFork) -> bool:
    """Whether the first proposal is good enough to be taken."""
    from agents_ledger.ledger.search import smart_routing

    return bool(found.proposals) and found.confidence >= smart_routing.CONFIDENT
