"""Reports for pages: each costs in proportion to what a screen shows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from itertools import islice
from typing import Any

import msgspec
from msgspec import structs

from agents_ledger.ledger.context.window import boundary_at
from agents_ledger.ledger.core import Core
from agents_ledger.ledger.reports import trees
from agents_ledger.ledger.sessions import deleted, heads
from agents_ledger.ledger.turns import threads
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.imports.requests import ImportResponse
from agents_ledger.model.imports.sources import SourceFile
from agents_ledger.model.reports.file_history import FileHistory, FileVersion
from agents_ledger.model.reports.pages import (
    CallCursor,
    CallPage,
    FileLine,
    ImportedSession,
    ImportRun,
    NamedSession,
    SessionLine,
    SourceFault,
    Window,
    name_of,
)
from agents_ledger.model.reports.trees import Headline, Subagent
from agents_ledger.model.sessions import Move, Session, SessionStatus
from agents_ledger.model.turns import Message, ToolCall, Turn, to_json
from agents_ledger.store.database import Row, Transaction
from agents_ledger.store.rows import to_move, to_session, to_turn
from agents_ledger.store.text import in_batches

LATEST = 1 << 62
TEXT_MAX = 4000
PROMPT_MAX = 240
SHORT_LABEL = 20  # claude-code:6b6f4218
LATEST_SESSIONS = 2000
LONG_TURNS = 100
GROWING_MAX = 20  # sessions
LONG_CALLS = 400
SIDE_BRANCHES_MAX = 12  # branches at one turn
NEAR = 1000
CHOICES = ("origin", "persona", "model", "project")
RAW = {
    "turn": ("turns", "raw_turn"),
    "place": ("places", "raw_place"),
    "calls": ("tool_calls", "raw_calls"),
    "compaction": ("compactions", "raw_compaction"),
    "message": ("messages", "raw_message"),
    "session": ("sessions", "raw_session"),
}

Sizes = dict[tuple[str, str, str], int]


class Pages:
    """The reports behind the pages of the Command Center."""

    def __init__(self, core: Core) -> None:
        self._core = core

    # -- sessions and threads -----------------------------------------------------------------

    def session_lines(
        self,
        *,
        status: SessionStatus | None = "active",
        origin: str | None = None,
        persona_id: str | None = None,
        model: str | None = None,
        project: str | None = None,
        text: str | None = None,
        since: int = 0,
        until: int | None = None,
        starred: bool = False,
        subagents: bool = False,
        limit: int = 50,
        after: Session | None = None,
    ) -> tuple[SessionLine, ...]:
        """Sessions, latest first. `text` is part of the label, title or task; `model` and
        `project` are names, or words of them as in a search."""
        if limit < 1:
            raise Refused(f"limit is {limit}; it must be positive")
        values: dict[str, object] = {
            "status": status,
            "origin": origin,
            "persona_id": persona_id,
            "any_model": int(model is None),
            "any_project": int(project is None),
            "text": _like(text),
            "since": since,
            "starred": int(starred),
            "subagents": int(subagents),
            "limit": limit,
            "text_max": trees.LOOKED_AT,
            "before_at": after.updated_at if after else LATEST if until is None else until - 1,
            "after_label": after.label if after else "",
        }

        def work(tx: Transaction) -> tuple[SessionLine, ...]:
            rows = tx.run(
                "session_lines",
                ids=to_json(_names_like(tx, "session_models", model)),
                projects=to_json(_names_like(tx, "session_projects", project)),
                **values,
            )
            return tuple(_line(row) for row in rows)

        return self._core.read(work)

    def session_names(self, labels: Iterable[str]) -> dict[str, NamedSession]:
        """These sessions with the names that pages show."""

        def work(tx: Transaction) -> dict[str, NamedSession]:
            sessions = {}
            for ids in in_batches(dict.fromkeys(labels)):
                for last, first, *row in tx.run("session_names", ids=ids, text_max=trees.LOOKED_AT):
                    session = to_session(tuple(row))
                    name = name_of(session, trees.beginning(first or last, PROMPT_MAX))
                    sessions[session.label] = NamedSession(session, name)
            return sessions

        return self._core.read(work)

    def window(
        self, target: str, *, from_depth: int, to_depth: int, text_max: int = TEXT_MAX
    ) -> Window:
        """The turns of a thread between two depths, with long texts cut."""
        return self._core.read(lambda tx: _window(tx, target, from_depth, to_depth, text_max))

    def is_long(self, target: str, *, visible: bool = False, times: int = 1) -> bool:
        """Whether reading a thread takes long, or so many `times` as long; `visible`: only the part
        that a model is shown."""

        from agents_ledger.ledger.reports import usage

        def work(tx: Transaction) -> bool:
            turn_id = threads.resolve(tx, target)
            if turn_id is None:
                return False
            start = boundary_at(tx, turn_id).from_depth if visible else 1
            if threads.place_of(tx, turn_id).depth - start >= LONG_TURNS * times:
                return True
            return usage.of_range(tx, turn_id, start).spent.tool_calls > LONG_CALLS * times

        return self._core.read(work)

    def branches(
        self, target: str, *, limit: int = 50, after: str | None = None
    ) -> tuple[Headline, ...]:
        """Headlines of a turn's children. The next page comes `after` the last id."""
        return self._core.read(lambda tx: trees.branches(tx, target, limit=limit, after=after))

    def subagents(self, turn_ids: Sequence[str]) -> dict[tuple[str, str], Subagent]:
        """The subagents that turns spawned, by turn and call, with their last answers."""
        return self._core.read(lambda tx: trees.subagents_of(tx, turn_ids))

    def snapshot(self) -> AbstractContextManager[None]:
        """Within the block, this thread reads from one snapshot, which is also faster."""
        return self._core.db.snapshot()

    def choices(self) -> dict[str, list[str]]:
        """Origins, personas, models and projects that sessions can be filtered by."""
        choices: dict[str, list[str]] = {word: [] for word in CHOICES}
        for word, value in self._core.read(lambda tx: tx.run("choices", limit=LATEST_SESSIONS)):
            choices[word].append(value)
        return choices

    def session_holding(self, turn_id: str) -> str | None:
        """The label of the latest session whose thread holds a turn."""

        def work(tx: Transaction) -> list[Row]:
            # Most heads are near their turns: the whole tree below is searched only if none is.
            near = tx.run("heads_below", turn_id=turn_id, near=NEAR)
            return near or tx.run("heads_below", turn_id=turn_id, near=threads.DEEPEST)

        rows = self._core.read(work)
        return rows[0][0] if rows else None

    def raw(self, kind: str, key: str) -> tuple[dict[str, Any], ...]:
        """The rows of a record with every column as it is stored."""
        if kind not in RAW:
            raise NotFound(f"there is no kind of record {kind!r}", f"Kinds: {', '.join(RAW)}.")
        table, statement = RAW[kind]
        columns, rows = self._core.read(lambda tx: (tx.columns(table), tx.run(statement, key=key)))
        if not rows:
            raise NotFound(f"there is no {kind} {key!r}")
        return tuple(dict(zip(columns, row, strict=True)) for row in rows)

    def has_few_turns(self, most: int) -> bool:
        return len(self._core.read(lambda tx: tx.run("some_turns", limit=most + 1))) <= most

    def counts(self) -> dict[str, int]:
        """The numbers of sessions, turns, messages and tool calls."""
        names = ("sessions", "turns", "messages", "tool_calls")
        return dict(zip(names, self._core.read(lambda tx: tx.run("counts"))[0], strict=True))

    # -- what needs a look --------------------------------------------------------------------

    def failed_turns(self, *, limit: int = 5) -> tuple[Headline, ...]:
        """Headlines of the latest failed turns."""

        def work(tx: Transaction) -> tuple[Headline, ...]:
            ids = [row[0] for row in tx.run("failed_turns", limit=limit)]
            return trees.headlines(tx, deleted.without_hidden(tx, ids))

        return self._core.read(work)

    def latest_turn_at(self) -> int | None:
        """When the last turn began."""
        rows = self._core.read(lambda tx: tx.run("latest_turn_at"))
        return int(rows[0][0]) if rows else None

    def recent_files(self, *, text: str | None = None, limit: int = 50) -> tuple[FileLine, ...]:
        """The files that the latest turns touched, last one first."""
        from agents_ledger.ledger.reports import file_history

        return self._core.read(lambda tx: file_history.recent_files(tx, text or "")[:limit])

    def file_history(
        self, path: str, *, limit: int = 50, after: str | None = None, reads: bool = False
    ) -> FileHistory:
        """The calls that changed a file, latest first, with diffs; `reads`: also those that read
        it. The next page comes `after` the result's `next`."""
        from agents_ledger.ledger.reports import file_history

        return self._core.read(
            lambda tx: file_history.file_history(tx, path, limit=limit, after=after, reads=reads)
        )

    def file_version(self, path: str, turn_id: str, call_id: str) -> FileVersion:
        """A file as a call of a turn left or read it."""
        from agents_ledger.ledger.reports import file_history

        return self._core.read(lambda tx: file_history.file_version(tx, path, turn_id, call_id))

    def tool_examples(
        self,
        tool_name: str,
        *,
        failed: bool = False,
        limit: int = 20,
        before: CallCursor | None = None,
    ) -> CallPage:
        """The latest calls of a tool, newest turns first, or those that `failed` among the latest
        TURNS_SCANNED turns with it."""
        from agents_ledger.ledger.reports import tool_calls

        def work(tx: Transaction) -> CallPage:
            found = tool_calls.latest(tx, tool_name, failed=failed, before=before)
            calls = list(islice(found, limit + 1))
            shown = calls[:limit]
            ids = list(dict.fromkeys(call.turn_id for call in shown))
            last = shown[-1] if len(calls) > limit else None
            return CallPage(
                tuple(shown),
                {line.turn.id: line for line in trees.headlines(tx, ids)},
                CallCursor(last.started_at, last.turn_id, last.sequence) if last else None,
            )

        return self._core.read(work)

    # -- imports ------------------------------------------------------------------------------

    def import_runs(self, *, limit: int = 50, before: str | None = None) -> tuple[ImportRun, ...]:
        """Imports, latest first. The next page comes `before` the last id."""
        rows = self._core.read(lambda tx: tx.run("import_runs", limit=limit, before=before))
        return tuple(ImportRun(*row) for row in rows)

    def import_run(self, run_id: str) -> ImportRun:
        """An import of files, or one that a `sessions.import` request asked for."""
        rows = self._core.read(lambda tx: tx.run("import_run", id=run_id))
        if rows:
            return ImportRun(*rows[0])
        answers = self._core.read(lambda tx: tx.run("import_run_of_request", id=run_id))
        if not answers:
            raise NotFound(f"there is no import {run_id!r}", "The page Imports lists them.")
        return _requested_run(run_id, answers)

    def imported_as(self, key: str) -> tuple[ImportedSession, ...]:
        """Where a session was imported from; empty for one recorded here."""
        rows = self._core.read(
            lambda tx: tx.run("imported_as", label=heads.get(tx, key, exact=False).label)
        )
        return tuple(ImportedSession(*row) for row in rows)

    def source_faults(
        self, *, limit: int = 50, before: SourceFault | None = None
    ) -> tuple[SourceFault, ...]:
        """Records that could not be parsed, latest files first."""
        at = before or SourceFault(LATEST, "", "", LATEST, None, "")
        values = {"file_id": at.file_id, "position": at.position, "what": at.what}
        rows = self._core.read(lambda tx: tx.run("source_faults", limit=limit, **values))
        return tuple(SourceFault(*row) for row in rows)

    def files_of_turn(self, target: str) -> tuple[SourceFile, ...]:
        rows = self._core.read(
            lambda tx: tx.run("turn_source_files", turn_id=threads.resolve(tx, target))
        )
        return tuple(SourceFile(*row) for row in rows)

    # -- changes ------------------------------------------------------------------------------

    def last_move(self) -> int:
        """The id of the last move of any session."""
        return int(self._core.read(lambda tx: tx.run("last_move"))[0][0])

    def moves_since(self, move_id: int, *, limit: int = 500) -> tuple[Move, ...]:
        """The moves of all sessions after a move, oldest first."""
        rows = self._core.read(lambda tx: tx.run("moves_since", after=move_id, limit=limit))
        return tuple(to_move(row) for row in rows)

    def live_progress(self, label: str | None = None) -> tuple[tuple[str, str, int], ...]:
        """Live turns: id, session, and a number that grows with each step."""
        rows = self._core.read(lambda tx: tx.run("live_progress", label=label))
        return tuple((turn_id, session, int(steps)) for turn_id, session, steps in rows)

    def growing_sessions(
        self, since: int, label: str | None = None
    ) -> tuple[tuple[str, str, int], ...]:
        """Imported sessions whose source had a record since then: head, session, and when."""
        rows = self._core.read(
            lambda tx: tx.run("growing_sessions", since=since, label=label, limit=GROWING_MAX)
        )
        return tuple((turn_id, session, int(at)) for session, turn_id, at in rows)


