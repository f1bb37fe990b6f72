"""Source files as they were imported, written back from the archive."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from difflib import get_close_matches
from functools import partial
from hashlib import blake2b
from itertools import chain, count, groupby, islice
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

from msgspec import msgpack

from agents_ledger.exporters.private_files import make_new, open_new
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.ledger.projection.source_records import Sources
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.imports.records import Parted, RowRecord, parted, records, unframe
from agents_ledger.model.imports.sources import SourceFile

_NATIVE = "It was recorded in this ledger: choose another format, such as markdown."
# The archive has such a file under its name without the suffix.
_COMPRESSED = ".zst"
_LIST = "`agents-ledger export --list` lists the archived files."


class ArchivedFiles(NamedTuple):
    """Archived files: the latest state of each, and earlier states with lines it has lost."""

    files: list[SourceFile]
    is_one: bool  # selected by the path of a file, not by a folder or a source


def kept_files(ledger: Ledger, selector: str | None = None) -> ArchivedFiles:
    """All archived files, or those of a path, a folder or a source, whether or not they belong to
    a session."""
    sources = ledger.sources
    if selector is None:
        selected = ArchivedFiles(list(sources.all_files()), False)
    else:
        selected = _select(sources, selector)
    return selected._replace(files=_with_earlier_states(sources, selected.files))


def session_files(ledger: Ledger, label: str) -> list[SourceFile]:
    """The archived files that a session was imported from."""
    sources = ledger.sources
    files = _with_earlier_states(sources, sources.files_of_session(label))
    if not files:
        hint = _NATIVE
        session = ledger.session(label, exact=True)
        parent = session.parent_session_label
        if session.thread_id is None and parent and sources.files_of_session(parent):
            hint = f"Only the call that started it was recorded: export its parent, {parent!r}."
        raise NotFound(f"session {label!r} has no archived source files", hint)
    return files


def export_source(ledger: Ledger, label: str, target_path: str | Path) -> tuple[Path, ...]:
    """Write the files that a session was imported from. Returns the paths written."""
    return write_files(ledger, session_files(ledger, label), target_path)


def write_files(
    ledger: Ledger, files: Sequence[SourceFile], target_path: str | Path, *, in_folder: bool = False
) -> tuple[Path, ...]:
    """Write archived files. Returns the paths written.

    A single file is written to `target_path`, unless `in_folder`. Several files, or several states
    of one, are written into a folder of that name. A database is rebuilt from the rows that were
    imported. Nothing is written if one of the paths exists.
    """
    sources = ledger.sources
    target = Path(target_path)
    is_single = len(files) == 1 and not in_folder
    paths = [target] if is_single else _inside(target, files)
    for path in paths if is_single or target.is_dir() else [target, *paths]:
        # All paths are checked before the first is written. lexists: a dangling link counts as
        # taken.
        if os.path.lexists(path):
            raise Refused(f"{path} already exists", "Choose another path.")
    for file, path in zip(files, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.kind == "rows":
            _write_rows(sources, file, path)
        else:
            with open_new(path, "b") as opened:
                opened.writelines(sources.stream(file.id))
    return tuple(paths)


def print_file(ledger: Ledger, files: Sequence[SourceFile], out: BinaryIO) -> None:
    if len(files) > 1 or files[0].kind == "rows":
        what = f"{len(files)} files" if len(files) > 1 else "a database"
        raise Refused(f"cannot print {what}", "Name a path with --output.")
    out.writelines(ledger.sources.stream(files[0].id))
    out.flush()


def _select(sources: Sources, selector: str) -> ArchivedFiles:
    """Every state of the files of a path, a folder or a source."""
    if not selector:
        raise Refused("a path is empty", "Name a file, a folder or a source; `.` is this folder.")
    absolute = os.path.abspath(os.path.expanduser(selector))
    for path in (selector, absolute, absolute.removesuffix(_COMPRESSED)):
        if sources.file(path) is not None:
            states = [file for file in sources.files_under(path) if file.path == path]
            return ArchivedFiles(states, True)
    of_source = [file for file in sources.all_files() if file.source == selector]
    if of_source:
        return ArchivedFiles(of_source, False)
    for folder in (selector, absolute):
        separator = "\\" if "\\" in folder else "/"
        files = sources.files_under(folder.rstrip(separator) + separator)
        if files:
            return ArchivedFiles(list(files), False)
    raise NotFound(f"no archived file matches {selector!r}", _suggestion(sources, selector))


def _suggestion(sources: Sources, selector: str) -> str:
    names = sorted({file.source for file in sources.all_files()})
    close = [name for name in names if name.startswith(selector)]
    close = close or get_close_matches(selector, names, 2)
    return f"Did you mean {' or '.join(close)}?" if close else _LIST


def _with_earlier_states(sources: Sources, files: Iterable[SourceFile]) -> list[SourceFile]:
    """The latest state of each file, and the earlier states with lines that later ones lack."""
    selected: list[SourceFile] = []
    states = sorted(files, key=lambda f: (f.path, -f.generation))
    for _, (latest, *earlier) in groupby(states, key=lambda file: file.path):
        selected.append(latest)
        if not earlier or latest.kind != "lines":
            continue
        # Digests rather than lines: files of several gigabytes occur.
        written = set(_line_digests(sources, latest))
        for file in earlier:
            lines = set(_line_digests(sources, file))
            if not lines <= written:
                selected.append(file)
            written |= lines
    return selected


def _line_digests(sources: Sources, file: SourceFile) -> Iterator[bytes]:
    line = blake2b(digest_size=16)
    for block in chain(sources.stream(file.id), (b"\n",)):
        *ends, start = block.split(b"\n")
        for end in ends:
            line.update(end)
            yield line.digest()
            line = blake2b(digest_size=16)
        line.update(start)


def _inside(folder: Path, files: Sequence[SourceFile]) -> list[Path]:
    """A path in the folder for each file, relative to the folder they share. Earlier states and
    paths that would collide get a number in their name."""
    names = [[name for name in _names(file.path) if name not in ("", ".", "..")] for file in files]
    shared = 0
    while all(len(parts) > shared + 1 for parts in names) and len({p[shared] for p in names}) == 1:
        shared += 1
    wanted = [folder.joinpath(*parts[shared:]) for parts in names]
    latest = {file.path: file for file in sorted(files, key=lambda file: file.generation)}
    taken = {parent for path in wanted for parent in path.parents}
    paths: dict[int, Path] = {}
    is_earlier = [file is not latest[file.path] for file in files]
    for at in sorted(range(len(files)), key=is_earlier.__getitem__):
        numbers = count(files[at].generation if is_earlier[at] else 0)
        unnumbered = () if is_earlier[at] else (wanted[at],)
        candidates = chain(unnumbered, map(partial(_numbered, wanted[at]), numbers))
        paths[at] = next(path for path in candidates if path not in taken)
        taken.add(paths[at])
    return [paths[at] for at in range(len(files))]


def _numbered(path: Path, number: int) -> Path:
    return path.with_name(f"{path.stem}~{number}{path.suffix}")


def _names(path: str) -> list[str]:
    return path.replace("\\", "/").replace(":", "").split("/")


def _write_rows(sources: Sources, file: SourceFile, path: Path) -> None:
    """A database with the last version of every row, in the order they were written."""
    last: dict[bytes, int] = {}
    columns: dict[str, dict[str, None]] = {}
    for record in records(sources.stream(file.id)):
        if record.row is not None:
            last[record.row.identity] = record.offset
            columns.setdefault(record.row.table, {}).update(dict.fromkeys(record.row.columns))
    # Created private first: SQLite would create it with the umask.
    make_new(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("PRAGMA journal_mode = DELETE")
        database.execute("BEGIN")
        for table, names in columns.items():
            listed = ", ".join(_quoted(name) for name in names)
            database.execute(f"CREATE TABLE {_quoted(table)} ({listed})")
        for record, parts in parted(sources.stream(file.id)):
            if record.row is not None and last[record.row.identity] == record.offset:
                _insert(database, record.row)
                own = parts[len(parts) - sum(long.parts for long in record.row.parted) :]
                _write_parts(database, record.row, (sources.read(file.id, *at) for at in own))
        database.execute("COMMIT")


def _insert(database: sqlite3.Connection, row: RowRecord) -> None:
    names = ", ".join(_quoted(name) for name in row.columns)
    placeholders, values = zip(*map(_bound, row.values), strict=True)
    listed = ", ".join(placeholders)
    database.execute(f"INSERT INTO {_quoted(row.table)} ({names}) VALUES ({listed})", values)


def _bound(value: Any) -> tuple[str, Any]:
    """A placeholder and its value. SQLite takes text that is not UTF-8 only as bytes; a long value
    is reserved here and filled in by _write_parts()."""
    long = Parted.of(value)
    if long is not None:
        return "zeroblob(?)", long.size
    if isinstance(value, msgpack.Ext):
        return "CAST(? AS TEXT)", bytes(value.data)
    return "?", value


def _write_parts(database: sqlite3.Connection, row: RowRecord, frames: Iterable[bytes]) -> None:
    """Fill the long values of the row that was inserted last."""
    for column, value in zip(row.columns, row.values, strict=True):
        long = Parted.of(value)
        if long is None:
            continue
        (rowid,) = database.execute("SELECT last_insert_rowid()").fetchone()
        with database.blobopen(row.table, column, rowid) as blob:
            for data in islice(frames, long.parts):
                part = unframe(data)
                blob.write(part.values[0] if part else b"")
        if long.is_text:
            table, name = _quoted(row.table), _quoted(column)
            cast = f"UPDATE {table} SET {name} = CAST({name} AS TEXT) WHERE rowid = ?"
            database.execute(cast, (rowid,))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
