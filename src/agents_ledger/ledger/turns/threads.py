"""Threads: the place of a turn in the tree, and every question about ancestry."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import itemgetter

from msgspec import Struct, structs
from msgspec.structs import asdict

from agents_ledger.ledger.turns.contents import NO_STEPS, Stretch, steps_of
from agents_ledger.model.agents import config as configs
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.errors import Ambiguous, NameTaken, NotFound, Refused
from agents_ledger.model.sessions import Thread
from agents_ledger.model.turns import Turn, Usage, check_number, check_text
from agents_ledger.store.database import Transaction
from agents_ledger.store.rows import to_compaction, to_turn

_DEPTH = itemgetter(-1)
PREFIX_MIN = 4
DEEPEST = 1 << 62


class TurnPlace(Struct, frozen=True, gc=False):
    """Segment and depth of a turn, and the metrics of its thread."""

    segment_id: int
    depth: int
    input_tokens: int = 0
    output_tokens: int = 0
    cached_input_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    total_tokens: int = 0
    compaction_count: int = 0
    compaction_turn_id: str | None = None
    model: str | None = None
    provider: str | None = None
    persona_id: str | None = None
    system_prompt_hash: str | None = None
    thread_key: str | None = None


ABOVE_ROOT = TurnPlace(0, 0)


def place_of(tx: Transaction, turn_id: str | None) -> TurnPlace:
    """The place of a turn; ABOVE_ROOT for None."""
    if turn_id is None:
        return ABOVE_ROOT
    rows = tx.run("place", turn_id=turn_id)
    if not rows:
        raise NotFound(f"there is no turn {turn_id}")
    return TurnPlace(*rows[0])


def below(
    parent: TurnPlace,
    *,
    usage: Usage,
    model: str | None,
    provider: str | None,
    persona_id: str | None,
    system_prompt_hash: str | None,
    thread_key: str | None,
    compaction_turn_id: str | None,
) -> TurnPlace:
    """The next place in the segment of `parent`, with one more turn in the sums."""
    # Who summarised a thread does not go on with it.
    if compaction_turn_id is not None and parent.model is not None:
        model, provider = None, None
    return TurnPlace(
        parent.segment_id,
        parent.depth + 1,
        parent.input_tokens + (usage.input_tokens or 0),
        parent.output_tokens + (usage.output_tokens or 0),
        parent.cached_input_tokens + (usage.cached_input_tokens or 0),
        parent.cache_write_tokens + (usage.cache_write_tokens or 0),
        parent.reasoning_tokens + (usage.reasoning_tokens or 0),
        parent.total_tokens + (usage.total or 0),
        parent.compaction_count + (compaction_turn_id is not None),
        compaction_turn_id or parent.compaction_turn_id,
        parent.model if model is None else model,
        parent.provider if provider is None else provider,
        persona_id or parent.persona_id,
        system_prompt_hash or parent.system_prompt_hash,
        thread_key,
    )


def put(tx: Transaction, turn_id: str, place: TurnPlace, *, join: bool) -> TurnPlace:
    """Store a turn's place: after its parent if it may join and that is free, else in a new segment
    that forks there."""
    values = {"turn_id": turn_id, **structs.asdict(place)}
    if join and place.depth > 1 and tx.change("insert_place", **values):
        return place
    if place.depth == 1:
        opened = tx.run("open_root_segment")
    else:
        opened = tx.run("open_segment", parent_id=place.segment_id, fork_depth=place.depth - 1)
    own = structs.replace(place, segment_id=opened[0][0])
    if not tx.change("insert_place", **{**values, "segment_id": own.segment_id}):
        # Nothing else stands in a segment that was just opened.
        raise NameTaken(
            f"there is a thread with the key {place.thread_key!r} already",
            "Choose another thread_key, or record on the session of that thread.",
        )
    return own


def adopt(tx: Transaction, parent_id: str, parent: TurnPlace) -> TurnPlace:
    """Make a turn the parent of one recorded here; returns its place.

    A projected turn is frozen with all its ancestors: what recorded turns continue never changes.
    """
    # One statement for the usual parent, a turn recorded here; only an imported one needs the rest.
    marked = tx.change("mark_native_parent", id=parent_id)
    if marked or not tx.run("turn_projected", id=parent_id)[0][0]:
        return parent
    # On a server an import may be moving the turn: its place is read again under the lock.
    tx.run("lock_projection")
    parent = place_of(tx, parent_id)
    tx.run("mark_parent", id=parent_id)
    freeze(tx, parent)
    return parent


def freeze(tx: Transaction, place: TurnPlace) -> None:
    segment_id, depth = place.segment_id, place.depth
    while raised := tx.run("freeze", id=segment_id, depth=depth):
        if raised[0][0] is None:
            return
        segment_id, depth = raised[0]


def settle(
    tx: Transaction, turn_id: str, own_segment: int, place: TurnPlace, *, failed: bool
) -> None:
    """Store the sums at a turn that was live; `place` follows from its parent. A failed one leaves
    the place behind its parent, for a turn that completes: failures never nest."""
    tx.run("settle_place", turn_id=turn_id, **structs.asdict(place))
    if failed and own_segment == place.segment_id:
        opened = tx.run("open_segment", parent_id=place.segment_id, fork_depth=place.depth - 1)
        tx.run("move_place", turn_id=turn_id, segment_id=opened[0][0])


# -- finding turns ----------------------------------------------------------------------------


def resolve(tx: Transaction, target: str, *, exact: bool = False) -> str | None:
    """The turn of a target: a session's head (None if it is empty), or a turn by its id or a prefix
    of it."""
    check_text(target, "a session or turn")
    rows = tx.run("session_exactly" if exact else "session", key=target)
    if rows:
        head: str | None = rows[0][1]
        return head
    return resolve_turn(tx, target)


def resolve_turn(tx: Transaction, target: str, *, prefix_min: int = PREFIX_MIN) -> str:
    """A turn by its id or a prefix of it."""
    check_text(target, "a session or turn")
    if tx.run("turn_status", id=target):
        return target
    if len(target) >= prefix_min:
        # ULIDs are stored in upper case, and people type them in either.
        for prefix in dict.fromkeys((target, target.upper())):
            rows = tx.run("turns_by_prefix", prefix=prefix, upper=prefix + "\U0010ffff")
            if len(rows) == 1:
                return str(rows[0][0])
            if rows:
                raise _ambiguous("turns begin with", target, [row[0] for row in rows])
    raise NotFound(f"there is no session or turn {target!r}")


def examples(names: Iterable[str]) -> str:
    """Two of several names for an error, and whether there are more."""
    first, second, *more = names
    return f"{first}, {second}{', ...' if more else ''}"


def shared_prefix(one: str, other: str) -> int:
    """The length of the prefix that two texts share."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(one), len(other)))


