"""search and files: turns found by what was said and done in them."""

from __future__ import annotations

import re
from functools import partial

import click
from msgspec import to_builtins

from agents_ledger.cli.command import Command, Invocation, command
from agents_ledger.cli.terminal import Span, fit, note
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.search import Action, Found, Hit, Order, Snippet, Touch
from agents_ledger.model.text import humanize

_LIMIT = click.option(
    "--limit",
    type=click.IntRange(1, 1000),
    metavar="N",
    default=20,
    show_default=True,
    help="At most so many turns.",
)
_AFTER = click.option("--after", metavar="PAGE", help="Go on where a page said the next begins.")
_SPACED = re.compile(r"(\s*-?[A-Za-z]+:)([^\"].*\s.*)", re.DOTALL)
_NOT = re.compile(r"-[^-].")


class _Words(Command):
    """Takes words that begin with a dash: those that may not be found. Options have two."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, [f" {each}" if _NOT.match(each) else each for each in args])


@partial(command, kind=_Words)
@click.argument("words", nargs=-1, required=True)
@click.option("--relevance", is_flag=True, help="The most relevant first, not the newest.")
@click.option("--meaning", is_flag=True, help="Also what says it in other words.")
@_LIMIT
@_AFTER
def search(
    run: Invocation,
    *,
    words: tuple[str, ...],
    relevance: bool,
    meaning: bool,
    limit: int,
    after: str | None,
) -> int | None:
    """Find turns by their words.

    WORDS may be narrowed: project:NAME origin:NAME model:NAME tool:NAME file:PATH role:user
    in:tool_result persona:NAME session:KEY is:failed is:compaction is:fork before:DATE after:DATE
    "a phrase" prefix* -not.
    """
    order: Order = "relevance" if relevance else "newest"
    text = words[0] if len(words) == 1 else " ".join(_quoted(word) for word in words)
    if meaning:
        found = _by_meaning(run, text, limit, after)
    else:
        with run.reading() as ledger:
            found = ledger.search(text, limit=limit, order=order, after=after)
    if run.as_json:
        run.out.json(**to_builtins(found))
        return None
    if not found.hits and found.next is None:
        note("Nothing found.")
        return 1
    if found.matched == "any" and not meaning:
        note(("No turn has all the words; these have some.", "dim"))
    _print(run, found)
    if found.capped:
        note(("Only the newest of very many were looked at.", "dim"))
    if found.next:
        note((f"There are more: --after {found.next}", "dim"))
    return None


def _by_meaning(run: Invocation, text: str, limit: int, after: str | None) -> Found:
    """With vectors for all turns, made now where they are missing."""
    from agents_ledger.model.agents.embedding import embedder
    from agents_ledger.model.settings import chosen_embedder, settings_file

    name = chosen_embedder()
    if name is None:
        raise Refused("no embedder is chosen", f'Put embedder = "FOLDER" into {settings_file()}.')
    chosen = embedder(name)
    with run.writing() as ledger:
        made = ledger.embed(chosen)
        if made:
            note((f"Made {humanize.count(made, 'vector')}.", "dim"))
        return ledger.search(text, limit=limit, order="meaning", after=after, embedder=chosen)


def _quoted(word: str) -> str:
    """What the shell has freed of its quotes: project:my notes."""
    spaced = _SPACED.fullmatch(word)
    return f'{spaced[1]}"{spaced[2]}"' if spaced else word


def _print(run: Invocation, found: Found) -> None:
    now = now_ms()
    for label, hits in found.by_session():
        title = hits[0].session_title
        named = (f"  {fit(title, 60)}" if title else "", "title")
        run.out.line((fit(label or "in no session", 60), "label"), named)
        for hit in hits:
            _print_hit(run, hit, now)
        run.out.line()


def _print_hit(run: Invocation, hit: Hit, now: int) -> None:
    facts = [
        humanize.age(hit.started_at, now),
        hit.model or "",
        hit.turn_type if hit.turn_type != "normal" else "",
        hit.status if hit.status != "completed" else "",
        f"also in {humanize.count(hit.also_in, 'other session')}" if hit.also_in else "",
    ]
    said = " · ".join(fact for fact in facts if fact)
    run.out.line("  ", (hit.turn_id, "id"), (f"  {said}", "dim"))
    width = run.out.width - 4
    if hit.query and not any(snippet.part == "user" for snippet in hit.snippets):
        run.out.line("    ", (fit(hit.query, width), "dim"))
    for snippet in hit.snippets:
        run.out.line("    ", *_spans(snippet))


def _spans(snippet: Snippet) -> list[Span]:
    """A snippet with what was found made visible, behind the part it stands in."""
    where = f"{snippet.part} {snippet.tool_name}" if snippet.tool_name else snippet.part
    spans: list[Span] = [(f"{where}: ", "tool")]
    at = 0
    for start, end in snippet.marks:
        spans += [snippet.text[at:start], (snippet.text[start:end], "found")]
        at = end
    return [*spans, snippet.text[at:]]


@command
@click.argument("path")
@click.option("--read", "action", flag_value="read", help="Only turns that read it.")
@click.option("--written", "action", flag_value="written", help="Only turns that wrote it.")
@_LIMIT
@_AFTER
def files(
    run: Invocation, *, path: str, action: Action | None, limit: int, after: str | None
) -> int | None:
    """Find the turns that read or wrote a file, newest first.

    PATH may be given by its end; with a slash behind it, it is a folder.
    """
    with run.reading() as ledger:
        found = ledger.files(path, action=action, limit=limit, after=after)
    if run.as_json:
        run.out.json(**to_builtins(found))
        return None
    if not found.touches:
        note(f"No turn touched {path}.")
        return 1
    now = now_ms()
    heads = ("TURN", "WHEN", "DID", "FILE", "SESSION")
    run.out.table(heads, [_row(touch, now) for touch in found.touches])
    if found.next:
        note((f"There are more: --after {found.next}", "dim"))
    return None


def _row(touch: Touch, now: int) -> tuple[Span, ...]:
    did = f"{touch.action} ({touch.tool_name})" if touch.tool_name else touch.action
    return (
        (touch.turn_id, "id"),
        humanize.age(touch.started_at, now),
        did,
        touch.path,
        (touch.session_label or "", "label"),
    )
