"""Aider: how lines become messages, and messages turns."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from datetime import datetime
from itertools import groupby
from pathlib import PurePath

from agents_ledger.importers.port.material import LENGTH_BITS, Material, RecordSpan, SourceLine
from agents_ledger.importers.sources.aider import rules
from agents_ledger.importers.transcript.message_log import LogMessage, LogSession, MessageLog
from agents_ledger.importers.transcript.message_tree import MessageKind
from agents_ledger.importers.transcript.turn_builder import TurnBuilder
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.turns import MessageFile

ID_CHARACTERS = 8  # of the digest of a run's first prompt


class AiderLog(MessageLog):
    """The runs of a history.

    A run is identified by its start and its first prompt, which stay when the file grows or moves.
    Replies have no time: they get that of their prompt.
    """

    name = rules.NAME

    def __init__(self, material: Material, version: int) -> None:
        self.entered: dict[str, list[int]] = {}  # by text, the times of an input
        self.times: dict[str, int] = {}  # by message
        for file in material.files:
            if file.path.endswith(rules.INPUT_FILE):
                self._read_inputs(material, file)
        # The files of a family are in one folder: that of the repository.
        self.folder = str(PurePath(material.files[0].path).parent)
        super().__init__(material, version)

    def _read_inputs(self, material: Material, file: SourceFile) -> None:
        at, texts = 0, list[str]()
        for line in material.lines(file):
            text = (line.data or b"").decode(errors="replace").rstrip("\r")
            if match := rules.INPUT_TIME.match(text):
                at, texts = _local_ms(match[1]), []
            else:
                texts.append(text.removeprefix("+"))
                self.entered.setdefault("\n".join(texts).strip(), []).append(at)
            material.count("input", "derived")

    def read(self, file: SourceFile) -> None:
        if file.path.endswith(rules.INPUT_FILE):
            return
        session: LogSession | None = None
        started, first_line = "", 0
        for kind, group in groupby(self.material.lines(file), _kind):
            lines = list(group)
            data = b"\n".join(line.data or b"" for line in lines)
            if kind is None:  # the beginning of a run
                match = rules.STARTED.match(lines[-1].data or b"")
                session, started = None, match[1].decode() if match else ""
                self.material.count("run", "derived", len(lines))
                continue
            if session is None and kind == "prompt":
                session = self._start(started, data)
                first_line = lines[0].number
            self.material.count(kind, "derived" if session else "unmapped", len(lines))
            if session is not None:
                # Relative to the run: a history whose beginning was deleted keeps its ids.
                message_id = f"{rules.NAME}:{session.id}:{lines[0].number - first_line}"
                self._add(session, LogMessage(message_id, kind, data), lines)

    def _start(self, started: str, prompt: bytes) -> LogSession:
        digest = hashlib.sha256(_prompt_text(prompt).encode()).hexdigest()[:ID_CHARACTERS]
        session = self.session(f"{started.replace(' ', 'T')}-{digest}")
        session.folder = self.folder
        session.created_at = session.updated_at = _local_ms(started)
        return session

    def _add(self, session: LogSession, message: LogMessage, lines: list[SourceLine]) -> None:
        if message.kind == "prompt":
            times = self.entered.get(_prompt_text(message.data), [])
            # The same words may have been entered in an earlier run.
            session.seen(next((at for at in times if at >= session.updated_at), 0))
        self.times[message.id] = at = session.updated_at
        first, last = lines[0], lines[-1]
        length = last.offset + last.length - first.offset  # with the blank lines between them
        span = RecordSpan(first.file.id, first.offset << LENGTH_BITS | length)
        timed = message._replace(data=b"%d;%b" % (at, message.data))
        self.add(session, timed, session.last, span)

    def build(self, builder: TurnBuilder, messages: Iterable[LogMessage]) -> None:
        builder.workspace_path = self.folder
        for message in messages:
            at = self.times.get(message.id, builder.started_at)  # a copy in a sibling turn has none
            # On Windows Aider writes the line ends of the system.
            text = message.data.decode(errors="replace").replace("\r\n", "\n").strip()
            if message.kind == "prompt":
                prompt = _prompt_text(message.data)
                builder.message(message.id, "user", prompt, at=at, source="human")
            elif message.kind == "reply":
                builder.message(message.id, "assistant", text, at=at)
            else:
                _add_output(builder, message.id, text, at)


def _add_output(builder: TurnBuilder, message_id: str, text: str, at: int) -> None:
    lines = [line.removeprefix(">").strip() for line in text.splitlines()]
    answer_id = builder.last_message_id
    for line in lines:
        if match := rules.MODEL.match(line):
            builder.model = match[1]
        elif match := rules.TOKENS.match(line):
            builder.add_tokens(
                **{name: _count(number) for name, number in match.groupdict().items()}
            )
        elif match := rules.EDITED.match(line):
            builder.add_files(answer_id, [MessageFile("written", match[1])])
    builder.message(message_id, "system", "\n".join(filter(None, lines)), at=at, source="event")


def _kind(line: SourceLine) -> MessageKind | None:
    data = line.data or b""
    if data.startswith(rules.PROMPT):
        text = _prompt_text(data)
        is_sent = not text.startswith("/") or rules.SENT_COMMANDS.match(text)
        return "prompt" if is_sent else "notice"
    if rules.STARTED.match(data):
        return None
    return "notice" if data.startswith(rules.OUTPUT) else "reply"


def _prompt_text(data: bytes) -> str:
    lines = data.decode(errors="replace").splitlines()
    return "\n".join(line.removeprefix("####").strip() for line in lines).strip()


def _count(number: str | None) -> int | None:
    """Aider rounds: "12k", "1.2k", "812"."""
    if number is None:
        return None
    return round(float(number.removesuffix("k")) * (1000 if number.endswith("k") else 1))


def _local_ms(text: str) -> int:
    """Aider writes local time without a zone; that of this machine is assumed."""
    return round(datetime.fromisoformat(text).timestamp() * 1000) if text else 0
