"""Tool calls compared: what a call runs, whether it failed, and whether it changed anything.

Pure functions. Agents name their tools differently, so a shell is recognised by its parameters
(`command` or `cmd`), and a file tool by model/files/file_tools.py.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from msgspec import Struct

from agents_ledger.ledger.search.documents import readable
from agents_ledger.model.files.file_tools import decoded, touched
from agents_ledger.model.reports.ask import CallStep
from agents_ledger.model.turns import UNSUCCESSFUL_CALL, CallStatus

COMMAND_CHARS = 400  # of a call in an answer
RESULT_CHARS = 6000  # of a result that are read, from its end: errors stand there
ERROR_LINES = 12
LINE_CHARS = 400
# What Claude Code, Codex, Copilot, Gemini CLI and pi write around the output of a command.
_EXIT_CODE = re.compile(
    r"(?:^|\n|<shellId: \d+ |\\n)\W*(?:(?:Process|Command) exited with|completed with exit|Exit)"
    r" code:? (-?\d+)",
    re.IGNORECASE,
)
_PROBLEM = re.compile(
    r"error|exception|fail|fatal|panic|cannot|can't|could not|couldn't|unable|not found|no such"
    r"|denied|refused|invalid|undefined|unexpected|unknown|missing|must |timed out|traceback"
    r"|not been|unresolved|rejected|conflict|\u00d7|\u2717|\u2716",
    re.IGNORECASE,
)
_NO_PROBLEM = re.compile(
    r"^(?:Chunk ID|Wall time|Original token count|Output|Process exited with code \d+|Exit code \d+"
    r"|Command exited with code \d+|exit code \d+)\b[^\n]{0,20}$|\b0 (?:errors|failed|fail)\b",
    re.IGNORECASE,
)
# The exit code of `git push | tail` and of `git push; date` is that of the last command; what git
# and many others write when they fail is still in the output.
_SEQUENCE = re.compile(r"[|;\n]")
_FATAL = re.compile(r"^(?:fatal|error): ", re.IGNORECASE | re.MULTILINE)
_NO_RESULT = "no result recorded"  # what importers write for a call that was cut off
_SEPARATORS = frozenset({"&&", "||", ";", "|", "&", "(", ")"})
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_WRAPPERS = frozenset({"sudo", "time", "env", "nohup", "exec", "command", "rtk", "timeout"})
# Programs that only look, and those that say nothing about what a chain of commands is for.
_LOOKING = frozenset((
    "cat", "cd", "echo", "export", "find", "grep", "head", "jq", "less", "ls", "nl", "printf", "ps",
    "pwd", "rg", "sed", "set", "sleep", "sort", "source", "stat", "tail", "test", "tree", "true",
    "type", "uniq", "wc", "which",
))  # fmt: skip
_LOOKING_GIT = frozenset((
    "blame", "branch", "diff", "log", "ls-files", "ls-tree", "rev-parse", "show", "status",
))  # fmt: skip
# Words of commands that report and change nothing: `npm test`, `cargo check`, `gh pr view`.
_REPORTING = frozenset((
    "build", "check", "check-ignore", "lint", "list", "mypy", "pytest", "test", "tests", "tsc",
    "typecheck", "view", "vet",
))  # fmt: skip
_SUBCOMMANDS = 2  # words after a program that tell its commands apart: npm run build


class Call(Struct, dict=True, frozen=True):
    """A stored call; the columns of the statement `following_calls`."""

    turn_id: str
    tool_name: str
    status: CallStatus
    params_json: str
    result: str  # its end
    sequence: int
    started_at: int

    @cached_property
    def params(self) -> Any:
        return decoded(self.params_json)

    @cached_property
    def shell(self) -> str | None:
        """The command that a shell ran; None: the call is of another tool."""
        if not isinstance(self.params, dict):
            return None
        command = self.params.get("command", self.params.get("cmd"))
        if isinstance(command, list):
            command = " ".join(map(str, command))
        return command if isinstance(command, str) else None

    @cached_property
    def commands(self) -> tuple[tuple[str, ...], ...]:
        """The first words of all that a shell ran."""
        return () if self.shell is None else tuple(simple_commands(self.shell))

    @cached_property
    def programs(self) -> tuple[tuple[str, ...], ...]:
        """What a shell ran, without what only looks: `(npm, run, build)`."""
        return tuple(one for one in self.commands if not _only_looks(one)) or self.commands[:1]

    @cached_property
    def paths(self) -> frozenset[str]:
        return frozenset(path for _, path in touched(self.tool_name, self.params_json))

    @cached_property
    def failed(self) -> bool:
        if self.status in UNSUCCESSFUL_CALL:
            return self.result != _NO_RESULT
        if self.shell is None:
            return False
        codes: list[str] = _EXIT_CODE.findall(self.result)
        if codes and codes[-1] != "0":
            return True
        return bool(
            _SEQUENCE.search(self.shell)
            and _FATAL.search(self.result)
            and not all(map(_only_looks, self.commands))
        )

    @cached_property
    def problem(self) -> str:
        """The lines of its result that report a problem."""
        return problem_lines(self.result)

    @property
    def changes(self) -> bool:
        """Whether it may have changed anything: it wrote a file, or ran more than a report."""
        if self.shell is not None:
            return any(
                not _only_looks(program) and _REPORTING.isdisjoint(program)
                for program in self.programs
            )
        return any(kind == "written" for kind, _ in touched(self.tool_name, self.params_json))

    def is_like(self, other: Call) -> bool:
        """Whether two calls attempt the same: the same program, or the same tool and file."""
        if self.shell is not None and other.shell is not None:
            return bool({one[:2] for one in self.programs} & {one[:2] for one in other.programs})
        if self.tool_name != other.tool_name:
            return False
        return bool(self.paths & other.paths) or not (self.paths or other.paths)

    @property
    def command(self) -> str:
        text = self.shell if self.shell is not None else readable(self.params, COMMAND_CHARS)
        if self.paths and self.shell is None:
            text = ", ".join(sorted(self.paths))
        return text if len(text) <= COMMAND_CHARS else f"{text[:COMMAND_CHARS]}…"

    def step(self) -> CallStep:
        return CallStep(self.turn_id, self.sequence, self.tool_name, self.command, self.status)


def stored_call(
    turn_id: str,
    tool_name: str,
    status: CallStatus,
    params_json: str,
    result_json: str | None,
    *rest: Any,
) -> Call:
    """The value of a row of `following_calls`."""
    error, sequence, started_at = rest
    result = _output(decoded(result_json)) if result_json else ""
    text = result if error is None or error[:100] in result else f"{result}\n{error}".strip()
    return Call(turn_id, tool_name, status, params_json, text[-RESULT_CHARS:], sequence, started_at)


def _output(result: Any) -> str:
    """The texts of a result; of content blocks, without the words for their types."""
    if isinstance(result, list) and all(isinstance(block, dict) for block in result):
        result = [block.get("text", block) for block in result]
    return readable(result, 1 << 30)


def problem_lines(text: str) -> str:
    """The lines of an output that report a problem, or else its last lines."""
    lines = [line.strip()[:LINE_CHARS] for line in text.splitlines()]
    lines = [line for line in lines if line and not _NO_PROBLEM.search(line)]
    problems = [line for line in lines if _PROBLEM.search(line)]
    return "\n".join(problems[:ERROR_LINES] or lines[-ERROR_LINES:])


def simple_commands(command: str) -> Iterator[tuple[str, ...]]:
    """The first words of each command in a chain, without options, folders and wrappers."""
    # A here-document is data.
    text = re.split(r"<<-?\s*['\"]?\w+", command, maxsplit=1)[0]
    for line in text.splitlines():
        words: list[str] = []
        for word in [*_split(line), ";"]:
            if word not in _SEPARATORS:
                words.append(word)
                continue
            named = _named(words)
            if named:
                yield named
            words = []


def _split(line: str) -> list[str]:
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|;()")
    lexer.whitespace_split = True
    lexer.commenters = ""
    try:
        return list(lexer)
    except ValueError:  # an open quote
        return line.split()


def _named(words: list[str]) -> tuple[str, ...]:
    rest = list(words)
    while rest and (_ASSIGNMENT.match(rest[0]) or rest[0] in _WRAPPERS or rest[0].isdigit()):
        rest.pop(0)
    if not rest:
        return ()
    program = re.split(r"[/\\]", rest[0])[-1]
    subcommands = [word for word in rest[1:] if re.fullmatch(r"[a-z][a-z0-9:_-]*", word)]
    return (program, *subcommands[:_SUBCOMMANDS])


def _only_looks(program: tuple[str, ...]) -> bool:
    if program[0] == "git":
        return not _LOOKING_GIT.isdisjoint(program[1:2])
    return program[0] in _LOOKING
