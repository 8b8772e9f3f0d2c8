"""Faults of tiered topics: leaders that die in a chosen state of a copy or of a deletion, and
unclean leader elections after which the store has segments of two lineages."""

from collections.abc import Callable, Iterator

import trio

from ottla.broker.broker_driver import Broker
from ottla.broker.replicas.partition import Partition
from ottla.jepsen.world.whole.faults.cluster_faults import ClusterFaults, FaultContext
from ottla.jepsen.world.whole.machine import Machine
from ottla.metadata.image import PartitionState
from ottla.model.ids import NodeId
from ottla.storage.log.log import Log
from ottla.storage.tier.remote_segment import RemoteSegment, RemoteSegmentState

FORKED = "forked"
"""Name of the topic whose leaders are elected uncleanly."""

COPY_STATES = (
    "a copy has started",
    "the records are stored",
    "the indexes are stored",
    "the objects are stored",
    "a copy has finished",
)
DELETION_STATES = (
    "the log start has moved",
    "a deletion has started",
    "the manifest is deleted",
    "all objects are deleted",
)
STATES = (*COPY_STATES, *DELETION_STATES)
"""States of a copy and of a deletion in which a leader is killed."""

LOOK_S = 0.005
"""Interval in seconds at which the fault checks whether a leader has reached the state. A state
lasts for at least one request to the store."""

STATE_S_MAX = 6.0
"""Time limit in seconds of the wait until a leader reaches the chosen state of a copy or of a
deletion."""

ALONE_S_MAX = 8.0
"""Maximum time in seconds until the ISR has no other member, after all other replicas were
killed."""

ALONE_MS = (1_500, 5_000)
"""Range of the time in ms for which a leader is alone, writes records and copies segments."""

ELECTION_S_MAX = 10.0
AFTER_MS = (1_000, 5_000)
"""Shortest and longest time in ms for which the new leader writes before the former leader is
started."""


