"""A cluster behind a proxy that loses responses or announces older versions; and test groups."""

from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

import pytest
import trio

from ottla.client import Consumer, ConsumerConfig, open_admin, open_consumer, open_producer
from ottla.client.network.background import lone_errors
from ottla.client.testing import ClusterUnderTest, open_test_cluster
from ottla.client.testing.fixtures import ottla_cluster
from ottla.wire import codec
from ottla.wire.apis import API_VERSIONS, PRODUCE
from ottla.wire.messages.api_versions_response import ApiVersionsResponse

__all__ = ["ottla_cluster"]


class Proxy:
    """A proxy between clients and one broker.

    It closes a connection when a response to Produce (or `cut_api_key`) arrives, whenever `cuts`
    returns true: the request was processed, so its records are appended, but its sender gets no
    response. In ApiVersions it lowers the highest versions to those of `highest`. The requests that
    it has passed are in `asked`.
    """

    def __init__(self, cuts: Iterable[bool], highest: Mapping[int, int]) -> None:
        self.cut_count = 0
        self.target = ("", 0)
        self.cuts = iter(cuts)
        self.highest = highest
        self.cut_api_key = PRODUCE
        """The API whose responses are lost."""
        self.asked: set[tuple[int, int]] = set()
        """Pairs of api key and version."""

    async def serve(self, client: trio.SocketStream) -> None:
        """Pass on the bytes of one connection until its end."""
        asked: deque[tuple[int, int]] = deque()
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
        on_frame: Callable[[bytes, deque[tuple[int, int]]], bytes | None],
        asked: deque[tuple[int, int]],
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
                    passed_on = on_frame(frame, asked)
                    if passed_on is None:
                        self.cut_count += 1
                        scope.cancel()
                    await sink.send_all(passed_on or b"")
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        scope.cancel()

    def _on_request(self, frame: bytes, asked: deque[tuple[int, int]]) -> bytes:
        api = (int.from_bytes(frame[4:6], "big"), int.from_bytes(frame[6:8], "big"))
        self.asked.add(api)
        asked.append(api)
        return frame

    def _on_response(self, frame: bytes, asked: deque[tuple[int, int]]) -> bytes | None:
        api_key, version = asked.popleft()
        if api_key == self.cut_api_key and next(self.cuts, False):
            return None
        if api_key == API_VERSIONS and self.highest:
            return self._look_old(frame, version)
        return frame

    def _look_old(self, frame: bytes, version: int) -> bytes:
        body_at = 8  # behind the length and the correlation id
        answer = codec.decode(ApiVersionsResponse, version, memoryview(frame)[body_at:])
        for row in answer.api_keys:
            row.max_version = min(row.max_version, self.highest.get(row.api_key, row.max_version))
        body = codec.encode(answer, version)
        return (len(body) + 4).to_bytes(4, "big") + frame[4:body_at] + body


@asynccontextmanager
async def open_behind_proxy(
    cuts: Iterable[bool] = (), highest: Mapping[int, int] = MappingProxyType({})
) -> AsyncIterator[tuple[ClusterUnderTest, str, Proxy]]:
    """Open a cluster whose broker advertises a proxy's address only; yield the proxy too."""
    proxy = Proxy(cuts, highest)
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


EAGER = {"partition_assignment_strategy": ("range",)}
COOPERATIVE = {"partition_assignment_strategy": ("cooperative-sticky",)}
CONSUMER = {"group_protocol": "consumer"}
PROTOCOLS: dict[str, dict[str, Any]] = {
    "eager": EAGER,
    "cooperative": COOPERATIVE,
    "consumer": CONSUMER,
}
HASTY = {
    "group.consumer.heartbeat.interval.ms": "50",
    "group.consumer.min.heartbeat.interval.ms": "50",
}
"""Settings with which members send heartbeats often."""
CALM = {
    "group.consumer.max.heartbeat.interval.ms": "100000",
    "group.consumer.heartbeat.interval.ms": "100000",
    "group.consumer.max.session.timeout.ms": "300000",
    "group.consumer.session.timeout.ms": "300000",
}


class Groups:
    """A cluster whose topic is read by the groups of one protocol."""

    def __init__(self, bootstrap: str, protocol: str, timing: Mapping[str, int]) -> None:
        self.bootstrap = bootstrap
        self.protocol = protocol
        self.timing = timing

    def config(self, **changes: Any) -> ConsumerConfig:
        """Return the settings of a member."""
        return ConsumerConfig(
            **{
                "group_id": "g",
                "auto_offset_reset": "earliest",
                **self.timing,
                **PROTOCOLS[self.protocol],
                **changes,
            }
        )

    def open(self, **changes: Any) -> Any:
        """Open a consumer with these settings."""
        return open_consumer(self.bootstrap, self.config(**changes))

    async def create(self, partition_count: int, topic: str = "t") -> None:
        """Create a topic."""
        async with open_admin(self.bootstrap) as admin:
            await admin.create_topic(topic, partition_count=partition_count)

    async def produce(self, numbers: range, partition_count: int) -> None:
        """Write numbers, each to the partition that is its remainder."""
        async with open_producer(self.bootstrap) as producer:
            for number in numbers:
                await producer.send("t", b"%d" % number, partition=number % partition_count)

    async def read(self, consumer: Consumer, count: int) -> list[int]:
        """Read `count` numbers."""
        found: list[int] = []
        with trio.fail_after(60):
            while len(found) < count:
                found += [int(record.value or b"") for record in await consumer.poll()]
        return found

    async def until(self, happened: Callable[[], bool], *polling: Consumer) -> None:
        """Let consumers poll (none of them shall get records) until it happened."""
        with trio.fail_after(60):
            while not happened():
                for consumer in polling:
                    assert await consumer.poll(0.02) == []
                await trio.sleep(0.01)


@pytest.fixture(params=list(PROTOCOLS))
async def groups(request: pytest.FixtureRequest) -> AsyncIterator[Groups]:
    """Give the groups of each protocol."""
    async with open_test_cluster(settings=HASTY) as cluster:
        timing = {"heartbeat_interval_ms": 50, "session_timeout_ms": 6_000}
        yield Groups(cluster.bootstrap, request.param, timing)


@pytest.fixture(params=list(PROTOCOLS))
async def calm_groups(request: pytest.FixtureRequest) -> AsyncIterator[Groups]:
    """Yield the groups of each protocol, whose members send heartbeats rarely."""
    async with open_test_cluster(settings=CALM) as cluster:
        timing = {"heartbeat_interval_ms": 100_000, "session_timeout_ms": 300_000}
        yield Groups(cluster.bootstrap, request.param, timing)
