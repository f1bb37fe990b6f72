"""Broken histories: whatever stands in a source, its reader makes something of it or reports it.

Each input is a small history of some source with a few changes: values of other kinds, ids that
meet or are missing, records that are gone, doubled, in another order, bytes that are no text. No
reader may fail, and what it says must hang together; now and then all of it goes into a ledger,
whose audit must find nothing.
"""

from __future__ import annotations

import codecs
import random
import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct, structs

from agents_ledger import Ledger, RequestRefused
from agents_ledger.importers.parsing import lenient_json
from agents_ledger.importers.pipeline import Importer, import_paths
from agents_ledger.importers.port.material import Material
from agents_ledger.importers.sources.registry import SOURCES
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.ids import as_id
from agents_ledger.model.imports.records import RowRecord, frame, records
from agents_ledger.model.imports.sources import Derivation, SourceFile
from tests.trust import harness, shapes
from tests.trust.harness import Options, Outcome

CARELESS = "values taken for objects"
LEDGER_EVERY = 40  # inputs; the others are only derived
REQUEST_EVERY = 20
DEEP = 5_000
COPIED = 0.3  # of the inputs have a file twice


class Family(Struct):
    """Files that are derived together, with their bytes."""

    source: str
    files: list[SourceFile]
    data: list[bytes]


