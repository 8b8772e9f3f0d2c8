"""Test subject of the simulator: clients that send Kafka's admin requests to the controllers
themselves (KIP-919) during all kinds of faults.

Invariants:

- AcknowledgedEntriesStay: a change is answered once it is committed, also by a controller that
  loses its leadership then;
- ControllersAnswerInKafkasWay: a controller that is not the active one refuses with NOT_CONTROLLER,
  and no request gets an unexpected code;
- OneControllerPerEpoch: all responses that name the leader of an epoch name the same one.
"""

from collections.abc import Iterable

import trio

from ottla.client.network.connection import open_connection
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.violation import Violation
from ottla.jepsen.world.whole.acls import AclsOfCluster, AclWorkload
from ottla.jepsen.world.whole.cluster import SimulatedCluster
from ottla.jepsen.world.whole.history import ClientHistory
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.jepsen.world.whole.workload import WorkloadPlan, ignoring_faults
from ottla.model.errors import ErrorCode
from ottla.model.ids import METADATA_TOPIC
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_quorum_request import (
    DescribeQuorumRequest,
    PartitionData,
    TopicData,
)
from ottla.wire.messages.describe_quorum_response import DescribeQuorumResponse

CONTROLLERS = 2
"""Endpoint type in DescribeCluster requests that selects the controllers."""
EXPECTED = frozenset({ErrorCode.NONE, ErrorCode.NOT_CONTROLLER, ErrorCode.REQUEST_TIMED_OUT})
INTERVAL_S = 0.2
PATIENCE_S = 8.0


class ControllerClients(AclWorkload):
    """The clients of `ClientWorkload`, two clients that change ACLs at controllers, and an observer
    that describes the quorum at controllers."""

    def __init__(
        self,
        world: SharedWorld,
        cluster: SimulatedCluster,
        history: ClientHistory,
        plan: WorkloadPlan,
    ) -> None:
        super().__init__(world, cluster, history, plan)
        self._leaders: dict[int, int] = {}
        """For each epoch, the node id of the quorum leader that a controller's response named."""
        self._rare = world.network.rare
        self.operators.append(self._machine("observer-of-quorum", self._describe))

    def _address(self, chance: Chance) -> tuple[str, int]:
        return chance.pick(self._cluster.controller_bootstrap)

    def _check_codes(self, codes: Iterable[int]) -> None:
        found = set(codes)
        if not found <= EXPECTED:
            raise Violation("ControllersAnswerInKafkasWay", f"a change got the codes {found}")
        if ErrorCode.NOT_CONTROLLER in found:
            self._rare.sometimes("a controller that is not active refuses a client")
        elif ErrorCode.NONE in found:
            self._rare.sometimes("the active controller answers a client")

    async def _describe(self, machine: Machine, is_stopping: trio.Event) -> None:
        """Describe the cluster and the quorum at random controllers, repeatedly until `is_stopping`
        is set, and check the responses."""
        chance = self._chance(machine)
        while not is_stopping.is_set():
            await trio.sleep(INTERVAL_S * (1 + chance.random()))
            with ignoring_faults(), trio.fail_after(PATIENCE_S):
                async with open_connection(*self._address(chance)) as connection:
                    described = await connection.request(
                        DescribeClusterRequest(endpoint_type=CONTROLLERS), DescribeClusterResponse
                    )
                    if described.error_code != ErrorCode.NONE:
                        raise Violation(
                            "ControllersAnswerInKafkasWay",
                            f"DescribeCluster got {described.error_code}",
                        )
                    wanted = TopicData(
                        topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)]
                    )
                    quorum = await connection.request(
                        DescribeQuorumRequest(topics=[wanted]), DescribeQuorumResponse
                    )
                    self._note_quorum(quorum)

    def _note_quorum(self, answer: DescribeQuorumResponse) -> None:
        for topic in answer.topics:
            for found in topic.partitions:
                if found.error_code != ErrorCode.NONE or found.leader_id < 0:
                    continue
                known = self._leaders.setdefault(found.leader_epoch, found.leader_id)
                if known != found.leader_id:
                    raise Violation(
                        "OneControllerPerEpoch",
                        f"epoch {found.leader_epoch} has {known} and {found.leader_id}",
                    )
                self._rare.sometimes("a controller describes its quorum")


class ControllerClientsOfCluster(AclsOfCluster):
    """Search engine that simulates whole nodes, with any fault, and clients that send admin
    requests to controllers."""

    subject = "controller-clients"
    workload = ControllerClients
    serves_admins = True
    required = (
        *AclsOfCluster.required,
        "the active controller answers a client",
        "a controller that is not active refuses a client",
        "a controller describes its quorum",
    )
