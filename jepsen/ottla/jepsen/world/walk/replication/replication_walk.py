"""Random walk on replicated partitions: real brokers with their logs, and real controller
decisions.

The cluster has one topic on three or four brokers. Fetches, produce requests and ISR changes are
messages that are delivered late, in any order, or never. Metadata reaches each broker when the
adversary decides, by real deltas. Processes are killed, paused, fenced and shut down; replicas are
reassigned; controllers die between two appends.

Power cuts stay within the guarantees of the protocol (the fault limits). If the brokers must flush,
any machine may lose power at any time. Otherwise only one machine may lose power, and nothing else
fails until it is in sync.
"""

from collections.abc import Callable

from ottla.controller.decision import decided
from ottla.controller.replication import elections
from ottla.controller.settings_in_force import MIN_INSYNC_REPLICAS
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.engine import RunOutcome, outcome_of
from ottla.jepsen.world.violation import violation_in
from ottla.jepsen.world.walk.actions import actions_taken, drawn_actions
from ottla.jepsen.world.walk.replication.broker_life import LAG_MS, BrokerLife, BrokerMachine
from ottla.jepsen.world.walk.replication.replication_clients import Clients
from ottla.jepsen.world.walk.replication.replication_cluster import TOPIC, ClusterShape
from ottla.jepsen.world.walk.replication.replication_messages import (
    CONVERSATION_MAX,
    MessagingCluster,
)
from ottla.metadata.records import TOPIC_RESOURCE
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_NODE
from ottla.wire.messages.alter_partition_reassignments_request import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla.wire.messages.incremental_alter_configs_request import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

BROKER_COUNTS = (3, 3, 3, 4)
"""Possible numbers of brokers. Each run chooses one at random. Three brokers reveal most bugs. A
fourth broker allows reassignments."""

MIN_ISRS = (2, 2, 2, 1, 3)

