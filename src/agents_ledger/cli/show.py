"""show: what was said and done, turn by turn."""

from __future__ import annotations

from typing import Any

import click
import msgspec
from msgspec import to_builtins

from agents_ledger.cli import amounts
from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import Output, Span, fit, lines_of, note, one_line
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.errors import NotFound
from agents_ledger.model.ids import now_ms
from agents_ledger.model.sessions import Session, Thread
from agents_ledger.model.turns import SEALED, Message, ToolCall, Turn

LAST = 5
LINES_MAX = 30  # of one text, unless all is asked for
TEXT_MAX = 4000
MARKS = {
    "completed": ("●", ""),
    "failed": ("✕", "bad"),
    "pending": ("◌", "live"),
    "streaming": ("◌", "live"),
}
# Of a tool's parameters the one worth a line, the most telling first.
TELLING = (
    "command", "file_path", "path", "pattern", "query", "url", "description", "prompt", "name",
)  # fmt: skip
DETAILS = (
    "workspace_path", "role", "toolset_name", "tools_available", "permissions_granted",
    "permissions_used", "source_event_id", "effective_config_json",
)  # fmt: skip


@command
@click.argument("target", shell_complete=complete_target)
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help=f"So many turns.  [{LAST} of a session, 1 of a turn]",
)
@click.option("--full", is_flag=True, help="Whole texts, parameters and results.")
def show(run: Invocation, *, target: str, last: int | None, full: bool) -> None:
    """Show a turn, or the last turns of a session."""
    with run.reading() as ledger:
        session = _session(ledger, target)
        thread = ledger.thread(target, last=last or (LAST if session else 1))
        live = _live(ledger, session.label) if session else ()
        turns = (*thread.turns, *live)
        partial = {
            turn.id: ledger.partial_text(turn.id) for turn in turns if turn.status == "streaming"
        }
    if run.as_json:
        metrics = to_builtins(thread)
        del metrics["turns"]
        run.out.json(session=session, thread=metrics, turns=turns, partial=partial)
        return
    page = Page(run.out, full=full)
    if session is not None:
        page.session(session, thread)
    for turn in turns:
        page.turn(turn, thread.depth, partial.get(turn.id))
    above = thread.depth - len(thread.turns)
    if above:
        note((f"{amounts.count(above, 'turn')} above; --last N shows more.", "dim"))


def _session(ledger: Ledger, target: str) -> Session | None:
    try:
        return ledger.session(target)
    except NotFound:
        return None


def _live(ledger: Ledger, label: str) -> tuple[Turn, ...]:
    """The turns being written on a session; its head is not there yet."""
    found = (ledger.get_turn(turn_id) for turn_id in ledger.live_turns(label))
    return tuple(turn for turn in found if turn.status not in SEALED)


