"""What must hold of the controller's decisions, after every record they append.

NoAcknowledgedRecordLost (whoever may lead without loss holds all that was acknowledged; where only
the last known leader is left, it says so), LeadersAreActive, NoFencedBrokerInIsr,
ElrOnlyBelowMinIsr, WhoeverCanLeadDoes, OneLeaderPerEpoch; of brokers' lives: OneLiveIncarnation,
BrokerEpochsRise, LiveBrokersKeepTheirSession, SilentBrokersAreFenced.
"""

from collections.abc import Collection, Mapping, Sequence

from ottla.jepsen.world.invariants.replication import require
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.model.ids import NO_NODE, NodeId


class ControllerJudge:
    """What the controller's decisions are held against."""

    def __init__(
        self,
        image: MetadataImage,
        indexes: Sequence[int],
        session_timeout_ms: int,
        *,
        has_elr: bool,
    ) -> None:
        self.acknowledged: dict[int, set[int]] = {index: set() for index in indexes}
        self.failover_count = 0
        self._session_timeout_ms = session_timeout_ms
        self._has_elr = has_elr
        self._heard_ms: dict[NodeId, int] = {}
        self._epochs = {broker.id: broker.epoch for broker in image.brokers.values()}
        self._leaders: dict[tuple[int, int], NodeId] = {}

    # --- brokers' lives -------------------------------------------------------------------------

    def on_heard(self, broker: NodeId, now_ms: int) -> None:
        """A broker gave a sign of life."""
        self._heard_ms[broker] = now_ms

    def on_goodbye(self, broker: NodeId) -> None:
        """A broker was let go: its next process need not wait."""
        self._heard_ms.pop(broker, None)

    def on_failover(self, image: MetadataImage, now_ms: int) -> None:
        """Another controller is active: every broker that is not fenced gets a full session."""
        self._heard_ms = {
            broker.id: now_ms for broker in image.brokers.values() if not broker.is_fenced
        }

    def _is_alive(self, broker: NodeId, now_ms: int) -> bool:
        heard_ms = self._heard_ms.get(broker)
        return heard_ms is not None and now_ms < heard_ms + self._session_timeout_ms

    def check_registered(
        self, before: MetadataImage, broker: NodeId, epoch: int, now_ms: int
    ) -> None:
        """Judge that a new process was let in."""
        known = before.brokers.get(broker)
        if known is not None and not known.in_controlled_shutdown:
            require(
                not self._is_alive(broker, now_ms),
                "OneLiveIncarnation",
                f"{broker} registers again, and was heard of at {self._heard_ms.get(broker)}",
            )
        last = self._epochs.get(broker, -1)
        require(epoch > last, "BrokerEpochsRise", f"{broker}: {last} -> {epoch}")
        self._epochs[broker] = epoch

    def check_fenced(
        self, before: MetadataImage, fenced: Collection[NodeId], now_ms: int, *, is_new: bool
    ) -> None:
        """Judge whose sessions ended; `is_new`: the controller that began is not there any more."""
        for broker in before.brokers.values():
            if broker.is_fenced or is_new:
                continue
            is_alive = self._is_alive(broker.id, now_ms)
            require(
                not (is_alive and broker.id in fenced),
                "LiveBrokersKeepTheirSession",
                f"{broker.id} is fenced",
            )
            require(
                is_alive or broker.id in fenced, "SilentBrokersAreFenced", f"{broker.id} is not"
            )

    def check_brokers(self, image: MetadataImage) -> None:
        """Judge that no epoch goes back."""
        for broker in image.brokers.values():
            last = self._epochs.get(broker.id, -1)
            require(broker.epoch >= last, "BrokerEpochsRise", broker.id, last, "->", broker.epoch)

    # --- partitions -----------------------------------------------------------------------------

    def check_state(
        self, image: MetadataImage, index: int, before: PartitionState, state: PartitionState
    ) -> None:
        """Judge a partition just after a record changed it."""
        require(
            state.leader_epoch >= before.leader_epoch
            and state.partition_epoch > before.partition_epoch,
            "EpochsOnlyRise",
            before,
            "->",
            state,
        )
        if state.leader == NO_NODE:
            return
        leader = self._leaders.setdefault((index, state.leader_epoch), state.leader)
        require(leader == state.leader, "OneLeaderPerEpoch", leader, "and", state.leader)

    def take_loss(
        self,
        index: int,
        before: PartitionState,
        log: Collection[int],
        state: PartitionState,
        leaving: Collection[NodeId],
    ) -> None:
        """Judge an election that says openly that records may be lost: nobody else could lead."""
        was_clean = before.elr and not set(before.elr) <= set(leaving)
        if not was_clean:
            require(
                state.leader in (*before.last_known_elr, *before.elr),
                "NoAcknowledgedRecordLost",
                f"{state.leader} leads {index} after {before}",
            )
            self.acknowledged[index] &= set(log)

    def check_partition(
        self,
        image: MetadataImage,
        index: int,
        state: PartitionState,
        holders: Mapping[NodeId, Collection[int]],
        *,
        min_isr: int,
    ) -> None:
        """Judge a partition between decisions; `holders` are the disks that have lost nothing."""
        acknowledged = self.acknowledged[index]
        for holder in {*state.isr, *state.elr}:
            if holder in holders:
                missing = acknowledged.difference(holders[holder])
                require(
                    not missing, "NoAcknowledgedRecordLost", holder, "lacks", missing, "of", index
                )
        require(not state.elr or len(state.isr) < min_isr, "ElrOnlyBelowMinIsr", state)
        if state.leader == NO_NODE:
            able = [one for one in (*state.isr, *state.elr) if image.is_active(one)]
            require(not able, "WhoeverCanLeadDoes", able, "could lead", state)
            return
        away = [one for one in (state.leader, *state.isr) if not image.is_active(one)]
        require(state.leader not in away, "LeadersAreActive", state)
        require(not away, "NoFencedBrokerInIsr", away, "in", state)
