"""export: write conversations in one of our formats, or in that of their source."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

import click

from agents_ledger.cli.command import (
    Invocation,
    command,
    complete_target,
    project_folder,
    since_option,
    until_option,
)
from agents_ledger.cli.terminal import note
from agents_ledger.cli.transfer.passphrase import passphrase
from agents_ledger.exporters.exporting import Export, Form
from agents_ledger.exporters.private_files import open_new
from agents_ledger.model.context.items import PROVIDER_FORMATS
from agents_ledger.model.encryption import EncryptingWriter, check_available
from agents_ledger.model.errors import Refused
from agents_ledger.model.secrets.masking import Masked, review
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger

FORMATS = (*get_args(Form), "source")
SUFFIXES: dict[str, Form] = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".json": "json",
    ".jsonl": "messages",
    ".html": "html",
}
EXTENSIONS: dict[str, str] = {form: suffix for suffix, form in reversed(SUFFIXES.items())}
SESSIONS_PER_READ = 200
NAME_MAX = 200  # bytes; file systems allow 255, with the extension


class ExportRequest(NamedTuple):
    """What was asked for on the command line."""

    target: str | None
    form: str | None
    output: str | None
    provider: str
    last: int | None
    full: bool
    subagents: bool
    mask: bool
    all: bool
    selection: dict[str, Any]  # of sessions, with --all
    passphrase: str | None = None

    @property
    def form_or_default(self) -> str:
        return self.form or (not self.all and _format_of(self.output)) or "markdown"

    def export(self, ledger: Ledger, target: str, form: str) -> Export:
        return Export(
            ledger,
            target,
            next(name for name in get_args(Form) if name == form),
            mask=self.mask,
            full=self.full,
            last=self.last,
            subagents=self.subagents,
            provider=self.provider,
        )


@command
@click.argument("target", required=False, shell_complete=complete_target)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    help="Format.  [default: by the extension of --output, else markdown]",
)
@click.option(
    "-o",
    "--output",
    type=click.Path(),
    help="File to write, or folder with --all.  [default: standard output]",
)
@click.option("--all", "all_", is_flag=True, help="Export all sessions, a file each, to --output.")
@click.option("--origin", metavar="NAME", help="With --all: sessions of this source.")
@click.option("--project", metavar="FOLDER", help="With --all: sessions last in this project.")
@click.option("--model", metavar="NAME", help="With --all: sessions last answered by this model.")
@since_option("With --all: sessions changed")
@until_option("With --all: sessions last changed")
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
@click.option("--encrypt", is_flag=True, help="With --output: encrypt with a passphrase.")
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
    encrypt: bool,
    only_review: bool,
    file: str | None,
    only_list: bool,
    all_: bool,
    **selection: Any,
) -> None:
    """Export conversations as Markdown, JSON, messages or HTML, or in the format of their source.

    Secrets are masked, except in --format source. New files are readable by their owner only.
    """
    selection["project"] = project_folder(selection["project"])
    request = ExportRequest(
        target,
        form,
        output,
        provider,
        last,
        full,
        not no_subagents,
        not no_mask,
        all_,
        selection,
        _passphrase(output, form, file) if encrypt else None,
    )
    if file is not None or only_list:
        _check_files(request, file, only_review=only_review)
        if only_list and output is not None:
            raise click.UsageError("--list and --output cannot be combined")
        from agents_ledger.cli.transfer.export_files import export_files

        export_files(run, target, file, output, only_list=only_list)
        return
    _check(request)
    with run.reading() as ledger:
        if only_review:
            _review(run, [request.export(ledger, key, "json") for key in _targets(ledger, request)])
        elif request.form_or_default == "source":
            from agents_ledger.cli.transfer.export_files import export_sources

            export_sources(run, ledger, ledger.lookup(str(target)), output)
        elif all_:
            _write_all(run, ledger, request)
        else:
            exported = request.export(ledger, ledger.lookup(str(target)), request.form_or_default)
            _write(run, exported, output, request.passphrase)


def _passphrase(output: str | None, form: str | None, file: str | None) -> str:
    if output is None or form == "source" or file is not None:
        raise click.UsageError("--encrypt needs --output, and does not apply to source files")
    check_available()
    return passphrase(is_new=True)


def _check_files(request: ExportRequest, file: str | None, *, only_review: bool) -> None:
    """Refuse what does not apply to archived source files."""
    if request.target is not None and file is not None:
        raise click.UsageError("TARGET and --file cannot be combined")
    not_applicable = {
        f"--format {request.form}": request.form not in (None, "source"),
        "--provider": _is_set("provider"),
        "--last": request.last,
        "--full": request.full,
        "--no-subagents": not request.subagents,
        "--no-mask": not request.mask,
        "--review": only_review,
        "--all": request.all,
    }
    names = [name for name, is_set in not_applicable.items() if is_set]
    if names:
        verb = "does" if len(names) == 1 else "do"
        raise click.UsageError(f"{', '.join(names)} {verb} not apply to source files")


def _check(request: ExportRequest) -> None:
    """Refuse options of a conversation that contradict each other."""
    if request.all is (request.target is not None):
        raise click.UsageError("Give a TARGET, --all, or source files with --file.")
    selecting = [f"--{name}" for name, value in request.selection.items() if value is not None]
    if selecting and not request.all:
        raise click.UsageError(f"{', '.join(selecting)} require --all")
    if request.form_or_default == "source":
        if request.all:
            raise click.UsageError("Export the files of a source with --file SOURCE, not --all.")
        if request.last is not None:
            raise click.UsageError("--last does not apply to --format source")


def _is_set(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not click.core.ParameterSource.DEFAULT


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


def _targets(ledger: Ledger, request: ExportRequest) -> Iterator[str]:
    """The target, or the labels of all selected sessions, latest first."""
    if request.target is not None:
        yield ledger.lookup(request.target)
        return
    selection = {name: value for name, value in request.selection.items() if value is not None}
    page: Sequence[Any] = ()
    while True:
        last = page[-1].session if page else None
        # The threads of subagents are exported with those of their parents.
        page = ledger.pages.session_lines(
            status=None, limit=SESSIONS_PER_READ, after=last, **selection
        )
        yield from (line.session.label for line in page if line.session.thread_id)
        if len(page) < SESSIONS_PER_READ:
            return


def _write_all(run: Invocation, ledger: Ledger, request: ExportRequest) -> None:
    """Write a file per session into a new or empty folder."""
    if request.output is None:
        raise click.UsageError("--all needs a folder: --output FOLDER")
    folder = Path(request.output)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise Refused(f"{folder} exists and is not an empty folder", "Choose a new folder.")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    extension = EXTENSIONS[request.form_or_default]
    written: list[str] = []
    masked: list[Masked] = []
    names: set[str] = set()
    for label in _targets(ledger, request):
        path = folder / f"{_file_name(label, names)}{extension}"
        exported = request.export(ledger, label, request.form_or_default)
        _write_file(exported, path, request.passphrase)
        written.append(str(path))
        masked += exported.masked
    if run.as_json:
        run.out.json(files=written, masked=masked)
        return
    run.out.line(f"exported {humanize.count(len(written), 'session')} to {folder}")
    _print_masked(tuple(masked))


def _file_name(label: str, taken: set[str]) -> str:
    """A file name for a label, on any system, that is not taken; now it is."""
    plain = re.sub(r"[^\w.-]+", "-", label).strip("-.").encode()[:NAME_MAX].decode(errors="ignore")
    plain = plain or "session"
    name, number = plain, 1
    while name.lower() in taken:
        number += 1
        name = f"{plain}-{number}"
    taken.add(name.lower())
    return name


def _write(run: Invocation, exported: Export, output: str | None, chosen: str | None) -> None:
    if output is None:
        for piece in exported:
            run.out.piece(piece)
        _print_masked(exported.masked)
        return
    path = Path(output)
    if path.is_dir():
        raise Refused(f"{path} is a folder", "Give the path of a new file.")
    _write_file(exported, path, chosen)
    if run.as_json:
        run.out.json(files=[str(path)], masked=exported.masked)
        return
    run.out.line(str(path))
    _print_masked(exported.masked)


def _write_file(exported: Export, path: Path, chosen: str | None) -> None:
    try:
        opened = open_new(path, "b")
    except FileExistsError as error:
        raise Refused(f"{path} already exists", "Choose another path.") from error
    except OSError as error:
        message = f"{path} cannot be written: {error.strerror}"
        raise Refused(message, "Choose a file in an existing, writable folder.") from error
    try:
        with opened:
            lines = (piece.encode() for piece in exported)
            if chosen is None:
                opened.writelines(lines)
                return
            with EncryptingWriter(opened, chosen) as writer:
                for line in lines:
                    writer.write(line)
    except BaseException:
        # A truncated file would look complete.
        path.unlink()
        raise


def _print_masked(masked: tuple[Masked, ...]) -> None:
    counts = review(masked)
    if counts:
        kinds = ", ".join(f"{count} {kind}" for kind, count in counts.items())
        note(("masked ", "dim"), kinds, ("; --review lists them, --no-mask keeps them", "dim"))


def _review(run: Invocation, exports: Sequence[Export]) -> None:
    for exported in exports:
        for _ in exported:  # masks as it is read
            pass
    masked = [secret for exported in exports for secret in exported.masked]
    if run.as_json:
        run.out.json(files=[], masked=masked)
        return
    if not masked:
        note("No secrets detected.")
        return
    rows = [[secret.kind, str(secret.count), secret.shown, secret.where] for secret in masked]
    run.out.table(["KIND", "TIMES", "SHOWN AS", "WHERE"], rows, right=("TIMES",))
    count = sum(secret.count for secret in masked)
    note((f"{humanize.count(count, 'place')} masked", "dim"))
