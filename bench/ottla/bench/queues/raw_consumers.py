"""Share consumers over raw sockets: the cost of ShareFetch to a broker, without a client library.

One process opens several connections, each with a share session. Every request acknowledges the
records of the previous response, and fetches further records.
"""

import socket
import time
from base64 import urlsafe_b64encode
from collections.abc import Sequence
from selectors import EVENT_READ, DefaultSelector
from typing import NamedTuple
from uuid import UUID, uuid4

import trio

from ottla.bench.groups import NOT_YET, Address, find_coordinator
from ottla.bench.requests import SILENCE_S, dial, exchanged, frame_of, topic_id_of
from ottla.bench.result import Result
from ottla.client.admin import open_admin
from ottla.client.admin_parts.admin_configs import ConfigResource
from ottla.client.network.cluster import raise_for
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.limits import MIB
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.model.settings.resources import ConfigKind
from ottla.wire import codec, headers
from ottla.wire.messages.share_fetch_request import (
    AcknowledgementBatch,
    FetchPartition,
    FetchTopic,
    ShareFetchRequest,
)
from ottla.wire.messages.share_fetch_response import ShareFetchResponse
from ottla.wire.messages.share_group_heartbeat_request import ShareGroupHeartbeatRequest
from ottla.wire.messages.share_group_heartbeat_response import ShareGroupHeartbeatResponse

SHARE_FETCH_VERSION = 1
HEARTBEAT_VERSION = 1
ACCEPT = 1
RECORDS_AT_ONCE = 500
"""Maximum number of records in a ShareFetch response, equal to the default of
`max.poll.records`."""
BYTES_AT_ONCE = 50 * MIB
WAIT_MS = 500
HEARTBEAT_S = 0.2
PATIENCE_S = 60.0

Acks = dict[int, list[AcknowledgementBatch]]
"""Acknowledgements of a share consumer, by partition."""


class FetchedShare(NamedTuple):
    """Content of a ShareFetch response: acquired records, and the number of records whose
    acknowledgement it confirms."""

    acquired: Acks
    """Acknowledgements that accept all records acquired in the response."""
    accepted_count: int
    """Number of records that were acknowledged by the request that belongs to this response."""


def read_from_earliest(bootstrap: str, group: str) -> None:
    """Configure a share group that does not exist yet, so that it starts with the earliest records
    of its topics."""

    async def alter() -> None:
        async with open_admin(bootstrap) as admin:
            resource = ConfigResource(ConfigKind.GROUP, group)
            await admin.alter_configs(resource, {"share.auto.offset.reset": "earliest"})

    trio.run(alter)


class RawShareConsumers:
    """Members of one share group, each with a connection to the only broker of a cluster."""

    def __init__(self, bootstrap: str, topic: str, *, partitions: int, connections: int) -> None:
        self._bootstrap = bootstrap
        self._address = parse_bootstrap(bootstrap)[0]
        self._topic = topic
        self._topic_id = topic_id_of(self._address, topic)
        self._partitions = partitions
        self._connections = connections
        self._group = f"ottla-bench-{time.time_ns()}"

    def join(self) -> None:
        """Create the group with one member, and wait until the topic is assigned to it.

        One member suffices, because it causes the states of the share partitions to be created, and
        a broker does not check whether fetching clients are members.
        """
        read_from_earliest(self._bootstrap, self._group)
        member_id, epoch = _member_id(), 0
        with dial(find_coordinator(self._address, self._group)) as client:
            deadline = time.monotonic() + PATIENCE_S
            while time.monotonic() < deadline:
                request = ShareGroupHeartbeatRequest(
                    group_id=self._group,
                    member_id=member_id,
                    member_epoch=epoch,
                    subscribed_topic_names=[self._topic],
                )
                answer = exchanged(client, frame_of(request, HEARTBEAT_VERSION))
                _, at = headers.decode_response_header(request.API_KEY, HEARTBEAT_VERSION, answer)
                found = codec.decode(
                    ShareGroupHeartbeatResponse, HEARTBEAT_VERSION, memoryview(answer)[at:]
                )
                if found.error_code not in NOT_YET:
                    raise_for(found.error_code, found.error_message)
                    epoch = found.member_epoch
                if found.assignment is not None and found.assignment.topic_partitions:
                    return
                time.sleep(HEARTBEAT_S)
        raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"{self._topic} was not assigned")

    def consume(self, count: int) -> Result:
        """Fetch and accept records until `count` records are acknowledged. Returns a result with
        the latencies of requests in milliseconds."""
        topic = self._topic_id, self._partitions
        clients = [
            _ShareClient(self._address, self._group, topic) for _ in range(self._connections)
        ]
        selector = DefaultSelector()
        for client in clients:
            selector.register(client.socket, EVENT_READ, client)
        latencies: list[float] = []
        accepted = 0
        started = time.perf_counter()
        for client in clients:
            client.send()
        while accepted < count:
            ready = selector.select(SILENCE_S)
            if not ready:
                raise RefusedError(ErrorCode.REQUEST_TIMED_OUT, f"no answer in {SILENCE_S:g} s")
            for key, _ in ready:
                accepted += key.data.receive(latencies)
        seconds = time.perf_counter() - started
        for client in clients:
            client.socket.close()
        return Result("share consume", accepted, 0, seconds, latencies)


