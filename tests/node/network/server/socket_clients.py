"""A socket server with a few handlers, and raw clients of it."""

import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from ottla.node.clock_driver import RealClock
from ottla.node.network.dispatch import Dispatcher, RequestContext
from ottla.node.network.listener import Listener
from ottla.node.network.server.server_driver import SocketServer
from ottla.node.network.server.server_opening_driver import open_socket_server
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.disk.real_disk_driver import RealDisk
from ottla.wire.apis import FETCH, HEARTBEAT, PRODUCE
from ottla.wire.codec import encode
from ottla.wire.headers import encode_request_header
from ottla.wire.messages.fetch_request import FetchRequest
from ottla.wire.messages.heartbeat_request import HeartbeatRequest
from ottla.wire.messages.heartbeat_response import HeartbeatResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)


def framed(data: bytes) -> bytes:
    return struct.pack(">i", len(data)) + data


def heartbeat(correlation_id: int) -> bytes:
    body = encode(HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), 3)
    return framed(encode_request_header(HEARTBEAT, 3, correlation_id, "t") + body)


def produce(correlation_id: int, records: bytes) -> bytes:
    data = PartitionProduceData(index=0, records=records)
    topic = TopicProduceData(name="t", partition_data=[data])
    body = encode(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]), 7)
    return framed(encode_request_header(PRODUCE, 7, correlation_id, "t") + body)


def fetch(correlation_id: int) -> bytes:
    body = encode(FetchRequest(), 11)
    return framed(encode_request_header(FETCH, 11, correlation_id, "t") + body)


def on_heartbeat(context: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    return HeartbeatResponse()


@asynccontextmanager
async def serving(
    dispatcher: Dispatcher | None = None, *, disk: Disk | None = None, **options: Any
) -> AsyncIterator[SocketServer]:
    listeners = options.pop("listeners", [Listener(name="PLAINTEXT", host="127.0.0.1", port=0)])
    async with open_socket_server(
        listeners,
        dispatcher or Dispatcher({HEARTBEAT: on_heartbeat}),
        clock=options.pop("clock", RealClock()),
        disk=disk or RealDisk(),
        **options,
    ) as server:
        yield server


async def connect(server: SocketServer, listener: str = "PLAINTEXT") -> trio.SocketStream:
    return await trio.open_tcp_stream(*server.addresses[listener])


async def read_exactly(stream: trio.abc.ReceiveStream, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = await stream.receive_some(size - len(data))
        assert part, f"closed after {len(data)} of {size} bytes"
        data += part
    return data


async def read_answer(stream: trio.abc.ReceiveStream) -> tuple[int, bytes]:
    (length,) = struct.unpack(">i", await read_exactly(stream, 4))
    answer = await read_exactly(stream, length)
    return struct.unpack_from(">i", answer)[0], answer[4:]


async def is_closed(stream: trio.SocketStream) -> bool:
    try:
        return await stream.receive_some() == b""
    except trio.BrokenResourceError:
        return True
