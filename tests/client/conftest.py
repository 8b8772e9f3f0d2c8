"""A cluster behind a proxy that loses answers."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager

import pytest
import trio

from ottla.client.background import lone_errors
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.client.testing.fixtures import ottla_cluster

__all__ = ["ottla_cluster"]

PRODUCE = 0


class CuttingProxy:
    """Stands between clients and one broker; cuts a connection where an answer to Produce comes.

    The request went through, so its records are appended; whoever sent it never hears of it.
    """

    def __init__(self, cuts: Iterator[bool]) -> None:
        self.cut_count = 0
        self.target = ("", 0)
        self.cuts = cuts

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass on what one connection says, until its end."""
        asked: deque[int] = deque()
        with trio.CancelScope() as scope:
            async with (
                client,
                await trio.open_tcp_stream(*self.target) as broker,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(self._pass, client, broker, scope, self._on_request, asked)
                await self._pass(broker, client, scope, self._on_response, asked)

    async def _pass(
        self,
        source: trio.SocketStream,
        sink: trio.SocketStream,
        scope: trio.CancelScope,
        on_frame: Callable[[bytes, deque[int]], bool],
        asked: deque[int],
    ) -> None:
        received = bytearray()
        try:
            while data := await source.receive_some():
                received += data
                while len(received) >= 4:
                    end = 4 + int.from_bytes(received[:4], "big")
                    if len(received) < end:
                        break
                    frame = bytes(received[:end])
                    del received[:end]
                    if not on_frame(frame, asked):
                        self.cut_count += 1
                        scope.cancel()
                    await sink.send_all(frame)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    def _on_request(self, frame: bytes, asked: deque[int]) -> bool:
        asked.append(int.from_bytes(frame[4:6], "big"))
        return True

    def _on_response(self, frame: bytes, asked: deque[int]) -> bool:
        return asked.popleft() != PRODUCE or not next(self.cuts, False)


@asynccontextmanager
async def open_behind_proxy(
    cuts: Iterator[bool],
) -> AsyncIterator[tuple[ClusterUnderTest, str, CuttingProxy]]:
    """Open a cluster whose broker is known by a proxy's address only; yield that too."""
    proxy = CuttingProxy(cuts)
    listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")
    port = listeners[0].socket.getsockname()[1]
    settings = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    with lone_errors():
        async with open_test_cluster(settings=settings) as cluster, trio.open_nursery() as nursery:
            host, _, bound = cluster.bootstrap.partition(":")
            proxy.target = (host, int(bound))
            nursery.start_soon(trio.serve_listeners, proxy.serve, listeners)
            yield cluster, f"127.0.0.1:{port}", proxy
            nursery.cancel_scope.cancel()


@pytest.fixture
def behind_proxy() -> Callable[..., object]:
    """Give `open_behind_proxy`."""
    return open_behind_proxy
