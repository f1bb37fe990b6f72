"""A thread given away: in a form people or programs read, secrets masked unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, get_args

from agents_ledger.exporters.material import Material
from agents_ledger.exporters.secrets import Masked, Masker
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.context import PROVIDER_FORMATS
from agents_ledger.model.errors import Refused

Form = Literal["markdown", "json", "messages", "html"]
FORMS: tuple[Form, ...] = get_args(Form)


class Export:
    """A session or turn with all above it, as text that comes in pieces.

    `masked` tells what was masked, once all pieces were taken. The form `messages` is what a model
    is shown at the target, as `provider` takes it.
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
            raise Refused(f"last is {last}; it must be positive")
        self._masker = Masker(on=mask)
        if form == "messages":
            self._pieces = _messages(ledger, target, provider, last, self._masker)
            return
        render = _renderer(form, full=full)
        material = Material(ledger, target, masker=self._masker, last=last, subagents=subagents)
        self._pieces = lambda: render(material)

    def __iter__(self) -> Iterator[str]:
        return self._pieces()

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked of the pieces taken so far."""
        return self._masker.masked


def _messages(
    ledger: Ledger, target: str, provider: str, last: int | None, masker: Masker
) -> Callable[[], Iterator[str]]:
    from agents_ledger.exporters.messages import as_messages

    if provider not in PROVIDER_FORMATS:
        raise Refused(f"a provider is one of {', '.join(PROVIDER_FORMATS)}, not {provider!r}")
    if last is not None:
        raise Refused(
            "messages are what the model is shown, not the last turns",
            "Leave `last` out, or choose another form.",
        )
    if ledger.thread(target, last=0).turn_id is None:
        raise Refused(f"session {target!r} is empty", "There is nothing to export.")
    return lambda: as_messages(ledger, target, provider, masker)


def _renderer(form: Form, *, full: bool) -> Callable[[Material], Iterator[str]]:
    if form == "markdown":
        from agents_ledger.exporters.markdown import as_markdown

        return lambda material: as_markdown(material, full=full)
    if form == "json":
        from agents_ledger.exporters.json import as_json

        return as_json
    if form == "html":
        try:
            from agents_ledger.exporters.html import as_html
        except ModuleNotFoundError as error:
            raise Refused(
                f"HTML needs {error.name}, which is not installed",
                "Install it with: pip install 'agents-ledger[web]'",
            ) from error
        return lambda material: as_html(material, full=full)
    raise Refused(f"an export is in one of the forms {', '.join(FORMS)}, not {form!r}")
