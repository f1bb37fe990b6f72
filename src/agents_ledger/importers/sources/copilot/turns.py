"""Copilot CLI: the content of one turn, from its events in order."""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from agents_ledger.importers.sources.copilot.parts import ADDED, Parts, may_fail
from agents_ledger.importers.sources.copilot.prompts import written_by
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_number,
    as_text,
    parsed,
    without_data,
)
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import CallStatus, FileKind, MessageFile, Turn

FILE_TOOLS: dict[str, FileKind] = {
    "create": "written",
    "edit": "written",
    "str_replace_editor": "written",
    "view": "read",
}
TIME = r"<current_datetime>[^<]{0,64}</current_datetime>\s*"
TIMED = re.compile(rf"\A\s*{TIME}|{TIME}\Z")  # what old versions add to what was typed
DENIED = ("denied", "rejected")
KEPT = ("interactionId", "turnId", "messageId", "apiCallId", "delivery", "chunkIndex")


def build_turn(parts: Parts, number: int, parent_id: str | None, sealed: bool) -> Turn:
    """The turn that these events make. A sealed one has successors: it is no longer open."""
    return _Turn(parts, number, parent_id).built(sealed)


class _Refusal(NamedTuple):
    """That a call was not permitted."""

    word: str
    said: str
    at: int


