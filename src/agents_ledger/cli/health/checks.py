"""audit, recover and doctor: is the ledger sound?"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from importlib.metadata import version
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.command import Invocation, command
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.maintenance import audit as rules
from agents_ledger.ledger.maintenance import doctor as doctors
from agents_ledger.ledger.maintenance.doctor import Fact, Level
from agents_ledger.model import settings
from agents_ledger.model.errors import Damaged
from agents_ledger.model.sessions import Finding
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.importers.survey import ExpiringFile
    from agents_ledger.model.imports.sources import Fault

FINDINGS = 1
SHOWN = 20
NAMED = 5  # files that will be deleted, folders that cannot be read


@command
@click.option(
    "--limit",
    type=click.IntRange(1),
    metavar="N",
    default=SHOWN,
    show_default=True,
    help="Per rule.",
)
@click.option("--quick", is_flag=True, help="Run only the quick check of the database.")
@click.option("--permissions", is_flag=True, help="Judge every call by what its turn was granted.")
@click.option("--persona", metavar="ID", help="With --permissions: only calls of this persona.")
@click.option("--since", metavar="WHEN", help="With --permissions: only turns since then.")
@click.option("--until", metavar="WHEN", help="With --permissions: only turns before that.")
def audit(
    run: Invocation,
    *,
    limit: int,
    quick: bool,
    permissions: bool,
    persona: str | None,
    since: str | None,
    until: str | None,
) -> int:
    """Check every rule of the ledger and the database itself; exit with 1 if one is broken."""
    if permissions:
        from agents_ledger.cli.health.permissions import tell

        return tell(run, persona_id=persona, since=since, until=until, limit=limit)
    if persona or since or until:
        raise click.UsageError("--persona, --since and --until go with --permissions")
    try:
        with run.reading() as ledger:
            findings = ledger.audit(quick=quick)
            engine = ledger.engine_check(quick=quick)
    except Damaged as error:
        error.hint = _repair_hint(run)  # its own one is to run this command
        raise
    meanings = rules.meanings()
    if run.as_json:
        told = [
            {"rule": f.rule, "meaning": meanings[f.rule], "id": f.id, "detail": f.detail}
            for f in findings
        ]
        run.out.json(rules=len(meanings), engine_check=engine, findings=told)
        return FINDINGS if findings else 0
    if findings:
        _tell_findings(run, findings, meanings, limit)
    else:
        run.out.line(f"sound: all {len(meanings)} rules hold")
    run.out.line(("database check: ", "dim"), f"{engine.mode}, {engine.ran}")
    return FINDINGS if findings else 0


def _tell_findings(
    run: Invocation, findings: tuple[Finding, ...], meanings: dict[str, str], limit: int
) -> None:
    for rule, found in groupby(findings, attrgetter("rule")):
        group = list(found)
        run.out.line((rule, "bad"), f"  {humanize.count(len(group), 'finding')}")
        run.out.line("  broken rule: ", meanings[rule])
        for finding in group[:limit]:
            run.out.line("  ", (finding.id, "id"), "  ", (finding.detail, "dim"))
        if len(group) > limit:
            run.out.line((f"  … {len(group) - limit:,} more (--limit)", "dim"))
    note(("error:", "bad"), f" {humanize.count(len(findings), 'finding')}")
    note(
        ("hint:", "dim"),
        f" {_repair_hint(run)}",
    )


def _repair_hint(run: Invocation) -> str:
    if settings.is_postgres(run.address):
        return "Save the database as it is; then restore the last backup."
    return (
        "Save the file as it is; then restore the last backup, or bring what can be read into a"
        " new ledger with `agents-ledger salvage`."
    )


@command
def recover(run: Invocation) -> None:
    """Fail the turns whose writer died. The next write of any program does the same."""
    with run.writing() as ledger:
        failed = ledger.recover()
        left = ledger.live_turns()
    if run.as_json:
        run.out.json(failed=failed, live=left)
        return
    for turn_id in failed:
        run.out.line("failed ", (turn_id, "id"))
    run.out.line(
        f"{humanize.count(len(failed), 'turn')} recovered, {len(left):,} still being written"
    )


@command
@click.option("--full", is_flag=True, help="Let the database check all of itself, indexes too.")
def doctor(run: Invocation, *, full: bool) -> int:
    """Report on the ledger's engine, file and writers; exit with 1 if something is wrong."""
    found, error = doctors.examine(run.address, full=full)
    facts = [
        Fact("agents_ledger", version("agents-ledger")),
        Fact("python", platform.python_version()),
        Fact("system", f"{platform.system()} {platform.release()}"),
        *found,
        *_source_facts(run, is_there=error is None),
    ]
    if run.as_json:
        run.out.json(facts=facts)
    else:
        _tell_facts(run, facts)
    if error is not None:
        raise error
    return FINDINGS if any(fact.level == "problem" for fact in facts) else 0


def _source_facts(run: Invocation, *, is_there: bool) -> Iterator[Fact]:
    """What of other agents' history is on this machine, and what of it is not in the ledger."""
    from agents_ledger.importers.discovery import FileSelection, this_home
    from agents_ledger.importers.survey import survey

    wanted = FileSelection(0, settings.excluded())
    faults: list[Fault] = []
    if is_there:
        with run.reading() as ledger:
            sources = survey(this_home(), ledger, wanted, faults)
    else:
        sources = survey(this_home(), None, wanted, faults)
    for source in sources:
        said = f"{humanize.count(source.files, 'file')}, {humanize.size(source.bytes)}"
        if source.excluded:
            said += f", {source.excluded:,} excluded"
        level: Level = "note" if source.not_imported else "ok"
        remark = f"{source.not_imported:,} not imported yet" if source.not_imported else ""
        if source.deleted_soon:
            remark += f"; {source.name} will soon delete {_going(source.deleted_soon)}"
        yield Fact(f"source_{source.name}", said, level, remark)
    if faults:
        told = ", ".join(f"{fault.path}: {fault.what}" for fault in faults[:NAMED])
        yield Fact("folders_not_read", len(faults), "note", told)


def _going(files: list[ExpiringFile]) -> str:
    """The files that go first, and how many more."""
    told = [f"{file.path} ({humanize.count(file.days, 'day')} left)" for file in files[:NAMED]]
    if len(files) > NAMED:
        told.append(f"{len(files) - NAMED:,} more")
    return ", ".join(told)


def _tell_facts(run: Invocation, facts: list[Fact]) -> None:
    longest = max(len(fact.name) for fact in facts)
    for fact in facts:
        name = fact.name.replace("_", " ").replace("bytes", "size").ljust(longest)
        style = {"ok": "", "note": "live", "problem": "bad"}[fact.level]
        run.out.line((name, "dim"), "  ", (_shown(fact.name, fact.value), style))
        if fact.remark:
            run.out.text(f"{fact.level}: {fact.remark}", " " * (longest + 4), style)


def _shown(name: str, value: Any) -> str:
    if value is None:
        return "nobody" if name == "lock_holder" else "unknown"
    if name == "lock_holder":
        return f"process {value}"
    if name == "file_mode":
        return f"{value:04o}"
    if name.endswith("bytes"):
        return humanize.size(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
