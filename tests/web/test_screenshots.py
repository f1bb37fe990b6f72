"""Pages look as they did when somebody last looked at them: make screenshots shows and accepts.

What is compared is a thumbnail of the first screen: fonts, ages and ids may differ from machine to
machine, a column that is gone or a panel that covers another may not.
"""

from __future__ import annotations

import base64
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page

from tests.web.conftest import Visitor

ACCEPTED = Path(__file__).parent / "accepted"
# Where whole pictures are saved to be looked at; the thumbnails are then accepted.
FOLDER = os.environ.get("AGENTS_LEDGER_SCREENSHOTS")

PAGES = {
    "home": "/",
    "sessions": "/sessions",
    "thread": "/s/demo",
    "usage": "/usage",
    "search": "/search?q=seconds",
    "file": "/files/durations.py",
    "compare": "/compare?a=demo&b=demo-strict",
    "share": "/share/demo",
}
SIZES = {380: 800, 1440: 900, 2560: 1300}
THUMBNAIL_WIDTH = 128
DIFFERENCE_MAX = 12.0  # of 255, the mean over a thumbnail: other text is about 3, another theme 150

SHRINK = """async ([picture, width]) => {
  const image = new Image();
  image.src = `data:image/png;base64,${picture}`;
  await image.decode();
  const canvas = document.createElement("canvas");
  canvas.width = width;
  canvas.height = Math.round(width * image.height / image.width);
  const context = canvas.getContext("2d");
  context.imageSmoothingQuality = "high";
  context.drawImage(image, 0, 0, canvas.width, canvas.height);
  return canvas.toDataURL("image/png").split(",")[1];
}"""
DIFFERENCE = """async (pictures) => {
  const pixels = await Promise.all(pictures.map(async (picture) => {
    const image = new Image();
    image.src = `data:image/png;base64,${picture}`;
    await image.decode();
    const canvas = document.createElement("canvas");
    [canvas.width, canvas.height] = [image.width, image.height];
    canvas.getContext("2d").drawImage(image, 0, 0);
    return canvas.getContext("2d").getImageData(0, 0, image.width, image.height).data;
  }));
  if (pixels[0].length !== pixels[1].length) return 255;
  const total = pixels[0].reduce((sum, value, at) => sum + Math.abs(value - pixels[1][at]), 0);
  return total / (pixels[0].length * 0.75);  // the fourth value of a pixel, opacity, never differs
}"""


@pytest.fixture(scope="module")
def canvas(browser: Browser) -> Page:
    """An empty page to compare pictures in: the pages themselves allow no pictures from outside."""
    return browser.new_page()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_looks_as_it_was_accepted(
    name: str, visit: Callable[..., Visitor], canvas: Page
) -> None:
    differences = {}
    page = visit(reduced_motion="reduce").open(PAGES[name])
    page.wait_for_load_state("load")
    for width, height in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.evaluate("scrollTo(0, 0)")
        for theme in ("light", "dark"):
            page.emulate_media(color_scheme=theme)
            picture = page.screenshot()
            encoded = base64.b64encode(picture).decode()
            thumbnail = canvas.evaluate(SHRINK, [encoded, THUMBNAIL_WIDTH])
            accepted = ACCEPTED / f"{name}-{width}-{theme}.png"
            if FOLDER:
                (Path(FOLDER) / accepted.name).write_bytes(picture)
                accepted.write_bytes(base64.b64decode(thumbnail))
            expected = base64.b64encode(accepted.read_bytes()).decode()
            difference = canvas.evaluate(DIFFERENCE, [expected, thumbnail])
            differences[width, theme] = difference
    assert max(differences.values()) < DIFFERENCE_MAX, differences