STEPS_MS = (0, 0, 10, LAG_MS // 4)
"""Possible durations of an action in ms of virtual time. Each run chooses one at random. With the
longest duration, all followers lag permanently."""

NEWS_LATE = 3
"""Average number of runs per run in which metadata reaches brokers late. The controller's responses
are then newer than the metadata."""

HEALED = 8
"""Average number of runs per run that ends by healing all faults, to check liveness."""


class ReplicationWalk:
    """Search engine that tests replication by random walks."""

    name = "walk"
    subject = "replication"
    budget = 250
    required: tuple[str, ...] = (
        "a follower cuts its log",
        "a high watermark is below what was committed when its broker leads",
        "a leader is elected from the ELR",
        "the last known leader is elected",
        "the ISR is one",
        "a partition has no leader",
        "an ISR change is rejected",
        "an ISR change is overtaken",
        "an ISR change is asked for again",
        "two believe to lead at once",
        "a duplicate is found after a failover",
        "a fetch waits and is answered by an append",
        "a fetch session is lost",
        "a broker starts cleanly",
        "a broker loses the tail of its log",
        "power is cut for all",
        "a reassignment ends",
        "a reassignment is cancelled",
        "a controller dies between two appends",
        "a broker hears of several decisions at once",
        "a consumer reads from a deposed leader",
        "a change of min.insync.replicas forgets an ELR",
        "min.insync.replicas rises",
        "records are deleted everywhere",
        "a follower begins again at its leader's start",
        "a follower truncates unconfirmed records",
    )

    def run(self, chance: Chance, *, budget: int) -> RunOutcome:
        """Run one random walk of at most `budget` actions, with random choices from `chance`.
        Returns the outcome."""
        walk = WalkedCluster(chance)
        violation = violation_in(lambda: walk.go(budget))
        return outcome_of(self, chance, walk, violation)


class WalkedCluster(MessagingCluster):
    """One simulated cluster, and the adversary that chooses its events from one seed."""

    def __init__(self, chance: Chance) -> None:
        draw = chance.below
        shape = ClusterShape(
            BROKER_COUNTS[draw(len(BROKER_COUNTS))],
            1 + (draw(4) == 3),
            MIN_ISRS[draw(len(MIN_ISRS))],
            draw(4) == 3,
        )
        super().__init__(chance, shape)
        self.clients = Clients(self)
        self._order = draw(3)
        """Order in which this run delivers messages in flight. 0: oldest first; 1: random; 2:
        newest first."""
        self._step_ms = STEPS_MS[draw(len(STEPS_MS))]
        self.is_news_late = draw(NEWS_LATE) == NEWS_LATE - 1
        self._is_healed = draw(HEALED) == HEALED - 1
        self._actions = self._draw_actions()

    def go(self, budget: int) -> None:
        """Perform at most `budget` random actions on the cluster. A replayed run may end
        earlier."""
        for action in actions_taken(self.chance, self._actions, budget):
            action()
            self.now_ms += self._step_ms
            self.judge_all()
        if self._is_healed:
            self.heal()

    def _draw_actions(self) -> list[Callable[[], None]]:
        """Return the actions of the adversary. The list contains each action as often as its weight
        in this random walk."""
        rows: tuple[tuple[Callable[[], None], int, bool], ...] = (
            (self._deliver, 24, True),
            (self._converse, 12, True),
            (self._fetch, 8, True),
            (self.clients.produce, 10, True),
            (self.clients.retry, 4, True),
            (self._flush, 6, True),
            (self._alter, 8, True),
            (self._hear, 8, True),
            (self._settle, 4, True),
            (self.catch_up, 2, True),
            (self._heartbeat, 6, True),
            (self._restart, 6, True),
            (self._wake, 3, True),
            (self._fence_silent, 4, True),
            (self._be_answered, 3, False),
            (self._lose_answer, 2, False),
            (self._lose, 4, False),
            (self._pass_time, 3, False),
            (self._look_for_lag, 3, False),
            (self._fence, 2, False),
            (self._kill, 3, False),
            (self._bounce, 3, False),
            (self._depose, 3, False),
            (self._cut_power, 2, False),
            (self._black_out, 1, False),
            (self._pause, 2, False),
            (self._drain, 2, False),
            (self._rebalance, 2, False),
            (self._reassign, 2, False),
            (self._set_min_isr, 2, False),
            (self._fail_controller_over, 1, False),
            (self._tear, 1, False),
            (self.clients.consume, 4, False),
            (self.clients.delete_records, 3, False),
            *self.more_rows(),
        )
        return drawn_actions(self.chance, rows)

    def more_rows(self) -> tuple[tuple[Callable[[], None], int, bool], ...]:
        """Return (action, weight, is_needed) for each action that a subclass adds to the adversary.
        An action with `is_needed` is part of every run."""
        return ()

    def _any_life(self) -> BrokerLife | None:
        running = self.running()
        return running[self.chance.below(len(running))].life if running else None

    # --- messages -------------------------------------------------------------------------------

    def _choose_packet(self) -> int:
        count = len(self.packets)
        if self._order == 0:
            return 0
        at = self.chance.below(count)
        return at if self._order == 1 else count - 1 - at // 2

    def _deliver(self) -> None:
        if self.packets:
            self.arrive(self.packets.pop(self._choose_packet()))
        else:
            self._fetch()

    def _lose(self) -> None:
        """Lose a message in flight, or end the wait of its sender while the message may still be
        delivered."""
        if not self.packets:
            return
        at = self._choose_packet()
        if self.chance.below(2):
            self.give_up(self.packets[at])
        else:
            self.drop(at)

    def _converse(self) -> None:
        """Deliver several fetches and responses between one follower and its leader."""
        life = self._any_life()
        if life is None or not life.fetchers:
            self.clients.produce()
            return
        fetchers = list(life.fetchers.values())
        fetcher = fetchers[self.chance.below(len(fetchers))]
        for _ in range(1 + self.chance.below(CONVERSATION_MAX)):
            if fetcher.core.leader_id not in life.fetchers or not self.talk(life, fetcher):
                return

    def _fetch(self) -> None:
        life = self._any_life()
        if life is None or not life.fetchers:
            return
        fetchers = list(life.fetchers.values())
        fetcher = fetchers[self.chance.below(len(fetchers))]
        if fetcher.places:
            self.find_place(life, fetcher)
        elif fetcher.is_idle:
            self.ask(life, fetcher)

    # --- in-sync replicas and metadata ----------------------------------------------------------

    def _alter(self) -> None:
        """Send an AlterPartition request with the pending ISR changes of a partition leader."""
        life = self._any_life()
        if life is not None and life.altering is None:
            self.ask_controller(life)

    def _be_answered(self) -> None:
        """Send the ISR changes of a partition leader to the controller. The response arrives before
        any new metadata."""
        life = self._any_life()
        if life is not None and (life.altering is not None or self.ask_controller(life)):
            self.answer(life)

    def _lose_answer(self) -> None:
        """End a partition leader's wait for the response to its AlterPartition request, and send
        another request. The first request is delivered now, later or never."""
        life = self._any_life()
        if life is None or (life.altering is None and not self.ask_controller(life)):
            return
        asked = life.altering
        if self.chance.below(2):
            for at, packet in enumerate(self.packets):
                if packet is asked:
                    self.arrive(self.packets.pop(at))
                    break
        life.altering = None
        if self.chance.below(2):
            self.now_ms += LAG_MS + 1
            self.clients.produce()
            self.ask_controller(life)

    def _look_for_lag(self) -> None:
        life = self._any_life()
        if life is not None:
            life.keeper.begin_isr_shrinks(self.now_ms)

    def _hear(self) -> None:
        life = self._any_life()
        if life is not None and life.seen < len(self.controller.images) - 1:
            newer = len(self.controller.images) - 1 - life.seen
            self.publish(life, life.seen + 1 + self.chance.below(newer))

    def _settle(self) -> None:
        """Apply all metadata images to one broker, send its heartbeat, and deliver the responses to
        its ISR changes."""
        life = self._any_life()
        if life is not None:
            self.settle_one(life)

    # --- broker processes -----------------------------------------------------------------------

    def _heartbeat(self) -> None:
        life = self._any_life()
        if life is not None:
            self.send_heartbeat(life)

    def _kill(self) -> None:
        """Kill the process of a random broker. The data that it wrote remains in the page cache."""
        life = self._any_life()
        if life is not None and not self.is_one_behind:
            self.end_life(life.machine, is_power_cut=False)

    def _bounce(self) -> None:
        """Restart a broker at once, while its earlier messages are still in flight."""
        life = self._any_life()
        if life is None:
            return
        machine = life.machine
        if self.chance.below(2):
            self._cut_power_of(machine)
        elif not self.is_one_behind:
            self.end_life(machine, is_power_cut=False)
        if machine.life is None:
            self.restart(machine)
            if machine.life is not None:
                self.apply_images(machine.life)
                self.send_heartbeat(machine.life)

    def _depose(self) -> None:
        """Expire the controller session of a partition's leader, so that another leader is elected.
        The followers learn of the election before the old leader does."""
        index = self.chance.below(len(self.indexes))
        leader = self.state(index).leader
        if leader == NO_NODE or self.is_one_behind:
            return
        self.fence_these(leader)
        for machine in self.running():
            if machine.id != leader and machine.life is not None:
                self.apply_images(machine.life)

    def _cut_power(self) -> None:
        machine = self.machines[self.chance.below(len(self.machines))]
        if machine.life is not None:
            self._cut_power_of(machine)

    def _cut_power_of(self, machine: BrokerMachine) -> None:
        if self.is_one_lossy:
            return
        if self.shape.is_flush_demanded:
            self.end_life(machine, is_power_cut=True)
        elif self.may_lose(machine):
            machine.has_lost_tail = machine.is_behind = True
            if self.end_life(machine, is_power_cut=True):
                self.rare.sometimes("a broker loses the tail of its log")

    def _black_out(self) -> None:
        """Cut the power of all brokers' machines at once."""
        if not self.shape.is_flush_demanded or self.is_one_lossy:
            return
        self.rare.sometimes("power is cut for all")
        for machine in self.machines:
            if machine.life is not None:
                self.end_life(machine, is_power_cut=True)

    def _pause(self) -> None:
        life = self._any_life()
        if life is not None and not self.is_one_behind:
            life.machine.is_paused = True

    def _wake(self) -> None:
        for machine in self.machines:
            if machine.is_paused and self.chance.below(2) == 0:
                machine.is_paused = False
                return

    def _drain(self) -> None:
        life = self._any_life()
        if life is not None and not self.is_one_behind:
            life.is_leaving = True

    def _restart(self) -> None:
        down = [machine for machine in self.machines if machine.life is None]
        if down:
            self.restart(down[self.chance.below(len(down))])
        else:
            self._deliver()

    # --- the controller -------------------------------------------------------------------------

    def _fence_silent(self) -> None:
        """Expire the controller sessions of brokers that are down or paused, so that the controller
        fences these brokers."""
        silent = [
            machine.id
            for machine in self.machines
            if (machine.life is None or machine.is_paused)
            and not self.controller.image.brokers[machine.id].is_fenced
        ]
        if silent:
            count = 1 + self.chance.below(len(silent))
            self.fence_these(*silent[:count])
        else:
            self._deliver()

    def _fence(self) -> None:
        """Expire the controller session of a random broker, as if its heartbeats had been lost. The
        controller then fences the broker."""
        if self.is_one_behind:
            return
        self.fence_these(self.machines[self.chance.below(len(self.machines))].id)

    def _rebalance(self) -> None:
        records = elections.rebalance(self.controller.image, self.controller.config)
        try:
            self.controller.take(decided(self.controller.image, records, None))
        except RefusedError:
            return

    def _reassign(self) -> None:
        """Reassign a partition's replica, change the number of replicas, or cancel a
        reassignment."""
        index = self.chance.below(len(self.indexes))
        state = self.state(index)
        replicas: list[int] | None = None
        if self.chance.below(4) == 3:
            if not (state.adding or state.removing):
                return
        else:
            ids = [machine.id for machine in self.machines]
            start = self.chance.below(len(ids))
            replicas = [int(one) for one in (ids[start:] + ids[:start])[: 2 + self.chance.below(2)]]
        asked = ReassignablePartition(partition_index=index, replicas=replicas)
        topic = ReassignableTopic(name=TOPIC, partitions=[asked])
        before = self.controller.image
        try:
            self.controller.forward(AlterPartitionReassignmentsRequest(topics=[topic]))
        except RefusedError:
            return
        if replicas is None and self.controller.image is not before:
            self.rare.sometimes("a reassignment is cancelled")

    def _set_min_isr(self) -> None:
        """Change the topic's min.insync.replicas, which clears ELRs (KIP-966).

        This is not done while a broker lacks records lost in a power cut, because the ELR may name
        the only other copy.
        """
        if self.is_one_behind:
            return
        wanted, before = 1 + self.chance.below(3), self.controller.image
        resource = AlterConfigsResource(
            resource_type=TOPIC_RESOURCE,
            resource_name=TOPIC,
            configs=[AlterableConfig(name=MIN_INSYNC_REPLICAS, value=str(wanted))],
        )
        had_elr = any(self.state(index).elr for index in self.indexes)
        self.controller.forward(IncrementalAlterConfigsRequest(resources=[resource]))
        if had_elr and not any(self.state(index).elr for index in self.indexes):
            self.rare.sometimes("a change of min.insync.replicas forgets an ELR")
        if wanted > self.min_isr(before):
            self.rare.sometimes("min.insync.replicas rises")
        self.trace.add("min.insync.replicas", wanted)

    def _fail_controller_over(self) -> None:
        self.controller.fail_over()

    def _tear(self) -> None:
        """Schedule a death of the controller between two records of its next decision. Only a part
        of the decision is then committed."""
        self.controller.records_left = self.chance.below(4)

    # --- time and disks -------------------------------------------------------------------------

    def _pass_time(self) -> None:
        self.now_ms += (10, 500, LAG_MS // 2, LAG_MS + 1)[self.chance.below(4)]
        self.controller.now_ms = self.now_ms
        for machine in self.running():
            life = machine.life
            assert life is not None
            life.keeper.end_pauses(self.now_ms)
            life.purgatory.expire(self.now_ms)

    def _flush(self) -> None:
        """End an fsync of a random broker. The fsync may cover all written data or only a part of
        it."""
        life = self._any_life()
        if life is None:
            return
        for fetcher in life.fetchers.values():
            if fetcher.flushing:
                life.flush_replica(fetcher)
                return
        if life.flush_due:
            self.flush_led(life, self.chance.below(2))
        else:
            self._deliver()
