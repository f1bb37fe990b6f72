"""Codex: the content of one turn, from its records in order."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from agents_ledger.importers.sources.codex.parts import Part, Parts, Piece
from agents_ledger.importers.sources.codex.prompts import (
    Prompt,
    asked_images,
    asked_prompt,
    content_text,
    read_prompt,
)
from agents_ledger.importers.sources.codex.scripts import (
    SCRIPT,
    SCRIPTS,
    Called,
    called,
    ended,
    id_of,
    told,
)
from agents_ledger.importers.transcript.turn_builder import TurnBuilder, milliseconds
from agents_ledger.importers.transcript.turn_tree import (
    as_dict,
    as_list,
    as_text,
    parsed,
    uuid7_ms,
    without_data,
)
from agents_ledger.model.agents.config import Setting, encode
from agents_ledger.model.compaction import Compaction
from agents_ledger.model.turns import (
    CallStatus,
    MessageFile,
    MessageSource,
    Turn,
    TurnStatus,
    to_json,
)

NAME = "codex"
AGENT_ITEMS = {"reasoning", "agent_message"}
CARRIED_EVENTS = {
    "collab_agent_spawn_end",
    "exec_command_end",
    "mcp_tool_call_end",
    "patch_apply_end",
    "sub_agent_activity",
}
CARRIED_ITEMS = {  # in which a history in pages has the same
    "CollabAgentToolCall",
    "CommandExecution",
    "DynamicToolCall",
    "FileChange",
    "McpToolCall",
    "SubAgentActivity",
}
ENDINGS = {"error", "task_complete", "turn_aborted"}
INJECTED = (  # how what the client says in the user's name begins
    "# AGENTS.md instructions",
    "<codex_internal_context",
    "<environment_context>",
    "<external_",
    "<goal_context>",
    "<hook_prompt",
    "<node_repl_review_evidence>",
    "<permissions",
    "<recommended_plugins>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_action>",
    "<user_instructions>",
    "<user_shell_command>",
    "Warning: The maximum number of unified exec processes you can keep open is",
    "Warning: Your account was flagged for potentially high-risk cyber activity",
    "Warning: apply_patch was requested via ",
)
NEWLY_SPAWNED = b"You are the newly spawned agent."  # instead of the result, in the child's copy
SETTINGS = ("approval_policy", "sandbox_policy", "effort", "summary", "personality")
EXIT_CODE = re.compile(r"(?:Process exited with code|Exit code:) (-?\d+)")
FAILED = re.compile(r"[\w/ -]{1,60} failed: ")
PATCHED = re.compile(r"^\*\*\* (?:Add File|Update File|Delete File|Move to): (.*\S)", re.M)
HEAD_CHARACTERS = 600
READING = {"view_image": "path", "read_file": "file_path"}
IMAGE_FIELDS = ("image_url", "result", "data")
DETAILS = ("exit_code", "new_thread_id", "status", "success")
DENIED = ("declined", "denied", "rejected")


def build_turn(parts: Parts, number: int, parent_id: str | None, sealed: bool) -> Turn:
    """The turn that these records make. A sealed one has successors: it is no longer open."""
    part = parts.read(number)
    building = _Turn(part, TurnBuilder(part.id, parent_id))
    return building.built(parts.pieces(number), sealed)


class _Turn:
    def __init__(self, part: Part, builder: TurnBuilder) -> None:
        self.part = part
        self.builder = builder
        self.typed: set[int] = set()  # keys of prompts that the client says a human typed
        self.attached: dict[int, list[list[MessageFile]]] = {}  # to each of them, in order
        self.details: dict[str, dict[str, Any]] = {}  # what the client says of a call
        self.shown: set[int] = set()  # keys of prompts that stand in an item
        self.told = 0  # texts of the agent that stand in no item
        self.names: dict[str, str] = {}  # of the calls
        self.thoughts: list[str] = []
        self.thought_id: str | None = None
        self.withheld = False
        self.speaker: str | None = None  # the last message of the agent
        self.end: TurnStatus | None = None

    def built(self, pieces: Sequence[Piece], sealed: bool) -> Turn:
        for piece in pieces:
            self._look_ahead(piece, _payload_of(piece.record))
        for piece in pieces:
            self._step(piece, piece.record)
        self._tell_thoughts(self.builder.ended_at)
        self.builder.provider = self.part.provider
        self.builder.workspace_path = self.builder.workspace_path or self.part.cwd
        self.builder.add_tokens(**self.part.tokens)
        if self.builder.answered or self.builder.compaction:
            return self.builder.build()
        status = self._unanswered(sealed)
        if status != "failed":
            self.builder.error = None  # it was of a prompt before the one that waits
        else:
            self.builder.error = self.builder.error or "no answer recorded"
        return self.builder.build(status=status)

    def _unanswered(self, sealed: bool) -> TurnStatus | None:
        """What became of a turn without an answer; None if it still waits for one."""
        if self.part.is_summary:
            return "completed"
        if not self.part.ended:
            return "failed" if sealed else None
        if self.end == "completed" and not self.part.prompts:
            return "completed"
        return "failed"  # a task that completed without a word met an error, which is not kept

    def _look_ahead(self, piece: Piece, payload: dict[str, Any]) -> None:
        """What later records say of earlier ones."""
        if piece.kind == "asked":
            key = asked_prompt(payload.get("message"), payload.get("item")).key
            self.typed.add(key)
            if files := [MessageFile("attached", path) for path in asked_images(payload)]:
                self.attached.setdefault(key, []).append(files)
        elif piece.kind == "detail":
            said = told(payload)
            if call_id := id_of(said):
                self.details[call_id] = self.details.get(call_id, {}) | _detail(said)
        elif payload.get("role") == "user":
            self.shown.add(read_prompt(payload.get("content") or payload.get("message")).key)

    def _at(self, record: dict[str, Any]) -> int:
        """When it happened. A replay has the time of the fork; the turn's id knows better."""
        if self.part.replayed and (known := uuid7_ms(self.part.task)):
            return known
        at = milliseconds(record.get("timestamp")) or milliseconds(record.get("created_at"))
        return at or self.part.began

    def _step(self, piece: Piece, record: dict[str, Any]) -> None:
        payload, at = _payload_of(record), self._at(record)
        if piece.kind == "context":
            self._context(payload)
        elif piece.kind == "asked":
            self._asked(f"{self.part.id}:asked:{piece.number}", payload, at)
        elif piece.kind == "said":
            if not self.part.has_words:
                text = content_text(payload.get("message"))
                number = len(self.shown) + self.told
                self._say(f"{self.part.id}:said:{number}", text, at, {"event": True})
                self.told += 1
        elif piece.kind == "detail":
            call = called(told(payload))
            if call is not None:
                self._called(call, at)
            self._ending(payload, at)
        elif record.get("type") == "compacted":
            self._compacted(f"{self.part.id}:{piece.number}", payload, at)
        else:
            self._item(f"{self.part.id}:{piece.number}", payload, at)

    def _context(self, payload: dict[str, Any]) -> None:
        self.builder.model = as_text(payload.get("model")) or self.builder.model
        self.builder.workspace_path = as_text(payload.get("cwd")) or self.builder.workspace_path
        said = {name: payload[name] for name in SETTINGS if payload.get(name)}
        mode = as_dict(payload.get("collaboration_mode")).get("mode")
        if mode:
            said["collaboration_mode"] = mode
        if said:
            self.builder.effective_config_json = encode(
                {name: Setting(value, "default") for name, value in said.items()}
            )

    # -- what was asked -----------------------------------------------------------------------

    def _asked(self, message_id: str, payload: dict[str, Any], at: int) -> None:
        """A prompt that stands in no item, as those of a review do."""
        prompt = asked_prompt(payload.get("message"), payload.get("item"))
        if prompt.key in self.shown:
            return
        self.shown.add(prompt.key)
        self._hear(message_id, prompt, at, {"event": True}, human=True)

    def _hear(
        self, message_id: str, prompt: Prompt, at: int, metadata: dict[str, Any], *, human: bool
    ) -> None:
        source: MessageSource = "event"
        if human:
            self.builder.failed, self.builder.error = False, None  # it was of a prompt before
            source = "agent" if self.part.by_agent and not prompt.by_person else "human"
            source = "cron" if prompt.is_scheduled else source
        attached = self.attached.get(prompt.key)
        self.builder.message(
            message_id,
            "user",
            prompt.text,
            at=at,
            source=source,
            metadata=metadata,
            context={"sent": prompt.sent} if prompt.sent != prompt.text else None,
            files=attached.pop(0) if attached else (),
        )

    def _item(self, message_id: str, payload: dict[str, Any], at: int) -> None:
        kind = as_text(payload.get("type")) or "message"
        if kind == "reasoning":
            self._think(message_id, payload)
        elif kind.endswith("_call"):
            self._tell_thoughts(at)
            self._call(message_id, kind, payload, at)
        elif kind.endswith(("_output", "_result")):
            self._result(message_id, payload, at)
        elif kind == "agent_message":
            names = {n: payload[n] for n in ("author", "recipient") if payload.get(n)}
            text = content_text(payload.get("content"))
            self.builder.message(message_id, "user", text, at=at, source="agent", metadata=names)
        else:
            self._message(message_id, payload, at)

    def _message(self, message_id: str, payload: dict[str, Any], at: int) -> None:
        content = payload.get("content") or payload.get("message")
        metadata: dict[str, Any] = {}
        others = [b for b in as_list(content) if "text" not in as_dict(b)]
        if others:
            metadata["blocks"] = without_data(others, IMAGE_FIELDS)
        if payload.get("phase"):
            metadata["phase"] = payload["phase"]
        if payload.get("role") == "assistant":
            self._say(message_id, content_text(content), at, metadata)
        elif payload.get("role") == "user":
            prompt = read_prompt(content)
            human = prompt.key in self.typed or not prompt.sent.startswith(INJECTED)
            self._hear(message_id, prompt, at, metadata, human=human)
        else:
            text = content_text(content)
            metadata["role"] = payload.get("role")
            self.builder.message(
                message_id, "system", text, at=at, source="event", metadata=metadata
            )

    # -- what the agent did -------------------------------------------------------------------

    def _say(self, message_id: str, text: str | None, at: int, metadata: dict[str, Any]) -> None:
        if self.withheld and not self.thoughts:
            metadata["thinking_withheld"] = True
        thinking = "\n\n".join(self.thoughts) or None
        self.thoughts, self.thought_id, self.withheld = [], None, False
        self.builder.message(
            message_id, "assistant", text, at=at, thinking=thinking, metadata=metadata
        )
        self.speaker = message_id

    def _think(self, message_id: str, payload: dict[str, Any]) -> None:
        """Thoughts go with what is said next. Mostly only their encrypted form is there."""
        parts = [*as_list(payload.get("summary")), *as_list(payload.get("content"))]
        words = [word for part in parts if (word := as_text(as_dict(part).get("text")))]
        self.thoughts += words
        self.thought_id = message_id
        self.withheld = self.withheld or not words

    def _tell_thoughts(self, at: int) -> None:
        if self.thoughts and self.thought_id is not None:
            self._say(self.thought_id, None, at, {})

    def _call(self, message_id: str, kind: str, payload: dict[str, Any], at: int) -> None:
        name = as_text(payload.get("name")) or as_text(as_dict(payload.get("function")).get("name"))
        name = name or kind.removesuffix("_call")
        if as_text(payload.get("namespace")):
            name = f"{payload['namespace']}.{name}"
        call_id = as_text(payload.get("call_id")) or as_text(payload.get("id")) or message_id
        if self.speaker is None:
            self._say(message_id, None, at, {})
        # A call without an id of its own has its result in itself, or is answered by name.
        done = kind in ("web_search_call", "image_generation_call")
        self.builder.call(
            call_id,
            name,
            _params(payload),
            at=at,
            message_id=self.speaker,
            status="completed" if done else "running",
        )
        self.names[call_id] = name
        files = list(_files(name, payload))
        if self.speaker is not None and files:
            self.builder.add_files(self.speaker, files)
        child = as_text(self.details.get(call_id, {}).get("new_thread_id"))
        if child:
            self.builder.spawned(call_id, f"{NAME}:{child}")

    def _result(self, message_id: str, payload: dict[str, Any], at: int) -> None:
        call_id = as_text(payload.get("call_id")) or self._named(payload) or ""
        output = payload.get("output", payload.get("result", payload.get("tools")))
        detail = self.details.get(call_id, {})
        shown, text, code = _unwrapped(output)
        end = ended(output) if self.names.get(call_id) in SCRIPTS else None
        if end is None:
            status, error, word = _status(text, code, detail)
        else:
            status, error, word = _status(end.error or "", end.code, {"failure": end.error})
        known = self.builder.result(
            call_id,
            without_data(shown, IMAGE_FIELDS),
            at=at,
            status=status,
            error=error,
            source_status=word,
            spawned=self._spawned(call_id, text),
        )
        if not known:
            self.builder.message(
                message_id, "tool", text, at=at, source="event", tool_call_id=call_id or None
            )

    def _called(self, call: Called, at: int) -> None:
        """A call that a script made: it hangs where the script does."""
        if call.id in self.names:
            return
        if self.speaker is None:
            self._say(f"{self.part.id}:{call.id}", None, at, {})
        self.names[call.id] = call.tool_name
        detail = {**self.details.get(call.id, {}), "failure": call.error}
        status, error, word = _status("", None, detail)
        self.builder.call(
            call.id,
            call.tool_name,
            call.params,
            at=max(0, at - call.took_ms),
            message_id=self.speaker,
        )
        self.builder.result(
            call.id,
            without_data(call.result, IMAGE_FIELDS),
            at=at,
            status=status,
            error=error,
            source_status=word,
        )
        if self.speaker is not None and status == "completed":
            files = [MessageFile("written", path) for path in call.written]
            self.builder.add_files(self.speaker, files)

    def _named(self, payload: dict[str, Any]) -> str | None:
        """The last call of the tool that a result without an id names."""
        wanted = payload.get("name")
        return next((c for c, name in reversed(self.names.items()) if name == wanted), None)

    def _spawned(self, call_id: str, text: str) -> str | None:
        if not self.names.get(call_id, "").endswith("spawn_agent"):
            return None
        if text.startswith(NEWLY_SPAWNED.decode()):
            return f"{NAME}:{self.part.file_thread}"
        child = as_text(as_dict(parsed(text)).get("agent_id"))
        return f"{NAME}:{child}" if child else None

    # -- how it went on -----------------------------------------------------------------------

    def _ending(self, payload: dict[str, Any], at: int) -> None:
        kind = payload.get("type")
        if kind == "turn_aborted":
            reason = as_text(payload.get("reason")) or "aborted"
            self.end, self.builder.error = "failed", reason
            self.builder.message(
                f"{self.part.id}:aborted",
                "system",
                f"Turn aborted: {reason}",
                at=at,
                source="event",
                metadata={"reason": reason},
            )
        elif kind == "task_complete":
            self.end = self.end or "completed"
            last = as_text(payload.get("last_agent_message"))
            if last and self.builder.failed:  # the error did not end it
                self.builder.failed, self.builder.error = False, None
            if last and self.speaker is None:
                self._say(f"{self.part.id}:last", last, at, {"event": True})
        elif kind == "error":
            self.end, self.builder.failed = "failed", True
            self.builder.error = as_text(payload.get("message")) or "error"

    def _compacted(self, message_id: str, payload: dict[str, Any], at: int) -> None:
        summary = as_text(payload.get("message")) or ""
        history = as_list(payload.get("replacement_history"))
        numbers = {n: payload[n] for n in ("window_number", "window_id") if payload.get(n)}
        metadata = {"replacement_items": len(history), **numbers}
        if not summary:
            metadata["summary_withheld"] = True
        self.builder.message(
            message_id, "system", summary, at=at, source="event", metadata=metadata
        )
        if self.part.is_compaction and self.builder.parent_id is not None:
            self.builder.compaction = Compaction(
                summary,
                self.builder.parent_id,
                tokens_before=self.part.context_tokens,
                trigger=self.part.trigger,
                metadata_json=to_json(metadata),
            )


