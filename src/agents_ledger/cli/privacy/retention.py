"""retention: applies the rules of the policy file about how long conversations are kept."""

from __future__ import annotations

import getpass
import sys

import click

from agents_ledger.broker import policy
from agents_ledger.cli import terminal
from agents_ledger.cli.command import Invocation, command, limit_option
from agents_ledger.cli.terminal import Span
from agents_ledger.model.installation import settings
from agents_ledger.model.retention import RetentionReport
from agents_ledger.model.text import humanize

LINES = 50


@command
@click.option("--dry-run", is_flag=True, help="Say what each rule would do, and stop.")
@click.option("--yes", is_flag=True, help="Do not ask; required when not on a terminal.")
@click.option("--list", "listed", is_flag=True, help="List earlier runs.")
@limit_option(LINES, "lines")
def retention(run: Invocation, *, dry_run: bool, yes: bool, listed: bool, limit: int) -> int:
    """Archive, redact or purge the sessions that [retention] in the policy file names.

    Legal holds and the minimum time to keep win over every rule. Each run is recorded.
    """
    if listed:
        return _list(run, limit)
    rules = policy.load(run.address).retention
    if not rules.rules and not run.as_json:
        file = settings.policy_file(run.address)
        run.out.line("no rules: conversations are kept for ever")
        terminal.note((f"Rules are written under [[retention.rules]] in {file}.", "dim"))
        return 0
    with run.writing() as ledger:
        report = ledger.retention.run(rules, actor=getpass.getuser(), dry_run=True)
        if not dry_run and report.sessions:
            if not run.as_json:
                _print(run, report, limit)
            if not yes and not (sys.stdin.isatty() and click.confirm("Do this?", err=True)):
                raise click.UsageError("nothing was done: --yes is required when not on a terminal")
            report = ledger.retention.run(rules, actor=getpass.getuser())
    if run.as_json:
        run.out.json(report=report, runs=None)
    elif dry_run or not report.sessions:
        _print(run, report, limit)
    else:
        run.out.line("done: ", humanize.count(len(report.sessions), "session"))
    return 0


def _print(run: Invocation, report: RetentionReport, limit: int) -> None:
    if not report.sessions:
        run.out.line("no session is due")
        return
    rows: list[list[Span]] = [
        [session.action, (session.label, "label"), session.rule, session.kept_because or ""]
        for session in report.sessions[:limit]
    ]
    run.out.table(["ACTION", "SESSION", "RULE", "NOTE"], rows, flexible="NOTE")
    if len(report.sessions) > limit:
        run.out.line((f"… {len(report.sessions) - limit:,} more lines (--limit)", "dim"))


def _list(run: Invocation, limit: int) -> int:
    with run.reading() as ledger:
        reports = ledger.retention.latest(limit)
    if run.as_json:
        run.out.json(report=None, runs=reports)
        return 0
    for report in reports:
        run.out.line(
            humanize.moment(report.started_at),
            "  ",
            report.actor,
            "  ",
            humanize.count(len(report.sessions), "session"),
        )
    if not reports:
        run.out.line("no run yet")
    return 0