def _ambiguous(verb: str, typed: str, names: Sequence[str]) -> Ambiguous:
    """The error for a prefix of several names; its hint is what tells the first two apart."""
    first, second = (name.partition(typed)[2] for name in names[:2])
    missing = shared_prefix(first, second) + 1
    more = "1 more character" if missing == 1 else f"{missing} more characters"
    return Ambiguous(f"several {verb} {typed!r}: {examples(names)}", f"Give at least {more}.")


def lookup(tx: Transaction, typed: str, *, beginnings: bool = True) -> str:
    """The key or turn that resolve() accepts; or else the label of the session with this id in its
    source, or with an id or label that has this prefix. Whole ids come before prefixes, and
    sessions before turns: a session's only turn may have an id that begins with the session's."""
    if tx.run("session", key=typed) or tx.run("turn_stand", turn_id=typed):
        return typed
    label = _session_like(tx, typed, beginnings=beginnings)
    return label or resolve_turn(tx, typed, prefix_min=1 if beginnings else PREFIX_MIN)


def _session_like(tx: Transaction, typed: str, *, beginnings: bool) -> str | None:
    """The label of the one session that fits. Sessions of people are preferred to subagents."""
    ways = [("sessions_known_as", typed + "\1")] if typed else []
    if beginnings and typed:
        ways += [
            (name, typed + "\U0010ffff") for name in ("sessions_known_as", "sessions_labelled")
        ]
    for statement, upper in ways:
        rows = tx.run(statement, prefix=typed, upper=upper)
        if len(rows) == 1 or (rows and rows[0][1] != rows[1][1]):
            return str(rows[0][0])
        if rows:
            labels = [str(row[0]) for row in rows if row[1] == rows[0][1]]
            raise _ambiguous("sessions fit", typed, labels)
    return None