def _payload_of(record: dict[str, Any]) -> dict[str, Any]:
    """What a record says; those of the old format have no envelope."""
    return as_dict(record["payload"]) if "payload" in record else record


def _detail(event: dict[str, Any]) -> dict[str, Any]:
    """What the client says of a call, and its result does not; not the output once more."""
    said = {name: event[name] for name in DETAILS if name in event}
    if "result" in event:
        result = as_dict(event["result"])
        said["failure"] = result.get("Err")
        if as_dict(result.get("Ok")).get("isError") is True:
            said["success"] = False
    if event.get("error"):
        said["failure"] = as_text(event["error"]) or as_dict(event["error"]).get("message")
    if event.get("kind") == "started":
        said["new_thread_id"] = event.get("agent_thread_id")
    elif event.get("tool") == "spawn_agent":
        said["new_thread_id"] = next(iter(as_list(event.get("receiver_thread_ids"))), None)
    return said


def _params(payload: dict[str, Any]) -> object:
    given = payload.get("arguments", payload.get("action", payload.get("input")))
    if isinstance(given, str):
        return given if isinstance(parsed(given), dict) else {"input": given}
    if given is None and payload.get("revised_prompt"):
        return {"prompt": payload["revised_prompt"]}
    return given if isinstance(given, dict) else {"input": given} if given else {}


