"""Clients' changes of the voters, from the controller to a quorum of four on loopback."""

from pathlib import Path
from typing import Any

import trio

from ottla.controller.controller_driver import Controller
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import METADATA_TOPIC, NodeId
from ottla.model.settings.controller import ControllerConfig
from ottla.node.clock_driver import RealClock, RealRng
from ottla.raft.voters import Voter
from ottla.wire.apis import response_class
from ottla.wire.codec import decode, encode
from ottla.wire.codec_types import Message
from ottla.wire.messages.add_raft_voter_request import AddRaftVoterRequest, Listener
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.remove_raft_voter_request import RemoveRaftVoterRequest
from tests.node.quorum.test_quorum_of_three import CALM, CLUSTER_ID, Quorum, with_quorum

NEW = NodeId(104)
RETRIED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)


class Clients:
    """Requests of clients to whichever controller of a quorum is active."""

    def __init__(self, quorum: Quorum) -> None:
        self._controllers = {
            node_id: Controller(member, ControllerConfig(), member.identity, RealClock(), RealRng())
            for node_id, member in quorum.members.items()
        }
        for controller in self._controllers.values():
            controller.allow_activation()

    @property
    def active_id(self) -> NodeId | None:
        """Id of the active controller, or None if there is none."""
        found = self._controllers.items()
        return next((node_id for node_id, one in found if one.epoch is not None), None)

    async def ask(self, request: Message) -> Any:
        """Return the response of the active controller."""
        key, version = request.API_KEY, request.VERSIONS[-1]
        while True:
            node_id = self.active_id
            try:
                if node_id is not None:
                    answer = await self._controllers[node_id].decide_client_request(
                        key, version, encode(request, version)
                    )
                    return decode(response_class(key), version, answer.body)
            except RefusedError as refusal:
                assert refusal.code is ErrorCode.NOT_CONTROLLER
            await trio.sleep(0.01)

    async def change(self, request: Message) -> Any:
        """Return the response to a change, which is repeated while the quorum cannot decide it."""
        while True:
            answer = await self.ask(request)
            if answer.error_code not in RETRIED:
                return answer
            await trio.sleep(0.02)

    async def voters(self) -> dict[int, tuple[str, int]]:
        """Return the voters with their addresses, as the leader describes them."""
        asked = TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])
        answer = await self.ask(DescribeQuorumRequest(topics=[asked]))
        addresses = {
            node.node_id: (node.listeners[0].host, node.listeners[0].port) for node in answer.nodes
        }
        return {
            one.replica_id: addresses[one.replica_id]
            for one in answer.topics[0].partitions[0].current_voters
        }


def adding(voter: Voter) -> AddRaftVoterRequest:
    (endpoint,) = voter.endpoints
    listener = Listener(name=endpoint.name, host=endpoint.host, port=endpoint.port)
    return AddRaftVoterRequest(
        cluster_id=CLUSTER_ID,
        voter_id=voter.id,
        voter_directory_id=voter.directory_id,
        listeners=[listener],
    )


async def test_a_client_adds_a_controller_and_removes_the_leader(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        voter = await quorum.format_joining(NEW)
        await quorum.start(NEW)
        clients = Clients(quorum)
        await quorum.leader()

        assert (await clients.change(adding(voter))).error_code == ErrorCode.NONE
        voters = await clients.voters()
        assert sorted(voters) == [101, 102, 103, NEW]
        assert voters[NEW] == ("127.0.0.1", voter.endpoints[0].port)
        again = await clients.change(adding(voter))
        assert again.error_code == ErrorCode.DUPLICATE_VOTER
        assert str(NEW) in again.error_message

        leader_id = clients.active_id
        assert leader_id is not None
        key = quorum.members[leader_id].identity.key
        removing = RemoveRaftVoterRequest(
            cluster_id=CLUSTER_ID, voter_id=key.id, voter_directory_id=key.directory_id
        )
        assert (await clients.change(removing)).error_code in (
            ErrorCode.NONE,
            ErrorCode.VOTER_NOT_FOUND,
        )
        left = set(await clients.voters())
        assert left == {101, 102, 103, NEW} - {leader_id}
        await quorum.commit("a", "1")
        assert (await clients.change(removing)).error_code == ErrorCode.VOTER_NOT_FOUND

    await with_quorum(tmp_path, body, CALM)
