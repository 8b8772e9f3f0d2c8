"""Faults of share groups: a share coordinator without followers, and a partition leader that does
not notice that it was replaced."""

import trio

from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.internal_topics import SHARE_STATE_TOPIC

UNFOLLOWED_MS = (200, 1_200)
"""Shortest and longest time in ms for which a share coordinator's followers are cut off. Even the
longest time is too short to remove them from the ISR."""

REPLACED_S_MAX = 12.0
"""Maximum time in seconds for which a partition leader is cut off from the controllers until
another leader is elected. It is longer than the session timeout of a broker."""

LOOK_S = 0.1

UNAWARE_MS = (3_000, 9_000)
"""Range of the time in ms for which the replaced partition leader stays cut off from the
controllers after a client's restart. The client joins its share group in that time."""


class ShareFaults(ClusterFaults):
    """Faults of the coordinators and the partition leaders of share groups."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._start_later = context.start_later
        self._network = self._cluster.world.network
        self._is_replacing = False

    async def kill_coordinator(self) -> None:
        """Cut off the followers of a share coordinator, and kill it before they have its newest
        records."""
        image = self._cluster.latest_image
        topic = None if image is None else image.topic(SHARE_STATE_TOPIC)
        if topic is None:
            return
        state = topic.partitions[self._chance.below(len(topic.partitions))]
        machine = self._cluster.broker_machines.get(NodeId(state.leader))
        if machine is None:
            return
        self._counts["partitions"] += 1
        for replica in state.replicas:
            if replica != state.leader:
                self._cut(machine, self._cluster.broker_machines[NodeId(replica)])
        await self._wait(UNFOLLOWED_MS)
        is_killed = machine.is_running and not machine.is_paused
        if is_killed and self._loss_limit.may_die(machine):
            self._rare.sometimes("a share coordinator dies without followers")
            self._counts["crashes"] += 1
            machine.kill()
        self._network.heal()
        if not machine.is_running:
            await self._start_later(machine)

    async def replace_leader(self) -> None:
        """Cut off a partition leader from the controllers, while clients and brokers still reach
        it. Then restart a client, which reaches only the leader that replaced it. Does nothing
        while another leader is being replaced."""
        at = self._chance.pick(self._workload.partitions)
        machine = self._leader_of(at)
        if machine is None or self._is_replacing:
            return
        self._is_replacing = True
        self._counts["partitions"] += 1
        peers = [*self._cluster.controller_machines.values()]
        for peer in peers:
            self._cut(machine, peer)
        with trio.move_on_after(REPLACED_S_MAX):
            while self._leader_of(at) in (machine, None):
                await trio.sleep(LOOK_S)
            self._rare.sometimes("a replaced leader does not know it")
        running = [each for each in self._workload.members if each.is_running]
        if running:
            client = self._chance.pick(running)
            client.kill()
            await client.has_ended.wait()
            self._cut(machine, client)
            peers.append(client)
            client.start()
        await self._wait(UNAWARE_MS)
        for peer in peers:
            self._network.mend(machine.name, peer.name)
            self._network.mend(peer.name, machine.name)
        self._is_replacing = False

    def _leader_of(self, at: TopicPartition) -> Machine | None:
        """Return the machine of a partition's leader in the newest metadata image."""
        image = self._cluster.latest_image
        topic = None if image is None else image.topic(at.topic)
        if topic is None:
            return None
        leader = NodeId(topic.partitions[at.partition].leader)
        return self._cluster.broker_machines.get(leader)

    def _cut(self, one: Machine, other: Machine) -> None:
        self._network.cut(one.name, other.name)
        self._network.cut(other.name, one.name)