def _names_like(tx: Transaction, statement: str, text: str | None) -> list[str]:
    if text is None:
        return []
    from agents_ledger.ledger.search.words import tokenizer

    return tokenizer.names_like((row[0] for row in tx.run(statement)), text)


def _like(text: str | None) -> str | None:
    if not text:
        return None
    # The backslash first, or it would escape the escapes of the others.
    for letter in ("\\", "%", "_"):
        text = text.replace(letter, f"\\{letter}")
    return f"%{text.lower()}%"


def _line(row: Row) -> SessionLine:
    session = to_session(row[13:])
    line = SessionLine(session, *row[:11])
    return structs.replace(
        line,
        short_label=_short_label(session.label, row[11:13]),
        last_answer=trees.beginning(line.last_answer, PROMPT_MAX),
        last_prompt=trees.beginning(line.last_prompt, PROMPT_MAX),
        first_prompt=trees.beginning(line.first_prompt, PROMPT_MAX),
    )


def _short_label(label: str, neighbours: Sequence[str | None]) -> str:
    """A prefix that no other label has; of a source's id, enough to recognise it."""
    shared = max(threads.shared_prefix(label, other or "") for other in neighbours)
    return label[: max(SHORT_LABEL, shared + 1)]


def _window(tx: Transaction, target: str, from_depth: int, to_depth: int, text_max: int) -> Window:
    turn_id = threads.resolve(tx, target)
    if turn_id is None:
        return Window((), {})
    within = {"turn_id": turn_id, "from_depth": from_depth, "to_depth": to_depth}
    rows = sorted(tx.run("thread_turns", **within), key=lambda row: int(row[-1]))
    sizes: Sizes = {}
    messages: dict[str, list[Message]] = defaultdict(list)
    for *values, content, thinking in tx.run("window_messages", **within, text_max=text_max):
        message = Message(*values)
        messages[message.turn_id].append(message)
        _note(sizes, (message.turn_id, message.id), text_max, content=content, thinking=thinking)
    calls: dict[str, list[ToolCall]] = defaultdict(list)
    for *values, params, result, error in tx.run("window_tool_calls", **within, text_max=text_max):
        call = ToolCall(*values)
        calls[call.turn_id].append(call)
        _note(sizes, (call.turn_id, call.id), text_max, params_json=params, error=error)
        if result is not None:
            sizes[call.turn_id, call.id, "result_json"] = result
    turns = tuple(_turn(tx, row, messages[row[0]], calls[row[0]]) for row in rows)
    return Window(turns, sizes, *_off_thread(tx, within, turns))


