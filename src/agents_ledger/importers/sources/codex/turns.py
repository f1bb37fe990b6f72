"""Codex: the content of one turn, from its records in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from agents_ledger.importers.parsing.lenient_json import (
    as_dict,
    as_list,
    as_text,
    parse_json,
    without_data,
)
from agents_ledger.importers.parsing.timestamps import milliseconds, uuid7_ms
from agents_ledger.importers.sources.codex import records, rules, scripts
from agents_ledger.importers.sources.codex.records import CodexPrompt
from agents_ledger.importers.sources.codex.scripts import ScriptCall
from agents_ledger.importers.sources.codex.tree import CodexTree
from agents_ledger.importers.sources.codex.turn_copies import CodexTurnCopy, TurnRecord
from agents_ledger.importers.transcript.field_maps import as_params, patched_files
from agents_ledger.importers.transcript.lazy_turns import LazyTurns
from agents_ledger.importers.transcript.turn_builder import NO_ANSWER, TurnBuilder
from agents_ledger.model.agents.config import Setting, encode
from agents_ledger.model.context.compaction import Compaction
from agents_ledger.model.turns import (
    CallStatus,
    MessageFile,
    MessageSource,
    Turn,
    TurnStatus,
    to_json,
)


class CodexTurns(LazyTurns):
    turn_tree: CodexTree

    def evidence(self, turn: int) -> tuple[Iterable[bytes], Iterable[int]]:
        tree = self.turn_tree
        copy, fingerprints = tree.best_copy(turn), tree.copies.fingerprints(tree.best(turn))
        about = (sorted(copy.tokens.items()), *copy.context, tree.is_followed(turn))
        return (*fingerprints, repr(about).encode()), tree.files(turn)

    def record_ids(self, turn: int) -> Iterator[str]:
        copy, name = self.turn_tree.best_copy(turn), self.name(turn)
        for item in range(copy.items):
            yield f"{name}:{item}"
        for event in range(copy.prompt_events):
            yield f"{name}:asked:{event}"

    def repeated_ids(self, turn: int) -> Iterable[str]:
        tree = self.turn_tree
        return tree.references.names.get(tree.best_copy(turn).name, ())

    def build(self, turn: int) -> Turn:
        tree = self.turn_tree
        limits = tree.copies.entries.material.limits
        builder = TurnBuilder(self.name(turn), self.parent_name(turn), limits)
        records = tree.copies.records(tree.best(turn))
        content = CodexTurnContent(builder, self.name(turn), tree.best_copy(turn), records)
        return content.build(is_followed=tree.is_followed(turn))


class EventFacts:
    """What the events of a turn add to its items, whichever of the two comes first."""

    def __init__(self, records: Sequence[TurnRecord]) -> None:
        self.typed: set[int] = set()  # keys of prompts that a human typed
        self.attached: dict[int, list[list[MessageFile]]] = {}  # to prompts, by key, in order
        self.calls: dict[str, dict[str, Any]] = {}  # details of calls, by id
        self.in_items: set[int] = set()  # keys of prompts that an item contains
        for role, _, record in records:
            self._add(role, payload_of(record))

    def _add(self, role: str, payload: dict[str, Any]) -> None:
        if role == "prompt_event":
            key = records.event_prompt(payload.get("message"), payload.get("item")).key
            self.typed.add(key)
            if files := [MessageFile("attached", path) for path in records.event_images(payload)]:
                self.attached.setdefault(key, []).append(files)
        elif role == "detail":
            item = scripts.event_item(payload)
            if call_id := scripts.event_call_id(item):
                self.calls[call_id] = self.calls.get(call_id, {}) | _call_details(item)
        elif payload.get("role") == "user":
            prompt = records.read_prompt(payload.get("content") or payload.get("message"))
            self.in_items.add(prompt.key)


class CodexTurnContent:
    def __init__(
        self, builder: TurnBuilder, name: str, copy: CodexTurnCopy, records: Sequence[TurnRecord]
    ) -> None:
        self.builder = builder
        self.name = name
        self.copy = copy
        self.records = records
        self.events = EventFacts(records)
        self.agent_messages = 0  # texts of the agent that only events contain
        self.tool_names: dict[str, str] = {}  # by call
        self.reasoning: list[str] = []
        self.reasoning_id: str | None = None
        self.reasoning_withheld = False
        self.last_message: str | None = None  # of the agent
        self.end: TurnStatus | None = None

    def build(self, *, is_followed: bool) -> Turn:
        builder = self.builder
        for role, number, record in self.records:
            builder.at = self._time(record)
            self._add(role, number, record)
        builder.at = builder.ended_at
        self._flush_reasoning()
        builder.provider = self.copy.provider
        builder.workspace_path = builder.workspace_path or self.copy.cwd
        builder.add_tokens(**self.copy.tokens)
        if not builder.is_open:
            return builder.build()
        status = self._status_without_answer(is_followed)
        # An error may be of a prompt before this one.
        builder.error = builder.error or NO_ANSWER if status == "failed" else None
        return builder.build(status=status)

    def _status_without_answer(self, is_followed: bool) -> TurnStatus | None:
        """None: the turn still waits for an answer."""
        if self.copy.is_summary:
            return "completed"
        if not self.copy.ended:
            return "failed" if is_followed else None
        # Most versions write no errors: a task that completed without an answer had one.
        return "completed" if self.end == "completed" and not self.copy.prompts else "failed"

    def _time(self, record: dict[str, Any]) -> int:
        # A fork gives the lines it replays the time of the fork; the turn id has the real one.
        if self.copy.is_replayed and (time := uuid7_ms(self.copy.task)):
            return time
        time = milliseconds(record.get("timestamp")) or milliseconds(record.get("created_at"))
        return time or self.copy.thread_time

    def _add(self, role: str, number: int, record: dict[str, Any]) -> None:
        payload = payload_of(record)
        if role == "context":
            self._context(payload)
        elif role == "prompt_event":
            self._prompt_event(f"{self.name}:asked:{number}", payload)
        elif role == "agent_event":
            # In every real file with both, events and items match one to one: items are preferred.
            if not self.copy.has_assistant_items:
                number = len(self.events.in_items) + self.agent_messages
                text = records.content_text(payload.get("message"))
                self._assistant(f"{self.name}:said:{number}", text, {"event": True})
                self.agent_messages += 1
        elif role == "detail":
            if call := scripts.script_call(scripts.event_item(payload)):
                self._script_call(call)
            self._ending(payload)
        elif record.get("type") == "compacted":
            self._compaction(f"{self.name}:{number}", payload)
        else:
            self._item(f"{self.name}:{number}", payload)

    def _context(self, payload: dict[str, Any]) -> None:
        self.builder.model = as_text(payload.get("model")) or self.builder.model
        self.builder.workspace_path = as_text(payload.get("cwd")) or self.builder.workspace_path
        settings = {name: payload[name] for name in rules.SETTINGS if payload.get(name)}
        if mode := as_dict(payload.get("collaboration_mode")).get("mode"):
            settings["collaboration_mode"] = mode
        if settings:
            self.builder.effective_config_json = encode(
                {name: Setting(value, "default") for name, value in settings.items()}
            )

    # -- messages -----------------------------------------------------------------------------

    def _prompt_event(self, message_id: str, payload: dict[str, Any]) -> None:
        """Add the prompt of an event if no item contains it, as in a review."""
        prompt = records.event_prompt(payload.get("message"), payload.get("item"))
        if prompt.key not in self.events.in_items:
            self.events.in_items.add(prompt.key)
            self._prompt(message_id, prompt, {"event": True}, is_human=True)

    def _prompt(
        self, message_id: str, prompt: CodexPrompt, metadata: dict[str, Any], *, is_human: bool
    ) -> None:
        source: MessageSource = "event"
        if is_human:
            self.builder.failed, self.builder.error = False, None  # of an earlier prompt
            source = "agent" if self.copy.is_subagent and not prompt.is_typed else "human"
            source = "cron" if prompt.is_scheduled else source
        attached = self.events.attached.get(prompt.key)
        self.builder.message(
            message_id,
            "user",
            prompt.text,
            source=source,
            metadata=metadata,
            context={"sent": prompt.sent} if prompt.sent != prompt.text else None,
            files=attached.pop(0) if attached else (),
        )

    def _item(self, message_id: str, payload: dict[str, Any]) -> None:
        kind = as_text(payload.get("type")) or "message"
        if kind == "reasoning":
            self._reasoning(message_id, payload)
        elif kind.endswith("_call"):
            self._flush_reasoning()
            self._call(message_id, kind, payload)
        elif kind.endswith(("_output", "_result")):
            self._result(message_id, payload)
        elif kind == "agent_message":
            names = {n: payload[n] for n in ("author", "recipient") if payload.get(n)}
            text = records.content_text(payload.get("content"))
            self.builder.message(message_id, "user", text, source="agent", metadata=names)
        else:
            self._message(message_id, payload)

    def _message(self, message_id: str, payload: dict[str, Any]) -> None:
        content = payload.get("content") or payload.get("message")
        metadata: dict[str, Any] = {}
        if blocks := [block for block in as_list(content) if "text" not in as_dict(block)]:
            metadata["blocks"] = without_data(blocks, rules.IMAGE_FIELDS)
        if payload.get("phase"):
            metadata["phase"] = payload["phase"]
        if payload.get("role") == "assistant":
            self._assistant(message_id, records.content_text(content), metadata)
        elif payload.get("role") == "user":
            prompt = records.read_prompt(content)
            is_human = prompt.key in self.events.typed or not prompt.sent.startswith(rules.INJECTED)
            self._prompt(message_id, prompt, metadata, is_human=is_human)
        else:
            metadata["role"] = payload.get("role")
            self.builder.notice(message_id, records.content_text(content), metadata=metadata)

    def _assistant(self, message_id: str, text: str | None, metadata: dict[str, Any]) -> None:
        if self.reasoning_withheld and not self.reasoning:
            metadata["thinking_withheld"] = True
        thinking = "\n\n".join(self.reasoning) or None
        self.reasoning, self.reasoning_id, self.reasoning_withheld = [], None, False
        self.builder.message(message_id, "assistant", text, thinking=thinking, metadata=metadata)
        self.last_message = message_id

    def _reasoning(self, message_id: str, payload: dict[str, Any]) -> None:
        """Collect reasoning for the next message. Most of it is only present encrypted."""
        blocks = [*as_list(payload.get("summary")), *as_list(payload.get("content"))]
        texts = [text for block in blocks if (text := as_text(as_dict(block).get("text")))]
        self.reasoning += texts
        self.reasoning_id = message_id
        self.reasoning_withheld = self.reasoning_withheld or not texts

    def _flush_reasoning(self) -> None:
        if self.reasoning and self.reasoning_id is not None:
            self._assistant(self.reasoning_id, None, {})

    # -- tool calls ---------------------------------------------------------------------------

    def _caller(self, message_id: str) -> str:
        """The message that a call belongs to; an empty one if the agent has written nothing yet."""
        if self.last_message is None:
            self._assistant(message_id, None, {})
        return self.last_message or message_id

    def _call(self, message_id: str, kind: str, payload: dict[str, Any]) -> None:
        name = as_text(payload.get("name")) or as_text(as_dict(payload.get("function")).get("name"))
        name = name or kind.removesuffix("_call")
        if as_text(payload.get("namespace")):
            name = f"{payload['namespace']}.{name}"
        call_id = as_text(payload.get("call_id")) or as_text(payload.get("id")) or message_id
        child = as_text(self.events.calls.get(call_id, {}).get("new_thread_id"))
        self.tool_names[call_id] = name
        self.builder.call(
            call_id,
            name,
            _params(payload),
            message_id=self._caller(message_id),
            status="completed" if kind in rules.CALLS_WITHOUT_OUTPUT else "running",
            files=list(_files(name, payload)),
            spawned=f"{rules.NAME}:{child}" if child else None,
        )

    def _result(self, message_id: str, payload: dict[str, Any]) -> None:
        # Rollouts without envelopes answer a call by the name of its tool.
        call_id = as_text(payload.get("call_id")) or self._last_call(payload.get("name")) or ""
        output = read_output(payload.get("output", payload.get("result", payload.get("tools"))))
        end = (
            scripts.script_end(output.raw)
            if self.tool_names.get(call_id) in rules.SCRIPT_TOOLS
            else None
        )
        if end is None:
            ended = call_end(output.text, output.exit_code, self.events.calls.get(call_id, {}))
        else:
            ended = call_end(end.error or "", end.exit_code, {"failure": end.error})
        value = without_data(output.value, rules.IMAGE_FIELDS)
        spawned = self._spawned(call_id, output.text)
        if not self.builder.result(call_id, value, spawned=spawned, **ended._asdict()):
            self.builder.lone_result(message_id, call_id or None, output.text)

    def _script_call(self, call: ScriptCall) -> None:
        """Add a call that a script made to the message of the script."""
        if call.id in self.tool_names:
            return
        self.tool_names[call.id] = call.tool_name
        self.builder.call(
            call.id,
            call.tool_name,
            call.params,
            at=max(0, self.builder.at - call.duration_ms),
            message_id=self._caller(f"{self.name}:{call.id}"),
            files=[MessageFile("written", path) for path in call.written],
        )
        ended = call_end("", None, {**self.events.calls.get(call.id, {}), "failure": call.error})
        result = without_data(call.result, rules.IMAGE_FIELDS)
        self.builder.result(call.id, result, **ended._asdict())

    def _last_call(self, tool: Any) -> str | None:
        calls = reversed(self.tool_names.items())
        return next((call_id for call_id, name in calls if name == tool), None)

    def _spawned(self, call_id: str, text: str) -> str | None:
        """The label of the thread that a call of spawn_agent started."""
        if not self.tool_names.get(call_id, "").endswith("spawn_agent"):
            return None
        if text.startswith(rules.NEWLY_SPAWNED.decode()):
            return f"{rules.NAME}:{self.copy.file_thread}"
        child = as_text(as_dict(parse_json(text)).get("agent_id"))
        return f"{rules.NAME}:{child}" if child else None

    # -- endings and compactions --------------------------------------------------------------

    def _ending(self, payload: dict[str, Any]) -> None:
        kind = payload.get("type")
        if kind == "turn_aborted":
            reason = as_text(payload.get("reason")) or "aborted"
            self.end, self.builder.error = "failed", reason
            text, metadata = f"Turn aborted: {reason}", {"reason": reason}
            self.builder.notice(f"{self.name}:aborted", text, metadata=metadata)
        elif kind == "task_complete":
            self.end = self.end or "completed"
            last = as_text(payload.get("last_agent_message"))
            if last and self.builder.failed:  # the error did not end the task
                self.builder.failed, self.builder.error = False, None
            # The end repeats the last message; only without items and events is it the answer.
            if last and self.last_message is None:
                self._assistant(f"{self.name}:last", last, {"event": True})
        elif kind == "error":
            self.end, self.builder.failed = "failed", True
            self.builder.error = as_text(payload.get("message")) or "error"

    def _compaction(self, message_id: str, payload: dict[str, Any]) -> None:
        summary = as_text(payload.get("message")) or ""
        history = as_list(payload.get("replacement_history"))
        numbers = {n: payload[n] for n in ("window_number", "window_id") if payload.get(n)}
        metadata = {"replacement_items": len(history), **numbers}
        if not summary:
            metadata["summary_withheld"] = True
        self.builder.notice(message_id, summary, metadata=metadata)
        if self.copy.is_compaction and self.builder.parent_id is not None:
            self.builder.compaction = Compaction(
                summary,
                self.builder.parent_id,
                tokens_before=self.copy.context_tokens,
                trigger=self.copy.trigger,
                metadata_json=to_json(metadata),
            )


def payload_of(record: dict[str, Any]) -> dict[str, Any]:
    """The payload; a record of the old format has no envelope and is its own payload."""
    return as_dict(record["payload"]) if "payload" in record else record


def _call_details(event: dict[str, Any]) -> dict[str, Any]:
    """What an event adds to the result of a call."""
    details = {name: event[name] for name in rules.CALL_DETAILS if name in event}
    if "result" in event:
        result = as_dict(event["result"])
        details["failure"] = result.get("Err")
        if as_dict(result.get("Ok")).get("isError") is True:
            details["success"] = False
    if event.get("error"):
        details["failure"] = as_text(event["error"]) or as_dict(event["error"]).get("message")
    if event.get("kind") == "started":
        details["new_thread_id"] = event.get("agent_thread_id")
    elif event.get("tool") == "spawn_agent":
        details["new_thread_id"] = next(iter(as_list(event.get("receiver_thread_ids"))), None)
    return details


def _params(payload: dict[str, Any]) -> object:
    params = payload.get("arguments", payload.get("action", payload.get("input")))
    if isinstance(params, str):
        return params if isinstance(parse_json(params), dict) else {"input": params}
    if params is None and payload.get("revised_prompt"):
        return {"prompt": payload["revised_prompt"]}
    return as_params(params)


def _files(name: str, payload: dict[str, Any]) -> Iterator[MessageFile]:
    if name == rules.SCRIPT and payload.get("type") == "custom_tool_call":
        # The patches in its text may fail; events report those that did not.
        return
    params = payload.get("input", payload.get("arguments"))
    if isinstance(params, str) and "*** Begin Patch" in params:
        patch = params  # also as part of a shell command
        if not params.lstrip().startswith("***"):  # inside a command, in JSON
            patch = "\n".join(str(leaf) for leaf in _leaves(parse_json(params))) or params
        yield from patched_files(patch)
    arguments = parse_json(params) if isinstance(params, str) else params
    yield from rules.FILE_TOOLS.files(name, as_dict(arguments))


def _leaves(value: Any) -> Iterator[Any]:
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _leaves(item)
    elif value is not None:
        yield value


class CallOutput(NamedTuple):
    """The output of a call: as recorded, what to store of it, its text and its exit code."""

    raw: Any
    value: Any
    text: str
    exit_code: int | None


def read_output(output: Any) -> CallOutput:
    """Take an output apart. Versions 0.47 to 0.126 write JSON with the exit code into a string."""
    if isinstance(output, str) and output.startswith('{"output"'):
        inner = as_dict(parse_json(output))
        if isinstance(inner.get("output"), str):
            code = as_dict(inner.get("metadata")).get("exit_code")
            code = code if isinstance(code, int) else None
            return CallOutput(output, inner["output"], inner["output"], code)
    if isinstance(output, dict):
        code = output.get("exit_code", output.get("exitCode"))
        text = records.content_text(output.get("content")) or as_text(output.get("content")) or ""
        return CallOutput(output, output, text, code if isinstance(code, int) else None)
    text = records.content_text(output)
    match = rules.EXIT_CODE.search(text[: rules.STATUS_CHARS])
    return CallOutput(output, output, text, int(match[1]) if match else None)


class CallEnd(NamedTuple):
    status: CallStatus
    error: str | None
    source_status: str | None


def call_end(text: str, exit_code: int | None, details: dict[str, Any]) -> CallEnd:
    """How a call ended, by its output and what events add to it."""
    word = as_text(details.get("status"))
    reported = details.get("exit_code")
    exit_code = reported if isinstance(reported, int) else exit_code
    # Only the first line: the output of a command may contain the same words.
    first_line = text.lstrip()[: rules.STATUS_CHARS].split("\n", 1)[0]
    if word in rules.DENIED or "rejected by user" in first_line:
        return CallEnd("rejected", first_line or word, word)
    if "aborted by user" in first_line:
        return CallEnd("cancelled", first_line, word)
    if exit_code:
        return CallEnd("failed", f"exit code {exit_code}", word or f"exit {exit_code}")
    failure = details.get("failure")
    has_failed = word == "failed" or details.get("success") is False
    if failure is not None or has_failed or rules.FAILED.match(first_line):
        return CallEnd("failed", as_text(failure) or first_line or "failed", word)
    return CallEnd("completed", None, word)