# -- reading ----------------------------------------------------------------------------------


def thread(
    tx: Transaction,
    target: str,
    *,
    last: int | None = None,
    from_depth: int = 1,
    to_depth: int | None = None,
    exact: bool = False,
) -> Thread:
    """The thread of a target; see Ledger.thread."""
    check_text(target, "a session or turn")
    if last is not None and last < 0:
        raise Refused(f"last is {last}; it must not be negative")
    rows = [] if exact else tx.run("session_stand", key=target)
    if not rows:
        turn_id = resolve(tx, target, exact=exact)
        rows = [(None,)] if turn_id is None else tx.run("turn_stand", turn_id=turn_id)
    turn_id, *stand = rows[0]
    if turn_id is None:
        return Thread(None)
    fork_depth, segment_id, *metrics = stand
    depth = metrics[0]
    if last is not None:
        from_depth = max(1, depth - last + 1)
    to_depth = depth if to_depth is None else min(to_depth, depth)
    within = Stretch(turn_id, segment_id, fork_depth, from_depth, to_depth)
    values = [turn_id, *metrics, _load(tx, within) if last != 0 else ()]
    return Thread(*values)


def turn(tx: Transaction, target: str) -> Turn:
    turn_id = resolve(tx, target)
    if turn_id is None:
        raise NotFound(f"session {target!r} is empty", "Record a turn on it first.")
    return exact_turn(tx, turn_id)


def of_message(tx: Transaction, message_id: str) -> Turn:
    rows = tx.run("message_turn", id=message_id)
    if not rows:
        raise NotFound(f"there is no message {message_id}")
    return exact_turn(tx, rows[0][0])


def exact_turn(tx: Transaction, turn_id: str) -> Turn:
    """turn() for an exact id."""
    depth = place_of(tx, turn_id).depth
    return load(tx, turn_id, depth, depth)[0]


def load(tx: Transaction, turn_id: str, from_depth: int, to_depth: int) -> tuple[Turn, ...]:
    """The turns of a thread between two depths, root first, with their messages and calls."""
    rows = tx.run("turn_stand", turn_id=turn_id)
    if not rows:
        return ()
    fork_depth, segment_id, depth = rows[0][1:4]
    within = Stretch(turn_id, segment_id, fork_depth, from_depth, min(to_depth, depth))
    return _load(tx, within)


def _load(tx: Transaction, stretch: Stretch) -> tuple[Turn, ...]:
    rows = tx.run("segment_turns" if stretch.in_segment else "thread_turns", **asdict(stretch))
    rows.sort(key=_DEPTH)
    steps_by_turn = steps_of(tx, stretch, rows)
    turns = []
    for row in rows:
        steps = steps_by_turn.get(row[0], NO_STEPS)
        compacted = compaction(tx, row[0]) if row[2] == "compaction" else None
        turns.append(to_turn(row, steps.messages, steps.tool_calls, compacted))
    return tuple(turns)


# -- questions about ancestry -----------------------------------------------------------------


