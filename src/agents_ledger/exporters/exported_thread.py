"""The thread that an export shows, with its subagents: read in batches, secrets masked."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from msgspec import Struct, structs

from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.reports.trees import Headline
from agents_ledger.model.secrets.masking import Masked, Masker
from agents_ledger.model.sessions import Session, Thread
from agents_ledger.model.turns import Message, ToolCall, Turn

BATCH_TURNS = 50
PROMPTS_MAX = 1000  # in the table of contents
NESTED_MAX = 5  # subagents of subagents

S = TypeVar("S", bound=Struct)

# The fields that may hold a secret: those with text of people and programs.
_TURN = (
    "error", "workspace_path", "tools_available", "permissions_granted", "permissions_used",
    "effective_config_json", "model", "toolset_name", "source_event_id",
)  # fmt: skip
_MESSAGE = ("content", "thinking", "context_json", "metadata_json")
_CALL = ("tool_name", "params_json", "result_json", "error")
_LINT = ("file_path", "message")
_CODEBLOCK = ("file_path", "content")
_COMPACTION = ("summary", "metadata_json")
_SESSION = ("label", "title", "note", "task_description", "metadata_json", "routing_key")


class ExportedThread:
    """A session or a turn with everything above it."""

    def __init__(
        self,
        ledger: Ledger,
        target: str,
        *,
        masker: Masker,
        last: int | None = None,
        subagents: bool = True,
        _inside: tuple[str, ...] = (),
    ) -> None:
        self._ledger = ledger
        self._masker = masker
        self._subagents = subagents
        self.session = _session(ledger, target)
        self.thread: Thread = ledger.thread(target, last=0)
        if self.thread.turn_id is None:
            raise Refused(f"session {target!r} is empty", "There is nothing to export.")
        if self.session is not None:
            self.session = self._mask(self.session, _SESSION, f"session {self.session.label}")
        label = self.session.label if self.session else self.thread.turn_id
        self._inside = (*_inside, label)
        self.first_depth = max(1, self.thread.depth - last + 1) if last else 1

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked of the turns read so far."""
        return self._masker.masked

    @property
    def is_masked(self) -> bool:
        return self._masker.on

    @property
    def title(self) -> str:
        if self.session is None:
            return f"Turn {self.thread.turn_id}"
        return self.session.title or self.session.task_description or self.session.label

    def turns(self) -> Iterator[Turn]:
        """The turns, root first, masked."""
        for depth in range(self.first_depth, self.thread.depth + 1, BATCH_TURNS):
            last = min(depth + BATCH_TURNS - 1, self.thread.depth)
            batch = self._ledger.thread(str(self.thread.turn_id), from_depth=depth, to_depth=last)
            for turn in batch.turns:
                yield self._masked(turn)

    def prompts(self) -> tuple[Headline, ...]:
        """The headlines of the turns; none if they are too many for a table of contents."""
        if self.thread.depth - self.first_depth >= PROMPTS_MAX:
            return ()
        ids = self._ledger.ancestry(str(self.thread.turn_id))[self.first_depth - 1 :]
        uncounted = Masker(on=self.is_masked)  # the turns themselves are counted
        return tuple(
            structs.replace(line, text=line.text and uncounted.text(line.text, ""))
            for line in self._ledger.headlines(ids)
        )

    def siblings(self, turn: Turn) -> tuple[Headline, ...]:
        """The other turns with the same parent."""
        if turn.parent_turn_id is None:
            return ()
        siblings = self._ledger.siblings(turn.id)
        return tuple(
            structs.replace(line, text=self._text(line.text, f"turn {line.short_id}"))
            for line in self._ledger.headlines(sibling.id for sibling in siblings)
        )

    def subagent(self, call: ToolCall) -> ExportedThread | None:
        """The thread of the subagent that a call started, if it is exported too."""
        label = call.spawned_session_label
        if not self._subagents or label is None or label in self._inside:
            return None
        # Subagents that spawn each other would never end.
        if len(self._inside) > NESTED_MAX:
            return None
        try:
            return ExportedThread(self._ledger, label, masker=self._masker, _inside=self._inside)
        except Refused:  # it has no turns yet
            return None

    # -- masking -------------------------------------------------------------------------------

    def _masked(self, turn: Turn) -> Turn:
        where = f"turn {turn.depth} ({turn.id})"
        compaction = turn.compaction
        if compaction is not None:
            compaction = self._mask(compaction, _COMPACTION, f"{where}, compaction")
        return structs.replace(
            self._mask(turn, _TURN, where),
            messages=tuple(self._message(message, where) for message in turn.messages),
            tool_calls=tuple(
                self._mask(call, _CALL, f"{where}, call {call.tool_name}")
                for call in turn.tool_calls
            ),
            compaction=compaction,
        )

    def _message(self, message: Message, where: str) -> Message:
        where = f"{where}, {message.role} message"
        masked = self._mask(message, _MESSAGE, where)
        if not message.has_details:
            return masked
        return structs.replace(
            masked,
            files=tuple(self._mask(file, ("file_path",), where) for file in message.files),
            lints=tuple(self._mask(lint, _LINT, where) for lint in message.lints),
            codeblocks=tuple(self._mask(b, _CODEBLOCK, where) for b in message.codeblocks),
        )

    def _mask(self, value: S, names: tuple[str, ...], where: str) -> S:
        if not self._masker.on:
            return value
        texts: dict[str, Any] = {name: getattr(value, name) for name in names}
        masked = {
            name: self._text(text, f"{where}, {name.removesuffix('_json')}")
            for name, text in texts.items()
            if text
        }
        return structs.replace(value, **masked)

    def _text(self, text: str | None, where: str) -> str | None:
        return None if text is None else self._masker.text(text, where)


def _session(ledger: Ledger, target: str) -> Session | None:
    try:
        return ledger.session(target)
    except NotFound:
        return None
