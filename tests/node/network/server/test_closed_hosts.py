"""Connections and the collector: closed ones leave it nothing, open ones are frozen in time."""

import gc
import socket
import ssl
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from ottla.bench.kafka.security_servers import HOST, make_certificate
from ottla.bench.requests import exchanged, small_request
from ottla.broker.opening_driver import CONNECTIONS_PER_PARTITION, _long_lived_count
from ottla.client import open_admin
from ottla.node.network.connection import Connection
from ottla.node.network.dispatch import Peer
from ottla.node.network.memory.request_memory import MemoryShare
from ottla.node.network.server.channel_driver import Channel
from ottla.testing.in_process import open_in_process_cluster

TOPIC = "t"
CLIENTS = 20
KINDS = (Connection, Channel, MemoryShare, Peer, ssl.SSLSocket)


def counts() -> Counter[str]:
    """Return the number of live objects of each class that makes up a connection."""
    return Counter(
        kind.__name__ for one in gc.get_objects() for kind in KINDS if isinstance(one, kind)
    )


def call(address: tuple[str, int], ca: str | None) -> None:
    """Produce, fetch and ask for metadata on connections of their own, and close them."""
    for _ in range(CLIENTS):
        with socket.create_connection(address) as client:
            if ca is not None:
                context = ssl.create_default_context(cafile=ca)
                client = context.wrap_socket(client, server_hostname=HOST)
            for kind in ("metadata", "produce", "fetch"):
                assert exchanged(client, small_request(kind, TOPIC, UUID(int=0)).frame)
            client.close()


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
async def test_a_connection_that_has_closed_leaves_nothing_to_a_collection(
    tmp_path: Path, listener: str
) -> None:
    make_certificate(tmp_path)
    settings = {
        "listeners": f"PLAINTEXT://{HOST}:0,SSL://{HOST}:0",
        "ssl.keystore.location": str(tmp_path / "server.pem"),
    }
    async with open_in_process_cluster(broker_settings=settings) as cluster:
        (broker,) = cluster.brokers.values()
        async with open_admin(cluster.bootstrap) as admin:
            await admin.create_topic(TOPIC, partition_count=1, replication_factor=1)
        ca = str(tmp_path / "ca.pem") if listener == "SSL" else None
        await trio.to_thread.run_sync(call, broker.addresses[listener], ca)
        gc.collect()
        before = counts()
        gc.disable()
        try:
            await trio.to_thread.run_sync(call, broker.addresses[listener], ca)
            with trio.fail_after(60):
                while (left := counts() - before) and sum(left.values()) > 0:
                    await wait_all_tasks_blocked()
        except trio.TooSlowError:
            pytest.fail(f"left to a collection: {left}")
        finally:
            gc.enable()


async def test_open_connections_count_among_what_stays() -> None:
    async with open_in_process_cluster() as cluster:
        (broker,) = cluster.brokers.values()
        held: list[socket.socket] = []
        try:
            before = _long_lived_count(broker)
            for _ in range(10 * CONNECTIONS_PER_PARTITION):
                held.append(socket.create_connection(broker.addresses["PLAINTEXT"]))
            with trio.fail_after(60):
                while _long_lived_count(broker) < before + 10:
                    await wait_all_tasks_blocked()
        finally:
            for one in held:
                one.close()
