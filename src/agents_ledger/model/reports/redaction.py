"""What is removed from a ledger, what would be, and what was."""

from __future__ import annotations

from msgspec import Struct

from agents_ledger.model.errors import Refused

SCOPES = ("message", "call", "turn", "session", "project", "persona")


class Selection(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What to remove: values that match, within a scope; without a match, all its content.

    At most one of `pattern`, `text` and `kind`, and at most one scope.
    """

    pattern: str | None = None  # a regular expression
    text: str | None = None  # exactly this
    kind: str | None = None  # of secrets, as `agents-ledger secrets` names them; "all": every kind
    message: str | None = None  # its id
    call: str | None = None  # TURN/CALL
    turn: str | None = None  # its id, or a prefix of it
    session: str | None = None  # with its subagents
    project: str | None = None  # the path of its folder
    persona: str | None = None  # its id; the sessions of this persona

    @property
    def scope(self) -> str | None:
        """The name of the scope; None: the whole ledger."""
        return next((name for name in SCOPES if getattr(self, name) is not None), None)

    @property
    def matches(self) -> bool:
        """Whether values are matched; otherwise the whole content of the scope is removed."""
        return any(value is not None for value in (self.pattern, self.text, self.kind))

    def check(self) -> None:
        """Refused if it is ambiguous, or would remove everything."""
        matchers = [name for name in ("pattern", "text", "kind") if getattr(self, name) is not None]
        scopes = [name for name in SCOPES if getattr(self, name) is not None]
        if len(matchers) > 1 or len(scopes) > 1:
            raise Refused(
                f"{' and '.join(matchers if len(matchers) > 1 else scopes)} cannot be combined",
                "Give one of pattern, text and kind, and one scope.",
            )
        if not matchers and not scopes:
            raise Refused("nothing is selected", "Give a pattern, a text, a kind or a scope.")
        if "" in (self.pattern, self.text):
            raise Refused("an empty pattern matches everywhere")

    def described(self) -> dict[str, str]:
        """The selection without what was searched for."""
        named = {name: getattr(self, name) for name in ("kind", *SCOPES)}
        described = {name: value for name, value in named.items() if value is not None}
        for name in ("pattern", "text"):
            if getattr(self, name) is not None:
                described[name] = "(not kept)"
        return described


class RedactedPlace(Struct, frozen=True):
    """Values in one column of one row, as far as they may be shown."""

    table: str  # where they are
    column: str  # of the table
    key: str  # JSON list of the row's key
    turn_id: str | None
    session_label: str | None
    kind: str  # of the secret; match: of a text or pattern; content: of a scope
    shown: str  # the first characters of one of them
    count: int  # of values


class RedactionPreview(Struct, frozen=True):
    """What a redaction would remove. No value is in it whole."""

    places: tuple[RedactedPlace, ...]  # in rows
    turns: int  # that have one of the values
    sessions: tuple[str, ...]  # their labels
    files: tuple[str, ...]  # archived files that have some of the values
    spans: int  # in these files

    @property
    def count(self) -> int:
        """How many values in rows."""
        return sum(place.count for place in self.places)


class Redaction(Struct, frozen=True):
    """What a redaction removed."""

    id: str  # ULID
    reason: str  # in the words of who asked for it
    actor: str  # who asked for it
    selection: dict[str, str]  # what was selected, without the text or pattern
    started_at: int
    finished_at: int | None
    scrubbed_at: int | None  # None: the files may still hold what was removed
    purges: bool  # rows were deleted
    places: int  # values removed from rows
    spans: int  # and from archived files
    turns: int  # that had one of them
