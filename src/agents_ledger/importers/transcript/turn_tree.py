"""What the outlines of several sources share: values that may be anything, and trees of turns."""

from __future__ import annotations

import json
import math
import re
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableSequence, Sequence
from io import BytesIO
from itertools import accumulate
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any, Generic, NamedTuple, Protocol, TypeVar

import msgspec

from agents_ledger.importers.parsing.encodings import BOM
from agents_ledger.importers.port.source import Held, Line, Material, is_text, texts
from agents_ledger.model.imports.sources import DerivedTurn, SourceFile, Turns

BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
UUID7 = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[0-9a-f]{4}-[0-9a-f]{12}")
NUMBER_END = 1 << 53
LONE = re.compile("[\ud800-\udfff]")
ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}"
    rb"|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
NO_NUMBER = re.compile(
    rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"?|(?P<none>NaN|-?Infinity)'
    rb"|-?(?:0|[1-9]\d*)(?P<fraction>(?:\.\d+)?(?:[eE][+-]?\d+)?)",
    re.DOTALL,
)
NO_LETTER = rb"\ufffd"  # as long as half a letter
T = TypeVar("T")
NONE = -1  # the number of no record
HELD_TURNS = 10_000
NO_TURN = -2
DEEPEST = 150  # levels of a value that are shown
TOO_DEEP = "(nested too deeply)"


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


def _halves_replaced(data: BytesIO) -> bytes:
    """The same without escaped halves of letters; the rest stands where it stood."""
    with data.getbuffer() as found:
        for escape in ESCAPE.finditer(found):
            if escape["half"]:
                found[escape.start() : escape.end()] = NO_LETTER
    return data.getvalue()


def _numbers_replaced(data: bytes) -> tuple[BytesIO, array[int]]:
    """The same with null for numbers that are none, and where a byte of it stands that was added:
    null is longer than NaN."""
    found, added, done = BytesIO(), array("I"), 0
    with memoryview(data) as given:
        for token in NO_NUMBER.finditer(data):
            if token["none"] or (token["fraction"] and math.isinf(float(token[0]))):
                found.write(given[done : token.start()])
                found.write(b"null".ljust(len(token[0])))
                done = token.end()
                if token[0] == b"NaN":
                    added.append(found.tell() - 1)
        found.write(given[done:])
    return found, added


def _utf8(data: bytes) -> bytes:
    """The same if it is UTF-8; else with U+FFFD for what is no letter, and without a mark."""
    if is_text(data, "strict") and not data.startswith(BOM):
        return data
    found = BytesIO()
    for text in texts(data.removeprefix(BOM), "surrogatepass" if is_text(data) else "replace"):
        found.write(LONE.sub("\ufffd", text).encode())
    return found.getvalue()


def strictly(decode: Callable[[bytes], T], data: bytes) -> T:
    """What a strict decoder makes of some JSON, mended where it does not take it as it is."""
    return taken(decode, data).found


class Taken(NamedTuple, Generic[T]):
    """What a decoder made of some JSON, and the JSON it took."""

    found: T
    data: bytes  # as it was, or with NO_LETTER here and there, and null
    added: Sequence[int] | None  # bytes of it; None: nothing stands where it stood


def taken(decode: Callable[[bytes], T], data: bytes) -> Taken[T]:
    """The same, and the JSON that the decoder took. Large documents come this way: no more than one
    copy is held, or of what is no UTF-8 two."""
    try:
        return Taken(decode(data), data, ())
    except msgspec.ValidationError:
        raise
    except BROKEN:
        pass
    mended = _halves_replaced(BytesIO(data))
    try:
        return Taken(decode(mended), mended, ())
    except BROKEN as error:
        del mended
        text = _utf8(data)
        numbers, added = _numbers_replaced(text)
        mended = _halves_replaced(numbers)
        try:
            return Taken(decode(mended), mended, added if text is data else None)
        except msgspec.ValidationError:
            raise
        except BROKEN:
            raise error from None


def record_of(material: Material, held: Held) -> dict[str, Any]:
    """A held record, whole."""
    return as_dict(parsed(material.bytes_of(held)))


