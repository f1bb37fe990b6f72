"""The changelog of a file: every successful call that changed it, over all sessions.

Contents are followed along each thread. Forks and other sessions have files of their own, so
nothing is carried over from one to the other.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from msgspec import structs

from agents_ledger.ledger.reports import trees
from agents_ledger.ledger.search import file_search
from agents_ledger.model.errors import NotFound
from agents_ledger.model.files.file_contents import FileContents, difference
from agents_ledger.model.files.file_tools import touched
from agents_ledger.model.reports.file_history import ChangelogEntry, FileHistory, FileVersion
from agents_ledger.model.reports.pages import FileLine
from agents_ledger.model.reports.search import Touch
from agents_ledger.store.database import Transaction
from agents_ledger.store.text import in_batches

LOOK_BACK = 200  # turns before a page that are searched for the file's content
LINES_MAX = 400  # of one diff
LATEST_TURNS = 1000  # that the list of files covers
PARAMS_MAX = 4000
_PATH = re.compile(r'"(?:\w*path|target_?file|filename)"\s*:\s*"((?:[^"\\]|\\.)*)"', re.IGNORECASE)
_NUMBERS = re.compile(r"^@@ -.* @@$", re.MULTILINE)


def recent_files(tx: Transaction, text: str) -> tuple[FileLine, ...]:
    """The files that the latest turns read or wrote and whose path contains a text, last used
    first. Calls that failed or were rejected do not count."""
    files: dict[str, FileLine] = {}
    by_calls: set[tuple[str, str, str]] = set()

    def count(path: str, kind: str, at: int) -> None:
        line = files.get(path, FileLine(path, 0, 0))
        writes = line.writes + (kind == "written")
        files[path] = FileLine(path, line.touches + 1, writes, max(line.last_at, at))

    calls = tx.run("recent_file_calls", latest=LATEST_TURNS, text_max=PARAMS_MAX)
    for turn_id, at, status, tool_name, params_json in calls:
        for kind, path in touched(tool_name, _closed(params_json)):
            by_calls.add((turn_id, kind, path))
            if status == "completed":
                count(path, kind, at)
    for turn_id, at, kind, path in tx.run("recent_message_files", latest=LATEST_TURNS):
        if (turn_id, kind, path) not in by_calls:
            count(path, kind, at)
    wanted = text.lower()
    lines = (line for line in files.values() if wanted in line.path.lower())
    return tuple(sorted(lines, key=lambda line: (-line.last_at, line.path)))


def _closed(params_json: str) -> str:
    """Parameters that were cut, as JSON with the path that they begin with."""
    if len(params_json) < PARAMS_MAX:
        return params_json
    path = _PATH.search(params_json)
    return f'{{"path":"{path[1]}"}}' if path else params_json


class _Call(NamedTuple):
    turn_id: str
    status: str
    id: str
    sequence: int
    tool_name: str
    params_json: str
    started_at: int


class _Step(NamedTuple):
    """A change, and the file's content after it."""

    change: ChangelogEntry
    content: str | None


def file_history(
    tx: Transaction, path: str, *, limit: int, after: str | None, reads: bool
) -> FileHistory:
    page = file_search.files(
        tx, path, action=None, since=None, until=None, limit=limit, after=after
    )
    older: tuple[Touch, ...] = ()
    if page.next is not None:
        older = file_search.files(
            tx, path, action=None, since=None, until=None, limit=LOOK_BACK, after=page.next
        ).touches
    steps = _steps(tx, [*page.touches, *older])
    changes = [step.change for turn_id in _turns(page.touches) for step in steps[turn_id][::-1]]
    shown = [change for change in changes if reads or change.action == "written"]
    prompts = _prompts(tx, {change.turn_id for change in shown})
    return FileHistory(
        tuple(structs.replace(change, prompt=prompts[change.turn_id]) for change in shown),
        len(changes) - len(shown),
        page.next,
    )


def file_version(tx: Transaction, path: str, turn_id: str, call_id: str) -> FileVersion:
    """The content of a file after a call of a turn."""
    started = tx.run("turn_started_at", id=turn_id)
    touches = file_search.files(
        tx,
        path,
        action=None,
        since=None,
        until=int(started[0][0]) + 1 if started else None,
        limit=LOOK_BACK,
        after=None,
    ).touches
    for change, content in _steps(tx, touches)[turn_id]:
        if change.call_id == call_id:
            prompt = _prompts(tx, {turn_id})[turn_id]
            return FileVersion(structs.replace(change, prompt=prompt), content)
    raise NotFound(f"no call {call_id!r} of turn {turn_id} read or wrote {path!r}")


def _turns(touches: tuple[Touch, ...]) -> list[str]:
    return list(dict.fromkeys(touch.turn_id for touch in touches))