def _files(name: str, payload: dict[str, Any]) -> Iterator[MessageFile]:
    if name == SCRIPT and payload.get("type") == "custom_tool_call":
        return  # its text only says what it would patch; events tell what it did
    given = payload.get("input", payload.get("arguments"))
    if isinstance(given, str) and "*** Begin Patch" in given:
        patch = given
        if not given.lstrip().startswith("***"):  # inside a command, in JSON
            patch = "\n".join(str(each) for each in _leaves(parsed(given))) or given
        for path in dict.fromkeys(PATCHED.findall(patch)):
            yield MessageFile("written", path)
    if name in READING:
        arguments = as_dict(parsed(given) if isinstance(given, str) else given)
        path = as_text(arguments.get(READING[name]))
        if path:
            yield MessageFile("read", path)


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for each in value:
            yield from _leaves(each)
    elif value is not None:
        yield value


def _unwrapped(output: Any) -> tuple[Any, str, int | None]:
    """What to show of an output, its words, and the exit code that it says."""
    if isinstance(output, str) and output.startswith('{"output"'):
        inner = as_dict(parsed(output))
        if isinstance(inner.get("output"), str):
            code = as_dict(inner.get("metadata")).get("exit_code")
            return inner["output"], inner["output"], code if isinstance(code, int) else None
    if isinstance(output, dict):
        code = output.get("exit_code", output.get("exitCode"))
        words = content_text(output.get("content")) or as_text(output.get("content")) or ""
        return output, words, code if isinstance(code, int) else None
    text = content_text(output)
    found = EXIT_CODE.search(text[:HEAD_CHARACTERS])
    return output, text, int(found[1]) if found else None


def _status(
    text: str, code: int | None, detail: dict[str, Any]
) -> tuple[CallStatus, str | None, str | None]:
    """How a call ended, what was wrong, and the source's own word for it."""
    word = as_text(detail.get("status"))
    said = detail.get("exit_code")
    code = said if isinstance(said, int) else code
    first = text.lstrip()[:HEAD_CHARACTERS].split("\n", 1)[0]
    if word in DENIED or "rejected by user" in first:
        return "rejected", first or word, word
    if "aborted by user" in first:
        return "cancelled", first, word
    if code:
        return "failed", f"exit code {code}", word or f"exit {code}"
    failed = detail.get("failure")
    is_failed = word == "failed" or detail.get("success") is False
    if failed is not None or is_failed or FAILED.match(first):
        return "failed", as_text(failed) or first or "failed", word
    return "completed", None, word
