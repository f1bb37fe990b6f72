"""Which hooks are switched off: by the settings, for a project, or in the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from agents_ledger.model.errors import Refused
from agents_ledger.model.installation import settings

Task = Literal["brief", "recall", "import"]
TASKS: tuple[Task, ...] = ("brief", "recall", "import")
VARIABLE = "AGENTS_LEDGER_HOOKS"
BRIEF_TOKENS = 600
BRIEF_TOKENS_MIN, BRIEF_TOKENS_MAX = 100, 4000
_NAMES = (*TASKS, "brief_tokens", "projects")


class Switches(NamedTuple):
    tasks: frozenset[str] = frozenset(TASKS)
    brief_tokens: int = BRIEF_TOKENS


def switches(project: str | None, environment: Mapping[str, str] = os.environ) -> Switches:
    """`[hooks]` of the settings, `[hooks.projects."PATH"]` over it, AGENTS_LEDGER_HOOKS first."""
    table = settings.hooks()
    chosen = {name: value for name, value in table.items() if name != "projects"}
    projects = table.get("projects", {})
    if not isinstance(projects, dict):
        raise Refused(f"`hooks.projects` in {settings.settings_file()} is not a table")
    for path, own in sorted(projects.items()):
        if project is not None and _is_within(project, os.path.expanduser(path)):
            # `"~/private" = false` switches off all hooks in a project.
            chosen |= dict.fromkeys(TASKS, False) if own is False else _table(path, own)
    tasks = {task for task in TASKS if _flag(task, chosen.get(task, True))}
    if VARIABLE in environment:
        tasks &= set(environment[VARIABLE].replace(",", " ").split())
    return Switches(frozenset(tasks), _tokens(chosen.get("brief_tokens", BRIEF_TOKENS)))


def _is_within(project: str, path: str) -> bool:
    root = os.path.normpath(path)
    return project == root or project.startswith(root.rstrip(os.sep) + os.sep)


def _table(path: str, own: object) -> dict[str, Any]:
    if not isinstance(own, dict):
        raise Refused(
            f"`{path}` of `hooks.projects` in {settings.settings_file()} is {own!r}",
            "Use false, or a table such as {recall = false}.",
        )
    return own


def _flag(name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise Refused(f"`hooks.{name}` in {settings.settings_file()} is not true or false")
    return value


def _tokens(value: object) -> int:
    least, most = BRIEF_TOKENS_MIN, BRIEF_TOKENS_MAX
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise Refused(
            f"`hooks.brief_tokens` in {settings.settings_file()} is {value!r}",
            f"Use a number from {least} to {most}.",
        )
    return value