class _Turn:
    def __init__(self, parts: Parts, number: int, parent_id: str | None) -> None:
        self.parts = parts
        self.number = number
        self.part = parts.read(number)
        self.name = parts.names.name(self.part.name)
        self.builder = TurnBuilder(self.name, parent_id)
        self.prompt = ""  # as the call has it that started this subagent
        self.speaker: str | None = None
        self.thoughts: list[str] = []
        self.denied: dict[str, _Refusal] = {}
        self.told: set[str] = set()  # calls that have a result
        self.waits = True  # for the agent's last word

    def built(self, sealed: bool) -> Turn:
        for kind, key, record in self.parts.pieces(self.number):
            event = as_dict(parsed(record))
            data, at = as_dict(event.get("data")), milliseconds(event.get("timestamp"))
            self._step(kind, key, data, at)
        self._refuse()
        self.builder.model = self.parts.text(self.part.model)
        self.builder.workspace_path = self.parts.text(self.part.cwd)
        self.builder.add_tokens(**self.part.tokens)
        open_ = not (self.builder.answered or self.builder.compaction)
        if open_ and (sealed or self.builder.failed):
            self.builder.error = self.builder.error or "no answer recorded"
            return self.builder.build(status="failed")
        return self.builder.build()

    def _step(self, kind: str, key: str, data: dict[str, Any], at: int) -> None:
        if kind in ("user.message", ADDED):
            self._hear(key, data, at, is_added=kind == ADDED)
        elif kind == "assistant.message":
            self._say(key, data, at)
        elif kind == "assistant.reasoning":
            self.thoughts += [word for word in (as_text(data.get("content")),) if word]
        elif kind == "tool.execution_start":
            self._start(key, data, at)
        elif kind == "tool.execution_complete":
            self._result(key, data, at)
        elif kind == "compaction":
            self._compacted(key, data, at)
        elif kind == "permission.completed":
            self._decided(data, at)
        else:
            self._notice(kind, key, data, at)

    # -- what was asked -----------------------------------------------------------------------

    def _hear(self, key: str, data: dict[str, Any], at: int, *, is_added: bool) -> None:
        if not is_added:
            self.builder.failed, self.builder.error = False, None
        content = as_text(data.get("content")) or ""
        text = (TIMED.sub("", content).strip() if TIMED.search(content) else "") or content
        if text.strip() and text.strip() == self.prompt.strip():
            return
        metadata = {name: data[name] for name in KEPT if data.get(name) not in (None, "")}
        sent = as_text(data.get("transformedContent")) or content
        attached = [as_dict(each) for each in as_list(data.get("attachments"))]
        if attached:
            metadata["attachments"] = without_data(attached)
        source = written_by(data.get("source"), text)
        if not text and not attached and sent:
            text, source = sent, "event"  # the program's, lest the agent stops before it is done
        if self.part.subagent and not is_added:
            source = "agent"
        self.builder.message(
            key,
            "user",
            text,
            at=at,
            source=source,
            metadata=metadata,
            context={"sent": sent} if sent != text else None,
            files=[MessageFile("attached", a["path"]) for a in attached if as_text(a.get("path"))],
        )

    def _notice(self, kind: str, key: str, data: dict[str, Any], at: int) -> None:
        """What the program says, and what went wrong."""
        text = as_text(data.get("content")) or as_text(data.get("message"))
        metadata = {"event": kind} | {n: v for n, v in data.items() if n in ("kind", "errorType")}
        if kind == "session.error":
            if self.waits and may_fail(kind, data.get("errorType")):
                self.builder.failed, self.builder.error = True, text or "error"
        elif kind == "abort":
            text = f"Aborted: {as_text(data.get('reason')) or 'unknown'}"
            self.builder.error = self.builder.error or text
            self.builder.failed = not self.builder.answered
        elif kind == "session.truncation":
            metadata |= data
        elif kind == "subagent.started":
            return
        self.builder.message(
            key,
            "user" if kind == "system.notification" else "system",
            text,
            at=at,
            source="event",
            metadata=metadata,
        )

    # -- what the agent did -------------------------------------------------------------------

    def _say(self, key: str, data: dict[str, Any], at: int) -> None:
        thought = as_text(data.get("reasoningText"))
        if thought and thought not in self.thoughts:
            self.thoughts.append(thought)
        metadata = {name: data[name] for name in KEPT if data.get(name) not in (None, "")}
        if not self.thoughts and data.get("reasoningOpaque"):
            metadata["thinking_withheld"] = True
        self.builder.failed, self.builder.error = False, None
        self.builder.message(
            key,
            "assistant",
            as_text(data.get("content")) or "",
            at=at,
            thinking="\n\n".join(self.thoughts) or None,
            metadata=metadata,
        )
        self.thoughts = []
        self.speaker, self.waits = key, False
        for each in as_list(data.get("toolRequests")):
            request = as_dict(each)
            self._call(as_text(request.get("name")), request, at)

    def _start(self, key: str, data: dict[str, Any], at: int) -> None:
        call_id = as_text(data.get("toolCallId"))
        if call_id is not None and call_id == self.part.subagent:
            self.prompt = as_text(_arguments(data).get("prompt")) or ""
            if self.prompt:
                name = f"{self.name}:prompt"
                self.builder.message(name, "user", self.prompt, at=at, source="agent")
            return
        self._call(as_text(data.get("toolName")) or as_text(data.get("name")), data, at)

    def _call(self, name: str | None, request: dict[str, Any], at: int) -> None:
        call_id = as_text(request.get("toolCallId"))
        if call_id is None:
            return
        self.waits = True
        params = _arguments(request)
        self.builder.call(call_id, name or "unknown", params, at=at, message_id=self.speaker)
        if call_id in self.part.spawned:
            self.builder.spawned(call_id, self.part.spawned[call_id])
        path = as_text(params.get("path"))
        if name in FILE_TOOLS and path and self.speaker and "toolName" not in request:
            kind = "read" if params.get("command") == "view" else FILE_TOOLS[name]
            self.builder.add_files(self.speaker, [MessageFile(kind, path)])

    def _result(self, key: str, data: dict[str, Any], at: int) -> None:
        call_id = as_text(data.get("toolCallId")) or ""
        refusal = self.denied.get(call_id)
        result = data.get("result")
        shown = without_data(as_dict(result).get("content", result))
        error = as_dict(data.get("error"))
        words = as_text(error.get("message")) or as_text(shown)
        word = as_text(error.get("code"))
        status: CallStatus = "completed"
        if data.get("success") is False:
            refused = refusal is not None or (word or "").startswith(DENIED)
            status = "rejected" if refused else "failed"
        known = self.builder.result(
            call_id,
            shown,
            at=at,
            status=status,
            error=None if status == "completed" else words or "failed",
            source_status=word or (refusal.word if refusal else None),
        )
        self.told.add(call_id)
        if not known:
            self.builder.message(
                key, "tool", as_text(shown), at=at, source="event", tool_call_id=call_id or None
            )

    def _decided(self, data: dict[str, Any], at: int) -> None:
        decision = as_dict(data.get("result"))
        word = as_text(decision.get("kind")) or ""
        call_id = as_text(data.get("toolCallId")) or ""
        if call_id and word.startswith(DENIED):
            said = as_text(decision.get("feedback")) or word
            self.denied[call_id] = _Refusal(word, said, at)
        elif word:
            self.denied.pop(call_id, None)

    def _refuse(self) -> None:
        """A refused call need not have a result."""
        for call_id, (word, said, at) in self.denied.items():
            if call_id not in self.told:
                self.builder.result(
                    call_id, None, at=at, status="rejected", error=said, source_status=word
                )

    def _compacted(self, key: str, data: dict[str, Any], at: int) -> None:
        summary = as_text(data.get("summaryContent")) or ""
        names = ("checkpointNumber", "checkpointPath", "messagesRemoved", "tokensRemoved")
        metadata = {name: data[name] for name in names if data.get(name) not in (None, "")}
        self.builder.message(key, "system", summary, at=at, source="event", metadata=metadata)
        if self.builder.parent_id is None:
            return
        used = as_dict(data.get("compactionTokensUsed"))
        self.builder.compaction = Compaction(
            summary,
            self.builder.parent_id,
            tokens_before=as_number(data.get("preCompactionTokens")),
            tokens_after=as_number(data.get("postCompactionTokens")),
            summarization_input_tokens=_either(used, "inputTokens", "input"),
            summarization_output_tokens=_either(used, "outputTokens", "output"),
        )


def _either(used: dict[str, Any], name: str, older: str) -> int | None:
    number = as_number(used.get(name))
    return number if number is not None else as_number(used.get(older))


def _arguments(request: dict[str, Any]) -> dict[str, Any]:
    given = request.get("arguments")
    found = parsed(given) if isinstance(given, str) else given
    if isinstance(found, dict):
        return found
    return {"input": given} if given else {}
