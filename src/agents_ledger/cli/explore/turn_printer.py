"""Prints turns: messages and tool calls in their order."""

from __future__ import annotations

from agents_ledger.cli.terminal import Output, Span, fit, lines_of
from agents_ledger.model.context.compaction import NO_MODEL, Compaction
from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Session, Thread
from agents_ledger.model.text import humanize
from agents_ledger.model.turns import OPEN_CALL, SEALED, Message, MessageFile, ToolCall, Turn
from agents_ledger.render import summaries
from agents_ledger.render.injected import injected_name, is_folded

LINES_MAX = 30  # per text without --full
TEXT_MAX = 4000
OUTCOME_MAX = 40
MARKS = {
    "completed": ("●", ""),
    "failed": ("✕", "bad"),
    "pending": ("◌", "live"),
    "streaming": ("◌", "live"),
}
DETAILS = (
    "workspace_path", "role", "toolset_name", "tools_available", "permissions_granted",
    "permissions_used", "source_event_id", "effective_config_json",
)  # fmt: skip


class TurnPrinter:
    """Prints turns, as a whole or step by step."""

    def __init__(self, out: Output, *, full: bool) -> None:
        self.out = out
        self.full = full
        self.now = now_ms()
        self._touched: set[tuple[str, str]] = set()  # the files of the turn's calls

    def session(self, session: Session, thread: Thread) -> None:
        facts = [
            humanize.count(thread.depth, "turn"),
            f"{humanize.tokens(thread.total_tokens)} tokens",
            humanize.count(thread.compaction_count, "compaction")
            if thread.compaction_count
            else "",
            thread.model or "",
            "" if session.status == "active" else session.status,
            f"updated {humanize.age(session.updated_at, self.now)}",
        ]
        star = "★ " if session.starred else ""
        title = f"  {star}{session.title}" if session.title else f"  {star}".rstrip()
        self.out.wrapped("", (session.label, "label"), (title, "title"))
        self.out.wrapped("", (" · ".join(filter(None, facts)), "dim"))
        if session.note:
            self.out.text(session.note, "  note: ", "dim")
        if session.parent_session_label:
            self.out.line(("subagent of ", "dim"), session.parent_session_label)
        self.out.line()

    def turn(self, turn: Turn, depth: int, partial: str | None) -> None:
        self.begin(turn, depth)
        for step in turn.steps:
            self.step(step)
        if partial:
            self.out.line("  ", ("assistant, so far", "live"))
            self._body(partial)
        self.end(turn)

    def begin(self, turn: Turn, depth: int) -> None:
        self._touched = {
            file for call in turn.tool_calls for file in touched(call.tool_name, call.params_json)
        }
        mark, style = MARKS[turn.status]
        if turn.compaction is not None:
            mark, style = "▬", "seam"
        self.out.line(
            (mark, style), " ", (turn.id, "id"), f"  turn {turn.depth} of {max(depth, turn.depth)}"
        )
        self.out.text(" · ".join(_facts(turn, self.now)), "  ", "dim")
        if self.full:
            self._details(turn)
        if turn.compaction is not None:
            self._compaction(turn, turn.compaction)

    def step(self, step: Message | ToolCall) -> None:
        if isinstance(step, Message):
            self._message(step)
        else:
            self._call(step)

    def end(self, turn: Turn) -> None:
        if turn.error is not None:
            self.out.line("  ", ("failed", "bad"))
            self._body(turn.error)
        self.out.line()

    def _details(self, turn: Turn) -> None:
        for name in DETAILS:
            value = getattr(turn, name)
            if value not in (None, "unified"):
                self.out.line("  ", (f"{name.removesuffix('_json')}: ", "dim"), str(value))

    def _compaction(self, turn: Turn, record: Compaction) -> None:
        word = "summary" if record.summary else "compaction"
        self.out.line("  ", (word, "seam"), (f"  {summaries.compacted(turn)}", "dim"))
        self.out.line("    ", ("through ", "dim"), (record.summarized_through_turn_id, "id"))
        if record.first_kept_turn_id:
            self.out.line("    ", ("kept from ", "dim"), (record.first_kept_turn_id, "id"))
        if record.model != NO_MODEL:
            self.out.line("    ", ("summarised by ", "dim"), record.model)
        if record.summary:
            self._body(record.summary)

    def _message(self, message: Message) -> None:
        source = message.source if message.source not in (None, "human") else ""
        if message.thinking:
            self.out.line("  ", ("thinking", "dim"))
            self._body(message.thinking, "dim")
        if is_folded(message) and not self.full:
            size = humanize.size(len(message.content or ""))
            self.out.line("  ", (injected_name(message), "title"), (f"  {size}", "dim"))
        elif self._has_text(message):
            self.out.line("  ", (message.role, "title"), (f"  {source}", "dim"))
            if message.content:
                self._body(message.content)
        self._message_details(message)

    def _message_details(self, message: Message) -> None:
        for file in self._files(message):
            at = f":{file.line_start}" if file.line_start is not None else ""
            at += f"-{file.line_end}" if file.line_end is not None else ""
            self.out.wrapped("    ", (f"{file.kind} {file.file_path}{at}", "dim"))
        for lint in message.lints:
            where = f"{lint.file_path or ''}:{lint.start_line or ''}"
            self.out.wrapped("    ", (f"{lint.severity or 'lint'} {where} {lint.message}", "dim"))
        if self.full:
            for block in message.codeblocks:
                self.out.line(
                    "    ", (f"code {block.language or ''} {block.file_path or ''}", "dim")
                )
                self._body(block.content)

    def _files(self, message: Message) -> list[MessageFile]:
        """The files of a message; those of the turn's calls are in the lines of the calls."""
        return [file for file in message.files if (file.kind, file.file_path) not in self._touched]

    def _has_text(self, message: Message) -> bool:
        """Whether the role line is printed. A message of a user always is: it may be an image."""
        if message.content and not message.content.isspace():
            return True
        has_details = self._files(message) or message.lints or (self.full and message.codeblocks)
        return not message.thinking and (message.role == "user" or bool(has_details))

    def _call(self, call: ToolCall) -> None:
        outcome = fit(summaries.outcome(call, most=OUTCOME_MAX), OUTCOME_MAX)
        room = self.out.width - len(outcome) - 8 if self.out.is_terminal else 10_000
        name = fit(call.tool_name, max(room, 8))
        argument = fit(summaries.argument(call.params_json), max(room - len(name) - 1, 8))
        spans: list[Span] = [
            "  ",
            ("▸ " + name, "tool"),
            " ",
            argument,
            "  ",
            (outcome, _style(call)),
        ]
        self.out.line(*spans)
        if self.full:
            self._body(summaries.pretty(call.params_json), "dim")
            for text in (call.result_json, call.error):
                if text is not None:
                    self._body(summaries.pretty(text))
        if call.spawned_session_label:
            self.out.line("    ", ("spawned ", "dim"), (call.spawned_session_label, "label"))

    def _body(self, text: str, style: str = "") -> None:
        lines = lines_of(text)
        if self.full or (len(lines) <= LINES_MAX and len(text) <= TEXT_MAX):
            self.out.text(text, "    ", style)
            return
        self.out.text("\n".join(lines[:LINES_MAX])[:TEXT_MAX], "    ", style)
        self.out.line("    ", (f"… of {humanize.size(len(text))} (--full)", "dim"))


def status_word(turn: Turn) -> str:
    """The status; an imported turn that is not sealed is unanswered, not being written."""
    return "unanswered" if turn.projected and turn.status not in SEALED else turn.status


def _facts(turn: Turn, now: int) -> list[str]:
    took = ""
    if turn.completed_at is not None and turn.completed_at > turn.started_at:
        took = f" in {humanize.duration(turn.completed_at - turn.started_at)}"
    kinds = (
        (turn.input_tokens, "tokens in"),
        (turn.output_tokens, "out"),
        (turn.cached_input_tokens, "cached"),
        (turn.reasoning_tokens, "reasoning"),
    )
    spent = [f"{humanize.tokens(number)} {word}" for number, word in kinds if number]
    facts = [
        f"{status_word(turn)}{took}",
        turn.model or "",
        ", ".join(spent),
        humanize.age(turn.started_at, now),
    ]
    return [fact for fact in facts if fact]


def _style(call: ToolCall) -> str:
    if call.status == "completed":
        return "dim"
    return "live" if call.status in OPEN_CALL else "bad"
