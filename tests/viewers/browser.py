"""When the tests in a browser run, and what they use of it."""

from __future__ import annotations

import pytest

from viewers.chromium import Page, chromium, open_browser, pixel, settled_camera

__all__ = ["Page", "needs_browser", "open_browser", "pixel", "settled_camera"]


def needs_browser() -> None:
    """Skip the calling test, with the reason, where there is no browser or no viser."""
    pytest.importorskip("viser", reason="viser is not installed (pip install splatanim[viewer])")
    pytest.importorskip("playwright.sync_api", reason="playwright is not installed (pip install playwright)")
    if chromium() is None:
        pytest.skip("there is no chromium (apt-get install chromium, or set CHROMIUM to one)")
