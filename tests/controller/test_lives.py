"""Whatever brokers do and suffer, every decision folds and partitions are led where they can be."""

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.controller.rehearsal import Rehearsal
from ottla.metadata import fold
from ottla.metadata.image import EMPTY
from ottla.metadata.records import feature_level_record
from ottla.metadata.snapshot import records_of
from ottla.model.errors import RefusedError
from ottla.model.ids import NO_NODE, NodeId
from ottla.wire.messages.create_topics_request import CreatableTopic, CreateTopicsRequest
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest

BROKERS = (1, 2, 3)
DEEDS = st.sampled_from(
    [
        "beat",
        "beat",
        "beat",
        "kill",
        "crash",
        "restart",
        "stop",
        "join",
        "join",
        "leave",
        "elect",
        "unregister",
    ]
)


class Life:
    """A cluster of three brokers, and which of their processes run."""

    def __init__(self, *, has_elr: bool) -> None:
        self.cluster = Rehearsal(min_insync_replicas=2)
        if not has_elr:
            off = feature_level_record("eligible.leader.replicas.version", 0)
            self.cluster.image = fold.apply(self.cluster.image, off)
        self.cluster.start(*BROKERS)
        self.incarnations = dict.fromkeys(BROKERS, 1)
        topic = CreatableTopic(name="a", num_partitions=3, replication_factor=3)
        self.cluster.forward(CreateTopicsRequest(topics=[topic]))

    def do(self, deed: str, broker: int) -> None:
        known = self.cluster.image.brokers.get(NodeId(broker))
        if known is None:
            self.cluster.register(broker, incarnation=self.incarnations[broker])
        elif deed == "beat":
            self.cluster.heartbeat(broker)
        elif deed == "stop":
            self.cluster.heartbeat(broker, want_shut_down=True)
        elif deed == "unregister":
            self.incarnations[broker] += 1
            self.cluster.forward(UnregisterBrokerRequest(broker_id=broker))
        elif deed == "kill" and not known.is_fenced:
            self.cluster.kill(broker)
        elif deed in ("crash", "restart"):
            self.incarnations[broker] += 1
            self.cluster.now_ms += self.cluster.config.session_timeout_ms
            epoch = known.epoch if deed == "restart" else -1
            self.cluster.register(
                broker, incarnation=self.incarnations[broker], previous_epoch=epoch
            )
        elif deed in ("join", "leave"):
            self.change_isr(broker, joins=deed == "join")
        elif deed == "elect":
            for election_type in (0, 1):
                self.cluster.forward(ElectLeadersRequest(election_type=election_type))

    def change_isr(self, broker: int, *, joins: bool) -> None:
        for partition in range(3):
            state = self.cluster.state("a", partition)
            others = [one for one in state.isr if one != broker]
            isr = [*others, broker] if joins else others
            if state.leader != NO_NODE and state.leader in isr:
                self.cluster.alter_isr("a", partition, *isr)


@settings(deadline=None)
@given(st.lists(st.tuples(DEEDS, st.sampled_from(BROKERS)), max_size=30), st.booleans())
def test_every_decision_folds_and_whoever_can_lead_does(
    deeds: list[tuple[str, int]], has_elr: bool
) -> None:
    life = Life(has_elr=has_elr)
    for deed, broker in deeds:
        try:
            life.do(deed, broker)
        except RefusedError:
            continue
        image = life.cluster.image
        for partition in range(3):
            state = life.cluster.state("a", partition)
            if state.leader != NO_NODE:
                assert image.is_active(state.leader)
            else:
                # Nobody in sync or eligible lives: else the partition would be led.
                assert not any(image.is_active(one) for one in (*state.isr, *state.elr))
    rebuilt = fold.apply_all(EMPTY, records_of(life.cluster.image))
    assert rebuilt == life.cluster.image
