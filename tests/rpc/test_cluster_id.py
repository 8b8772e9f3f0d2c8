"""How a node that is not formatted yet learns which cluster it joins."""

import logging

import pytest
import trio
import trio.testing

from ottla.model.ids import NodeId
from ottla.model.settings.endpoints import Voter
from ottla.rpc import cluster_id
from ottla.rpc.cluster_id import cluster_id_handler, cluster_id_of_quorum
from ottla.rpc.rpc_driver import open_rpc_runtime

DEAD = Voter(NodeId(101), "127.0.0.1", 1)


async def test_whoever_answers_tells() -> None:
    async with open_rpc_runtime() as runtime:
        port = await runtime.serve("127.0.0.1", 0, [cluster_id_handler("the id")])
        voters = [DEAD, Voter(NodeId(102), "127.0.0.1", port)]

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
    assert caplog.messages[0].startswith("no controller answers: 127.0.0.1:1 (")
    assert caplog.messages[0].endswith("check controller.quorum.voters, or start one")
