"""The HTML export in Chromium: it runs nothing, loads nothing, and can be read and printed."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from playwright.sync_api import Browser

from agents_ledger import Ledger
from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.exporters.exporting import Export
from tests.exporters.test_forms import record_hostile


def saved(folder: Path, name: str) -> str:
    file = folder / f"{name}.html"
    with Ledger.open(str(folder / "ledger.db")) as ledger:
        if name == "hostile":
            record_hostile(ledger)
            export = Export(ledger, "main", "html", mask=False)
        else:
            Demonstration(ledger).record()
            export = Export(ledger, "demo", "html")
        file.write_text("".join(export), encoding="utf-8")
    return file.as_uri()


@pytest.mark.parametrize("name", ["demo", "hostile"])
@pytest.mark.parametrize(("scheme", "width"), [("light", 1200), ("dark", 380)])
def test_an_exported_page_runs_and_loads_nothing(
    browser: Browser, tmp_path: Path, name: str, scheme: str, width: int
) -> None:
    address = saved(tmp_path, name)
    heard: list[str] = []
    page = browser.new_page(
        viewport={"width": width, "height": 800},
        color_scheme="dark" if scheme == "dark" else "light",
    )
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.on("dialog", lambda dialog: heard.append(dialog.message))
    page.on("request", lambda request: heard.append(request.url))

    page.goto(address)
    page.locator("details").evaluate_all("all => all.forEach(each => { each.open = true })")
    page.locator("footer").scroll_into_view_if_needed()

    assert [what for what in heard if what != address] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("document.scripts.length") == 0
    page.close()


def test_an_exported_page_is_read_and_printed_without_scripts(
    browser: Browser, tmp_path: Path
) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(saved(tmp_path, "demo"))

    edit = page.locator("details.call", has_text="Edit").first
    assert not edit.locator("pre.diff").is_visible()
    edit.locator("summary").click()
    assert edit.locator("pre.diff").is_visible()
    page.get_by_text("Contents").click()
    page.get_by_role("link", name="Write the changelog entry.").click()
    assert "#t-" in page.url
    assert len(page.pdf()) > 10_000
    context.close()


@pytest.mark.parametrize("function", ["light-dark(", "unknown("])
@pytest.mark.parametrize(
    ("scheme", "colours"),
    [
        ("light", ["rgb(247, 248, 248)", "rgb(21, 25, 29)"]),
        ("dark", ["rgb(16, 18, 20)", "rgb(236, 238, 240)"]),
    ],
)
def test_an_exported_page_has_colours_in_older_browsers_too(
    browser: Browser,
    tmp_path: Path,
    scheme: Literal["light", "dark"],
    colours: list[str],
    function: str,
) -> None:
    address = saved(tmp_path, "demo")
    file = tmp_path / "demo.html"
    file.write_text(file.read_text("utf-8").replace("light-dark(", function), "utf-8")
    # The page allows only its own style sheet, by its digest.
    page = browser.new_page(color_scheme=scheme, bypass_csp=True)
    page.goto(address)

    style = "body => [getComputedStyle(body).backgroundColor, getComputedStyle(body).color]"
    assert page.locator("body").evaluate(style) == colours
    page.close()
