"""Take the pictures of the README from the demonstration ledger: make pictures. Needs Chromium."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from html import escape
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright
from rich.console import Console
from rich.terminal_theme import DIMMED_MONOKAI
from rich.text import Text

from agents_ledger import Ledger
from agents_ledger.cli.servers.demonstration import Demonstration
from agents_ledger.cli.servers.server import Server, Serving

FOLDER = Path(__file__).parents[1] / "docs/pictures"
CHROMIUM = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
COMMANDS = ("tree demo", "show demo-strict --last 1", "sessions")
COLUMNS = 100
PAGE_CSS = """
body { margin: 0; background: #14171c; width: max-content }
pre { margin: 0; padding: 18px 22px; color: #d7dae0; line-height: 1.35;
      font: 15px "DejaVu Sans Mono", Menlo, Consolas, monospace }
.prompt { color: #7f8896 }
"""


def main() -> None:
    if CHROMIUM is None:
        sys.exit("make pictures needs Chromium on the PATH")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        address = str(Path(folder) / "ledger.db")
        with Ledger.open(address) as ledger:
            Demonstration(ledger).record()
            browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
            take_page(browser, ledger)
            take_terminal(browser, address)
            browser.close()


def take_page(browser: Browser, ledger: Ledger) -> None:
    server = Server(ledger, Serving(port=0))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    wait_for(server.address)
    page = browser.new_page(viewport={"width": 1440, "height": 900}, color_scheme="light")
    page.goto(server.address_with_token, wait_until="load")
    page.goto(f"{server.address}s/demo", wait_until="load")
    page.evaluate("scrollTo(0, 0)")
    page.screenshot(path=FOLDER / "command-center.png")
    page.close()
    server.stop()
    thread.join()


def wait_for(address: str) -> None:
    for _ in range(100):
        try:
            urllib.request.urlopen(f"{address}static/app.css", timeout=1).close()  # noqa: S310
        except OSError:
            time.sleep(0.1)
        else:
            return
    sys.exit(f"the server at {address} does not answer")


def take_terminal(browser: Browser, address: str) -> None:
    parts = []
    for command in COMMANDS:
        prompt = f'<span class="prompt">$</span> agents-ledger {escape(command)}'
        parts.append(f"{prompt}\n{coloured(command, address)}")
    page = browser.new_page(device_scale_factor=1.5)
    shown = "\n".join(parts)
    page.set_content(f"<style>{PAGE_CSS}</style><pre>{shown}</pre>")
    page.locator("pre").screenshot(path=FOLDER / "terminal.png")
    page.close()


def coloured(command: str, address: str) -> str:
    """The output of a command as HTML, with the colours of a terminal."""
    environment = {**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(COLUMNS)}
    program = [sys.executable, "-m", "agents_ledger.cli.main", "--ledger", address]
    run = subprocess.run(
        [*program, *command.split()], capture_output=True, text=True, check=True, env=environment
    )
    console = Console(record=True, width=COLUMNS, file=open(os.devnull, "w"), force_terminal=True)  # noqa: SIM115
    console.print(Text.from_ansi(run.stdout.rstrip()))
    return console.export_html(theme=DIMMED_MONOKAI, inline_styles=True, code_format="{code}")


if __name__ == "__main__":
    main()
