"""A thread given away: in a form people or programs read, secrets masked unless told otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Literal, get_args

from agents_ledger.exporters.material import Material
from agents_ledger.exporters.secrets import Masked, Masker
from agents_ledger.ledger.ledger import Ledger
from agents_ledger.model.errors import Refused

Form = Literal["markdown", "json", "html"]
FORMS: tuple[Form, ...] = get_args(Form)


class Export:
    """A session or turn with all above it, as text that comes in pieces.

    `masked` tells what was masked, once all pieces were taken.
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
    ) -> None:
        if last is not None and last < 1:
            raise Refused(f"last is {last}; it must be positive")
        self._render = _renderer(form, full=full)
        self._masker = Masker(on=mask)
        self._material = Material(
            ledger, target, masker=self._masker, last=last, subagents=subagents
        )

    def __iter__(self) -> Iterator[str]:
        return self._render(self._material)

    @property
    def masked(self) -> tuple[Masked, ...]:
        """What was masked of the pieces taken so far."""
        return self._masker.masked


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
