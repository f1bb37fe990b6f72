"""Whether imports still derive the same rows: digests of all derived rows, recorded and checked.

    python -m tests.trust.derived_digests --record FILE | --check FILE [--fast] [--rows FOLDER]

Imports the corpus of real logs (where AGENTS_LEDGER_CORPUS names it) and made histories of other
sources through the command `agents-ledger`: at once, file by file in another order, and as files
that grow; on SQLite, and at once on PostgreSQL, which must end in the same rows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import shutil
import sqlite3
import sys
import time
from collections.abc import Callable, Container, Iterator
from contextlib import closing, contextmanager, nullcontext, redirect_stderr, redirect_stdout
from pathlib import Path
from random import Random
from typing import Any

from agents_ledger.cli.main import main as command
from tests.importers.test_corpus import WITHOUT_READER
from tests.trust import harness
from tests.trust.derived import fixtures, rows
from tests.trust.derived.rows import Rows
from tests.trust.server import own_server, with_schema

CORPUS = "AGENTS_LEDGER_CORPUS"
RECORDED = Path(__file__).parent / "derived" / "digests.json"
CHANGED_NS = 1_790_000_000_000_000_000  # when every file says it was written
GROWING_BYTES = 700_000  # larger files are not grown, to be done in time
SIDECARS = ("-wal", "-shm", "-journal")
# The wording of faults may be improved; where they stand may not move.
WORDING = {"fault_texts", "report_texts"}
REFUSED = 5  # exit code of a file that no importer reads

Digests = dict[str, dict[str, str]]  # by scenario and table
Import = Callable[[str, Path], list[str]]


def run(*arguments: str) -> str:
    """What the command prints; nothing if it refuses."""
    out, notes = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(out), redirect_stderr(notes):
            command(list(arguments))
    except SystemExit as end:
        if end.code not in {0, 1, REFUSED}:
            raise RuntimeError(f"{' '.join(arguments)}: {notes.getvalue()}") from end
    return out.getvalue()


# -- ways to import ---------------------------------------------------------------------------


def files_of(folder: Path) -> list[Path]:
    paths = (path for path in folder.rglob("*") if path.is_file())
    return sorted(path for path in paths if not path.name.endswith(SIDECARS))


def at_once(ledger: str, folder: Path) -> list[str]:
    return [run("import", "--ledger", ledger, "--json", str(folder))]


def one_by_one(ledger: str, folder: Path) -> list[str]:
    """Every file by itself, in an order that is not the one they are discovered in."""
    paths = files_of(folder)
    Random(22).shuffle(paths)
    reports = (run("import", "--ledger", ledger, "--json", str(path)) for path in paths)
    return list(filter(None, reports))


def growing(ledger: str, folder: Path) -> list[str]:
    """A third of every file, two thirds, and all of it."""
    whole = folder.with_name(f"{folder.name}-whole")
    folder.rename(whole)
    reports = []
    for thirds in (1, 2, 3):
        for path in files_of(whole):
            target = folder / path.relative_to(whole)
            target.parent.mkdir(parents=True, exist_ok=True)
            if path.stat().st_size <= GROWING_BYTES:
                grow(path, target, thirds)
        settle(folder, thirds)
        reports += at_once(ledger, folder)
    shutil.rmtree(folder)
    whole.rename(folder)
    return reports


def grow(path: Path, target: Path, thirds: int) -> None:
    """Write the first part of a file: of a log its bytes, of a document the entries of its lists,
    of a database the rows of its tables."""
    content = path.read_bytes()
    if content.startswith(b"SQLite format 3"):
        target.unlink(missing_ok=True)
        with closing(sqlite3.connect(path)) as whole, closing(sqlite3.connect(target)) as part:
            whole.backup(part)
            part.execute("PRAGMA journal_mode = DELETE")
            for (table,) in part.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table' AND sql NOT LIKE '%VIRTUAL%'"
                " AND sql NOT LIKE '%WITHOUT ROWID%' AND name NOT LIKE 'sqlite_%'"
            ).fetchall():
                part.execute(
                    f'DELETE FROM "{table}" WHERE rowid NOT IN (SELECT rowid FROM "{table}" ORDER'
                    f' BY rowid LIMIT (SELECT (count(*) * {thirds} + 2) / 3 FROM "{table}"))'
                )
            part.commit()
        return
    try:
        document = json.loads(content)
    except ValueError:
        target.write_bytes(content[: len(content) * thirds // 3])
    else:
        target.write_text(json.dumps(first_entries(document, thirds)))


def first_entries(value: Any, thirds: int) -> Any:
    if isinstance(value, dict):
        return {key: first_entries(each, thirds) for key, each in value.items()}
    if isinstance(value, list) and any(isinstance(entry, dict) for entry in value):
        return value[: (len(value) * thirds + 2) // 3]
    return value


def states(ledger: str, folder: Path) -> list[str]:
    """The states that a file was really in, one after another, at one path."""
    reports = []
    for place in sorted(folder.glob("*/*")):
        prefix = "rollout-2026-03-01T10-00-00-" if "codex" in folder.name else ""
        target = folder.with_name(f"{folder.name}-states") / f"{prefix}{place.name}.jsonl"
        target.parent.mkdir(exist_ok=True)
        for number, state in enumerate(sorted(place.iterdir())):
            shutil.copyfile(state, target)
            settle(target.parent, number)
            reports += at_once(ledger, target)
    return reports


def requests(ledger: str, folder: Path) -> list[str]:
    return [run("import", "--ledger", ledger, "--request", str(p)) for p in files_of(folder)]


def settle(folder: Path, second: int = 0) -> None:
    """Give all files a time that is the same on every run."""
    ns = CHANGED_NS + second * 1_000_000_000
    for path in folder.rglob("*"):
        os.utime(path, ns=(ns, ns))


# -- scenarios --------------------------------------------------------------------------------


def sources(place: Path, *, with_corpus: bool) -> Iterator[tuple[str, Path]]:
    """Every source and its files, copied or made here."""
    for name, make in {**fixtures.FILES, "requests": fixtures.requests}.items():
        folder = place / "made" / name
        make(folder)
        yield f"made/{name}", folder
    if with_corpus:
        for origin in sorted(Path(os.environ[CORPUS]).iterdir()):
            if origin.is_dir() and origin.name not in WITHOUT_READER:
                folder = place / "corpus" / origin.name
                shutil.copytree(origin, folder, copy_function=shutil.copyfile)
                for path in (folder, *folder.rglob("*")):
                    path.chmod(0o700 if path.is_dir() else 0o600)
                yield f"corpus/{origin.name}", folder


def ways(source: str, *, fast: bool) -> dict[str, Import]:
    if source == "made/requests":
        return {"at once": requests}
    if fast:
        return {"at once": at_once}
    grown = states if source.endswith("_snapshots") else growing
    return {"at once": at_once, "one by one": one_by_one, "growing": grown}


def report_rows(reports: list[str], root: Path) -> dict[str, Rows]:
    """What imports reported, with the words of faults apart from where they stand."""
    lines, words = [], []
    for printed in reports:
        report = json.loads(printed.replace(str(root), ""))
        words.append(json.dumps([fault.pop("what", None) for fault in report.get("faults", ())]))
        lines.append(json.dumps(report, sort_keys=True))
    return {"report": lines, "report_texts": words}


def save(tables: dict[str, Rows], place: Path) -> None:
    """Write rows to files, for somebody to compare."""
    place.mkdir(parents=True, exist_ok=True)
    for table, lines in tables.items():
        (place / table).write_text("\n".join([*lines, ""]), errors="surrogateescape")


def imported(import_: Import, ledger: str, folder: Path, root: Path) -> dict[str, Rows]:
    """What an import derives and reports."""
    reports = import_(ledger, folder)
    return rows.read(ledger, root) | report_rows(reports, root)


def repeated(ledger: str, folder: Path, root: Path) -> dict[str, str]:
    """What an import of the same files, and deriving all again, change: nothing."""
    before = rows.digests(rows.read(ledger, root))
    again, derived = at_once(ledger, folder), run("rederive", "--ledger", ledger, "--json")
    after = rows.digests(rows.read(ledger, root))
    changed = sorted(t for t in before.keys() | after.keys() if before.get(t) != after.get(t))
    counts = {key: json.loads(again[0])[key] for key in ("imported", "upserted", "skipped")}
    return {"changed tables": str(changed), "report": f"{counts} {derived.strip()}"}


@contextmanager
def home(place: Path) -> Iterator[None]:
    """A home without settings or other histories."""
    place.mkdir()
    before = os.environ.copy()
    for name in [name for name in os.environ if name.startswith(("XDG_", "AGENTS_LEDGER"))]:
        if name != CORPUS:
            del os.environ[name]
    os.environ["HOME"] = str(place)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def measure(
    *,
    with_corpus: bool,
    fast: bool = False,
    server: str | None = None,
    out: Path | None = None,
    only: Container[str] | None = None,
) -> Digests:
    """The digests of all scenarios; on a server, how its rows differ from those of SQLite too."""
    measured: Digests = {}
    with harness.workplace() as place, home(place / "home"):
        for source, folder in sources(place, with_corpus=with_corpus):
            if only is not None and source not in only:
                continue
            settle(folder)
            for way, import_ in ways(source, fast=fast).items():
                ledger = str(place / f"{len(measured)}.db")
                tables = imported(import_, ledger, folder, place)
                if out is not None:
                    save(tables, out / source / way.replace(" ", "-"))
                digests = measured[f"{source}, {way}"] = rows.digests(tables)
                if way == "at once" and not fast and import_ is at_once:
                    measured[f"{source}, repeated"] = repeated(ledger, folder, place)
                Path(ledger).unlink()
                if way == "at once" and server is not None:
                    address = with_schema(server, f"n{len(measured)}")
                    other = rows.digests(imported(import_, address, folder, place))
                    measured[f"{source}, engines"] = differing(digests, other)
            shutil.rmtree(folder)
    return measured


def differing(one: dict[str, str], other: dict[str, str]) -> dict[str, str]:
    """The tables in which two digests differ, and how."""
    return {
        table: f"{one.get(table)} | {other.get(table)}"
        for table in sorted(one.keys() | other.keys())
        if one.get(table) != other.get(table)
    }


def differences(recorded: Digests, measured: Digests) -> Iterator[tuple[str, str, str]]:
    """Scenario, table, and both digests; of scenarios that were recorded and measured."""
    for scenario in recorded.keys() & measured.keys():
        for table, values in differing(recorded[scenario], measured[scenario]).items():
            yield scenario, table, values


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--record", type=Path, metavar="FILE")
    parser.add_argument("--check", type=Path, metavar="FILE")
    parser.add_argument("--fast", action="store_true", help="SQLite alone, all files at once")
    parser.add_argument("--made", action="store_true", help="without the corpus")
    parser.add_argument("--no-postgres", action="store_true")
    parser.add_argument("--rows", type=Path, metavar="FOLDER", help="where rows are written")
    options = parser.parse_args()
    started, cpu = time.monotonic(), time.process_time()
    with_corpus = bool(os.environ.get(CORPUS)) and not options.made
    alone = options.fast or options.no_postgres
    with nullcontext() if alone else own_server() as server:
        if server is not None:
            server.set("fsync = off", "synchronous_commit = off", "full_page_writes = off")
        address = server.address if server is not None else None
        measured = measure(
            with_corpus=with_corpus, fast=options.fast, server=address, out=options.rows
        )
    if options.record is not None:
        options.record.write_text(json.dumps(measured, indent=1, sort_keys=True) + "\n")
    failed = 0
    if options.check is not None:
        recorded = json.loads(options.check.read_text())
        for scenario, table, values in sorted(differences(recorded, measured)):
            is_wording = table in WORDING
            failed += not is_wording
            print(f"{'wording' if is_wording else 'DIFFERS'}: {scenario}: {table}: {values}")
    elif options.record is None:
        for scenario, digests in measured.items():
            print(scenario, rows.digest([json.dumps(digests, sort_keys=True)]))
    spent = f"{time.monotonic() - started:.0f} s, {time.process_time() - cpu:.0f} s of CPU"
    print(f"{len(measured)} scenarios, {failed} differences, {spent}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