def malformed(material: Material, line: Line, what: object) -> None:
    """Report a line that is no record, and account for it."""
    unfinished = line.offset + line.length >= line.file.kept_bytes
    told = "the last line is unfinished" if unfinished else f"not a record: {what}"
    material.fault(line, told)
    material.count("(malformed)", "malformed")


def decoded(material: Material, line: Line, decode: Callable[[bytes], T]) -> T | None:
    """What a decoder makes of a line; None if that is nothing, which is accounted for."""
    data = line.data or b""
    try:
        return strictly(decode, data)
    except msgspec.ValidationError:
        found = parsed(data)
        if isinstance(found, dict):
            material.count(str(found.get("type")), "unmapped")
        else:
            malformed(material, line, "not an object")
    except BROKEN as error:
        malformed(material, line, error)
    return None


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


def without_data(value: Any, names: Iterable[str] = ("data",), levels: int = DEEPEST) -> Any:
    """The same without bytes of images, and without what is nested too deeply: these stay in the
    source record."""
    if not isinstance(value, (dict, list)):
        return value
    if not levels:
        return TOO_DEEP
    if isinstance(value, list):
        return [without_data(each, names, levels - 1) for each in value]
    kept = {}
    for name, each in value.items():
        if name in names and isinstance(each, str):
            kept["bytes"] = len(each) * 3 // 4
        else:
            kept[name] = without_data(each, names, levels - 1)
    return kept


class _Made(Generic[T]):
    """Turns that are made whenever they are gone through."""

    def __init__(self, given: Sequence[T], make: Callable[[T], DerivedTurn]) -> None:
        self._given = given
        self._make = make

    def __len__(self) -> int:
        return len(self._given)

    def __iter__(self) -> Iterator[DerivedTurn]:
        return map(self._make, self._given)


def made(given: Sequence[T], make: Callable[[T], DerivedTurn]) -> Turns:
    """Turns made of what is given; where they are many, memory need not hold them."""
    found = _Made(given, make)
    return tuple(found) if len(given) <= HELD_TURNS else found


class NamedLater:
    """Records of one turn, named whenever they are gone through."""

    def __init__(self, names: Callable[[int], Iterable[str]], turn: int) -> None:
        self._names = names
        self._turn = turn

    def __iter__(self) -> Iterator[str]:
        return iter(self._names(self._turn))


class States:
    """The states of documents that are written anew: which of them a later one says all of."""

    def __init__(self) -> None:
        self._states: dict[str, list[tuple[int, array[int]]]] = {}  # names are hashes here

    def add(self, file: SourceFile, names: Iterable[str]) -> None:
        """A state of a file, and what it names. States come in their order."""
        named = array("q", map(hash, names))
        self._states.setdefault(file.path, []).append((file.id, named))

    def superseded(self) -> frozenset[int]:
        """The states that name nothing the last one of their file does not."""
        found: set[int] = set()
        for *earlier, (_, names) in self._states.values():
            last = frozenset(names) if earlier else frozenset()
            found.update(file_id for file_id, names in earlier if last.issuperset(names))
        return frozenset(found)


def parents_first(parents: dict[str, str | None]) -> Iterator[str]:
    """Every turn after its parent; one that leads back to itself is made a root."""
    names = list(parents)
    numbers = {name: number for number, name in enumerate(names)}
    above = array("i", [numbers.get(up, NONE) if up else NONE for up in parents.values()])
    for number in roots_first(range(len(names)), above):
        if above[number] == NONE and parents[names[number]] in parents:
            parents[names[number]] = None
        yield names[number]


def roots_first(turns: Iterable[int], above: MutableSequence[int]) -> Iterator[int]:
    """The same of turns that have numbers. `above` gives the parent of each, or less than 0."""
    on_path, is_done = 1, 2
    state = bytearray(len(above))
    for start in turns:
        path: list[int] = []
        at = start
        while at >= 0 and not state[at]:
            state[at] = on_path
            path.append(at)
            at = above[at]
        if at >= 0 and state[at] == on_path:
            above[at] = NONE
            path.remove(at)
            path.append(at)
        for each in reversed(path):
            state[each] = is_done
            yield each


