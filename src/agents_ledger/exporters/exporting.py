"""Exports of a thread: Markdown, HTML, JSON or provider messages; secrets are masked by default."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, get_args

from agents_ledger.exporters.exported_thread import ExportedThread
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused
from agents_ledger.model.installation.extras import check
from agents_ledger.model.secrets.masking import Masked, Masker

Form = Literal["markdown", "json", "messages", "html"]
FORMS: tuple[Form, ...] = get_args(Form)


class Export:
    """A session or a turn with everything above it, as an iterable of text chunks.

    The form `messages` is the context of a model at the target, in the format of `provider`.
    """

    def __init__(
        self,
        ledger: Ledger,
        target: str,
        form: Form = "markdown",
        *,
        mask: bool = True,
        full: bool = False,
        last: int | None = None,
        subagents: bool = True,
        provider: str = "anthropic",
    ) -> None:
        if last is not None and last < 1:
            raise Refused(f"last is {last}", "It must be at least 1.")
        self._masker = Masker(on=mask)
        if form == "messages":
            self._chunks = _messages(ledger, target, provider, last, self._masker)
            return
        render = _renderer(form, full=full)
        exported = ExportedThread(
            ledger, target, masker=self._masker, last=last, subagents=subagents
        )
        self._chunks = lambda: render(exported)

    def __iter__(self) -> Iterator[str]:
        return self._chunks()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked in the chunks read so far; complete at the end."""
        return self._masker.masked


def _messages(
    ledger: Ledger, target: str, provider: str, last: int | None, masker: Masker
) -> Callable[[], Iterator[str]]:
    from agents_ledger.exporters.messages import as_messages
    from agents_ledger.model.context.items import PROVIDER_FORMATS

    if provider not in PROVIDER_FORMATS:
        formats = ", ".join(PROVIDER_FORMATS)
        raise Refused(f"unknown message format {provider!r}", f"Use one of {formats}.")
    if last is not None:
        raise Refused(
            "the form messages is the context of a model and cannot be limited to the last turns",
            "Omit `last`, or choose another form.",
        )
    if ledger.thread(target, last=0).turn_id is None:
        raise Refused(f"session {target!r} is empty", "There is nothing to export.")
    return lambda: as_messages(ledger, target, provider, masker)


def _renderer(form: Form, *, full: bool) -> Callable[[ExportedThread], Iterator[str]]:
    if form == "markdown":
        from agents_ledger.exporters.markdown import as_markdown

        return lambda exported: as_markdown(exported, full=full)
    if form == "json":
        from agents_ledger.exporters.json import as_json

        return as_json
    if form == "html":
        check("web", "an export as HTML", "markupsafe", "markdown_it", "nh3", "pygments")
        from agents_ledger.exporters.html import as_html

        return lambda exported: as_html(exported, full=full)
    raise Refused(f"unknown export form {form!r}", f"Forms: {', '.join(FORMS)}.")
