"""Replays the defects that users of the first version reported: `python -m tests.findings`.

A test that failed before its defect was fixed carries `@pytest.mark.finding("users-2")`. This runs
all of them and prints a line for each finding: fixed, broken, or without a test.
"""

from __future__ import annotations

import sys
from collections import defaultdict

import pytest

FINDINGS = {
    # Deviations from the specification.
    "spec-A": "sessions.import chains turns without a parent, refuses unknown and cyclic parents",
    "spec-B": "the bus writes whole turns, at once and live",
    "spec-C": "a write token records turns over HTTP, by routes of their own",
    "spec-D": "head and history at a time follow from the turns of imported sessions",
    "spec-E": "bus and HTTP merge, promote, review permissions; aliases and merges can be undone",
    "spec-F": "sessions.import takes any source, and chunks over the bus",
    "spec-G": "sessions.import keeps the ids and sequences of tool calls",
    "spec-H": "workers have no depth limit by default; unified agents can spawn",
    "spec-I": "AIX sessions of Cursor have origin cursor",
    "spec-J": "native sessions have origin native, and a project",
    "spec-K": "selective compaction summarises with the engine passed to it",
    "spec-L": "events are free of tool XML and system reminders, also in the view",
    "spec-M": "Cursor's attached code and lints fill their tables",
    "spec-N": "a turn without a configuration reports the inherited one",
    "spec-O": "permissions constrain model and max_tokens",
    "spec-P": "a compaction turn names its model",
    "spec-Q": "messages can be selected by task_id",
    "spec-R": "broker.send chooses the persona by trigger when no target is given",
    "spec-2": "rejected, failed and cancelled calls are no file access",
    "spec-3": "broker events have a type, and all classes are exported",
    "spec-4": "the system prompt of a first turn counts towards the window",
    "spec-5": "messages and calls of a backdated turn have its times",
    "spec-6": "sessions(origin='native') lists native sessions",
    "spec-7": "context_tokens_used is the size of the context, not a sum",
    "spec-8": "unknown directives and values of the wrong type are refused",
    "spec-9": "an unknown message source is refused the same way everywhere",
    "spec-10": "a duplicate thread key raises NameTaken",
    "spec-11": "a caller of the broker sees each event once, also under load",
    "spec-docs-request": "the page of sessions.import lists every field, from a JSON Schema",
    "spec-docs-import": "import_sessions is a public verb with an example",
    "spec-docs-engine": "the docs build an engine of one's own",
    "spec-docs-events": "the docs list the broker's events",
    "spec-docs-types": "abilities.md says what the objects of a list are",
    "spec-docs-sandbox": "the docs say that sandbox is recorded, not enforced",
    "spec-docs-scopes": "the docs say which scope records turns",
    # What new users met.
    "users-2": "tree lists the newest tree by time first",
    "users-3": "chat and rerun refuse without a model; echo only by name",
    "users-5": "sessions shows titles first and fits 80 and 60 columns",
    "users-6": "broker events have a type and are exported",
    "users-7": "the docs have an agent loop; context() of a new session works",
    "users-8": "the example of the README runs twice",
    "users-9": "parameters, metadata and config of a wrong type are refused by name",
    "users-10": "tracebacks show hints; a missing extra names itself",
    "users-11": "an own engine can be typed; a plain function summarises",
    "users-12": "scope write suffices to record over HTTP, and includes read",
    "users-14": "one exchange of a framework is one turn with model and tokens",
    "users-15": "hints fit the way the program was installed",
    "users-16": "up works on a base install",
    "users-17": "a named file without an importer is an error",
    "users-18": "usage takes parts of model and project names",
    "users-19": "prices are found whatever the spelling of a model",
    "users-20": "search takes --since; suggestions fit",
    "users-21": "show defaults to the latest session, pages, takes any unique prefix",
    "users-22": "export masks by default and writes private files",
    "users-23": "up takes the options it names; suggested commands are quoted",
    "users-24": "failed attempts to chat leave nothing behind",
    "users-25": "a missing model names --model and the policy file",
    "users-26": "serve prints an address that opens; its errors name what to do",
    "users-27": "the docs say how to continue after a failed turn",
    "users-28": "token names are unique",
    "users-29": "JSON errors, exit code 2 for bad values, compare with itself, early Ctrl-C",
    "users-30": "Usage goes in and comes out; ToolCall.of takes an id; printed commands work",
    "users-31": "usage by agent, five-hour blocks, cache split, CSV",
    "users-32": "bulk export, label rename, alias removal",
    "users-33": "commands are listed in groups",
    # Importing.
    "import-1": "a Claude Code side question is a side thread of its turn",
    "import-2": "the opening prompt of a Copilot subagent is not a turn of the parent",
    "import-3": "Codex token_usage_record counts, also of automatic compaction",
    "import-4": "a prompt that triggers automatic compaction keeps its answer",
    "import-5": "compaction helpers make no false forks",
    "import-6": "Cursor transcripts without times take the file's time",
    "import-7": "OpenClaw envelopes are context; the prompt is the person's words",
    "import-8": "IDE context and Gemini steering wrappers are context, not words",
    "import-9": "queued slash commands are not human messages",
}


class Replay:
    """A pytest plugin that groups outcomes by finding."""

    def __init__(self) -> None:
        self.outcomes: dict[str, list[bool]] = defaultdict(list)
        self._findings: dict[str, list[str]] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        for item in items:
            markers = item.iter_markers("finding")
            self._findings[item.nodeid] = [name for marker in markers for name in marker.args]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" or report.failed:
            for name in self._findings[report.nodeid]:
                self.outcomes[name].append(report.passed)


def main() -> int:
    replay = Replay()
    pytest.main(["-q", "--no-header", "-m", "finding", *sys.argv[1:]], plugins=[replay])
    broken = 0
    for name, promise in FINDINGS.items():
        outcomes = replay.outcomes[name]
        state = "no test" if not outcomes else "fixed" if all(outcomes) else "BROKEN"
        broken += state != "fixed"
        print(f"{name:18} {state:8} {len(outcomes):3} tests  {promise}")
    print(f"{len(FINDINGS) - broken} of {len(FINDINGS)} fixed")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main())