class Groups:
    """Numbers from 0 by what they are of, in order: there may be millions of both."""

    def __init__(
        self, owners: Sequence[int], number: int, order: Iterable[int] | None = None
    ) -> None:
        """What each is of, which are so many; less than 0: it is of none. They stand in the order
        that is given, else by number."""
        counts = array("I", bytes(4 * number))
        for owner in owners:
            if owner >= 0:
                counts[owner] += 1
        self._ends = array("I", accumulate(counts))
        self._members = array("I", bytes(4 * self._ends[-1])) if number else array("I")
        at = array("I", (end - count for end, count in zip(self._ends, counts, strict=True)))
        for member in range(len(owners)) if order is None else order:
            owner = owners[member]
            if owner >= 0:
                self._members[at[owner]] = member
                at[owner] += 1

    def __getitem__(self, owner: int) -> array[int]:
        return self._members[self._ends[owner - 1] if owner else 0 : self._ends[owner]]


class Joins(Protocol):
    """Which openers open no turn of their own."""

    def __call__(self, opener: int, above: int, *, waits: bool) -> bool:
        """Whether it belongs to the turn above; `waits`: that has no answer and no other heir."""


class InTurns(NamedTuple):
    """Records in turns. A turn is known by the record that opens it."""

    turns: array[int]
    turn_of: array[int]  # of every record
    above: array[int]  # of every turn its parent, or NONE


def in_turns(
    records: Sequence[int],
    parents: Sequence[int],
    answers: Iterable[int],
    *,
    opens: Callable[[int], bool],
    joins: Joins,
) -> InTurns:
    """Put records in turns: an opener, and all below it up to the next ones. Records are numbers,
    given in order; `parents` has the one above each, or less than 0."""
    turn_of = openers(records, parents, opens)
    above = array("i", [NO_TURN]) * len(parents)
    found = array("i")
    for record in records:
        opener = turn_of[record]
        if above[opener] == NO_TURN:
            above[opener] = turn_of[parents[opener]] if parents[opener] >= 0 else NONE
            found.append(opener)
    answered = bytearray(len(parents))
    for answer in answers:
        answered[turn_of[answer]] = 1
    into = _joined(found, above, answered, joins)
    if into:
        into = _ends(into)
        for record in records:
            turn_of[record] = into.get(turn_of[record], turn_of[record])
        found = array("i", (opener for opener in found if opener not in into))
    for turn in found:
        up = into.get(above[turn], above[turn])
        above[turn] = NONE if up == turn or up in into else up
    return InTurns(found, turn_of, above)


def _joined(
    found: Iterable[int], above: Sequence[int], answered: Sequence[int], joins: Joins
) -> dict[int, int]:
    """The openers that open no turn of their own, and those above them."""
    heirs = bytearray(len(above))  # none, one, or more
    for opener in found:
        if above[opener] >= 0:
            heirs[above[opener]] = min(2, heirs[above[opener]] + 1)
    into: dict[int, int] = {}
    for opener in found:
        up = above[opener]
        if up < 0 or up == opener:
            continue
        if joins(opener, up, waits=not answered[up] and heirs[up] == 1):
            into[opener] = up
    return into


def openers(
    records: Iterable[int], parents: Sequence[int], opens: Callable[[int], bool]
) -> array[int]:
    """For every record the one that opens its turn: itself, or the nearest opener above."""
    unknown, on_path = -1, -2
    found = array("i", [unknown]) * len(parents)
    for record in records:
        path: list[int] = []
        at = top = record
        while at >= 0 and found[at] == unknown:
            found[at] = on_path
            path.append(at)
            top = at
            if opens(at):
                break
            at = parents[at]
        if at >= 0 and found[at] >= 0:
            top = found[at]
        for each in path:
            found[each] = top
    return found


def _ends(into: Mapping[int, int]) -> dict[int, int]:
    """Where each leads in the end; what leads back to itself, to one of those."""
    found: dict[int, int] = {}
    for opener in into:
        path: dict[int, None] = {}
        at = opener
        while at in into and at not in found and at not in path:
            path[at] = None
            at = into[at]
        found |= dict.fromkeys(path, found.get(at, at))
    return found


def answered_above(
    turn: str | None, parents: Mapping[str, str | None], answered: Callable[[str], bool]
) -> str | None:
    """The nearest turn that was answered: a pending prompt is never a head."""
    seen: set[str] = set()
    while turn is not None and turn not in seen and not answered(turn):
        seen.add(turn)
        turn = parents.get(turn)
    return None if turn in seen else turn
