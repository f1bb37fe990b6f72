"""export: write a conversation in one of our formats or in that of its source; source files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, get_args

import click

from agents_ledger.cli.command import Invocation, command, complete_target
from agents_ledger.cli.terminal import note
from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.exporters.private_files import open_new
from agents_ledger.exporters.secrets import Masked, review
from agents_ledger.model.context import PROVIDER_FORMATS
from agents_ledger.model.errors import NotFound, Refused
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from collections.abc import Sequence

    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.imports.sources import SourceFile

FORMATS = ("source", *get_args(Form))
SUFFIXES = {
    ".jsonl": "messages",
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".html": "html",
}


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format.  [default: by the extension of --output; else source, or markdown]",
)
@click.option(
    "-o", "--output", type=click.Path(), help="File to write.  [default: standard output]"
)
@click.option(
    "--provider",
    type=click.Choice(PROVIDER_FORMATS),
    default="anthropic",
    show_default=True,
    help="Message format, with --format messages.",
)
@click.option(
    "--last",
    type=click.IntRange(1),
    metavar="N",
    help="Number of final turns to export.  [default: all]",
)
@click.option("--full", is_flag=True, help="Include long results completely, in Markdown and HTML.")
@click.option("--no-subagents", is_flag=True, help="Omit the threads of subagents.")
@click.option("--no-mask", is_flag=True, help="Do not mask secrets.")
@click.option(
    "--review", "only_review", is_flag=True, help="List what would be masked; export nothing."
)
@click.option(
    "--file", metavar="PATH|SOURCE", help="Export archived source files instead of a TARGET."
)
@click.option("--list", "only_list", is_flag=True, help="List the archived source files.")
def export(
    run: Invocation,
    *,
    target: str | None,
    form: str | None,
    output: str | None,
    provider: str,
    last: int | None,
    full: bool,
    no_subagents: bool,
    no_mask: bool,
    only_review: bool,
    file: str | None,
    only_list: bool,
) -> None:
    """Export a conversation as Markdown, JSON, messages, one HTML file, or in its source format."""
    if file is not None or only_list:
        not_applicable = {
            f"--format {form}": form not in (None, "source"),
            "--provider": _is_set("provider"),
            "--last": last,
            "--full": full,
            "--no-subagents": no_subagents,
            "--no-mask": no_mask,
            "--review": only_review,
        }
        _check_files(target, file, [name for name, is_set in not_applicable.items() if is_set])
        if only_list and output is not None:
            raise click.UsageError("--list and --output cannot be combined")
        _files(run, target, file, output, only_list=only_list)
        return
    if target is None:
        raise click.UsageError("Give a TARGET, or source files with --file.")
    with run.reading() as ledger:
        target = ledger.lookup(target)
        if only_review:
            _review(run, Export(ledger, target, "json", last=last, subagents=not no_subagents))
            return
        chosen = form or _format_of(output) or _default_format(ledger, target)
        if chosen == "source":
            if last is not None:
                raise Refused(
                    "--last does not apply to the format source",
                    "Choose another --format, such as markdown.",
                )
            _source(run, ledger, target, output)
            return
        form_ = next(name for name in get_args(Form) if name == chosen)
        exported = Export(
            ledger,
            target,
            form_,
            mask=not no_mask,
            full=full,
            last=last,
            subagents=not no_subagents,
            provider=provider,
        )
        _write(run, exported, output)


def _is_set(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _check_files(target: str | None, file: str | None, not_applicable: Sequence[str]) -> None:
    if target is not None and file is not None:
        raise click.UsageError("TARGET and --file cannot be combined")
    if not_applicable:
        verb = "does" if len(not_applicable) == 1 else "do"
        raise click.UsageError(f"{', '.join(not_applicable)} {verb} not apply to source files")


def _format_of(output: str | None) -> str | None:
    """The format for the extension of a file name; None without an extension."""
    extension = Path(output).suffix.lower() if output else ""
    if not extension:
        return None
    if extension not in SUFFIXES:
        raise Refused(
            f"{output} has the unknown extension {extension}",
            f"Extensions are {', '.join(SUFFIXES)}; or choose a --format.",
        )
    return SUFFIXES[extension]


def _default_format(ledger: Ledger, target: str) -> str:
    """`source` for an imported session; `markdown` for recorded sessions and for turns."""

    try:
        label = ledger.session(target).label
    except NotFound:
        return "markdown"
    return "source" if ledger.sources.files_of_session(label) else "markdown"


def _source(run: Invocation, ledger: Ledger, target: str, output: str | None) -> None:
    from agents_ledger.exporters.source import session_files

    _export_files(run, ledger, session_files(ledger, ledger.session(target).label), output)


def _files(
    run: Invocation, target: str | None, named: str | None, output: str | None, *, only_list: bool
) -> None:
    """List or export archived files, whether or not they belong to a session."""
    from agents_ledger.exporters.source import kept_files, session_files

    with run.reading() as ledger:
        if only_list and target is not None:
            label = ledger.session(ledger.lookup(target)).label
            _list(run, session_files(ledger, label))
        elif only_list or named is None:
            _list(run, kept_files(ledger, named).files)
        else:
            files, is_one = kept_files(ledger, named)
            _export_files(run, ledger, files, output, in_folder=not is_one)


def _export_files(
    run: Invocation,
    ledger: Ledger,
    files: Sequence[SourceFile],
    output: str | None,
    *,
    in_folder: bool = False,
) -> None:
    from agents_ledger.exporters.source import print_file, write_files

    if output is None:
        print_file(ledger, files, sys.stdout.buffer)
        return
    written = write_files(ledger, files, Path(output), in_folder=in_folder)
    _print_written(run, [str(path) for path in written], ())


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
        run.out.json(kept=rows)
        return
    cells = [[f.source, f.kind, f"{f.kept_bytes:,}", str(f.generation), f.path] for f in files]
    heads = ["SOURCE", "KIND", "BYTES", "GENERATION", "PATH"]
    run.out.table(heads, cells, right=("BYTES", "GENERATION"))


def _write(run: Invocation, exported: Export, output: str | None) -> None:
    if output is None:
        for piece in exported:
            run.out.piece(piece)
        _print_masked(exported.masked)
        return
    path = Path(output)
    if path.is_dir():
        raise Refused(f"{path} is a folder", "Give the path of a new file.")
    try:
        opened = open_new(path, "t", encoding="utf-8", newline="\n")
    except FileExistsError as error:
        raise Refused(f"{path} already exists", "Choose another path.") from error
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise Refused(message, "Choose a file in an existing, writable folder.") from error
    try:
        with opened:
            opened.writelines(exported)
    except BaseException:
        # A truncated file would look complete.
        path.unlink()
        raise
    _print_written(run, [str(path)], exported.masked)


def _print_written(run: Invocation, files: list[str], masked: tuple[Masked, ...]) -> None:
    if run.as_json:
        run.out.json(files=files, masked=masked)
        return
    for file in files:
        run.out.line(file)
    _print_masked(masked)


def _print_masked(masked: tuple[Masked, ...]) -> None:
    counts = review(masked)
    if counts:
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        note(("masked ", "dim"), kinds, ("; --review lists them, --no-mask keeps them", "dim"))


def _review(run: Invocation, exported: Export) -> None:
    for _ in exported:  # masks as it is read
        pass
    if run.as_json:
        run.out.json(files=[], masked=exported.masked)
        return
    if not exported.masked:
        note("No secrets detected.")
        return
    rows = [
        [secret.kind, str(secret.count), secret.shown, secret.where] for secret in exported.masked
    ]
    run.out.table(["KIND", "TIMES", "SHOWN AS", "WHERE"], rows, right=("TIMES",))
    note(
        (
            f"{humanize.count(sum(secret.count for secret in exported.masked), 'place')} masked",
            "dim",
        )
    )
