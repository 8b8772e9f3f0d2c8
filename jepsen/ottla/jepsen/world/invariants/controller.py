"""Invariants of the controller's decisions, checked after every record that a decision appends.

- NoAcknowledgedRecordLost: a replica that may lead without loss has all acknowledged records. If
  only the last known leader remains, its election is marked as possibly losing records.
- LeadersAreActive, NoFencedBrokerInIsr, ElrOnlyBelowMinIsr, EligibleReplicaLeads,
  OneLeaderPerEpoch.
- For broker registrations: OneLiveIncarnation, BrokerEpochsRise, LiveBrokersKeepTheirSession,
  SilentBrokersAreFenced.
"""

from collections.abc import Collection, Mapping, Sequence

from ottla.jepsen.world.invariants.replication import require
from ottla.metadata.image import MetadataImage, PartitionState
from ottla.model.ids import NO_NODE, NodeId


class ControllerJudge:
    """Checker of the controller's decisions against a model of broker sessions and of the brokers'
    logs."""

    def __init__(
        self,
        image: MetadataImage,
        indexes: Sequence[int],
        session_timeout_ms: int,
        *,
        has_elr: bool,
    ) -> None:
        self.acknowledged: dict[int, set[int]] = {index: set() for index in indexes}
        self._session_timeout_ms = session_timeout_ms
        self._has_elr = has_elr
        self._heard_ms: dict[NodeId, int] = {}
        self._unheard: set[NodeId] = set()
        """Brokers that have a session since the last failover of the controller, and have sent
        nothing since then."""
        self._epochs = {broker.id: broker.epoch for broker in image.brokers.values()}
        self._leaders: dict[tuple[int, int], NodeId] = {}

    # --- broker registrations -------------------------------------------------------------------

    def on_heard(self, broker: NodeId, now_ms: int) -> None:
        """Record that the active controller received a heartbeat of a broker at `now_ms`."""
        self._heard_ms[broker] = now_ms
        self._unheard.discard(broker)

    def on_goodbye(self, broker: NodeId) -> None:
        """Record that a broker finished its controlled shutdown, so that its next process may
        register at once."""
        self._heard_ms.pop(broker, None)

    def on_failover(self, image: MetadataImage, now_ms: int) -> None:
        """Record a failover of the controller at `now_ms`. Every broker that is not fenced then
        gets a full session timeout."""
        self._heard_ms = {
            broker.id: now_ms for broker in image.brokers.values() if not broker.is_fenced
        }
        self._unheard = set(self._heard_ms)

    def _is_alive(self, broker: NodeId, now_ms: int) -> bool:
        heard_ms = self._heard_ms.get(broker)
        return heard_ms is not None and now_ms < heard_ms + self._session_timeout_ms

    def check_registered(
        self, before: MetadataImage, broker: NodeId, epoch: int, now_ms: int
    ) -> None:
        """Check that the controller was allowed to accept the registration of a broker's new
        process, which has the directories of the former process.

        If a broker has sent nothing since a failover, its session does not prove that the former
        process is still running.
        """
        known = before.brokers.get(broker)
        if known is not None and not known.in_controlled_shutdown:
            require(
                not self._is_alive(broker, now_ms) or broker in self._unheard,
                "OneLiveIncarnation",
                f"{broker} registers again, and was heard of at {self._heard_ms.get(broker)}",
            )
        last = self._epochs.get(broker, -1)
        require(epoch > last, "BrokerEpochsRise", f"{broker}: {last} -> {epoch}")
        self._epochs[broker] = epoch

    def check_kept(self, fenced: Collection[NodeId], now_ms: int) -> None:
        """Check that each broker in `fenced` had either asked to be fenced or had an expired
        session when the controller fenced it."""
        for broker in fenced:
            require(
                not self._is_alive(broker, now_ms),
                "LiveBrokersKeepTheirSession",
                f"{broker} is fenced",
            )

    def check_silent(self, image: MetadataImage, owed_from_ms: int, now_ms: int) -> None:
        """Check that no unfenced broker has been silent for longer than a session timeout.

        Silence before `owed_from_ms` does not count, because the active controller did not measure
        it.
        """
        for broker in image.brokers.values():
            heard_ms = max(self._heard_ms.get(broker.id, 0), owed_from_ms)
            require(
                broker.is_fenced or now_ms < heard_ms + self._session_timeout_ms,
                "SilentBrokersAreFenced",
                f"{broker.id} is not",
            )

    def check_brokers(self, image: MetadataImage) -> None:
        """Check that no broker's epoch in the metadata image is below an earlier one."""
        for broker in image.brokers.values():
            last = self._epochs.get(broker.id, -1)
            require(broker.epoch >= last, "BrokerEpochsRise", broker.id, last, "->", broker.epoch)

    # --- partitions -----------------------------------------------------------------------------

    def check_state(
        self, image: MetadataImage, index: int, before: PartitionState, state: PartitionState
    ) -> None:
        """Check the state of a partition directly after a metadata record changed it. `before` is
        the earlier state."""
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
        """Check an election that is marked as possibly losing records. It is allowed only if no
        other replica could lead."""
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
        """Check the state of a partition between decisions of the controller. `holders` contains
        the record numbers in the log of each broker whose disk has lost no data."""
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
            require(not able, "EligibleReplicaLeads", able, "could lead", state)
            return
        away = [one for one in (state.leader, *state.isr) if not image.is_active(one)]
        require(state.leader not in away, "LeadersAreActive", state)
        require(not away, "NoFencedBrokerInIsr", away, "in", state)