def _prompts(tx: Transaction, turn_ids: set[str]) -> dict[str, str | None]:
    return {line.turn.id: line.text for line in trees.headlines(tx, sorted(turn_ids))}


def _steps(tx: Transaction, touches: list[Touch] | tuple[Touch, ...]) -> dict[str, list[_Step]]:
    """What the calls of each turn did to the file, in their order."""
    by_turn: dict[str, list[Touch]] = defaultdict(list)
    for touch in touches:
        by_turn[touch.turn_id].append(touch)
    calls = _calls(tx, by_turn)
    parents = _parents(tx, by_turn)
    contents: dict[str, dict[str, str]] = {}
    steps: dict[str, list[_Step]] = defaultdict(list)
    # Parents come before their children: ids of turns are ordered only within a source.
    for turn_id in _parents_first(parents):
        state = FileContents(contents.get(parents[turn_id] or ""))
        steps[turn_id] = list(_of_turn(tx, state, by_turn[turn_id], calls[turn_id]))
        contents[turn_id] = state.contents
    return steps


def _calls(tx: Transaction, turn_ids: Mapping[str, object]) -> dict[str, list[_Call]]:
    calls: dict[str, list[_Call]] = defaultdict(list)
    for ids in in_batches(list(turn_ids)):
        for row in tx.run("calls_of_turns", ids=ids):
            calls[row[0]].append(_Call(*row))
    return calls


def _of_turn(
    tx: Transaction, state: FileContents, touches: list[Touch], calls: list[_Call]
) -> Iterator[_Step]:
    by_file = {(touch.action, touch.path): touch for touch in touches}
    by_message = dict(by_file)
    for call in calls:
        for kind, path in touched(call.tool_name, call.params_json):
            touch = by_file.get(("written" if kind == "written" else "read", path))
            if touch is None:
                continue
            by_message.pop((touch.action, path), None)
            if call.status == "completed":
                yield _step(tx, state, touch, call)
    for touch in by_message.values():  # files that a message names, without a call
        state.contents.pop(touch.path, None)
        yield _Step(_change(touch), None)


def _step(tx: Transaction, state: FileContents, touch: Touch, call: _Call) -> _Step:
    path = touch.path
    change = structs.replace(
        _change(touch),
        at=call.started_at or touch.started_at,
        call_id=call.id,
        sequence=call.sequence,
        tool_name=call.tool_name,
    )
    if touch.action == "read":
        rows = tx.run("call_result", turn_id=call.turn_id, id=call.id)
        state.read(path, call.params_json, rows[0][0])
        content = state.contents.get(path)
        return _Step(structs.replace(change, has_content=content is not None), content)
    before, edits_before = state.contents.get(path), len(state.changes.get(path, ()))
    state.wrote(call.tool_name, call.params_json)
    content = state.contents.get(path)
    edits = state.changes.get(path, [])[edits_before:]
    is_known = before is not None and content is not None
    pairs = [(before or "", content or "")] if is_known else edits
    diffs = [difference(old, new, LINES_MAX) for old, new in pairs]
    if not is_known:  # the lines of an edit are not numbered as those of the file are
        diffs = [_NUMBERS.sub("@@", diff) for diff in diffs]
    lines = [line[:1] for old, new in pairs for line in difference(old, new).split("\n")]
    return _Step(
        structs.replace(
            change,
            added=lines.count("+"),
            removed=lines.count("-"),
            diff="\n".join(diffs) if pairs else None,
            has_content=content is not None,
        ),
        content,
    )


def _change(touch: Touch) -> ChangelogEntry:
    return ChangelogEntry(
        touch.turn_id,
        touch.path,
        touch.action,
        touch.started_at,
        touch.session_label,
        touch.also_in,
        None,
    )


# -- threads ----------------------------------------------------------------------------------


def _parents(tx: Transaction, turn_ids: Mapping[str, object]) -> dict[str, str | None]:
    """Of each turn, the nearest ancestor among these turns."""
    places: dict[int, list[tuple[int, str]]] = defaultdict(list)
    chains: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for ids in in_batches(list(turn_ids)):
        for turn_id, segment_id, depth, is_own in tx.run("thread_segments", ids=ids):
            if is_own:
                places[segment_id].append((depth, turn_id))
            chains[turn_id].append((segment_id, depth - 1 if is_own else depth))
    parents: dict[str, str | None] = dict.fromkeys(turn_ids)
    for turn_id, chain in chains.items():
        above = [
            place for segment_id, upto in chain for place in places[segment_id] if place[0] <= upto
        ]
        parents[turn_id] = max(above)[1] if above else None
    return parents


def _parents_first(parents: Mapping[str, str | None]) -> Iterator[str]:
    done: set[str] = set()
    for turn_id in parents:
        line: list[str] = []
        at: str | None = turn_id
        while at is not None and at not in done:
            line.append(at)
            done.add(at)
            at = parents[at]
        yield from reversed(line)
