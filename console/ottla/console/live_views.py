"""Creates live parts of pages. A live part is updated while the page is open, by repeated calls of
the page's view (the function that computes the page)."""

from collections.abc import AsyncGenerator
from dataclasses import replace

import trio

from ottla.console.page_types import LiveFunction, PageRequest, PageView, ViewFunction

INTERVAL_S_MIN = 1.0
"""Minimum interval in seconds between two updates of a live part, so that an open page costs the
brokers little."""


def every(interval_s: float, view: ViewFunction) -> LiveFunction:
    """Return a live part. While the page is open, the live part calls the page's view repeatedly,
    with `interval_s` seconds between two calls."""

    async def views(request: PageRequest) -> AsyncGenerator[PageView, None]:
        began = trio.current_time()
        while True:
            passed_ms = round(1_000 * (trio.current_time() - began))
            yield await view(replace(request, now_ms=request.now_ms + passed_ms))
            await trio.sleep(max(INTERVAL_S_MIN, interval_s))

    return views
