"""verify, prove and checkpoint: that nothing was changed since it was recorded."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from agents_ledger.cli.command import Invocation, command, complete_target, limit_option
from agents_ledger.cli.terminal import note
from agents_ledger.model.installation.program import as_typed
from agents_ledger.model.text import humanize

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.evidence.verification import Verification

FINDINGS = 1
FINDINGS_SHOWN = 50


@command
@click.option(
    "--checkpoint",
    "checkpoint_file",
    type=click.Path(dir_okay=False),
    metavar="FILE",
    help="Checkpoints that were kept outside of the ledger.",
)
@click.option(
    "--key", "keys", multiple=True, metavar="KEY", help="Key of a signer: NAME+HASH+BASE64."
)
@click.option(
    "--derive", is_flag=True, help="Derive imported turns again from their source records."
)
@limit_option(FINDINGS_SHOWN, "findings")
def verify(
    run: Invocation,
    *,
    checkpoint_file: str | None,
    keys: tuple[str, ...],
    derive: bool,
    limit: int,
) -> int:
    """Verify that turns, moves of sessions and source records are as they were recorded.

    Every hash is computed again, and the log of hashes is compared with its checkpoints. Exits
    with 1 if anything was changed, removed, inserted, reordered or rolled back.
    """
    with run.reading() as ledger:
        verified = ledger.verify(checkpoint_file, keys=keys)
        if derive:
            verified = _derived_again(ledger, verified)
    if run.as_json:
        run.out.json(holds=verified.holds, **_fields(verified))
        return 0 if verified.holds else FINDINGS
    _print(run, verified, limit)
    return 0 if verified.holds else FINDINGS


def _derived_again(ledger: Ledger, verified: Verification) -> Verification:
    import msgspec

    from agents_ledger.importers.pipeline import derived_findings

    findings = (*verified.findings, *derived_findings(ledger))
    return msgspec.structs.replace(verified, findings=findings)


def _fields(verified: Verification) -> dict[str, object]:
    import msgspec

    return msgspec.structs.asdict(verified)


def _print(run: Invocation, verified: Verification, limit: int) -> None:
    for finding in verified.findings[:limit]:
        run.out.line((finding.what, "bad"), f"  {finding.kind} ", (finding.id, "id"))
        if finding.detail:
            run.out.line("  ", (finding.detail, "dim"))
    if len(verified.findings) > limit:
        run.out.line((f"… {len(verified.findings) - limit:,} more (--limit)", "dim"))
    covered = ", ".join(
        (
            humanize.count(verified.turns, "turn"),
            humanize.count(verified.moves, "move"),
            humanize.count(verified.sources, "block") + " of source records",
        )
    )
    run.out.line("verified: " if verified.holds else "compared: ", covered)
    run.out.line(
        ("log: ", "dim"),
        f"{humanize.count(verified.size, 'leaf', 'leaves')}, root ",
        (verified.root, "id"),
    )
    _print_notes(verified)


def _print_notes(verified: Verification) -> None:
    if verified.redacted or verified.purged:
        removed = humanize.count(verified.redacted, "value")
        note(f"redacted: {removed}; purged: {humanize.count(verified.purged, 'row')}")
    if verified.waiting:
        note(f"not sequenced yet: {humanize.count(verified.waiting, 'leaf', 'leaves')}")
    if verified.uncovered:
        rows = humanize.count(verified.uncovered, "row")
        note(f"recorded before there was evidence, and not sealed yet: {rows}")
    elif verified.covered_since is not None:
        note(f"older rows are covered since {humanize.moment(verified.covered_since)}")
    agreed = humanize.count(verified.checkpoints, "checkpoint")
    if not verified.checkpoints and verified.holds:
        chosen = as_typed("`agents-ledger checkpoint --to FILE`")
        note("no checkpoint was compared: who can write to the ledger can write all of it anew")
        note((f"{chosen} keeps them outside of the ledger", "dim"))
    elif verified.unverified:
        signers = humanize.count(verified.unverified, "signature")
        note(f"{agreed} agreed; {signers} not verified: pass --key")
    else:
        note(f"{agreed} agreed")
    if not verified.holds:
        note(("error:", "bad"), f" {humanize.count(len(verified.findings), 'finding')}")


@command
@click.argument("target", shell_complete=complete_target)
@click.option(
    "--output", "-o", type=click.Path(dir_okay=False), metavar="FILE", help="Write it to a file."
)
@click.option(
    "--cose", is_flag=True, help="As a signed statement (COSE), for transparency services."
)
def prove(run: Invocation, *, target: str, output: str | None, cose: bool) -> None:
    """Export a proof that a turn was recorded as it is.

    It is verified without the ledger and without this program: `node verify_proof.mjs FILE`. The
    proof contains the turn's text. Of an imported turn, it contains its source records.
    """
    import msgspec

    with run.writing() as ledger:
        if ledger.evidence.signer is not None:
            ledger.evidence.checkpoint()
        proof = ledger.prove(target)
        statement = ledger.evidence.statement(proof) if cose else None
    data = statement if statement is not None else msgspec.json.encode(proof) + b"\n"
    if output is None:
        sys.stdout.buffer.write(data)
        return
    Path(output).write_bytes(data)
    if run.as_json:
        run.out.json(file=output, bytes=len(data), turn=proof["turn"], size=proof["size"])
        return
    run.out.line("proof of turn ", (proof["turn"], "id"), " written to ", (output, "title"))
    if proof["checkpoint"] is None:
        note("without a checkpoint: it proves only that the parts of the proof belong together")


@command
@click.option(
    "--to", "destination", metavar="DEST", help="File or http(s) address outside of the ledger."
)
@click.option("--every", type=click.IntRange(1), metavar="N", help="Leaves between two.")
@click.option("--seconds", type=click.IntRange(1), metavar="N", help="Seconds between two.")
@click.option("--new-key", is_flag=True, help="Sign with a new key from now on.")
def checkpoint(
    run: Invocation,
    *,
    destination: str | None,
    every: int | None,
    seconds: int | None,
    new_key: bool,
) -> None:
    """Sign what the log is now, and choose where checkpoints go.

    With `--to`, this machine makes a key, and from now on takes checkpoints whenever the ledger is
    closed, after 1,000 leaves and after 60 seconds. Without options, one is taken now.
    """
    with run.writing() as ledger:
        signer = ledger.evidence.signer
        if signer is None or destination or every or seconds:
            if signer is None and destination is None:
                raise click.UsageError("choose where checkpoints go, with --to")
            signer = ledger.evidence.set_up(destination, every_leaves=every, every_seconds=seconds)
        if new_key:
            signer = ledger.evidence.new_key()
        ledger.evidence.checkpoint()
        latest = ledger.evidence.latest
    key = str(signer.keys[0])
    if run.as_json:
        run.out.json(
            size=latest.size,
            taken_at=latest.taken_at,
            note=latest.note,
            key=key,
            destination=signer.destination,
        )
        return
    run.out.line("checkpoint: ", humanize.count(latest.size, "leaf", "leaves"))
    run.out.line(("key: ", "dim"), key)
    run.out.line(("destination: ", "dim"), signer.destination or "(only in the ledger)")
