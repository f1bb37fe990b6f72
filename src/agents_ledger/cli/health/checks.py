"""audit, recover and doctor: the health of the ledger."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import nullcontext
from importlib.metadata import version
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import click

from agents_ledger.cli.command import (
    Invocation,
    command,
    limit_option,
    since_option,
    until_option,
)
from agents_ledger.cli.terminal import note
from agents_ledger.ledger.maintenance import audit as rules
from agents_ledger.ledger.maintenance import doctor as doctors
from agents_ledger.ledger.maintenance.doctor import Fact
from agents_ledger.ledger.maintenance.server_health import Level
from agents_ledger.model.errors import Damaged
from agents_ledger.model.ids import now_ms
from agents_ledger.model.installation import settings
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.sessions import Finding
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.importers.survey import ExpiringFile
    from agents_ledger.model.imports.sources import Fault

FINDINGS = 1
FINDINGS_PER_RULE = 20
# Of files that will be deleted, and of unreadable folders.
PATHS_MAX = 5


@command
@limit_option(FINDINGS_PER_RULE, "findings per rule")
@click.option("--quick", is_flag=True, help="Run the quick database check only.")
@click.option(
    "--permissions", is_flag=True, help="Check tool calls against the permissions of their turns."
)
@click.option("--persona", metavar="ID", help="With --permissions: calls of this persona.")
@since_option("With --permissions: turns")
@until_option("With --permissions: turns")
def audit(
    run: Invocation,
    *,
    limit: int,
    quick: bool,
    permissions: bool,
    persona: str | None,
    since: int | None,
    until: int | None,
) -> int:
    """Check every rule of the ledger, and the database itself.

    Exits with 1 if a rule is violated.
    """
    if permissions:
        from agents_ledger.cli.health.permissions import report_permissions

        return report_permissions(run, persona_id=persona, since=since, until=until, limit=limit)
    if (persona, since, until) != (None, None, None):
        raise click.UsageError("--persona, --since and --until require --permissions")
    try:
        with run.reading() as ledger:
            findings = ledger.audit(quick=quick)
            engine = ledger.engine_check(quick=quick)
    except Damaged as error:
        # The default hint is to run this command.
        error.hint = _repair_hint(run)
        raise
    meanings = rules.meanings()
    if run.as_json:
        rows = [
            {"rule": f.rule, "meaning": meanings[f.rule], "id": f.id, "detail": f.detail}
            for f in findings
        ]
        run.out.json(rules=len(meanings), engine_check=engine, findings=rows)
        return FINDINGS if findings else 0
    if findings:
        _print_findings(run, findings, meanings, limit)
    else:
        run.out.line(f"sound: all {len(meanings)} rules hold")
    run.out.line(("database check: ", "dim"), f"{engine.mode}, {engine.ran}")
    return FINDINGS if findings else 0


def _print_findings(
    run: Invocation, findings: tuple[Finding, ...], meanings: dict[str, str], limit: int
) -> None:
    for rule, violations in groupby(findings, attrgetter("rule")):
        group = list(violations)
        run.out.line((rule, "bad"), f"  {humanize.count(len(group), 'finding')}")
        run.out.line("  violated rule: ", meanings[rule])
        for finding in group[:limit]:
            run.out.line("  ", (finding.id, "id"), "  ", (finding.detail, "dim"))
        if len(group) > limit:
            run.out.line((f"  … {len(group) - limit:,} more (--limit)", "dim"))
    note(("error:", "bad"), f" {humanize.count(len(findings), 'finding')}")
    note(("hint:", "dim"), f" {_repair_hint(run)}")


def _repair_hint(run: Invocation) -> str:
    if settings.is_postgres(run.address):
        return "Keep a copy of the database as it is; then restore the last backup."
    return (
        "Keep a copy of the file as it is; then restore the last backup, or recover the readable"
        " rows with `agents-ledger salvage`."
    )


@command
def recover(run: Invocation) -> None:
    """Mark turns as failed whose writer has died. The next write of any program does the same."""
    with run.writing() as ledger:
        failed = ledger.recover()
        live = ledger.live_turns()
    if run.as_json:
        run.out.json(failed=failed, live=live)
        return
    for turn_id in failed:
        run.out.line("failed ", (turn_id, "id"))
    run.out.line(
        f"{humanize.count(len(failed), 'turn')} recovered, {len(live):,} still being written"
    )


@command
@click.option("--full", is_flag=True, help="Run the complete database check, including indexes.")
def doctor(run: Invocation, *, full: bool) -> int:
    """Report on the database, its file and writers, and the sources found on this machine.

    Exits with 1 if there is a problem.
    """
    ledger_facts, error = doctors.examine(run.address, full=full)
    facts = [
        Fact("agents_ledger", version("agents-ledger")),
        Fact("python", platform.python_version()),
        Fact("system", f"{platform.system()} {platform.release()}"),
        *ledger_facts,
        *_source_facts(run, exists=error is None),
        *_hook_facts(run),
    ]
    if run.as_json:
        run.out.json(facts=facts)
    else:
        _print_facts(run, facts)
    if error is not None:
        raise error
    return FINDINGS if any(fact.level == "problem" for fact in facts) else 0


def _source_facts(run: Invocation, *, exists: bool) -> Iterator[Fact]:
    """The history of other agents on this machine, and how much of it is not imported."""
    from agents_ledger.importers.discovery import FileSelection, this_home
    from agents_ledger.importers.survey import survey

    wanted = FileSelection(0, settings.excluded())
    faults: list[Fault] = []
    with run.reading() if exists else nullcontext() as ledger:
        sources = survey(this_home(), ledger, wanted, faults)
    for source in sources:
        size = f"{humanize.count(source.files, 'file')}, {humanize.size(source.bytes)}"
        if source.excluded:
            size += f", {source.excluded:,} excluded"
        level: Level = "note" if source.not_imported else "ok"
        remark = f"{source.not_imported:,} not imported yet" if source.not_imported else ""
        if source.deleted_soon:
            remark += f"; {source.name} will soon delete {_paths(source.deleted_soon)}"
        yield Fact(f"source_{source.name}", size, level, remark)
    if faults:
        remark = ", ".join(f"{fault.path}: {fault.what}" for fault in faults[:PATHS_MAX])
        yield Fact("folders_not_read", len(faults), "note", remark)


def _hook_facts(run: Invocation) -> Iterator[Fact]:
    """Hooks hide their failures from agents: they are reported here."""
    from agents_ledger.integrations.agents.hook_files import failures, folder_of

    recent = failures(run.address)
    if recent:
        last = recent[-1]
        when = humanize.age(last.at_ms, now_ms())
        where = f"All are in {folder_of(run.address) / 'failures.jsonl'}; remove it when solved."
        remark = f"last {when}, {last.event} of {last.agent or 'an agent'}: {last.error}. {where}"
        yield Fact("hook_failures", len(recent), "problem", remark)


def _paths(files: list[ExpiringFile]) -> str:
    paths = [f"{file.path} ({humanize.count(file.days, 'day')} left)" for file in files[:PATHS_MAX]]
    if len(files) > PATHS_MAX:
        paths.append(f"{len(files) - PATHS_MAX:,} more")
    return ", ".join(paths)


def _print_facts(run: Invocation, facts: list[Fact]) -> None:
    longest = max(len(fact.name) for fact in facts)
    for fact in facts:
        name = fact.name.replace("_", " ").replace("bytes", "size").ljust(longest)
        style = {"ok": "", "note": "live", "problem": "bad"}[fact.level]
        run.out.line((name, "dim"), "  ", (_text(fact.name, fact.value), style))
        if fact.remark:
            run.out.text(f"{fact.level}: {as_typed(fact.remark)}", " " * (longest + 4), style)


def _text(name: str, value: Any) -> str:
    if value is None:
        return "nobody" if name == "lock_holder" else "unknown"
    if isinstance(value, list):
        return ", ".join(value) or "none"
    if not isinstance(value, int):
        return str(value)
    return _number(name, value)


def _number(name: str, value: int) -> str:
    if name == "lock_holder":
        return f"process {value}"
    if name == "file_mode":
        return f"{value:04o}"
    if name.endswith("bytes"):
        return humanize.size(value)
    if name.endswith("timeout"):
        return f"{value:,} ms" if value else "none"
    return f"{value:,}"
