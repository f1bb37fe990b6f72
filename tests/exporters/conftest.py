"""The browser that the pages are tested in."""

from tests.web.conftest import browser  # noqa: F401
