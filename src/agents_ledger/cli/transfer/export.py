"""export: a conversation given away, in a form of ours or in its source's own; and source files."""

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

FORMS = ("source", *get_args(Form))
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
    type=click.Choice(FORMS),
    help="In this form.  [by the ending of --output; else source, or markdown without one]",
)
@click.option("-o", "--output", type=click.Path(), help="Where to write; else it is printed.")
@click.option(
    "--provider",
    type=click.Choice(PROVIDER_FORMATS),
    default="anthropic",
    show_default=True,
    help="Whose messages.",
)
@click.option("--last", type=click.IntRange(1), metavar="N", help="Only so many turns.")
@click.option("--full", is_flag=True, help="Long results whole, in Markdown and HTML too.")
@click.option("--no-subagents", is_flag=True, help="Without what subagents said.")
@click.option("--no-mask", is_flag=True, help="Leave secrets as they are.")
@click.option("--review", "only_review", is_flag=True, help="Only tell what would be masked.")
@click.option("--file", metavar="PATH|SOURCE", help="Kept source files, instead of a TARGET.")
@click.option("--list", "only_list", is_flag=True, help="Only list the source files that are kept.")
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
    """Give a conversation away: Markdown, JSON, messages, one HTML file, or its own format."""
    if file is not None or only_list:
        unfit = {
            f"--format {form}": form not in (None, "source"),
            "--provider": _is_given("provider"),
            "--last": last,
            "--full": full,
            "--no-subagents": no_subagents,
            "--no-mask": no_mask,
            "--review": only_review,
        }
        _check_files(target, file, [name for name, is_given in unfit.items() if is_given])
        if only_list and output is not None:
            raise click.UsageError("--list writes no file: leave out --output")
        _files(run, target, file, output, only_list=only_list)
        return
    if target is None:
        raise click.UsageError("name a TARGET, or source files with --file")
    with run.reading() as ledger:
        target = ledger.lookup(target)
        if only_review:
            _review(run, Export(ledger, target, "json", last=last, subagents=not no_subagents))
            return
        chosen = form or _told_by(output) or _kept_as(ledger, target)
        if chosen == "source":
            if last is not None:
                raise Refused(
                    "source records come whole: --last has no meaning for them",
                    "Choose another format, such as markdown.",
                )
            _source(run, ledger, target, output)
            return
        wanted = next(each for each in get_args(Form) if each == chosen)
        made = Export(
            ledger,
            target,
            wanted,
            mask=not no_mask,
            full=full,
            last=last,
            subagents=not no_subagents,
            provider=provider,
        )
        _write(run, made, output)


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


def _check_files(target: str | None, file: str | None, unfit: Sequence[str]) -> None:
    if target is not None and file is not None:
        raise click.UsageError("name a TARGET, or source files with --file, and not both")
    if unfit:
        means = "has no meaning" if len(unfit) == 1 else "have no meaning"
        raise click.UsageError(f"source files come as they are: {', '.join(unfit)} {means} here")


def _told_by(output: str | None) -> str | None:
    """The form that the ending of a file's name tells; None: it has none."""
    ending = Path(output).suffix.lower() if output else ""
    if not ending:
        return None
    if ending not in SUFFIXES:
        raise Refused(
            f"{output} ends in {ending}, which tells no format",
            f"Endings are {', '.join(SUFFIXES)}; or choose with --format.",
        )
    return SUFFIXES[ending]


def _kept_as(ledger: Ledger, target: str) -> str:
    """As its source has it; what was recorded here, and what ends at a turn, as people read it."""
    try:
        label = ledger.session(target).label
    except NotFound:
        return "markdown"
    return "source" if ledger.sources.files_of_session(label) else "markdown"


def _source(run: Invocation, ledger: Ledger, target: str, output: str | None) -> None:
    from agents_ledger.exporters.source import session_files

    _give(run, ledger, session_files(ledger, ledger.session(target).label), output)


def _files(
    run: Invocation, target: str | None, named: str | None, output: str | None, *, only_list: bool
) -> None:
    """Kept files, whether or not they are of a session."""
    from agents_ledger.exporters.source import kept_files, session_files

    with run.reading() as ledger:
        if only_list and target is not None:
            label = ledger.session(ledger.lookup(target)).label
            _list(run, session_files(ledger, label))
        elif only_list or named is None:
            _list(run, kept_files(ledger, named).files)
        else:
            files, is_one = kept_files(ledger, named)
            _give(run, ledger, files, output, in_folder=not is_one)


def _give(
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
    _tell(run, [str(path) for path in written], ())


def _list(run: Invocation, files: Sequence[SourceFile]) -> None:
    if run.as_json:
        kept = [
            {
                "path": file.path,
                "generation": file.generation,
                "source": file.source,
                "kind": file.kind,
                "bytes": file.kept_bytes,
            }
            for file in files
        ]
        run.out.json(kept=kept)
        return
    rows = [[f.source, f.kind, f"{f.kept_bytes:,}", str(f.generation), f.path] for f in files]
    heads = ["SOURCE", "KIND", "BYTES", "GENERATION", "PATH"]
    run.out.table(heads, rows, right=("BYTES", "GENERATION"))


def _write(run: Invocation, made: Export, output: str | None) -> None:
    if output is None:
        for piece in made:
            run.out.piece(piece)
        _summary(made.masked)
        return
    path = Path(output)
    if path.is_dir():
        raise Refused(f"{path} is a folder", "Name a file in it.")
    try:
        opened = open_new(path, "t", encoding="utf-8", newline="\n")
    except FileExistsError as error:
        raise Refused(f"{path} exists already", "Choose another path.") from error
    except OSError as error:
        what = f"{path} cannot be written: {error.strerror}"
        raise Refused(what, "Name a file in a folder that exists and may be written.") from error
    try:
        with opened:
            opened.writelines(made)
    except BaseException:  # half a conversation would be taken for a whole one
        path.unlink()
        raise
    _tell(run, [str(path)], made.masked)


def _tell(run: Invocation, files: list[str], masked: tuple[Masked, ...]) -> None:
    if run.as_json:
        run.out.json(files=files, masked=masked)
        return
    for file in files:
        run.out.line(file)
    _summary(masked)


def _summary(masked: tuple[Masked, ...]) -> None:
    counts = review(masked)
    if counts:
        said = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        note(("masked ", "dim"), said, ("; --review tells where, --no-mask leaves them", "dim"))


def _review(run: Invocation, made: Export) -> None:
    for _ in made:  # reading it through finds them
        pass
    if run.as_json:
        run.out.json(files=[], masked=made.masked)
        return
    if not made.masked:
        note("Nothing looks like a secret.")
        return
    rows = [[one.kind, str(one.count), one.shown, one.where] for one in made.masked]
    run.out.table(["KIND", "TIMES", "SHOWN AS", "WHERE"], rows, right=("TIMES",))
    note((f"{humanize.count(sum(one.count for one in made.masked), 'place')} masked", "dim"))
