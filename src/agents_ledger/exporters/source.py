"""Records in the form their source keeps them, out of what is kept for ever."""

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

_NATIVE = "It was recorded here: choose another format, such as markdown."
_COMPRESSED = ".zst"  # such a file is known without it
_LIST = "`agents-ledger export --list` lists the files that are kept."


class Kept(NamedTuple):
    """Files that are kept: each as it was last, and former states that held other lines."""

    files: list[SourceFile]
    is_one: bool  # the file at a path, and not what is below a folder or of a source


def kept_files(ledger: Ledger, named: str | None = None) -> Kept:
    """All that are kept, or the one at a path, those below a folder, or those of a source: also
    those that are of no session."""
    sources = ledger.sources
    found = Kept(list(sources.all_files()), False) if named is None else _named(sources, named)
    return found._replace(files=_with_former(sources, found.files))


def session_files(ledger: Ledger, label: str) -> list[SourceFile]:
    """The same of the files that a session comes from."""
    sources = ledger.sources
    files = _with_former(sources, sources.files_of_session(label))
    if not files:
        hint = _NATIVE
        session = ledger.session(label, exact=True)
        parent = session.parent_session_label
        if session.thread_id is None and parent and sources.files_of_session(parent):
            hint = f"It is known only from the call that started it: export its parent, {parent!r}."
        raise NotFound(f"no source records are kept for session {label!r}", hint)
    return files


def export_source(ledger: Ledger, label: str, target_path: str | Path) -> tuple[Path, ...]:
    """Write the files a session comes from; the paths written."""
    return write_files(ledger, session_files(ledger, label), target_path)


