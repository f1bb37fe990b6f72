"""Where each agent has its MCP servers, its hooks and its skills, and in which format."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, NamedTuple

from agents_ledger.integrations.agents.install import json_text, toml_text
from agents_ledger.integrations.agents.install.changes import FileChange

Scope = Literal["user", "project"]
NAME = "agents-ledger"
_OURS = re.compile(r"agents[-_]ledger\b.*\bhook\b")
_FOLDER = Path(__file__).parent
_SKILL = _FOLDER.parents[2] / "mcp" / "skills" / NAME / "SKILL.md"
HOOK_S = 10  # a time limit; a hook takes a fraction of a second
CODEX_END_S = 3  # Codex 0.169 shortens a longer one, and warns of it at each start


class Place(NamedTuple):
    """For whom an agent is set up, and how it calls this program."""

    home: Path
    project: Path
    scope: Scope
    command: tuple[str, ...]  # of this program, with --ledger if it is not the default one
    environment: Mapping[str, str]

    def folder(self, name: str, variable: str = "") -> Path:
        """The agent's folder: `name` in the project, or at home unless a variable moves it."""
        if self.scope == "project":
            return self.project / name
        moved = self.environment.get(variable) if variable else None
        return Path(moved) if moved else self.home / name


class Target(NamedTuple):
    title: str
    program: str
    changes: Callable[[Place], list[FileChange]]
    folders: tuple[str, ...]  # at home, if the agent was ever used
    note: str = ""


# -- parts ------------------------------------------------------------------------------------


def _mcp_json(path: Path, key: str, server: dict[str, Any]) -> FileChange:
    def install(text: str) -> str:
        return _set(text, [key, NAME], server)

    def uninstall(text: str) -> str:
        if not text.strip():
            return text
        changed = json_text.remove(text, [key], lambda name, _: name == NAME)
        return text if changed == text else _emptied(changed)

    return FileChange(path, f"MCP server {NAME}", install, uninstall)


def _set(text: str, path: list[str], value: Any) -> str:
    text = text if text.strip() else "{}\n"
    span = json_text.find(json_text.parse(text), path)
    if span is not None and json_text.value_of(text, span) == value:
        return text
    return json_text.set_member(text, path, value)


def _emptied(text: str) -> str:
    return "" if not text.strip() or json_text.value_of(text, json_text.parse(text)) == {} else text


def _hooks(
    path: Path, entries: dict[str, Any], extra: Mapping[str, Any] | None = None
) -> FileChange:
    """Hooks by the event's name. One entry per event is ours."""

    fixed = dict(extra or {})

    def install(text: str) -> str:
        return _with_hooks(text if text.strip() else "{}\n", entries, fixed)

    def uninstall(text: str) -> str:
        changed = _without_hooks(text) if text.strip() else text
        is_empty = (
            changed != text and json_text.value_of(changed, json_text.parse(changed)) == fixed
        )
        return "" if is_empty else changed

    return FileChange(path, f"hooks {', '.join(entries)}", install, uninstall)


def _with_hooks(text: str, entries: dict[str, Any], fixed: dict[str, Any]) -> str:
    for key, value in fixed.items():
        if json_text.find(json_text.parse(text), [key]) is None:
            text = json_text.set_member(text, [key], value)
    for event, entry in entries.items():
        span = json_text.find(json_text.parse(text), ["hooks", event])
        items = json_text.value_of(text, span) if span else []
        if isinstance(items, list) and [i for i in items if _is_ours(i)] == [entry]:
            continue
        text = json_text.remove(text, ["hooks", event], lambda _, item: _is_ours(item))
        text = json_text.append_item(text, ["hooks", event], entry)
    return text


def _without_hooks(text: str) -> str:
    span = json_text.find(json_text.parse(text), ["hooks"])
    for member in span.members if span else ():
        text = json_text.remove(text, ["hooks", member.key], lambda _, item: _is_ours(item))
    return text


def _is_ours(item: Any) -> bool:
    """Whether all commands of an entry call this program's hook."""
    if not isinstance(item, dict):
        return False
    inner = item.get("hooks", [item])
    commands = [hook.get("command") for hook in inner if isinstance(hook, dict)]
    return bool(commands) and all(isinstance(c, str) and _OURS.search(c) for c in commands)


def _file(path: Path, what: str, content: str) -> FileChange:
    """A file of our own. One that somebody has changed is left alone by uninstall."""
    return FileChange(path, what, lambda _: content, lambda text: "" if text == content else text)


def _shared_skill(place: Place) -> FileChange:
    """Codex, Gemini CLI and opencode read skills from .agents, too: a second copy in a folder of
    their own makes them warn of a conflict."""
    return _skill(place.folder(".agents") / "skills")


def _skill(folder: Path) -> FileChange:
    return _file(folder / NAME / "SKILL.md", f"skill {NAME}", _SKILL.read_text(encoding="utf-8"))


def _hook_command(place: Place, event: str, agent: str) -> str:
    return shlex.join([*place.command, "hook", event, "--agent", agent])


def _grouped(place: Place, agent: str, names: Mapping[str, str], seconds: int) -> dict[str, Any]:
    """Entries in the format that Claude Code introduced; Codex and Gemini CLI took it over."""
    return {
        native: {
            "hooks": [
                {
                    "type": "command",
                    "command": _hook_command(place, event, agent),
                    "timeout": seconds,
                }
            ]
        }
        for native, event in names.items()
    }


# -- agents -----------------------------------------------------------------------------------