def _turn(tx: Transaction, row: Row, messages: list[Message], calls: list[ToolCall]) -> Turn:
    record = threads.compaction(tx, row[0]) if row[2] == "compaction" else None
    return to_turn(row, tuple(messages), tuple(calls), record)


def _note(sizes: Sizes, key: tuple[str, str], most: int, **lengths: int | None) -> None:
    for field, length in lengths.items():
        if length is not None and length > most:
            sizes[*key, field] = length


def _off_thread(
    tx: Transaction, within: dict[str, Any], turns: Iterable[Turn]
) -> tuple[tuple[Headline, ...], dict[str, tuple[int, int]]]:
    """The children of these turns and of the parent that are not on their thread, and how many each
    turn has."""
    next_depth = within["to_depth"] + 1
    after = tx.run("ancestor_at", turn_id=within["turn_id"], depth=next_depth)
    on_thread = {turn.id for turn in turns} | {row[0] for row in after}
    values = {**within, "from_depth": max(1, within["from_depth"] - 1), "most": SIDE_BRANCHES_MAX}
    headlines, numbers = [], {}
    for number, total, *row in tx.run("window_branches", **values, text_max=trees.TEXT_MAX):
        numbers[str(row[0])] = (int(number), int(total))
        if row[0] not in on_thread:
            headlines.append(trees.headline_of(tx, tuple(row)))
    return tuple(headlines), numbers


def _requested_run(run_id: str, answers: Sequence[Row]) -> ImportRun:
    """The run of one request, or of several that named the same run."""
    responses = [msgspec.json.decode(text, type=ImportResponse) for _, text in answers]
    return ImportRun(
        run_id,
        started_at=answers[0][0],
        finished_at=answers[-1][0],
        imported=sum(response.imported for response in responses),
        upserted=sum(response.upserted for response in responses),
        skipped=sum(response.skipped for response in responses),
        failed=sum(response.failed for response in responses),
        report_json=to_json([result for response in responses for result in response.results]),
    )