class TierFaults(ClusterFaults):
    """Faults of the leaders of tiered topics."""

    def __init__(self, context: FaultContext) -> None:
        super().__init__(context)
        self._start_later = context.start_later
        self._network = self._cluster.world.network
        self._is_forking = False

    async def kill_in_state(self) -> None:
        """Draw a state of a copy or of a deletion, and kill the first leader of a tiered topic that
        reaches this state. Does nothing if no leader reaches it in time."""
        wanted = self._chance.pick(STATES)
        with trio.move_on_after(STATE_S_MAX):
            while True:
                for node, broker in sorted(self._cluster.brokers.items()):
                    machine = self._cluster.broker_machines[node]
                    is_fit = not machine.is_paused and self._loss_limit.may_die(machine)
                    if is_fit and self._has_state(broker, wanted):
                        self._rare.sometimes(f"a leader dies when {wanted}")
                        self._counts["crashes"] += 1
                        machine.kill()
                        await self._start_later(machine)
                        return
                await trio.sleep(LOOK_S)

    async def fork(self) -> None:
        """Cause an unclean leader election. A leader writes and copies records that no other
        replica has. Then another replica is elected, while the former leader is dead or does not
        know of its successor."""
        state = self._partition()
        if state is not None and not self._is_forking:
            await self._fork(state)

    async def fork_and_return(self) -> None:
        """Cause an unclean leader election beside the preferred leader, which does not know of its
        successor. Clients then write to the successor, until the preferred leader leads again. Does
        nothing while another replica leads."""
        state = self._partition()
        if state is None or self._is_forking or state.leader != state.replicas[0]:
            return
        await self._fork(state, is_left_by_clients=True)
        with trio.move_on_after(ELECTION_S_MAX):
            while (now := self._partition()) is None or now.leader != state.leader:
                await trio.sleep(10 * LOOK_S)
            self._rare.sometimes("a former leader leads again in the tier")

    async def _fork(self, state: PartitionState, *, is_left_by_clients: bool = False) -> None:
        """Cause an unclean leader election in a partition. If `is_left_by_clients` is True, the
        former leader survives, and clients restart and reach only the other replicas."""
        leader = self._cluster.broker_machines.get(NodeId(state.leader))
        others = [
            self._cluster.broker_machines[NodeId(replica)]
            for replica in state.replicas
            if replica != state.leader
        ]
        if leader is None or not all(map(self._loss_limit.may_die, [leader, *others])):
            return
        self._is_forking = True
        self._counts["forks"] += 1
        for machine in others:
            self._kill(machine)
        with trio.move_on_after(ALONE_S_MAX):
            while (now := self._partition()) is None or len(now.isr) > 1:
                await trio.sleep(10 * LOOK_S)
            self._rare.sometimes("a tiered leader is alone")
        await self._wait(ALONE_MS)
        is_dead = not is_left_by_clients and self._chance.below(2) == 0
        if is_dead:
            self._kill(leader)
        else:
            self._change_links(leader, self._network.cut)
        for machine in others:
            self._start(machine)
        with trio.move_on_after(ELECTION_S_MAX):
            while (now := self._partition()) is None or now.leader in (-1, state.leader):
                await trio.sleep(10 * LOOK_S)
            self._rare.sometimes("an unclean leader is elected in the tier")
            if not is_dead:
                self._rare.sometimes("an unclean leader is elected beside its predecessor")
            if is_left_by_clients:
                await self._part_clients(leader)
            await self._wait(AFTER_MS)
        self._change_links(leader, self._network.mend, *self._workload.machines)
        self._start(leader)
        self._is_forking = False

    async def _part_clients(self, leader: Machine) -> None:
        """Restart all clients, and cut their links to a former leader."""
        clients = [machine for machine in self._workload.machines if machine.is_running]
        for machine in clients:
            machine.kill()
            await machine.has_ended.wait()
            self._network.cut(leader.name, machine.name)
            self._network.cut(machine.name, leader.name)
            machine.start()

    def _change_links(
        self, leader: Machine, change: Callable[[str, str], None], *clients: Machine
    ) -> None:
        """Apply `change` to every link between a leader and another node or one of `clients`, in
        order to cut or heal the links."""
        for machine in (*self._cluster.machines, *clients):
            if machine is not leader:
                change(leader.name, machine.name)
                change(machine.name, leader.name)

    def _kill(self, machine: Machine) -> None:
        if machine.is_running and self._loss_limit.may_die(machine):
            self._counts["crashes"] += 1
            machine.kill()

    def _start(self, machine: Machine) -> None:
        if not machine.is_running:
            machine.start()

    def _partition(self) -> PartitionState | None:
        image = self._cluster.latest_image
        topic = None if image is None else image.topic(FORKED)
        return None if topic is None else topic.partitions[0]

    def _has_state(self, broker: Broker, wanted: str) -> bool:
        tier = broker.tier
        if tier is None:
            return False
        for partition in broker.table:
            log = partition.log
            if log is None or not log.is_tiered or not partition.is_leader:
                continue
            metadata = tier.topic.metadata_of(partition.key)
            for segment in () if metadata is None else metadata.all_segments():
                keys = tier.keys_of(segment, partition.topic)
                if wanted in self._states_of(partition, log, segment, keys):
                    return True
        return False

    def _states_of(
        self, partition: Partition, log: Log, segment: RemoteSegment, keys: tuple[str, ...]
    ) -> Iterator[str]:
        """Yield the states (of a copy or of a deletion) in which a segment is, if the leader made
        the last change of the segment."""
        if segment.broker_id != partition.local_id:
            return
        store = self._cluster.world.object_store
        count = sum(store.peek(key) is not None for key in keys)
        match segment.state:
            case RemoteSegmentState.COPY_STARTED:
                yield COPY_STATES[count]
            case RemoteSegmentState.COPY_FINISHED:
                if segment.end_offset > log.copied_offset:
                    yield COPY_STATES[-1]
                if segment.end_offset < log.log_start_offset:
                    yield DELETION_STATES[0]
            case RemoteSegmentState.DELETE_STARTED:
                has_manifest = store.peek(keys[-1]) is not None
                yield DELETION_STATES[1 if has_manifest else 2 if count else 3]
