"""Brokers of any cluster and version at any address, on a network without sockets."""

from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

import trio
import trio.testing

from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId
from ottla.wire import apis, codec, headers
from ottla.wire.codec_types import Message
from ottla.wire.messages.api_versions_request import ApiVersionsRequest
from ottla.wire.messages.api_versions_response import ApiVersion, ApiVersionsResponse
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

Address = tuple[str, int]
MemoryPair: TypeAlias = (
    "trio.StapledStream[trio.testing.MemorySendStream, trio.testing.MemoryReceiveStream]"
)
METADATA_VERSION = 13


class ScriptedBroker:
    """A broker that answers ApiVersions as Kafka 4.4 does, and Metadata with its cluster."""

    def __init__(
        self, cluster_id: str, node_id: int, nodes: dict[int, Address], *, knows: int = 5
    ) -> None:
        """`nodes` are the addresses of the cluster by node id; `knows` is the highest version of
        ApiVersions, and -1 one of a broker that lists none."""
        self.cluster_id = cluster_id
        self.node_id = NodeId(node_id)
        self.nodes = nodes
        self.knows = knows
        self.metadata_code = ErrorCode.NONE
        self.is_silent = False
        self.asked: list[tuple[int, str | None, int]] = []
        """Version, cluster id and node id of each ApiVersions request."""

    def answer(self, frame: bytes) -> bytes | None:
        """Return the response to a request, or None for none."""
        header = headers.decode_request_header(frame)
        key, version = header.api_key, header.api_version
        if key == apis.API_VERSIONS:
            highest = max(self.knows, 0)
            if version > highest:
                self.asked.append((version, None, -1))
                return self._encoded(frame, 0, self._refused_version())
            request = codec.decode(ApiVersionsRequest, version, frame, header.body_at)
            self.asked.append((version, request.cluster_id, request.node_id))
            return self._encoded(frame, version, self._versions(request))
        assert key == apis.METADATA
        return None if self.is_silent else self._encoded(frame, version, self._metadata())

    def _refused_version(self) -> ApiVersionsResponse:
        rows = [] if self.knows < 0 else [self._own_row()]
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=rows)

    def _own_row(self) -> ApiVersion:
        return ApiVersion(api_key=apis.API_VERSIONS, min_version=0, max_version=max(self.knows, 0))

    def _versions(self, request: ApiVersionsRequest) -> ApiVersionsResponse:
        is_named = request.cluster_id is not None
        if is_named and (request.cluster_id, request.node_id) != (self.cluster_id, self.node_id):
            return ApiVersionsResponse(error_code=ErrorCode.REBOOTSTRAP_REQUIRED)
        metadata = ApiVersion(api_key=apis.METADATA, min_version=0, max_version=METADATA_VERSION)
        return ApiVersionsResponse(api_keys=[self._own_row(), metadata])

    def _metadata(self) -> MetadataResponse:
        partition = MetadataResponsePartition(leader_id=min(self.nodes), leader_epoch=1)
        return MetadataResponse(
            error_code=self.metadata_code,
            cluster_id=self.cluster_id,
            brokers=[
                MetadataResponseBroker(node_id=node, host=host, port=port)
                for node, (host, port) in self.nodes.items()
            ],
            topics=[MetadataResponseTopic(name=f"of-{self.cluster_id}", partitions=[partition])],
        )

    @staticmethod
    def _encoded(frame: bytes, version: int, answer: Message) -> bytes:
        key = headers.decode_request_header(frame).api_key
        body = codec.encode(answer, version)
        start = headers.answer_start(key, version, headers.correlation_id_of(frame), len(body))
        return start + body


class MemoryStream:
    """The client's end of a connection."""

    def __init__(self, stream: MemoryPair) -> None:
        self._stream = stream
        self.send_all = stream.send_all
        self.receive_some: Callable[[int], object] = stream.receive_some
        self.aclose = stream.aclose

    def abort(self) -> None:
        """Close both directions at once."""
        self._stream.send_stream.close()
        self._stream.receive_stream.close()


class ScriptedNetwork:
    """A transport to the brokers at their addresses."""

    def __init__(self, nursery: trio.Nursery, brokers: dict[Address, ScriptedBroker]) -> None:
        self.brokers = brokers
        self.dialled: list[Address] = []
        self._nursery = nursery

    async def connect(self, host: str, port: int) -> MemoryStream:
        """Connect to the broker at an address.  Raises OSError if there is none."""
        self.dialled.append((host, port))
        broker = self.brokers.get((host, port))
        if broker is None:
            raise ConnectionRefusedError
        ours, theirs = trio.testing.memory_stream_pair()
        self._nursery.start_soon(self._serve, broker, theirs)
        return MemoryStream(ours)

    @staticmethod
    async def _serve(broker: ScriptedBroker, stream: trio.abc.Stream) -> None:
        received = bytearray()
        with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
            while data := await stream.receive_some():
                received += data
                while len(received) >= 4:
                    end = 4 + int.from_bytes(received[:4], "big")
                    if len(received) < end:
                        break
                    frame = bytes(received[4:end])
                    del received[:end]
                    answer = broker.answer(frame)
                    if answer is not None:
                        await stream.send_all(answer)