def ancestry(tx: Transaction, target: str) -> tuple[str, ...]:
    turn_id = resolve(tx, target)
    if turn_id is None:
        return ()
    rows = tx.run("ancestry", turn_id=turn_id, from_depth=1, to_depth=DEEPEST)
    return tuple(turn_id for _, turn_id in sorted(rows))


def ancestor_at(tx: Transaction, target: str, depth: int) -> str | None:
    """The turn of a thread at a depth; None above its root and below its head."""
    check_number(depth, "depth")
    return above(tx, resolve(tx, target), depth)


def above(tx: Transaction, turn_id: str | None, depth: int) -> str | None:
    """ancestor_at() for an exact turn id."""
    rows = tx.run("ancestor_at", turn_id=turn_id, depth=depth) if depth > 0 else []
    return str(rows[0][0]) if rows else None


def is_ancestor(tx: Transaction, ancestor: str, descendant: str) -> bool:
    """Whether a turn is on the thread of another. Every turn is on its own."""
    first, second = resolve(tx, ancestor), resolve(tx, descendant)
    if first is None or second is None:
        return False
    return on_thread(tx, first, second)


def on_thread(tx: Transaction, turn_id: str, head: str) -> bool:
    """is_ancestor() for exact turn ids."""
    depth = place_of(tx, turn_id).depth
    return tx.run("ancestor_at", turn_id=head, depth=depth) == [(turn_id,)]


def common_ancestor(tx: Transaction, first: str, second: str) -> str | None:
    """The deepest turn on both threads; None if they share none."""
    return shared(tx, resolve(tx, first), resolve(tx, second))


def shared(tx: Transaction, a: str | None, b: str | None) -> str | None:
    """common_ancestor() for exact turn ids."""
    rows = tx.run("common_ancestor", a=a, b=b)
    return str(rows[0][0]) if rows else None


def children(tx: Transaction, target: str) -> tuple[Turn, ...]:
    return tuple(to_turn(row) for row in tx.run("child_turns", turn_id=resolve(tx, target)))


def siblings(tx: Transaction, target: str) -> tuple[Turn, ...]:
    return tuple(to_turn(row) for row in tx.run("sibling_turns", turn_id=resolve(tx, target)))


def roots(tx: Transaction) -> tuple[Turn, ...]:
    """Every turn without a parent, oldest first, without their messages."""
    return tuple(to_turn(row) for row in tx.run("root_turns"))


def subtree(tx: Transaction, target: str, limit: int) -> tuple[Turn, ...]:
    rows = tx.run("subtree_turns", turn_id=resolve(tx, target), limit=limit)
    return tuple(to_turn(row) for row in rows)


def compaction(tx: Transaction, turn_id: str) -> Compaction | None:
    rows = tx.run("turn_compaction", turn_id=turn_id)
    return to_compaction(rows[0]) if rows else None


def compactions(tx: Transaction, target: str) -> tuple[Compaction, ...]:
    rows = tx.run("thread_compactions", turn_id=resolve(tx, target))
    return tuple(to_compaction(row) for row in rows)


def config_above(tx: Transaction, turn_id: str | None) -> tuple[str | None, str | None]:
    """The configuration that a child of a turn inherits, and the turn that set it."""
    rows = tx.run("config_above", turn_id=turn_id) if turn_id is not None else []
    return (rows[0][0], rows[0][1]) if rows else (None, None)


def effective_config(tx: Transaction, target: str) -> configs.EffectiveConfig:
    """The configuration of a turn, or else what a turn of its own would inherit there."""
    stored = turn(tx, target)
    if stored.effective_config_json is not None:
        return configs.decode(stored.effective_config_json)
    inherited, set_by = config_above(tx, stored.id)
    return configs.resolve(configs.Config(), configs.decode(inherited), set_by)


def system_prompt(tx: Transaction, target: str) -> str | None:
    rows = tx.run("system_prompt", hash=place_of(tx, resolve(tx, target)).system_prompt_hash)
    return str(rows[0][0]) if rows else None
