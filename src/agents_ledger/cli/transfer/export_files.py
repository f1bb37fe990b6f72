"""export --format source, --file and --list: archived source files, as their agents wrote them."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from agents_ledger.cli.command import Invocation
from agents_ledger.exporters.source import kept_files, print_file, session_files, write_files

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.imports.sources import SourceFile


def export_sources(run: Invocation, ledger: Ledger, target: str, output: str | None) -> None:
    """Export the files that a session was derived from."""
    _write(run, ledger, session_files(ledger, ledger.session(target).label), output)


def export_files(
    run: Invocation, target: str | None, named: str | None, output: str | None, *, only_list: bool
) -> None:
    """List or export archived files, whether or not they belong to a session."""
    with run.reading() as ledger:
        if only_list and target is not None:
            label = ledger.session(ledger.lookup(target)).label
            _list(run, session_files(ledger, label))
        elif only_list or named is None:
            _list(run, kept_files(ledger, named).files)
        else:
            files, is_one = kept_files(ledger, named)
            _write(run, ledger, files, output, in_folder=not is_one)


def _write(
    run: Invocation,
    ledger: Ledger,
    files: Sequence[SourceFile],
    output: str | None,
    *,
    in_folder: bool = False,
) -> None:
    if output is None:
        print_file(ledger, files, sys.stdout.buffer)
        return
    written = [str(path) for path in write_files(ledger, files, Path(output), in_folder=in_folder)]
    if run.as_json:
        run.out.json(files=written, masked=())
        return
    for path in written:
        run.out.line(path)


def _list(run: Invocation, files: Sequence[SourceFile]) -> None:
    if run.as_json:
        rows = [
            {
                "path": file.path,
                "generation": file.generation,
                "source": file.source,
                "kind": file.kind,
                "bytes": file.kept_bytes,
            }
            for file in files
        ]
        run.out.json(files=rows)
        return
    cells = [[f.source, f.kind, f"{f.kept_bytes:,}", str(f.generation), f.path] for f in files]
    heads = ["SOURCE", "KIND", "BYTES", "GENERATION", "PATH"]
    run.out.table(heads, cells, right=("BYTES", "GENERATION"))