_CLAUDE_EVENTS = {
    "SessionStart": "session-start",
    "UserPromptSubmit": "prompt",
    "PreCompact": "compact",
    "SessionEnd": "session-end",
}
_GEMINI_EVENTS = {
    "SessionStart": "session-start",
    "BeforeAgent": "prompt",
    "PreCompress": "compact",
    "SessionEnd": "session-end",
}


def _stdio(place: Place, **more: Any) -> dict[str, Any]:
    return {**more, "command": place.command[0], "args": [*place.command[1:], "mcp"]}


def claude_code(place: Place) -> list[FileChange]:
    folder = place.folder(".claude", "CLAUDE_CONFIG_DIR")
    if place.scope == "project":
        servers = place.project / ".mcp.json"
    elif "CLAUDE_CONFIG_DIR" in place.environment:
        servers = folder / ".claude.json"
    else:
        servers = place.home / ".claude.json"
    return [
        _mcp_json(servers, "mcpServers", _stdio(place, type="stdio")),
        _hooks(folder / "settings.json", _grouped(place, "claude-code", _CLAUDE_EVENTS, HOOK_S)),
        _skill(folder / "skills"),
    ]


def claude_plugin_is_enabled(place: Place) -> bool:
    """Whether Claude Code has our plugin, whose hooks would run beside the registered ones."""
    file = place.folder(".claude", "CLAUDE_CONFIG_DIR") / "settings.json"
    try:
        text = file.read_text(encoding="utf-8")
        plugins = json_text.value_of(text, json_text.parse(text)).get("enabledPlugins")
    except (OSError, ValueError, AttributeError):
        return False
    enabled = plugins.items() if isinstance(plugins, dict) else ()
    return any(name.partition("@")[0] == NAME and on is True for name, on in enabled)


def codex(place: Place) -> list[FileChange]:
    folder = place.folder(".codex", "CODEX_HOME")
    path = ("mcp_servers", NAME)
    server = _stdio(place)
    tables = FileChange(
        folder / "config.toml",
        f"MCP server {NAME}",
        lambda text: toml_text.set_table(text, path, server),
        lambda text: toml_text.remove_table(text, path),
    )
    hooks = _grouped(place, "codex", _CLAUDE_EVENTS, HOOK_S)
    hooks["SessionEnd"]["hooks"][0]["timeout"] = CODEX_END_S
    return [tables, _hooks(folder / "hooks.json", hooks), _shared_skill(place)]


def cursor(place: Place) -> list[FileChange]:
    folder = place.folder(".cursor")
    # beforeSubmitPrompt cannot add context, so it is not registered.
    events = {"sessionStart": "session-start", "preCompact": "compact", "sessionEnd": "session-end"}
    entries = {
        native: {"command": _hook_command(place, event, "cursor")}
        for native, event in events.items()
    }
    return [
        _mcp_json(folder / "mcp.json", "mcpServers", _stdio(place)),
        _hooks(folder / "hooks.json", entries, {"version": 1}),
        _skill(folder / "skills"),
    ]


def gemini_cli(place: Place) -> list[FileChange]:
    folder = place.folder(".gemini")
    server = _mcp_json(folder / "settings.json", "mcpServers", _stdio(place))
    entries = _grouped(place, "gemini-cli", _GEMINI_EVENTS, HOOK_S * 1000)  # milliseconds
    hooks = _hooks(folder / "settings.json", entries)
    both = FileChange(
        server.path,
        f"{server.what}, {hooks.what}",
        lambda text: hooks.install(server.install(text)),
        lambda text: server.uninstall(hooks.uninstall(text)),
    )
    return [both, _shared_skill(place)]


def opencode(place: Place) -> list[FileChange]:
    if place.scope == "project":
        folder, settings = place.project / ".opencode", place.project
    else:
        base = place.environment.get("XDG_CONFIG_HOME")
        folder = (Path(base) if base else place.home / ".config") / "opencode"
        settings = folder
    names = ("opencode.jsonc", "opencode.json")
    file = next((settings / name for name in names if (settings / name).exists()), None)
    server = {"type": "local", "command": [*place.command, "mcp"], "enabled": True}
    template = (_FOLDER / "opencode_plugin.js").read_text(encoding="utf-8")
    import json

    plugin = template.replace('["agents-ledger"]', json.dumps(list(place.command)))
    return [
        _mcp_json(file or settings / "opencode.json", "mcp", server),
        _file(folder / "plugins" / f"{NAME}.js", "plugin with the hooks", plugin),
        _shared_skill(place),
    ]


TARGETS: dict[str, Target] = {
    "claude-code": Target("Claude Code", "claude", claude_code, (".claude", ".claude.json")),
    "codex": Target(
        "Codex",
        "codex",
        codex,
        (".codex",),
        "Trust the hooks in Codex with /hooks before they run.",
    ),
    "cursor": Target("Cursor", "cursor", cursor, (".cursor",), "Restart Cursor."),
    "gemini-cli": Target("Gemini CLI", "gemini", gemini_cli, (".gemini",)),
    "opencode": Target("opencode", "opencode", opencode, (".config/opencode",)),
}


def agents_here(place: Place) -> list[str]:
    """The agents that are installed, or were used, on this machine."""
    path = place.environment.get("PATH", os.defpath)
    return [
        name
        for name, target in TARGETS.items()
        if any((place.home / folder).exists() for folder in target.folders)
        or shutil.which(target.program, path=path)
    ]
