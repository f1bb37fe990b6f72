"""Copilot CLI: the content of one turn, from its events in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds
from agents_ledger.importers.sources.copilot import rules
from agents_ledger.importers.sources.copilot.records import message_source
from agents_ledger.importers.sources.copilot.tree import CopilotTree
from agents_ledger.importers.sources.copilot.turn_copies import CopilotCopies
from agents_ledger.importers.transcript.field_maps import as_params
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.turns import CallStatus, MessageFile, MessageRole, Turn


class CopilotTurns(LazyTurns):
    turn_tree: CopilotTree

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        tree, number = self.turn_tree, self.turn_tree.best(turn)
        copy = tree.copies.read(number)
        tokens, spawned = sorted(copy.tokens.items()), sorted(copy.spawned.items())
        about = (tokens, spawned, copy.model, copy.cwd), tree.is_followed(turn)
        fingerprints = tree.copies.fingerprints(number)
        return (*fingerprints, repr(about).encode(errors="replace")), tree.files(turn)

    def record_ids(self, turn: int) -> Iterable[str]:
        copies = self.turn_tree.copies
        return map(copies.event_name, copies.all_entries(self.turn_tree.best(turn)))

    def build(self, turn: int) -> Turn:
        tree = self.turn_tree
        content = CopilotTurnContent(tree.copies, tree.best(turn), self.parent_name(turn))
        return content.build(is_followed=tree.is_followed(turn))


class Refusal(NamedTuple):
    word: str
    reason: str
    at: int


class CopilotTurnContent:
    def __init__(self, copies: CopilotCopies, number: int, parent_id: str | None) -> None:
        self.copies = copies
        self.number = number
        self.copy = copies.read(number)
        self.name = copies.id(number)
        self.builder = TurnBuilder(self.name, parent_id, copies.entries.material.limits)
        # Of a subagent, as the call has it that started it.
        self.prompt = ""
        self.last_message: str | None = None  # of the agent
        self.reasoning: list[str] = []
        self.refusals: dict[str, Refusal] = {}  # by call
        self.with_result: set[str] = set()  # calls
        self.is_waiting = True  # for the last message of the agent

    def build(self, *, is_followed: bool) -> Turn:
        copies, builder = self.copies, self.builder
        for entry in copies.all_entries(self.number):
            event = copies.event(entry)
            builder.at = milliseconds(event.get("timestamp"))
            data = as_dict(event.get("data"))
            self._add(copies.entries.kind(entry), copies.event_name(entry), data)
        self._reject_without_result()
        builder.model, builder.workspace_path = self.copy.model, self.copy.cwd
        builder.add_tokens(**self.copy.tokens)
        return builder.build(is_followed=is_followed)

    def _add(self, kind: str, name: str, data: dict[str, Any]) -> None:
        if kind in (rules.PROMPT, rules.ADDED_PROMPT):
            self._prompt(name, data, is_added=kind == rules.ADDED_PROMPT)
        elif kind == "assistant.message":
            self._assistant(name, data)
        elif kind == "assistant.reasoning":
            self.reasoning += filter(None, [as_text(data.get("content"))])
        elif kind == "tool.execution_start":
            self._start(data)
        elif kind == "tool.execution_complete":
            self._result(name, data)
        elif kind == rules.COMPACTION:
            self._compaction(name, data)
        elif kind == "permission.completed":
            self._permission(data)
        else:
            self._notice(kind, name, data)

    # -- messages -----------------------------------------------------------------------------

    def _prompt(self, name: str, data: dict[str, Any], *, is_added: bool) -> None:
        if not is_added:
            self.builder.failed, self.builder.error = False, None
        content = as_text(data.get("content")) or ""
        has_time = rules.ADDED_TIME.search(content)
        text = (rules.ADDED_TIME.sub("", content).strip() if has_time else "") or content
        # A subagent's user.message may repeat the prompt of the call, which is shown already.
        if text.strip() and text.strip() == self.prompt.strip():
            return
        metadata = _present(data, rules.METADATA)
        sent = as_text(data.get("transformedContent")) or content
        attachments = [as_dict(attachment) for attachment in as_list(data.get("attachments"))]
        if attachments:
            metadata["attachments"] = without_data(attachments)
        source = message_source(data.get("source"), text)
        if not text and not attachments and sent:
            # Autopilot: the program tells the agent to continue.
            text, source = sent, "event"
        if self.copy.subagent and not is_added:
            source = "agent"
        paths = [as_text(attachment.get("path")) for attachment in attachments]
        self.builder.message(
            name,
            "user",
            text,
            source=source,
            metadata=metadata,
            context={"sent": sent} if sent != text else None,
            files=[MessageFile("attached", path) for path in paths if path],
        )

    def _notice(self, kind: str, name: str, data: dict[str, Any]) -> None:
        """Add a message of the program, or an error."""
        text = as_text(data.get("content")) or as_text(data.get("message"))
        metadata = {"event": kind} | {n: v for n, v in data.items() if n in ("kind", "errorType")}
        if kind == "session.error":
            # After the last word of an answer an error is a notice (seen with errorType "model").
            if self.is_waiting and rules.ends_turn(kind, data.get("errorType")):
                self.builder.failed, self.builder.error = True, text or "error"
        elif kind == "abort":
            text = f"Aborted: {as_text(data.get('reason')) or 'unknown'}"
            self.builder.error = self.builder.error or text
            # An abort after an answer ends the turn, but the answer was given.
            self.builder.failed = not self.builder.answered
        elif kind == "session.truncation":
            metadata |= data
        elif kind == "subagent.started":
            return
        role: MessageRole = "user" if kind == "system.notification" else "system"
        self.builder.notice(name, text, role=role, metadata=metadata)

    def _assistant(self, name: str, data: dict[str, Any]) -> None:
        reasoning = as_text(data.get("reasoningText"))
        if reasoning and reasoning not in self.reasoning:
            self.reasoning.append(reasoning)
        metadata = _present(data, rules.METADATA)
        if not self.reasoning and data.get("reasoningOpaque"):
            metadata["thinking_withheld"] = True
        self.builder.failed, self.builder.error = False, None
        text, thinking = as_text(data.get("content")) or "", "\n\n".join(self.reasoning) or None
        self.builder.message(name, "assistant", text, thinking=thinking, metadata=metadata)
        self.reasoning = []
        self.last_message, self.is_waiting = name, False
        for request in map(as_dict, as_list(data.get("toolRequests"))):
            self._call(as_text(request.get("name")), request)

    # -- tool calls ---------------------------------------------------------------------------

    def _start(self, data: dict[str, Any]) -> None:
        call_id = as_text(data.get("toolCallId"))
        if call_id is None or call_id != self.copy.subagent:
            self._call(as_text(data.get("toolName")) or as_text(data.get("name")), data)
            return
        self.prompt = as_text(_arguments(data).get("prompt")) or ""
        if self.prompt:
            self.builder.message(f"{self.name}:prompt", "user", self.prompt, source="agent")

    def _call(self, tool: str | None, request: dict[str, Any]) -> None:
        call_id = as_text(request.get("toolCallId"))
        if call_id is None:
            return
        self.is_waiting = True
        params = _arguments(request)
        is_view = tool == "str_replace_editor" and params.get("command") == "view"
        # The request in the message has added the files; tool.execution_start repeats it.
        is_first = "toolName" not in request
        self.builder.call(
            call_id,
            tool or "unknown",
            params,
            message_id=self.last_message,
            files=rules.FILE_TOOLS.files("view" if is_view else tool, params) if is_first else (),
            spawned=self.copy.spawned.get(call_id),
        )

    def _result(self, name: str, data: dict[str, Any]) -> None:
        call_id = as_text(data.get("toolCallId")) or ""
        refusal = self.refusals.get(call_id)
        result = data.get("result")
        value = without_data(as_dict(result).get("content", result))
        error = as_dict(data.get("error"))
        code = as_text(error.get("code"))
        status: CallStatus = "completed"
        message = None
        if data.get("success") is False:
            is_refused = refusal is not None or (code or "").startswith(rules.DENIED)
            status = "rejected" if is_refused else "failed"
            message = as_text(error.get("message")) or as_text(value) or "failed"
        word = code or (refusal.word if refusal else None)
        self.with_result.add(call_id)
        if not self.builder.result(
            call_id, value, status=status, error=message, source_status=word
        ):
            self.builder.lone_result(name, call_id or None, as_text(value))

    def _permission(self, data: dict[str, Any]) -> None:
        decision = as_dict(data.get("result"))
        word = as_text(decision.get("kind")) or ""
        call_id = as_text(data.get("toolCallId")) or ""
        if call_id and word.startswith(rules.DENIED):
            reason = as_text(decision.get("feedback")) or word
            self.refusals[call_id] = Refusal(word, reason, self.builder.at)
        elif word:
            self.refusals.pop(call_id, None)

    def _reject_without_result(self) -> None:
        """A refused call has no result where the user then aborts."""
        for call_id, (word, reason, at) in self.refusals.items():
            if call_id not in self.with_result:
                self.builder.result(
                    call_id, None, at=at, status="rejected", error=reason, source_status=word
                )

    def _compaction(self, name: str, data: dict[str, Any]) -> None:
        summary = as_text(data.get("summaryContent")) or ""
        metadata = _present(data, rules.COMPACTION_METADATA)
        self.builder.notice(name, summary, metadata=metadata)
        if self.builder.parent_id is None:
            return
        used = as_dict(data.get("compactionTokensUsed"))
        self.builder.compaction = Compaction(
            summary,
            self.builder.parent_id,
            tokens_before=as_number(data.get("preCompactionTokens")),
            tokens_after=as_number(data.get("postCompactionTokens")),
            summarization_input_tokens=_first_number(used, "inputTokens", "input"),
            summarization_output_tokens=_first_number(used, "outputTokens", "output"),
        )


def _present(data: dict[str, Any], names: Iterable[str]) -> dict[str, Any]:
    return {name: data[name] for name in names if data.get(name) not in (None, "")}


def _first_number(used: dict[str, Any], name: str, older_name: str) -> int | None:
    number = as_number(used.get(name))
    return number if number is not None else as_number(used.get(older_name))


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    arguments = request.get("arguments")
    value = parse_json(arguments) if isinstance(arguments, str) else None
    return as_params(value if isinstance(value, dict) else arguments)
