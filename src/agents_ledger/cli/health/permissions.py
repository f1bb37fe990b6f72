"""audit --permissions: which persona used which tools, and which calls were not permitted."""

from __future__ import annotations

from agents_ledger.cli.command import Invocation
from agents_ledger.cli.terminal import Span, note
from agents_ledger.model.agents.permissions import PermissionReview
from agents_ledger.model.ids import now_ms
from agents_ledger.model.text import humanize

UNPERMITTED = 1


def report_permissions(
    run: Invocation,
    *,
    persona_id: str | None,
    since: int | None,
    until: int | None,
    limit: int,
) -> int:
    """Print the review; returns 1 if a tool ran that was not granted."""
    with run.reading() as ledger:
        review = ledger.review_permissions(persona_id=persona_id, since=since, until=until)
    ran = any(misuse.what == "not granted" for misuse in review.misuses)
    if run.as_json:
        run.out.json(uses=review.uses, misuses=review.misuses, unchecked=review.unchecked)
    else:
        _print(run, review, limit)
    return UNPERMITTED if ran else 0


def _print(run: Invocation, review: PermissionReview, limit: int) -> None:
    now = now_ms()
    if review.uses:
        heads = ["PERSONA", "TOOL", "CALLS", "NOT GRANTED", "NOT AVAILABLE", "REJECTED", "LAST"]
        rows: list[list[Span]] = [
            [
                (use.persona_id, "label"),
                use.tool_name,
                f"{use.calls:,}",
                _count(use.not_granted, "bad"),
                _count(use.not_available, "bad"),
                _count(use.rejected, "live"),
                (humanize.age(use.last_at, now), "dim"),
            ]
            for use in review.uses
        ]
        run.out.table(heads, rows, right=heads[2:6])
    for misuse in review.misuses[:limit]:
        run.out.line(
            (misuse.what.ljust(13), "live" if misuse.what == "rejected" else "bad"),
            "  turn ",
            (misuse.turn_id, "id"),
            f"  {misuse.tool_name} ",
            (f"by {misuse.persona_id}, {humanize.age(misuse.at, now)}", "dim"),
        )
    if len(review.misuses) > limit:
        run.out.line((f"… {len(review.misuses) - limit:,} more (--limit)", "dim"))
    if not review.uses:
        note("No turn with recorded permissions has tool calls.")
    if review.unchecked:
        calls = humanize.count(review.unchecked, "call")
        note(f"{calls} not checked: no readable permissions recorded.")


def _count(number: int, style: str) -> Span:
    return (f"{number:,}", style) if number else "0"
