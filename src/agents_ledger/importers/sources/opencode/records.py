"""opencode: one record, and messages of the second format translated to the first."""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Raw, Struct, field

from agents_ledger.importers.parsing.json_values import dicts, loose, pruned
from agents_ledger.importers.parsing.lenient_json import as_dict, as_list, as_text, without_data
from agents_ledger.importers.sources.opencode.rules import BECOME_PARTS, SUBAGENT_TOOLS

MessageParts = list[dict[str, Any]]
Fields = dict[str, Any]


def _null() -> Raw:
    return Raw(b"null")


class OpencodeRecord(Struct):
    """The fields of any record that the tree needs. Any may be missing, or of another type."""

    id: Any = None
    type: Any = None
    role: Any = None
    tool: Any = None
    time: Any = None
    summary: Raw = field(default_factory=_null)
    state: Raw = field(default_factory=_null)
    session: Any = field(default=None, name="sessionID")
    message: Any = field(default=None, name="messageID")
    worktree: Any = None
    info: Any = None
    messages: Any = None
    status: Any = None
    content: Raw = field(default_factory=_null)

    @property
    def kind(self) -> str:
        if self.info is not None and isinstance(self.messages, list):
            return "export"
        if self.message is not None and as_text(self.type):
            return "part"
        if as_text(self.role) and as_text(self.id):
            return "message"
        if as_text(self.worktree):
            return "project"
        return "session" if as_text(self.id) and self.time is not None else "other"


RECORD_DECODER = msgspec.json.Decoder(OpencodeRecord)


class OpencodeTask(NamedTuple):
    """A session that a call started, and the call's status."""

    session: str
    status: str | None
    description: str | None


def child_session(state: Fields) -> str | None:
    """The session that a call started, by the state of the call."""
    metadata = as_dict(state.get("metadata"))
    return as_text(metadata.get("sessionId")) or as_text(metadata.get("sessionID"))


def task_of(state: Fields) -> OpencodeTask | None:
    """The task of a call that started a session."""
    child, params = child_session(state), as_dict(state.get("input"))
    if child is None:
        return None
    return OpencodeTask(child, as_text(state.get("status")), as_text(params.get("description")))


def tasks_in(content: bytes) -> list[OpencodeTask]:
    """The tasks of the calls in a message of the second format."""
    if not any(b'"%s"' % name.encode() in content for name in SUBAGENT_TOOLS):
        return []
    calls = [call for call in dicts(loose(content)) if str(call.get("name")) in SUBAGENT_TOOLS]
    return [task for call in calls if (task := task_of(as_dict(call.get("state"))))]


# -- the second format: a message without parts -----------------------------------------------


def to_first_format(kind: str, data: Fields) -> tuple[Fields, MessageParts]:
    """A message of the second format and its parts, as the first format would have them."""
    info = {name: value for name, value in data.items() if name not in BECOME_PARTS}
    role = {"assistant": "assistant", "compaction": "assistant", "system": "system"}
    info["role"] = role.get(kind, "user")
    parts = [_text(data.get("text"), synthetic=kind in ("synthetic", "skill"))]
    match kind:
        case "user":
            skills = dicts(data.get("skills"))
            parts += [_text(skill.get("text"), synthetic=True) for skill in skills]
            parts += map(_file, dicts(data.get("files")))
            info["skills"] = [{k: v for k, v in skill.items() if k != "text"} for skill in skills]
        case "shell":
            parts = [_text(data.get("command")), _shell_call(data)]
        case "assistant":
            model, blocks = as_dict(data.get("model")), dicts(data.get("content"))
            info |= {"modelID": model.get("id"), "providerID": model.get("providerID")}
            parts = [_call(block) if block.get("type") == "tool" else block for block in blocks]
        case "compaction":
            info["summary"] = True
            part = {"type": "compaction", "auto": data.get("reason") == "auto"}
            parts = [_text(data.get("summary")), part]
    return info, parts


def _shell_call(data: Fields) -> Fields:
    """The call of a command that a user ran."""
    times, output = as_dict(data.get("time")), data.get("output")
    truncated = as_dict(output).get("truncated")
    state = {
        "status": data.get("status"),
        "input": {"command": data.get("command")},
        "output": output.get("output") if isinstance(output, dict) else output,
        "metadata": pruned({"exit": data.get("exit"), "truncated": truncated}),
        "time": {"start": times.get("created"), "end": times.get("completed")},
    }
    return {"type": "tool", "tool": "shell", "callID": data.get("shellID"), "state": state}


def _text(text: Any, *, synthetic: bool = False) -> Fields:
    return {"type": "text", "text": text, "synthetic": synthetic}


def _file(file: Fields) -> Fields:
    """An attached file. Its bytes stay in the source record."""
    uri = as_text(as_dict(file.get("source")).get("uri"))
    part = {"type": "file", "filename": file.get("name"), "url": uri or "data:"}
    return {**as_dict(without_data(file)), **part}


def _call(call: Fields) -> Fields:
    """A call with its result: the texts of its content are the output."""
    state, times = as_dict(call.get("state")), as_dict(call.get("time"))
    content, error = as_list(state.get("content")), state.get("error")
    texts = [text for block in dicts(content) if (text := as_text(block.get("text")))]
    params = state.get("input")
    state = {
        **state,
        "input": _partial_input(params) if isinstance(params, str) else params,
        "output": "\n\n".join(texts) or state.get("output"),
        "attachments": [block for block in content if as_dict(block).get("type") != "text"],
        "error": as_text(as_dict(error).get("message")) or error,
        "time": {"start": times.get("ran") or times.get("created"), "end": times.get("completed")},
    }
    return {"type": "tool", "tool": call.get("name"), "callID": call.get("id"), "state": state}


def _partial_input(text: str) -> Fields:
    """The parameters of a call that may still be streaming."""
    value = loose(text)
    return value if isinstance(value, dict) else pruned({"input": text})
