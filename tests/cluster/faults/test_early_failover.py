"""Certain deaths fail over before the session times out, and nothing else does: real processes.

The reason for the end of a session is read from the controllers' logs, so a busy machine changes no
result.
"""

import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.cluster.cluster_file import log_file_of
from tests.cluster.secure_form import PROTOCOL

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

SESSION_S = 4
SETTLED_S = SESSION_S + 1.5
"""Seconds until a controller has tried the address of each broker for the first time."""
SETTINGS = {"broker_session_timeout_ms": "4000", "broker_heartbeat_interval_ms": "300"}

TOPIC = "otters"
RESET = struct.pack("ii", 1, 0)
"""SO_LINGER that makes a close a reset."""

GONE = "is gone: its connection closed"
SILENT = "their sessions ended"


class Relay:
    """A proxy in front of one port: it passes bytes on, and resets every connection on demand."""

    def __init__(self, target: tuple[str, int]) -> None:
        self._target = target
        self._server = socket.create_server(("127.0.0.1", 0))
        self._ends: list[socket.socket] = []
        self.reset_count = 0
        self.address = f"127.0.0.1:{self._server.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def reset_all(self) -> None:
        """End every connection by a reset, at both ends."""
        ends, self._ends = self._ends, []
        for end in ends:
            with suppress(OSError):
                end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                end.shutdown(socket.SHUT_RD)
            end.close()
            self.reset_count += 1

    def close(self) -> None:
        """Stop listening."""
        self._server.close()
        self.reset_all()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                near, _ = self._server.accept()
                try:
                    far = socket.create_connection(self._target)
                except OSError:
                    near.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                    near.close()
                    continue
                self._ends += (near, far)
                for pair in ((near, far), (far, near)):
                    threading.Thread(target=self._pass, args=pair, daemon=True).start()

    def _pass(self, source: socket.socket, sink: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)


@contextmanager
def relay_to(address: str) -> Iterator[Relay]:
    host, _, port = address.rpartition(":")
    relay = Relay((host, int(port)))
    try:
        yield relay
    finally:
        relay.close()


def said(cluster: Any, words: str, role: str = "controller") -> list[str]:
    """Return the lines of all nodes of a role that have these words."""
    logs = [log_file_of(role, cluster.node(name)).read_text() for name in cluster.named(role)]
    return [line for log in logs for line in log.splitlines() if words in line]


def wait_said(cluster: Any, words: str) -> list[str]:
    found: list[str] = cluster.wait_for(lambda: said(cluster, words), f"line with {words!r}", 30)
    return found


def create_topic(cluster: Any, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(TOPIC, 3, replication_factor=replicas)
    admin.create_topics([new])[TOPIC].result(timeout=60)
    cluster.wait_healthy()


def test_a_killed_broker_is_fenced_at_once_and_a_paused_one_after_its_session(
    plan_cluster: Callable[..., Any],
) -> None:
    cluster = plan_cluster(controllers=1, brokers=2, **SETTINGS)
    cluster.start()
    create_topic(cluster, 2)
    time.sleep(SETTLED_S)
    victim = cluster.leader_of_most(TOPIC)
    number = int(victim.split()[1])

    cluster.kill(victim)
    (line,) = wait_said(cluster, GONE)
    cluster.wait_for(
        lambda: number not in cluster.leaders(TOPIC).values(), "leader in place of the dead one"
    )
    cluster.start(victim)
    cluster.wait_healthy()

    assert f"broker {number} {GONE}" in line
    assert not said(cluster, "is registered and alive", "broker")

    # The address of the other broker was tried long ago.
    (other,) = (name for name in cluster.named("broker") if name != victim)
    cluster.pause(other)
    wait_said(cluster, SILENT)
    cluster.resume(other)
    cluster.wait_healthy()

    assert said(cluster, GONE) == [line]


def test_a_proxy_that_resets_connections_fences_no_broker(plan_cluster: Callable[..., Any]) -> None:
    """The controller advertises the proxy's address, which brokers find in the voter set."""
    cluster = plan_cluster(controllers=1, brokers=1, **SETTINGS)
    controller = cluster.node("controller")
    with relay_to(controller.address) as relay:
        voters = f"{controller.id}@{relay.address}"
        cluster.start("controller", controller_quorum_voters=voters)
        cluster.start("broker", controller_quorum_voters=voters)
        create_topic(cluster, 1)
        time.sleep(SETTLED_S)

        for _ in range(5):
            relay.reset_all()
            time.sleep(1.2)

        assert relay.reset_count >= 10
        assert not said(cluster, GONE)
        assert not said(cluster, SILENT)
        cluster.stop_all()


def test_a_dead_broker_keeps_its_session_behind_a_proxy_that_lives_on_and_by_the_setting(
    plan_cluster: Callable[..., Any],
) -> None:
    """The proxy accepts whatever became of the process behind it."""
    proxied = plan_cluster(controllers=1, brokers=1, **SETTINGS)
    late = plan_cluster(controllers=1, brokers=1, **SETTINGS)
    proxied.start("controller")
    late.start("controller", ottla_early_failover="false")
    late.start("broker")
    with relay_to(proxied.node("broker").address) as relay:
        proxied.start("broker", advertised_listeners=f"{PROTOCOL}://{relay.address}")
        time.sleep(SETTLED_S)

        for cluster in (proxied, late):
            cluster.kill("broker")
        for cluster in (proxied, late):
            wait_said(cluster, SILENT)
            assert not said(cluster, GONE)


def test_a_killed_controller_is_succeeded_long_before_the_fetch_timeout(
    plan_cluster: Callable[..., Any],
) -> None:
    cluster = plan_cluster(
        controllers=3, brokers=1, controller_quorum_fetch_timeout_ms="120000", **SETTINGS
    )
    cluster.start()
    cluster.wait_healthy()
    victim = cluster.active_controller()

    cluster.kill(victim)
    cluster.wait_for(
        lambda: (name := cluster.active_controller()) != victim and name, "another controller"
    )

    assert said(cluster, f"{victim}, which led epoch")
    time.sleep(SESSION_S)
    assert not said(cluster, GONE), "a controller's failover fences no broker"
    assert not said(cluster, SILENT)


def test_a_stopped_controller_is_waited_for(plan_cluster: Callable[..., Any]) -> None:
    cluster = plan_cluster(controllers=3, brokers=1, **SETTINGS)
    cluster.start()
    cluster.wait_healthy()
    victim = cluster.active_controller()

    cluster.pause(victim)
    cluster.wait_for(
        lambda: (name := cluster.active_controller()) != victim and name, "another controller"
    )
    cluster.resume(victim)

    assert not said(cluster, "refuses connections")
