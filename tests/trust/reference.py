"""The ledger as plain dictionaries: what the state machine compares the real one with."""

from __future__ import annotations

from msgspec import Struct, field


class RefTurn(Struct):
    """A turn: what was said and done, in order, and how it ended."""

    parent: str | None
    steps: list[tuple[str, ...]]
    status: str = "pending"
    error: str | None = None
    tokens: int = 0
    summary: str | None = None
    streamed: str = ""
    label: str = ""  # the session it was begun on


class RefSession(Struct):
    """A session: where it points, and where it ever did."""

    head: str | None = None
    status: str = "active"
    history: list[tuple[str | None, str]] = field(default_factory=list)

    def move(self, head: str | None, reason: str) -> None:
        """Point to another turn."""
        self.head = head
        self.history.append((head, reason))


class Reference:
    """All of it."""

    def __init__(self) -> None:
        self.turns: dict[str, RefTurn] = {}
        self.sessions: dict[str, RefSession] = {}
        self.names: dict[str, str] = {}

    def find(self, key: str) -> RefSession | None:
        """The session a key leads to."""
        return self.sessions[self.names[key]] if key in self.names else None

    def create(self, label: str) -> RefSession:
        """A new, empty session."""
        self.names[label] = label
        self.sessions[label] = session = RefSession()
        return session

    def thread(self, turn: str | None) -> list[str]:
        """A turn and its ancestors, root first."""
        found: list[str] = []
        while turn is not None:
            found.append(turn)
            turn = self.turns[turn].parent
        return found[::-1]

    def common(self, first: str, second: str) -> str | None:
        """The deepest turn on both threads."""
        shared = [
            a for a, b in zip(self.thread(first), self.thread(second), strict=False) if a == b
        ]
        return shared[-1] if shared else None

    def children(self, turn: str) -> list[str]:
        """The turns that hang on a turn."""
        return sorted(id for id, other in self.turns.items() if other.parent == turn)

    def live(self) -> list[str]:
        """The turns still being written."""
        return [id for id, turn in self.turns.items() if turn.status == "pending"]

    def sealed(self) -> list[str]:
        """The turns that cannot change any more."""
        return [id for id, turn in self.turns.items() if turn.status != "pending"]

    def seal(self, id: str, error: str | None, last: str | None) -> None:
        """End a live turn: open calls are given up, `last` is its last message."""
        turn = self.turns[id]
        turn.steps = [
            (*step[:2], "cancelled") if step[0] == "call" and step[2] == "running" else step
            for step in turn.steps
        ]
        if last:
            turn.steps.append(("assistant", last))
        turn.status = "failed" if error else "completed"
        turn.error = error

    def merge(self, stays: str, goes: str) -> None:
        """Let all keys of one session lead to another."""
        self.names = {name: stays if to == goes else to for name, to in self.names.items()}
        self.sessions[goes].status = "archived"
