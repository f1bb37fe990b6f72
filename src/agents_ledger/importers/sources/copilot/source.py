"""GitHub Copilot CLI: a file of events for each session, in the order they happened.

docs/sources/copilot.md describes the rules.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from pathlib import Path

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.parsing.json_values import loose
from agents_ledger.importers.parsing.lenient_json import (
    BROKEN,
    UUID,
    as_dict,
    as_text,
    decode_leniently,
    parse_json,
)
from agents_ledger.importers.port.homes import Home
from agents_ledger.importers.port.limits import LIMITS
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.port.source import FileProbe, Project, Source
from agents_ledger.importers.sources.copilot.log import CopilotLog, LogReader
from agents_ledger.importers.sources.copilot.records import decode_event, is_session_document
from agents_ledger.importers.sources.copilot.rules import NAME, USED
from agents_ledger.importers.sources.copilot.tree import CopilotTree, sessions_of
from agents_ledger.importers.sources.copilot.turn_copies import CopilotCopies
from agents_ledger.importers.sources.copilot.turns import CopilotTurns
from agents_ledger.importers.transcript.lines import DocumentStates
from agents_ledger.model.imports.sources import Derivation, Fault, SourceFile, SourceKind

EVENTS = "events.jsonl"
WORKSPACE = "workspace.yaml"  # next to the events: folder, branch and title
STATE = "session-state"
HISTORY = "history-session-state"  # until late 2025: one document per session
HEAD_LINES = 50
SESSION_ID = re.compile(UUID.pattern)
DOCUMENT = re.compile(rb'\s*\{.*?"sessionId"\s*:\s*"', re.DOTALL)
DOCUMENT_LISTS = re.compile(rb'"(?:timeline|chatMessages)"\s*:\s*\[')
WORKSPACE_HEAD = re.compile(rb"^(cwd|git_root): ", re.M)
WORKSPACE_CWD = re.compile(rb"^cwd:[ \t]*(\S.*?)[ \t\r]*$", re.M)
YAML_LINE = re.compile(r"(\w+):(.*)")
YAML_BLOCK = re.compile(r"[|>][+-]?(?: |$)")  # the value is in the lines below


class Copilot(Source):
    name = NAME
    version = 16

    def roots(self, home: Home) -> Sequence[Path]:
        folder = home.chosen("COPILOT_HOME", home.home / ".copilot")
        return [folder / STATE, folder / HISTORY]

    def wants(self, path: Path) -> bool:
        if path.suffix == ".json":
            return HISTORY in path.parts
        return path.suffix == ".jsonl" or path.name == WORKSPACE

    def kind_of(self, path: Path, head: bytes) -> SourceKind:
        is_workspace = path.name == WORKSPACE and not head.lstrip().startswith(b"{")
        return "document" if is_workspace or path.suffix == ".json" else "lines"

    def recognises(self, path: Path, head: bytes) -> bool:
        if path.name == WORKSPACE:
            return bool(WORKSPACE_HEAD.search(head)) and b"id: " in head
        if path.suffix == ".json":
            return bool(DOCUMENT.match(head) and DOCUMENT_LISTS.search(head))
        for line in head.split(b"\n")[:HEAD_LINES]:
            try:
                event = decode_leniently(decode_event, line)
            except BROKEN:
                continue
            is_ours = isinstance(event.type, str) and event.type in USED
            if is_ours and bytes(event.data).startswith(b"{") and event.id is not None:
                return True
        return False

    def family(self, path: Path) -> str:
        """A session has a folder, or in old versions a file, which may be in either folder."""
        if path.name in (EVENTS, WORKSPACE):
            return f"{NAME}:{path.parent}"
        session_id = SESSION_ID.search(path.name)
        if session_id and path.parent.name in (STATE, HISTORY):
            return f"{NAME}:{path.parent.parent / STATE / session_id[0]}"
        return f"{NAME}:{path}"

    def projects(self, path: Path, probe: FileProbe) -> Collection[Project] | None:
        """The folder of the session's first event, else of its workspace, else of the document."""
        session = Path(self.family(path).partition(":")[2])
        files = (session / EVENTS, session.with_name(f"{session.name}.jsonl"), path)
        folder = next(filter(None, map(probe.working_folder, files)), None)
        cwd = WORKSPACE_CWD.search(probe.head(session / WORKSPACE))
        if folder is None and cwd:
            folder = as_text(parse_json(cwd[1])) or cwd[1].decode(errors="replace").strip("'\"")
        if folder is None and path.suffix == ".json":
            folder = as_text(as_dict(parse_json(probe.head(path, LIMITS.record_bytes))).get("cwd"))
        return [folder] if folder else None

    def derive(self, material: Material) -> Derivation:
        copies = CopilotCopies(material)
        logs: list[CopilotLog] = []
        workspaces: dict[str, dict[str, str]] = {}
        states = DocumentStates()
        for file in material.files:
            if file.kind != "document":
                logs.append(LogReader(material, file, copies).read_lines())
            elif Path(file.path).name == WORKSPACE:
                workspaces |= _read_workspace(material, file)
            elif (log := _read_document(material, file, copies)) is not None:
                logs.append(log)
                states.add(file, log.event_hashes)
        copies.entries.group(len(copies))
        tree = CopilotTree(copies)
        sessions = sessions_of([log for log in logs if log.turns], workspaces, tree)
        return Derivation(
            turns=CopilotTurns(tree, self.version),
            sessions=tuple(sessions),
            faults=tuple(material.faults),
            counts=material.counts,
            superseded=states.superseded(),
        )


def _read_workspace(material: Material, file: SourceFile) -> dict[str, dict[str, str]]:
    """The values of a workspace.yaml by session. A value may continue in the lines below."""
    lines: dict[str, list[str]] = {}
    last: list[str] = []
    for line in material.document(file).decode(errors="replace").splitlines():
        match = YAML_LINE.match(line)
        if match:
            last = lines.setdefault(match[1], [])
        last.append((match[2] if match else line).strip())
    values = {name: _yaml_value(" ".join(parts).strip()) for name, parts in lines.items()}
    material.count(WORKSPACE, "derived" if "id" in values else "unmapped")
    return {values["id"]: values} if "id" in values else {}


def _yaml_value(text: str) -> str:
    return as_text(parse_json(text)) or YAML_BLOCK.sub("", text, count=1).strip("\"'")


def _read_document(
    material: Material, file: SourceFile, copies: CopilotCopies
) -> CopilotLog | None:
    reason = f"{file.kept_bytes:,} bytes are kept, but too many to read"
    if file.kept_bytes <= material.limits.record_bytes:
        document = loose(material.text_document(file).removeprefix(BOM))
        if is_session_document(document):
            return LogReader(material, file, copies).read_document(document)
        reason = "not a session"
    material.faults.append(Fault(file.path, reason))
    material.count("(malformed)", "malformed")
    return None
