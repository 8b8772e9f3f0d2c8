"""Discovery of the cluster id by an unformatted node."""

import logging
from typing import cast

import pytest
import trio
import trio.testing
from google.protobuf.wrappers_pb2 import StringValue

from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import ConfiguredVoter
from ottla.rpc import cluster_id
from ottla.rpc.cluster_id import cluster_id_handler, cluster_id_of_quorum
from ottla.rpc.rpc_driver import open_rpc_runtime
from ottla.rpc.rpc_seam import Rpc

DEAD = ConfiguredVoter(NodeId(101), "127.0.0.1", 1)


async def test_any_voter_answers() -> None:
    async with open_rpc_runtime() as runtime:
        port = await runtime.serve("127.0.0.1", 0, [cluster_id_handler("the id")])
        voters = [DEAD, ConfiguredVoter(NodeId(102), "127.0.0.1", port)]

        found = await cluster_id_of_quorum(runtime, voters)

    assert found == "the id"


async def test_a_node_that_finds_no_controller_says_so_once_a_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_id, "PATIENCE_MS", 100)
    async with open_rpc_runtime() as runtime:
        with caplog.at_level(logging.WARNING), trio.move_on_after(0.6):
            await cluster_id_of_quorum(runtime, [DEAD])

    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith(
        "controller.quorum.voters: no controller answers: 127.0.0.1:1 ("
    )
    assert caplog.messages[0].endswith("; correct it, or start one")


async def test_a_bounded_patience_ends_with_every_address_and_its_reason() -> None:
    """A broker's listener closes on gRPC's first bytes."""
    async with open_rpc_runtime() as runtime, trio.open_nursery() as nursery:
        listeners = await trio.open_tcp_listeners(0, host="127.0.0.1")

        async def hang_up(stream: trio.SocketStream) -> None:
            await stream.receive_some()
            await stream.aclose()

        nursery.start_soon(trio.serve_listeners, hang_up, listeners)
        port = listeners[0].socket.getsockname()[1]
        voters = [DEAD, ConfiguredVoter(NodeId(102), "127.0.0.1", port)]
        with trio.fail_after(60), pytest.raises(ConfigError) as caught:
            await cluster_id_of_quorum(runtime, voters, timeout_ms=200)
        nursery.cancel_scope.cancel()

    sentence = str(caught.value)
    assert sentence.startswith("controller.quorum.voters: no controller answers: 127.0.0.1:1 (")
    assert f"127.0.0.1:{port} (" in sentence
    assert "is it a broker's address?" in sentence


class LatePeer:
    """A controller that answers from some time on; also the RPC that leads to it."""

    def __init__(self, answers_at_ms: float) -> None:
        self._answers_at_ms = answers_at_ms
        self.asked_ms: list[float] = []

    async def channel(self, _address: str) -> "LatePeer":
        return self

    async def call(self, _method: object, _request: object, *, deadline_ms: int) -> StringValue:
        self.asked_ms.append(round(trio.current_time() * 1000))
        if self.asked_ms[-1] < self._answers_at_ms:
            raise RefusedError(ErrorCode.NETWORK_EXCEPTION, "nothing listens there")
        return StringValue(value="the id")


async def test_a_controller_that_is_just_starting_is_asked_soon_again(
    autojump_clock: trio.testing.MockClock,
) -> None:
    late = LatePeer(answers_at_ms=trio.current_time() * 1000 + 200)

    assert await cluster_id_of_quorum(cast(Rpc, late), [DEAD]) == "the id"

    began = late.asked_ms[0]
    assert [asked - began for asked in late.asked_ms] == [0, 5, 15, 35, 75, 125, 175, 225]
