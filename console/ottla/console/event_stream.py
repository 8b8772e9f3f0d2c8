"""Sends server-sent events, by which a page's live part is updated.

The stream ends if the browser disconnects or does not read for `SEND_S` seconds, after `STREAM_S`
seconds, or if the view fails. The browser then connects again, except after a failure, which the
page shows.
"""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus

import trio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from ottla.console.http_errors import failure_of
from ottla.console.page_types import PageView
from ottla.model.errors import only_error
from ottla.model.visible_text import visible

LOG = logging.getLogger(__name__)
Push = Callable[[str], Awaitable[None]]

BEAT_S = 15.0
"""Interval, in seconds, of comments in an event stream. Proxies would close a stream without
data."""
SEND_S = 30.0
"""Maximum seconds until a browser has read an event of the stream."""
STREAM_S = 3_600.0
"""Maximum duration, in seconds, of an event stream. The browser then connects again, and its login
is checked again."""
RETRY_MS = 3_000


class EventStream(Response):
    """HTTP response that keeps a part of an open page up to date. It sends a server-sent event for
    each new version of the part."""

    media_type = "text/event-stream"

    def __init__(
        self,
        views: AsyncGenerator[PageView, None],
        render: Callable[[PageView], str],
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(headers={"x-accel-buffering": "no"})
        del self.headers["content-length"]
        self._views = views
        self._render = render
        self._on_end = on_end
        self._is_lost = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send server-sent events until the stream ends."""
        lock = trio.Lock()

        async def push(text: str) -> None:
            async with lock:
                self._is_lost = True  # unless this event is read in time
                with trio.fail_after(SEND_S):
                    body = text.encode("utf-8", "replace")
                    await send({"type": "http.response.body", "body": body, "more_body": True})
                self._is_lost = False

        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            with trio.move_on_after(STREAM_S):
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(_beat, push)
                    nursery.start_soon(_wait_for_end, receive, nursery.cancel_scope)
                    await push(f"retry: {RETRY_MS}\n\n")
                    await self._send_views(push)
                    nursery.cancel_scope.cancel()
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except* (trio.TooSlowError, OSError):
            pass  # the browser is gone, or does not read
        finally:
            self._on_end()

    async def _send_views(self, push: Push) -> None:
        try:
            async with aclosing(self._views):
                async for view in self._views:
                    await push(event_text("swap", self._render(view)))
            await push(event_text("end", ""))
        except Exception as error:
            if self._is_lost:
                raise
            found = only_error(error) if isinstance(error, ExceptionGroup) else error
            failure = failure_of(found if isinstance(found, Exception) else error)
            if failure.status == HTTPStatus.INTERNAL_SERVER_ERROR:
                LOG.error("a live part failed", exc_info=error)
            await push(event_text("failed", visible(failure.reason)))


def event_text(name: str, data: str) -> str:
    """Return a server-sent event as text. Each line of its data becomes a separate field."""
    lines = "".join(f"data: {line}\n" for line in data.split("\n"))
    return f"event: {name}\n{lines}\n"


async def _beat(push: Push) -> None:
    while True:
        await trio.sleep(BEAT_S)
        await push(": beat\n\n")


async def _wait_for_end(receive: Receive, scope: trio.CancelScope) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    scope.cancel()