class _ShareClient:
    """Connection of one share consumer of the benchmark, with its share session."""

    def __init__(self, address: Address, group: str, topic: tuple[UUID, int]) -> None:
        self.socket = dial(address)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._group = group
        self._member_id = _member_id()
        self._topic_id, self._partition_count = topic
        self._epoch = 0
        self._acks: Acks = {}
        self._received = bytearray()
        self._sent_at = 0.0

    def send(self) -> None:
        """Send the next ShareFetch request of the share session, with the acknowledgements that are
        due. The first request names all partitions."""
        indexes: Sequence[int] = list(self._acks) if self._epoch else range(self._partition_count)
        partitions = [
            FetchPartition(partition_index=index, acknowledgement_batches=self._acks.get(index, []))
            for index in indexes
        ]
        request = ShareFetchRequest(
            group_id=self._group,
            member_id=self._member_id,
            share_session_epoch=self._epoch,
            max_wait_ms=WAIT_MS,
            min_bytes=1,
            max_bytes=BYTES_AT_ONCE,
            max_records=RECORDS_AT_ONCE,
            batch_size=RECORDS_AT_ONCE,
            topics=[FetchTopic(topic_id=self._topic_id, partitions=partitions)] * bool(partitions),
        )
        self._epoch += 1
        self._sent_at = time.perf_counter()
        self.socket.sendall(frame_of(request, SHARE_FETCH_VERSION))

    def receive(self, latencies: list[float]) -> int:
        """Read bytes from the broker, and send the next request once the response is complete.
        Returns the number of records whose acknowledgement the response confirms."""
        data = self.socket.recv(1 << 20)
        if not data:
            raise OttlaError("the broker hung up")
        received = self._received
        received += data
        if len(received) < 4 or len(received) < 4 + int.from_bytes(received[:4], "big"):
            return 0
        latencies.append((time.perf_counter() - self._sent_at) * 1e3)
        fetched = fetched_share(bytes(received[4:]), self._acks)
        received.clear()
        self._acks = fetched.acquired
        self.send()
        return fetched.accepted_count


def fetched_share(answer: bytes, acks: Acks) -> FetchedShare:
    """Return the content of the ShareFetch response to a request with the given acknowledgements.

    Raises RefusedError if the broker refused the request or a partition of it.
    """
    _, at = headers.decode_response_header(ShareFetchRequest.API_KEY, SHARE_FETCH_VERSION, answer)
    found = codec.decode(ShareFetchResponse, SHARE_FETCH_VERSION, memoryview(answer)[at:])
    raise_for(found.error_code, found.error_message)
    acquired: Acks = {}
    for topic in found.responses:
        for partition in topic.partitions:
            raise_for(partition.error_code, partition.error_message)
            raise_for(partition.acknowledge_error_code, partition.acknowledge_error_message)
            ranges = [
                AcknowledgementBatch(
                    first_offset=one.first_offset,
                    last_offset=one.last_offset,
                    acknowledge_types=[ACCEPT],
                )
                for one in partition.acquired_records
            ]
            if ranges:
                acquired[partition.partition_index] = ranges
    accepted = sum(
        ack.last_offset - ack.first_offset + 1 for batches in acks.values() for ack in batches
    )
    return FetchedShare(acquired, accepted)


def _member_id() -> str:
    """Return a new group member id in the format that Kafka's clients use."""
    return urlsafe_b64encode(uuid4().bytes).decode().rstrip("=")
