"""What the outlines of several sources share: values that may be anything, and trees of turns."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Protocol, TypeVar

import msgspec

from agents_ledger.importers.reader import Line, Material
from agents_ledger.model.sources import SourceFile

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
NUMBER_END = 1 << 53
LONE = re.compile("[\ud800-\udfff]")
T = TypeVar("T")


def as_dict(value: Any) -> dict[str, Any]:
    """The object, or an empty one."""
    return value if isinstance(value, dict) else {}


def as_list(value: Any) -> list[Any]:
    """The array, or an empty one."""
    return value if isinstance(value, list) else []


def as_text(value: Any) -> str | None:
    """The text, unless it is empty or something else."""
    return value if isinstance(value, str) and value else None


def as_number(value: Any) -> int | None:
    """A count that makes sense."""
    if isinstance(value, bool) or not isinstance(value, int):
        return None
    return value if 0 <= value < NUMBER_END else None


def parsed(data: bytes | str | msgspec.Raw) -> Any:
    """The value of some JSON; None where it is broken."""
    try:
        return msgspec.json.decode(data)
    except (*BROKEN, UnicodeEncodeError):
        return loosely(data if isinstance(data, str) else bytes(data))


def loosely(data: bytes | str, *, strict: bool = True) -> Any:
    """The value of JSON with lone surrogates or numbers that are none; they become null. Not
    `strict`: control characters may stand in it as they are."""
    try:
        text = data if isinstance(data, str) else _text(data)
        return json.loads(text, parse_constant=_no_number, parse_float=_finite, strict=strict)
    except (ValueError, RecursionError):
        return None


def _text(data: bytes) -> str:
    try:
        return data.decode("utf-8-sig", "surrogatepass")
    except UnicodeDecodeError:
        return data.decode("utf-8-sig", "replace")


def _no_number(_: str) -> None:
    return None


def _finite(text: str) -> float | None:
    number = float(text)
    return number if math.isfinite(number) else None


def mend(data: bytes, *, strict: bool = True) -> bytes | None:
    """JSON that a strict reader takes, of some that it does not; None if it is no JSON at all."""
    found = loosely(data, strict=strict)
    if found is None:
        return None
    try:
        text = json.dumps(found, ensure_ascii=False)
        return LONE.sub("\ufffd", text).encode()
    except (ValueError, RecursionError):
        return None


def strictly(decode: Callable[[bytes], T], data: bytes) -> T:
    """What a strict decoder makes of some JSON, mended where it does not take it as it is."""
    try:
        return decode(data)
    except msgspec.ValidationError:
        raise
    except BROKEN:
        again = mend(data)
        if again is None:
            raise
        return decode(again)


def record_of(material: Material, line: Line) -> dict[str, Any]:
    """A held record, whole."""
    return as_dict(parsed(material.bytes_of(line)))


def malformed(material: Material, line: Line, what: object) -> None:
    """Report a line that is no record, and account for it."""
    unfinished = line.offset + line.length >= line.file.kept_bytes
    told = "the last line is unfinished" if unfinished else f"not a record: {what}"
    material.fault(line, told)
    material.count("(malformed)", "malformed")


def project_name(cwd: str) -> str:
    """The last part of a path of any system."""
    return (PureWindowsPath(cwd) if "\\" in cwd else PurePosixPath(cwd)).name


def scoped(source: str, session_id: str, name: str) -> str:
    """A name of a record that no other has: one of another form is unique in its session, and a
    session that is only named after its file is so in its source."""
    if UUID.fullmatch(name):
        return name
    return f"{session_id}:{name}" if UUID.fullmatch(session_id) else f"{source}:{session_id}:{name}"


def uuid7_ms(uuid: str) -> int:
    """The time in a UUID of version 7; 0 for any other."""
    return int(uuid[:8] + uuid[9:13], 16) if UUID7.fullmatch(uuid) else 0


def without_data(value: Any, names: Iterable[str] = ("data",)) -> Any:
    """The same without bytes of images: these stay in the source record."""
    if isinstance(value, list):
        return [without_data(each, names) for each in value]
    if not isinstance(value, dict):
        return value
    kept = {}
    for name, each in value.items():
        if name in names and isinstance(each, str):
            kept["bytes"] = len(each) * 3 // 4
        else:
            kept[name] = without_data(each, names) if isinstance(each, (dict, list)) else each
    return kept


class FileSets:
    """The sets of files that records stand in: there are many records, and few such sets."""

    def __init__(self) -> None:
        self._sets: dict[frozenset[int], frozenset[int]] = {}

    def of(self, file_ids: Iterable[int]) -> frozenset[int]:
        """A set, the same one whenever these files are asked for."""
        found = frozenset(file_ids)
        return self._sets.setdefault(found, found)


class States:
    """The states of documents that are written anew: which of them a later one says all of."""

    def __init__(self) -> None:
        self._states: dict[str, list[tuple[int, frozenset[str]]]] = {}

    def add(self, file: SourceFile, names: Iterable[str]) -> None:
        """A state of a file, and what it names. States come in their order."""
        self._states.setdefault(file.path, []).append((file.id, frozenset(names)))

    def superseded(self) -> frozenset[int]:
        """The states that name nothing the last one of their file does not."""
        return frozenset(
            file_id
            for states in self._states.values()
            for file_id, names in states[:-1]
            if names <= states[-1][1]
        )


def parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    """Every turn after its parent; one that leads back to itself is made a root."""
    done: set[str] = set()
    for start in parents:
        path: dict[str, None] = {}
        at: str | None = start
        while at is not None and at in parents and at not in done and at not in path:
            path[at] = None
            at = parents[at]
        if at is not None and at in path:
            parents[at] = None
            path = dict.fromkeys([each for each in path if each != at] + [at])
        for each in reversed(path):
            done.add(each)
            yield each


class Joins(Protocol):
    """Which openers open no turn of their own."""

    def __call__(self, opener: str, above: str, *, waits: bool) -> bool:
        """Whether it belongs to the turn above; `waits`: that has no answer and no other heir."""


def in_turns(
    records: Collection[str],
    answers: Iterable[str],
    *,
    opens: Callable[[str], bool],
    parent: Callable[[str], str | None],
    joins: Joins,
) -> tuple[dict[str, str], dict[str, str | None]]:
    """The turn of every record, and the parent of every turn: it is an opener, and all below it up
    to the next ones."""
    opened_by = openers(records, opens, parent)
    above: dict[str, str | None] = {}
    for opener in dict.fromkeys(opened_by.values()):
        up = parent(opener)
        above[opener] = None if up is None else opened_by[up]
    answered = {opened_by[answer] for answer in answers}
    heirs = Counter(above.values())
    into = {
        opener: up
        for opener, up in above.items()
        if up is not None
        and up != opener
        and joins(opener, up, waits=up not in answered and heirs[up] == 1)
    }
    for record, opener in opened_by.items() if into else ():
        opened_by[record] = _follow(opener, into)
    parents = {
        opener: None if up is None else _follow(up, into)
        for opener, up in above.items()
        if opener not in into
    }
    return opened_by, {turn: None if up == turn else up for turn, up in parents.items()}


def openers(
    records: Collection[str], opens: Callable[[str], bool], parent: Callable[[str], str | None]
) -> dict[str, str]:
    """For every record the one that opens its turn: itself, or the nearest opener above."""
    found: dict[str, str] = {}
    for record in records:
        path: dict[str, None] = {}
        at: str | None = record
        top = record
        while at is not None and at not in found and at not in path:
            path[at] = None
            top = at
            if opens(at):
                break
            at = parent(at)
        if at is not None and at in found:
            top = found[at]
        for each in path:
            found[each] = top
    return found


def _follow(opener: str, into: dict[str, str]) -> str:
    seen = {opener}
    while opener in into and into[opener] not in seen:
        opener = into[opener]
        seen.add(opener)
    return opener


def answered_above(
    turn: str | None, parents: Mapping[str, str | None], answered: Callable[[str], bool]
) -> str | None:
    """The nearest turn that was answered: a pending prompt is never a head."""
    seen: set[str] = set()
    while turn is not None and turn not in seen and not answered(turn):
        seen.add(turn)
        turn = parents.get(turn)
    return None if turn in seen else turn
