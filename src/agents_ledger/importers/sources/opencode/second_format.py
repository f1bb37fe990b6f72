"""opencode: messages of its second format, told in the words of the first."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from agents_ledger.importers.parsing.json_values import dicts, loose, pruned
from agents_ledger.importers.sources.opencode.records import Task, task_of
from agents_ledger.importers.transcript.turn_tree import as_dict, as_list, as_text, without_data

SUBAGENTS = {"task", "subagent"}
WITH_PARTS = {"command", "content", "files", "output", "skills", "summary", "text", "type"}

Parts = list[dict[str, Any]]


def tasks_of(content: bytes) -> list[Task]:
    """The sessions that the calls of a message started."""
    if not any(b'"%s"' % name.encode() in content for name in SUBAGENTS):
        return []
    calls = [each for each in dicts(loose(content)) if str(each.get("name")) in SUBAGENTS]
    return [task for each in calls if (task := task_of(as_dict(each.get("state"))))]


def in_first_format(type_: str, data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    """A message and its parts, as the first format would have them."""
    info = {name: value for name, value in data.items() if name not in WITH_PARTS}
    return _TOLD[type_](info, data)


def _user(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    skills = dicts(data.get("skills"))
    parts = [_text(data.get("text")), *(_text(skill.get("text"), added=True) for skill in skills)]
    parts += [_file(file) for file in dicts(data.get("files"))]
    named = [{name: each for name, each in skill.items() if name != "text"} for skill in skills]
    return {**info, "role": "user", "skills": named}, parts


def _added(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    return {**info, "role": "user"}, [_text(data.get("text"), added=True)]


def _system(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    return {**info, "role": "system"}, [_text(data.get("text"))]


def _shell(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    """What a user ran, with what came of it."""
    times, output = as_dict(data.get("time")), data.get("output")
    state = {
        "status": data.get("status"),
        "input": {"command": data.get("command")},
        "output": output.get("output") if isinstance(output, dict) else output,
        "metadata": pruned(
            {"exit": data.get("exit"), "truncated": as_dict(output).get("truncated")}
        ),
        "time": {"start": times.get("created"), "end": times.get("completed")},
    }
    call = {"type": "tool", "tool": "shell", "callID": data.get("shellID"), "state": state}
    return {**info, "role": "user"}, [_text(data.get("command")), call]


def _assistant(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    model = as_dict(data.get("model"))
    chosen = {"modelID": model.get("id"), "providerID": model.get("providerID")}
    content = dicts(data.get("content"))
    parts = [_call(each) if each.get("type") == "tool" else each for each in content]
    return {**info, **chosen, "role": "assistant"}, parts


def _compaction(info: dict[str, Any], data: dict[str, Any]) -> tuple[dict[str, Any], Parts]:
    told = {"type": "compaction", "auto": data.get("reason") == "auto"}
    return {**info, "role": "assistant", "summary": True}, [_text(data.get("summary")), told]


_TOLD: dict[str, Callable[[dict[str, Any], dict[str, Any]], tuple[dict[str, Any], Parts]]] = {
    "user": _user,
    "synthetic": _added,
    "skill": _added,
    "system": _system,
    "shell": _shell,
    "assistant": _assistant,
    "compaction": _compaction,
}


def _text(words: Any, *, added: bool = False) -> dict[str, Any]:
    return {"type": "text", "text": words, "synthetic": added}


def _file(file: dict[str, Any]) -> dict[str, Any]:
    """An attached file. Its bytes stay in the source record."""
    address = as_text(as_dict(file.get("source")).get("uri"))
    told = {"type": "file", "filename": file.get("name"), "url": address or "data:"}
    return {**as_dict(without_data(file)), **told}


def _call(call: dict[str, Any]) -> dict[str, Any]:
    """A call with what came of it: content that is text is its output."""
    state, times = as_dict(call.get("state")), as_dict(call.get("time"))
    content, wrong = as_list(state.get("content")), state.get("error")
    texts = [words for each in dicts(content) if (words := as_text(each.get("text")))]
    others = [each for each in content if as_dict(each).get("type") != "text"]
    given = state.get("input")
    told = {
        **state,
        "input": _begun(given) if isinstance(given, str) else given,
        "output": "\n\n".join(texts) or state.get("output"),
        "attachments": others,
        "error": as_text(as_dict(wrong).get("message")) or wrong,
        "time": {
            "start": times.get("ran") or times.get("created"),
            "end": times.get("completed"),
        },
    }
    return {"type": "tool", "tool": call.get("name"), "callID": call.get("id"), "state": told}


def _begun(given: str) -> dict[str, Any]:
    """What a call is given, while that is still written."""
    found = loose(given)
    return found if isinstance(found, dict) else pruned({"input": given})