class Given:
    """Bytes in the place of a ledger's."""

    def __init__(self, family: Family) -> None:
        self._data = {file.id: data for file, data in zip(family.files, family.data, strict=True)}

    def stream(self, file_id: int) -> Iterator[bytes]:
        """A file's bytes, in two pieces: records lie across them."""
        data = self._data[file_id]
        yield data[: len(data) // 2]
        yield data[len(data) // 2 :]

    def read(self, file_id: int, start: int, length: int) -> bytes:
        """Some bytes of a file."""
        return self._data[file_id][start : start + length]


# -- changes ----------------------------------------------------------------------------------


class Mutator:
    """Changes histories by chance."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.others: list[Any] = []  # values from the same history: ids meet

    def family(self, family: Family) -> Family:
        """The same files, some of them changed, sometimes beside a copy of one."""
        if self.chance.random() < COPIED:
            family = self._with_copy(family)
        data = list(family.data)
        for _ in range(self.chance.choice((1, 1, 2, 3))):
            at = self.chance.randrange(len(data))
            data[at] = self._file(family.files[at], data[at])
        files = [
            structs.replace(file, kept_bytes=len(each))
            for file, each in zip(family.files, data, strict=True)
        ]
        return Family(family.source, files, data)

    def _with_copy(self, family: Family) -> Family:
        at = self.chance.randrange(len(family.files))
        path = Path(family.files[at].path)
        beside = path.parent.with_name(f"{path.parent.name} copy") / path.name
        number = 1 + max(file.id for file in family.files)
        copy = structs.replace(family.files[at], id=number, path=str(beside))
        return Family(family.source, [*family.files, copy], [*family.data, family.data[at]])

    def _file(self, file: SourceFile, data: bytes) -> bytes:
        if self.chance.random() < 0.15:
            return self._bytes(data)
        if file.kind == "rows":
            return b"".join(self._row(each.row) for each in records([data]) if each.row)
        if file.kind == "lines":
            return self._lines(data)
        return self._text(data)

    def _lines(self, data: bytes) -> bytes:
        lines = data.split(b"\n")
        for _ in range(self.chance.choice((1, 1, 2, 4))):
            at = self.chance.randrange(len(lines))
            way = self.chance.random()
            if way < 0.7:
                lines[at] = self._text(lines[at])
            elif way < 0.8:
                lines.insert(self.chance.randrange(len(lines)), lines[at])
            elif way < 0.9:
                other = self.chance.randrange(len(lines))
                lines[at], lines[other] = lines[other], lines[at]
            elif len(lines) > 1:
                del lines[at]
        return b"\n".join(lines)

    def _row(self, row: RowRecord) -> bytes:
        values = list(row.values)
        if values and self.chance.random() < 0.4:
            at = self.chance.randrange(len(values))
            cell = values[at]
            if isinstance(cell, str | bytes) and self.chance.random() < 0.8:
                changed = self._text(cell if isinstance(cell, bytes) else cell.encode())
                values[at] = changed.decode(errors="replace")
            else:
                values[at] = self.chance.choice((None, 0, -1, 2.5, "", b"\xff", "x", 1 << 62))
        doubled = 2 if self.chance.random() < 0.05 else 1
        return frame(row._replace(values=tuple(values))) * doubled

    def _text(self, data: bytes) -> bytes:
        """JSON with a change in it; anything else with other bytes."""
        try:
            value = msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return self._bytes(data)
        self.others = list(_leaves(value)) or [None]
        changed = shapes.as_json(self.value(value))
        if self.chance.random() < 0.02:
            deep = b"[" * DEEP + b"]" * DEEP
            changed = changed.replace(b"null", deep, 1)
        if self.chance.random() < 0.05:
            changed = changed.replace(b'"', b'"\\ud83d', 2)
        return changed

    def value(self, value: Any) -> Any:
        """The value with one change somewhere in it."""
        if isinstance(value, dict) and value and self.chance.random() < 0.9:
            name = self.chance.choice(list(value))
            if self.chance.random() < 0.1:
                return {key: each for key, each in value.items() if key != name}
            return {**value, name: self.value(value[name])}
        if isinstance(value, list) and value and self.chance.random() < 0.9:
            at = self.chance.randrange(len(value))
            if self.chance.random() < 0.15:
                return value[:at] + value[at + 1 :]
            return [*value[:at], self.value(value[at]), *value[at + 1 :]]
        return self._other(value)

    def _other(self, value: Any) -> Any:
        return self.chance.choice(
            (
                None,
                True,
                -1,
                1 << 80,
                1e300,
                "",
                "x",
                "\x00\x1b[2J",
                [],
                {},
                [value],
                {"type": value},
                [None, 1, "x", {}],
                self.chance.choice(self.others),
                self.chance.choice(self.others),
            )
        )

    def _bytes(self, data: bytes) -> bytes:
        at = self.chance.randrange(len(data) + 1)
        way = self.chance.randrange(5)
        if way == 0:
            return data[:at]
        if way == 1:
            return data[:at] + self.chance.randbytes(4) + data[at:]
        if way == 2:
            return data[:at] + b"\x00\xff\xfe" + data[at + 3 :]
        if way == 3:
            return data[at:] + data[:at]
        return data.decode("latin-1").encode("utf-16")


def _leaves(value: Any) -> Iterator[Any]:
    waiting = [value]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each
        else:
            yield each


# -- checks -----------------------------------------------------------------------------------


def broken(derivation: Derivation) -> Iterator[str]:
    """What does not hang together."""
    seen: set[str] = set()
    owners: dict[str, str] = {}
    for derived in derivation.turns:
        if derived.id in seen:
            yield f"turn {derived.id!r} twice"
        if derived.parent_id is not None and derived.parent_id not in seen:
            yield f"turn {derived.id!r} before its parent"
        seen.add(derived.id)
        turn = derived.build()
        if turn.id != as_id(derived.id):
            yield f"turn {derived.id!r} built as {turn.id!r}"
        for message in turn.messages:
            owner = owners.setdefault(message.id, derived.id)
            if owner != derived.id:
                yield f"message {message.id!r} in {owner!r} and {derived.id!r}"
        places = sorted(step.sequence for step in turn.steps)
        if places != list(range(len(places))):
            yield f"turn {derived.id!r} has the places {places}"
    yield from _broken_sessions(derivation, seen)


def _broken_sessions(derivation: Derivation, turns: set[str]) -> Iterator[str]:
    labels: set[str] = set()
    for session in derivation.sessions:
        if session.head is not None and session.head not in turns:
            yield f"session {session.label!r} points at no turn"
        if session.label in labels:
            yield f"two sessions with the label {session.label!r}"
        labels.add(session.label)


def _text(data: bytes) -> str:
    """What a file says, lines as it has them."""
    is_wide = data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
    is_wider = data.startswith(codecs.BOM_UTF32_LE)
    if is_wide and not is_wider:
        return data.decode("utf-16", "replace")
    for encoding in ("utf-16-le", "utf-16-be"):  # without a mark it may be JSON
        begins = data[:4].decode(encoding, "replace").ljust(2, "x")
        if begins[0] in "{[" and begins[1] in '"{}[] \t\r\n\v\f':
            return data.decode(encoding, "replace")
    return data.decode("latin-1")


def lost(family: Family, derivation: Derivation) -> str | None:
    """Records that nobody accounts for, where each line is a record."""
    if {file.kind for file in family.files} != {"lines"}:
        return None
    lines = sum(bool(line.strip()) for data in family.data for line in _text(data).split("\n"))
    told = sum(derivation.counts.values())
    return f"{lines} records, {told} accounted for" if told < lines else None


class Fuzzer:
    """Derives changed histories, and imports some of them."""

    def __init__(self, options: Options, folder: Path) -> None:
        self.chance = random.Random(options.seed)
        self.folder = folder
        self.families = list(_families(folder))
        self.outcome = Outcome()

    def run(self, count: int) -> Outcome:
        """So many inputs."""
        for number in range(count):
            self.outcome.done += 1
            if number % REQUEST_EVERY == REQUEST_EVERY - 1:
                self._request(number)
                continue
            family = Mutator(self.chance).family(self.chance.choice(self.families))
            try:
                self._derive(number, family)
            except Exception as error:  # a finding, whatever it is
                self._found(family, _told(error))
        return self.outcome

    def _derive(self, number: int, family: Family) -> None:
        if number % LEDGER_EVERY == 0:
            self._import(number, family)
            return
        material = Material(Given(family), family.files)
        derivation = SOURCES[family.source].derive(material)
        for finding in broken(derivation):
            self._found(family, finding)
        if missing := lost(family, derivation):
            self._found(family, missing)

    def _import(self, number: int, family: Family) -> None:
        with Ledger.open(str(self.folder / f"{number}.db")) as ledger:
            importer = Importer(ledger)
            for file, data in zip(family.files, family.data, strict=True):
                begun = structs.replace(file, id=0, kept_bytes=0, generation=0)
                importer.sources.append(begun, data, size=len(data), mtime_ns=1)
            importer.derive(SOURCES[family.source], family.files[0].family)
            for finding in ledger.audit():
                self._found(family, f"audit: {finding}")
            again = Importer(ledger)
            again.derive(SOURCES[family.source], family.files[0].family)
            if again.report.written_turns:
                self._found(family, "derived again, it is not the same")
        for left in self.folder.glob(f"{number}.db*"):
            left.unlink()

    def _request(self, number: int) -> None:
        mutator = Mutator(self.chance)
        asked = shapes.a_request()
        mutator.others = list(_leaves(asked))
        for _ in range(self.chance.choice((1, 2))):
            asked = mutator.value(asked)
        with Ledger.open(str(self.folder / "requests.db")) as ledger:
            try:
                if isinstance(asked, dict):
                    ledger.import_sessions({**asked, "idempotencyKey": f"k{number}"})
            except RequestRefused:
                pass
            except Exception as error:  # a finding, whatever it is
                self.outcome.found(f"request {asked!r:.2000}: {_told(error)}")

    def _found(self, family: Family, finding: str) -> None:
        name = family.files[0].path
        self.outcome.found(f"{family.source} {name}: {finding}; {family.data!r:.1500}")


def _told(error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{type(error).__name__}: {error} at {Path(where.filename).name}:{where.lineno}"


def _families(folder: Path) -> Iterator[Family]:
    """The histories to start from, by what is kept of them."""
    shapes.write_all(folder / "shapes")
    with Ledger.open(str(folder / "shapes.db")) as ledger:
        report = import_paths(ledger, [folder / "shapes", *shapes.real_files()])
        assert report.counts.failed == 0, report.faults
        sources = Sources(ledger._core)
        known = {file.family: file.source for file in sources.all_files()}
        for family, source in known.items():
            files = list(sources.files_of_family(family))
            yield Family(source, files, [b"".join(sources.stream(file.id)) for file in files])


def plant(bug: str) -> None:
    """Plant a bug: a reader that believes what it reads."""
    if bug == CARELESS:
        for reader in SOURCES.values():
            for module in _modules_of(type(reader).__module__):
                if hasattr(module, "as_dict"):
                    module.as_dict = lambda value: value
        lenient_json.as_dict = lambda value: value
    elif bug:
        raise ValueError(bug)


def _modules_of(name: str) -> list[Any]:
    import sys

    return [module for key, module in sys.modules.items() if key.startswith(name)]


def fuzz(options: Options) -> Outcome:
    """Run the harness."""
    with harness.workplace() as place, tempfile.TemporaryDirectory(dir=place) as folder:
        fuzzer = Fuzzer(options, Path(folder))
        plant(options.plant)
        return fuzzer.run(options.count)


if __name__ == "__main__":
    harness.main(fuzz)
