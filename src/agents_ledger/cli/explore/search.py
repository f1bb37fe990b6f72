"""search and files: find turns by their text, or by the files they touched."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING

import click
from msgspec import to_builtins

from agents_ledger.cli.command import (
    Command,
    Invocation,
    command,
    limit_option,
    since_option,
    until_option,
)
from agents_ledger.cli.terminal import Span, fit, fit_end, note
from agents_ledger.model.errors import Refused
from agents_ledger.model.ids import now_ms
from agents_ledger.model.reports.search import Action, Found, Hit, Order, Snippet, Touch
from agents_ledger.model.text import humanize
from agents_ledger.model.text.sanitize import one_line

if TYPE_CHECKING:
    from agents_ledger.ledger.ledger import Ledger
    from agents_ledger.model.agents.embedding import Embedder

_LIMIT = limit_option(20, "turns", 1000)
_AFTER = click.option("--after", metavar="CURSOR", help="Continue after a previous page.")
_SPACED = re.compile(r"(\s*-?[A-Za-z]+:)([^\"].*\s.*)", re.DOTALL)
_EXCLUDED_WORD = re.compile(r"-[^-].")


class _SearchCommand(Command):
    """Accepts `-word`, a word to exclude, as an argument; options begin with two dashes."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(
            ctx, [f" {arg}" if _EXCLUDED_WORD.match(arg) else arg for arg in args]
        )


