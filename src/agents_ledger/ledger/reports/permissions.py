"""Which tools were used, and which calls lacked permission."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from agents_ledger.ledger.sessions.heads import LATEST
from agents_ledger.model.agents import permissions
from agents_ledger.model.agents.permissions import Misuse, MisusedCall, PermissionReview, ToolUse
from agents_ledger.model.turns import check_time
from agents_ledger.store.database import Transaction

# Consecutive turns mostly have the same grants.
_granted = lru_cache(1024)(permissions.decode)
_available = lru_cache(1024)(permissions.decode_names)


class _JudgedCall(NamedTuple):
    turn_id: str
    id: str
    tool_name: str
    status: str
    started_at: int
    persona_id: str
    tools_available: str | None
    permissions_granted: str | None


def review(
    tx: Transaction, *, persona_id: str | None, since: int | None, until: int | None
) -> PermissionReview:
    for name, at in (("since", since), ("until", until)):
        if at is not None:
            check_time(at, name)
    period = {
        "persona_id": persona_id,
        "since": 0 if since is None else since,
        "until": LATEST if until is None else until,
    }
    misuses: list[MisusedCall] = []
    calls: dict[tuple[str, str], list[_JudgedCall]] = defaultdict(list)
    wrong: dict[tuple[str, str, Misuse], int] = defaultdict(int)
    unchecked: int = tx.run("unjudged_calls", **period)[0][0]
    for row in tx.run("judged_calls", **period):
        call = _JudgedCall(*row)
        unchecked += _is_unreadable(call)
        calls[call.persona_id, call.tool_name].append(call)
        for what in _misuses(call):
            wrong[call.persona_id, call.tool_name, what] += 1
            misuses.append(
                MisusedCall(
                    call.turn_id,
                    call.id,
                    call.tool_name,
                    call.persona_id,
                    call.started_at,
                    what,
                )
            )
    uses = tuple(
        ToolUse(
            persona,
            tool,
            len(made),
            wrong[persona, tool, "not granted"],
            wrong[persona, tool, "not available"],
            wrong[persona, tool, "rejected"],
            min(call.started_at for call in made),
            max(call.started_at for call in made),
        )
        for (persona, tool), made in sorted(calls.items())
    )
    return PermissionReview(uses, tuple(misuses), unchecked)


def _is_unreadable(call: _JudgedCall) -> bool:
    """Whether what its turn had or was granted is in no known shape."""
    available, granted = call.tools_available, call.permissions_granted
    return (available is not None and _available(available) is None) or (
        granted is not None and _granted(granted) is None
    )


def _misuses(call: _JudgedCall) -> Iterator[Misuse]:
    """A rejected call was not made, so it needs no grant."""
    available = _available(call.tools_available)
    if available is not None and call.tool_name not in available:
        yield "not available"
    granted = _granted(call.permissions_granted)
    if call.status == "rejected":
        yield "rejected"
    elif granted is not None and not permissions.matches(call.tool_name, granted.tools):
        yield "not granted"