def write_files(
    ledger: Ledger,
    files: Sequence[SourceFile],
    target_path: str | Path,
    *,
    in_folder: bool = False,
) -> tuple[Path, ...]:
    """Write kept files; the paths written.

    One file becomes `target_path`, unless it is to be in a folder. Several become files of their
    names in a folder of that name; so does what a file held before it was written anew, where it
    holds it no longer. A database is made anew, with the rows that were read of it. Nothing is
    written if a file is there already.
    """
    sources = ledger.sources
    target = Path(target_path)
    is_single = len(files) == 1 and not in_folder
    paths = [target] if is_single else _inside(target, files)
    for path in paths if is_single or target.is_dir() else [target, *paths]:
        if os.path.lexists(path):
            raise Refused(f"{path} exists already", "Choose another path.")
    for file, path in zip(files, paths, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        if file.kind == "rows":
            _write_rows(sources, file, path)
        else:
            with open_new(path, "b") as opened:
                opened.writelines(sources.stream(file.id))
    return tuple(paths)


def print_file(ledger: Ledger, files: Sequence[SourceFile], out: BinaryIO) -> None:
    """Write the one file that these are into a stream."""
    if len(files) > 1 or files[0].kind == "rows":
        what = f"there are {len(files)} files" if len(files) > 1 else "it is a database"
        raise Refused(f"{what}: not to be printed", "Say where to write with --output.")
    out.writelines(ledger.sources.stream(files[0].id))
    out.flush()


def _named(sources: Sources, named: str) -> Kept:
    """Every state of the files at a path, below a folder, or of a source."""
    if not named:
        raise Refused("a path is empty", "Name a file, a folder or a source; `.` is this folder.")
    whole = os.path.abspath(os.path.expanduser(named))
    for path in (named, whole, whole.removesuffix(_COMPRESSED)):
        if sources.file(path) is not None:
            return Kept([file for file in sources.files_under(path) if file.path == path], True)
    of_source = [file for file in sources.all_files() if file.source == named]
    if of_source:
        return Kept(of_source, False)
    for folder in (named, whole):
        parting = "\\" if "\\" in folder else "/"
        found = sources.files_under(folder.rstrip(parting) + parting)
        if found:
            return Kept(list(found), False)
    raise NotFound(f"no source file is kept of {named!r}", _like(sources, named))


def _like(sources: Sources, named: str) -> str:
    """The sources that somebody may have meant; else what is kept can be listed."""
    names = sorted({file.source for file in sources.all_files()})
    close = [each for each in names if each.startswith(named)]
    close = close or get_close_matches(named, names, 2)
    return f"Did you mean {' or '.join(close)}?" if close else _LIST


def _with_former(sources: Sources, files: Iterable[SourceFile]) -> list[SourceFile]:
    """Files as they were last, and former states of them that held other lines."""
    found: list[SourceFile] = []
    states = sorted(files, key=lambda f: (f.path, -f.generation))
    for _, (latest, *former) in groupby(states, key=lambda file: file.path):
        found.append(latest)
        if not former or latest.kind != "lines":
            continue
        held = set(_lines(sources, latest))
        for file in former:
            lines = set(_lines(sources, file))
            if not lines <= held:
                found.append(file)
            held |= lines
    return found


def _lines(sources: Sources, file: SourceFile) -> Iterator[bytes]:
    """What tells each line from others."""
    line = blake2b(digest_size=16)
    for block in chain(sources.stream(file.id), (b"\n",)):
        *ended, begun = block.split(b"\n")
        for piece in ended:
            line.update(piece)
            yield line.digest()
            line = blake2b(digest_size=16)
        line.update(begun)


def _inside(folder: Path, files: Sequence[SourceFile]) -> list[Path]:
    """A path in the folder for each file: as they stood to each other. A former state has a number
    in its name, and so has whatever would take the place of another."""
    parts = [[part for part in _parts(file.path) if part not in ("", ".", "..")] for file in files]
    shared = 0
    while all(len(each) > shared + 1 for each in parts) and len({e[shared] for e in parts}) == 1:
        shared += 1
    wanted = [folder.joinpath(*each[shared:]) for each in parts]
    latest = {file.path: file for file in sorted(files, key=lambda file: file.generation)}
    taken = {above for path in wanted for above in path.parents}
    made: dict[int, Path] = {}
    former = [file is not latest[file.path] for file in files]
    for at in sorted(range(len(files)), key=former.__getitem__):
        numbers = count(files[at].generation if former[at] else 0)
        own = () if former[at] else (wanted[at],)
        names = chain(own, map(partial(_numbered, wanted[at]), numbers))
        made[at] = next(path for path in names if path not in taken)
        taken.add(made[at])
    return [made[at] for at in range(len(files))]


def _numbered(path: Path, number: int) -> Path:
    """With a number in the file's name, before the ending."""
    return path.with_name(f"{path.stem}~{number}{path.suffix}")


def _parts(path: str) -> list[str]:
    return path.replace("\\", "/").replace(":", "").split("/")


def _write_rows(sources: Sources, file: SourceFile, path: Path) -> None:
    """A database with the last version of every row, in the order they were written."""
    last: dict[bytes, int] = {}
    columns: dict[str, dict[str, None]] = {}
    for each in records(sources.stream(file.id)):
        if each.row is not None:
            last[each.row.identity] = each.offset
            columns.setdefault(each.row.table, {}).update(dict.fromkeys(each.row.columns))
    make_new(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA journal_mode = DELETE")
        made.execute("BEGIN")
        for table, names in columns.items():
            listed = ", ".join(_quoted(name) for name in names)
            made.execute(f"CREATE TABLE {_quoted(table)} ({listed})")
        for each, parts in parted(sources.stream(file.id)):
            if each.row is not None and last[each.row.identity] == each.offset:
                _insert(made, each.row)
                own = parts[len(parts) - sum(long.parts for long in each.row.parted) :]
                _write_parts(made, each.row, (sources.read(file.id, *at) for at in own))
        made.execute("COMMIT")


def _insert(made: sqlite3.Connection, row: RowRecord) -> None:
    names = ", ".join(_quoted(name) for name in row.columns)
    places, values = zip(*map(_bound, row.values), strict=True)
    listed = ", ".join(places)
    made.execute(f"INSERT INTO {_quoted(row.table)} ({names}) VALUES ({listed})", values)


def _bound(value: Any) -> tuple[str, Any]:
    """How a value is given to the database. A text that is not UTF-8 can only be given as bytes;
    what stands in parts is written when there is room for it."""
    long = Parted.of(value)
    if long is not None:
        return "zeroblob(?)", long.size
    if isinstance(value, msgpack.Ext):
        return "CAST(? AS TEXT)", bytes(value.data)
    return "?", value


def _write_parts(made: sqlite3.Connection, row: RowRecord, frames: Iterable[bytes]) -> None:
    """Fill the room of the row that was inserted last."""
    for column, value in zip(row.columns, row.values, strict=True):
        long = Parted.of(value)
        if long is None:
            continue
        (rowid,) = made.execute("SELECT last_insert_rowid()").fetchone()
        with made.blobopen(row.table, column, rowid) as blob:
            for data in islice(frames, long.parts):
                found = unframe(data)
                blob.write(found.values[0] if found else b"")
        if long.is_text:
            table, named = _quoted(row.table), _quoted(column)
            cast = f"UPDATE {table} SET {named} = CAST({named} AS TEXT) WHERE rowid = ?"
            made.execute(cast, (rowid,))


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