class Page:
    """Turns printed one below the other."""

    def __init__(self, out: Output, *, full: bool) -> None:
        self.out = out
        self.full = full
        self.now = now_ms()

    def session(self, session: Session, thread: Thread) -> None:
        """A session's own lines."""
        facts = [
            amounts.count(thread.depth, "turn"),
            f"{amounts.tokens(thread.total_tokens)} tokens",
            amounts.count(thread.compaction_count, "compaction") if thread.compaction_count else "",
            thread.model or "",
            "" if session.status == "active" else session.status,
            f"updated {amounts.age(session.updated_at, self.now)}",
        ]
        star = "★ " if session.starred else ""
        title = f"  {star}{session.title}" if session.title else f"  {star}".rstrip()
        self.out.line((session.label, "label"), (title, "title"))
        self.out.line((" · ".join(fact for fact in facts if fact), "dim"))
        if session.note:
            self.out.text(session.note, "  note: ", "dim")
        if session.parent_session_label:
            self.out.line(("subagent of ", "dim"), session.parent_session_label)
        self.out.line()

    def turn(self, turn: Turn, depth: int, partial: str | None) -> None:
        """One turn with all that happened in it, in its order."""
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
        for step in turn.steps:
            if isinstance(step, Message):
                self._message(step)
            else:
                self._call(step)
        if partial:
            self.out.line("  ", ("assistant, so far", "live"))
            self._body(partial)
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
        self.out.line("  ", ("summary", "seam"), (f"  {compacted(turn)}", "dim"))
        self.out.line("    ", ("through ", "dim"), (record.summarized_through_turn_id, "id"))
        if record.first_kept_turn_id:
            self.out.line("    ", ("kept from ", "dim"), (record.first_kept_turn_id, "id"))
        self._body(record.summary)

    def _message(self, message: Message) -> None:
        source = message.source if message.source not in (None, "human") else ""
        if message.thinking:
            self.out.line("  ", ("thinking", "dim"))
            self._body(message.thinking, "dim")
        if message.content or not message.thinking:
            self.out.line("  ", (message.role, "title"), (f"  {source}", "dim"))
            self._body(message.content or "")
        for file in message.files:
            lines = f":{file.line_start}" if file.line_start is not None else ""
            lines += f"-{file.line_end}" if file.line_end is not None else ""
            self.out.line("    ", (f"{file.kind} {file.file_path}{lines}", "dim"))
        for lint in message.lints:
            where = f"{lint.file_path or ''}:{lint.start_line or ''}"
            self.out.line("    ", (f"{lint.severity or 'lint'} {where} {lint.message}", "dim"))
        if self.full:
            for block in message.codeblocks:
                self.out.line(
                    "    ", (f"code {block.language or ''} {block.file_path or ''}", "dim")
                )
                self._body(block.content)

    def _call(self, call: ToolCall) -> None:
        outcome, style = _outcome(call)
        room = self.out.width - len(outcome) - 8 if self.out.is_terminal else 10_000
        name = fit(call.tool_name, max(room, 8))
        argument = fit(_argument(call.params_json), max(room - len(name) - 1, 8))
        spans: list[Span] = ["  ", ("▸ " + name, "tool"), " ", argument, "  ", (outcome, style)]
        self.out.line(*spans)
        if self.full:
            self._body(_pretty(call.params_json), "dim")
            for text in (call.result_json, call.error):
                if text is not None:
                    self._body(_pretty(text))
        if call.spawned_session_label:
            self.out.line("    ", ("spawned ", "dim"), (call.spawned_session_label, "label"))

    def _body(self, text: str, style: str = "") -> None:
        lines = lines_of(text)
        if self.full or (len(lines) <= LINES_MAX and len(text) <= TEXT_MAX):
            self.out.text(text, "    ", style)
            return
        shown = "\n".join(lines[:LINES_MAX])[:TEXT_MAX]
        self.out.text(shown, "    ", style)
        self.out.line("    ", (f"… of {amounts.size(len(text))}; --full shows all", "dim"))


def _facts(turn: Turn, now: int) -> list[str]:
    """What is to be said of a turn in a line."""
    took = ""
    if turn.completed_at is not None and turn.completed_at > turn.started_at:
        took = f" in {amounts.duration(turn.completed_at - turn.started_at)}"
    kinds = (
        (turn.input_tokens, "tokens in"),
        (turn.output_tokens, "out"),
        (turn.cached_input_tokens, "cached"),
        (turn.reasoning_tokens, "reasoning"),
    )
    spent = [f"{amounts.tokens(number)} {word}" for number, word in kinds if number]
    facts = [
        f"{turn.status}{took}",
        turn.model or "",
        ", ".join(spent),
        amounts.age(turn.started_at, now),
    ]
    return [fact for fact in facts if fact]


def compacted(turn: Turn) -> str:
    """What a compaction did, in a line."""
    record = turn.compaction
    if record is None:
        return ""
    count = amounts.count(record.turns_summarized, "turn") if record.turns_summarized else "turns"
    parts = [f"compacted {count} → summary"]
    if record.tokens_before is not None and record.tokens_after is not None:
        before, after = amounts.tokens(record.tokens_before), amounts.tokens(record.tokens_after)
        parts.append(f"{before} → {after} tokens")
    if record.trigger:
        parts.append(record.trigger)
    return " · ".join(parts)


def _argument(params_json: str) -> str:
    """The parameter that tells most, or all of them."""
    try:
        params = msgspec.json.decode(params_json)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return one_line(params_json)
    if not isinstance(params, dict):
        return one_line(params_json)
    for name in TELLING:
        if isinstance(params.get(name), str):
            return one_line(str(params[name]))
    return one_line(params_json) if params else ""


def _outcome(call: ToolCall) -> tuple[str, str]:
    took = ""
    if call.completed_at is not None and call.completed_at > call.started_at:
        took = f", {amounts.duration(call.completed_at - call.started_at)}"
    if call.status == "completed":
        return f"→ {amounts.size(len(call.result_json or ''))}{took}", "dim"
    if call.status in ("pending", "running"):
        return call.status, "live"
    return fit(f"{call.status}: {call.error or 'no reason given'}", 40), "bad"


def _pretty(text: str) -> str:
    """JSON with its nesting shown; other text as it is."""
    try:
        value: Any = msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
    if isinstance(value, str):
        return value
    return msgspec.json.format(text, indent=2)