@partial(command, kind=_SearchCommand)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "--newest/--relevance", default=False, help="Sort by time or, by default, by relevance."
)
@click.option(
    "--meaning", is_flag=True, help="Also find turns of similar meaning; needs an embedder."
)
@since_option("Turns")
@until_option("Turns")
@_LIMIT
@_AFTER
def search(
    run: Invocation,
    *,
    words: tuple[str, ...],
    newest: bool,
    meaning: bool,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> int | None:
    """Search turns by words or a question, most relevant first. Exits with 1 if nothing is found.

    WORDS may include "a phrase", prefix* and -excluded, and these filters: project:NAME
    origin:NAME model:NAME tool:NAME file:PATH role:user in:tool_result persona:NAME session:KEY
    is:failed is:compaction is:fork before:DATE after:DATE.
    """
    order: Order = "newest" if newest else "relevance"
    text = words[0] if len(words) == 1 else " ".join(_quoted(word) for word in words)
    text = "".join([*_time_filter("after", since), *_time_filter("before", until), text])
    model = _embedder() if meaning else None
    with run.writing() if model else run.reading() as ledger:
        if model:
            results = _search_by_meaning(ledger, text, limit, after, model)
        else:
            results = ledger.search(text, limit=limit, order=order, after=after)
        titles = {} if run.as_json else _titles(ledger, results)
    if run.as_json:
        run.out.json(**to_builtins(results))
        return None
    if not results.hits and results.next is None:
        note("Nothing found.")
        return 1
    if results.matched == "any" and not meaning:
        note(("No turn has all the words; these turns have some of them.", "dim"))
    _print(run, results, titles)
    if results.capped:
        note(("Only the newest candidates were searched.", "dim"))
    _note_next(results.next)
    return None


def _time_filter(operator: str, at: int | None) -> Iterator[str]:
    if at is not None:
        yield f"{operator}:{datetime.fromtimestamp(at / 1000, UTC).isoformat()} "


def _note_next(cursor: str | None) -> None:
    if cursor:
        note((f"More results: --after {cursor}", "dim"))


def _embedder() -> Embedder:
    from agents_ledger.model.agents.embedding import embedder
    from agents_ledger.model.installation.settings import chosen_embedder, settings_file

    name = chosen_embedder()
    if name is None:
        raise Refused("no embedder is configured", f'Set embedder = "FOLDER" in {settings_file()}.')
    return embedder(name)


def _search_by_meaning(
    ledger: Ledger, text: str, limit: int, after: str | None, model: Embedder
) -> Found:
    """Search with vectors; turns that have none are embedded first."""
    embedded = ledger.embed(model)
    if embedded:
        note((f"Embedded {humanize.count(embedded, 'turn')}.", "dim"))
    return ledger.search(text, limit=limit, order="meaning", after=after, embedder=model)


def _titles(ledger: Ledger, results: Found) -> dict[str | None, str]:
    """The title of each session, or else its task or first prompt."""
    titles: dict[str | None, str] = {}
    for label, hits in results.by_session():
        title = hits[0].session_title
        if label and not title:
            root = ledger.ancestor_at(label, 1)
            prompt = ledger.headlines([root])[0].text or "" if root else ""
            first = "" if prompt.startswith("<") else prompt  # else written by a program
            title = ledger.session(label, exact=True).task_description or first
        titles[label] = one_line(title or "")
    return titles


def _quoted(word: str) -> str:
    """Restore the quotes that the shell removed: project:\"my notes\"."""
    spaced = _SPACED.fullmatch(word)
    return f'{spaced[1]}"{spaced[2]}"' if spaced else word


def _print(run: Invocation, results: Found, titles: Mapping[str | None, str]) -> None:
    now = now_ms()
    for label, hits in results.by_session():
        title = titles[label]
        heading = (f"  {fit(title, 60)}" if title else "", "title")
        run.out.wrapped("", (fit(label or "no session", 60), "label"), heading)
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
    run.out.wrapped("  ", (hit.turn_id, "id"), ("  " + " · ".join(filter(None, facts)), "dim"))
    width = run.out.width - 4
    if hit.query and not any(snippet.part == "user" for snippet in hit.snippets):
        run.out.line("    ", (fit(hit.query, width), "dim"))
    for snippet in hit.snippets:
        run.out.wrapped("    ", *_spans(snippet))


def _spans(snippet: Snippet) -> list[Span]:
    """A snippet with its matches highlighted, after the name of its part."""
    where = f"{snippet.part} {snippet.tool_name}" if snippet.tool_name else snippet.part
    spans: list[Span] = [(f"{where}: ", "tool")]
    position = 0
    for start, end in snippet.marks:
        spans += [snippet.text[position:start], (snippet.text[start:end], "match")]
        position = end
    return [*spans, snippet.text[position:]]


@command
@click.argument("path")
@click.option("--read", "action", flag_value="read", help="Only turns that read it.")
@click.option("--written", "action", flag_value="written", help="Only turns that wrote it.")
@since_option("Turns")
@until_option("Turns")
@_LIMIT
@_AFTER
def files(
    run: Invocation,
    *,
    path: str,
    action: Action | None,
    since: int | None,
    until: int | None,
    limit: int,
    after: str | None,
) -> int | None:
    """Find the turns that read or wrote a file, newest first.

    PATH may be the end of a path; a trailing slash names a folder. Exits with 1 if nothing is
    found.
    """
    with run.reading() as ledger:
        results = ledger.files(
            path, action=action, since=since, until=until, limit=limit, after=after
        )
        turn_ids = [touch.turn_id for touch in results.touches]
        # On a terminal, as much of an id as identifies the turn.
        names = [line.short_id for line in ledger.headlines(turn_ids)]
    if run.as_json:
        run.out.json(**to_builtins(results))
        return None
    if not results.touches:
        note(f"No turn read or wrote {path}.")
        return 1
    names = names if run.out.is_terminal else turn_ids
    now = now_ms()
    run.out.table(
        ("TURN", "WHEN", "ACTION", "FILE", "SESSION"),
        [_row(name, touch, now) for name, touch in zip(names, results.touches, strict=True)],
        flexible="FILE",
        optional=("WHEN", "ACTION"),
        truncated=("SESSION", "TURN"),
        shorten=fit_end,
    )
    _note_next(results.next)
    return None


def _row(turn: str, touch: Touch, now: int) -> tuple[Span, ...]:
    action = f"{touch.action} ({touch.tool_name})" if touch.tool_name else touch.action
    return (
        (turn, "id"),
        humanize.age(touch.started_at, now),
        action,
        touch.path,
        (touch.session_label or "", "label"),
    )
