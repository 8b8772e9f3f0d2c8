"""Registration, heartbeats, fencing and controlled shutdown, as a broker lives through them."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.decision import Decision, decided
from ottla.controller.membership import brokers
from ottla.controller.membership.sessions import SILENCE_MS
from ottla.controller.replication.assignments import NewTopics
from ottla.controller.replication.partitions import assign_replicas_to_dirs
from ottla.jepsen.in_memory_controller import (
    CONTROLLER,
    IDENTITY,
    InMemoryController,
    directory_id,
    registration,
)
from ottla.metadata.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from ottla.metadata.image import RecoveryState
from ottla.metadata.records import feature_level_record
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NO_NODE, NodeId, Offset, TopicIdPartition
from ottla.model.settings.security.authorizer import STANDARD_AUTHORIZER, AuthorizerConfig
from ottla.proto import controller_pb2 as pb
from ottla.proto import metadata_pb2
from ottla.wire.messages.create_topics_request import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from ottla.wire.messages.elect_leaders_request import ElectLeadersRequest, TopicPartitions
from ottla.wire.messages.unregister_broker_request import UnregisterBrokerRequest

ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)


def create(cluster: InMemoryController, name: str, *replicas: int) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(replicas))
    topic = CreatableTopic(
        name=name, num_partitions=-1, replication_factor=-1, assignments=[assignment]
    )
    cluster.forward(CreateTopicsRequest(topics=[topic]))
    assert cluster.state(name).isr == replicas


def decide(
    cluster: InMemoryController, request: pb.RegisterRequest
) -> Decision[pb.RegisterResponse]:
    return brokers.register(
        cluster.image,
        cluster.config,
        cluster.sessions,
        request,
        identity=IDENTITY,
        next_offset=cluster.next_offset,
        now_ms=cluster.now_ms,
    )


def refusal(cluster: InMemoryController, request: pb.RegisterRequest) -> RefusedError:
    with pytest.raises(RefusedError) as caught:
        decide(cluster, request)
    return caught.value


def test_a_broker_registers_fenced_under_the_offset_of_its_registration() -> None:
    cluster = InMemoryController()
    offset = cluster.next_offset

    epoch = cluster.register(1)

    assert epoch == offset
    assert cluster.image.brokers[ONE].epoch == offset
    assert cluster.image.brokers[ONE].is_fenced


def test_a_broker_is_unfenced_once_it_has_applied_its_own_registration() -> None:
    cluster = InMemoryController()
    epoch = cluster.register(1)

    behind = cluster.heartbeat(1, metadata_offset=epoch - 1)
    caught_up = cluster.heartbeat(1, metadata_offset=epoch)

    assert (behind.is_caught_up, behind.is_fenced) == (False, True)
    assert (caught_up.is_caught_up, caught_up.is_fenced) == (True, False)
    assert cluster.image.is_active(ONE)


def test_a_broker_that_wants_to_stay_fenced_stays_fenced() -> None:
    cluster = InMemoryController()
    cluster.register(1)

    assert cluster.heartbeat(1, want_fence=True).is_fenced


def test_the_same_incarnation_keeps_its_epoch_and_its_state() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    epoch = cluster.image.brokers[ONE].epoch

    again = cluster.register(1, rack="new")

    assert again == epoch
    assert cluster.image.brokers[ONE].rack == "new"
    assert not cluster.image.brokers[ONE].is_fenced


def test_a_second_incarnation_waits_until_the_session_of_the_first_ends() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    second = registration(1, incarnation=2)

    assert refusal(cluster, second).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += cluster.config.session_timeout_ms
    epoch = cluster.register(1, incarnation=2)

    assert cluster.image.brokers[ONE].epoch == epoch
    assert cluster.image.brokers[ONE].is_fenced


def test_a_killed_broker_registers_at_once_at_a_controller_that_has_just_become_active() -> None:
    """A node that is controller and broker was killed, and becomes active again."""
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.sessions.reset(cluster.image, cluster.now_ms)
    other_directory = registration(1, incarnation=2, directories=0)
    other_directory.log_dirs.append(UUID(int=1 << 100).bytes)

    assert refusal(cluster, other_directory).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    epoch = cluster.register(1, incarnation=2)

    assert (cluster.image.brokers[ONE].epoch, cluster.image.brokers[ONE].is_fenced) == (epoch, True)
    assert cluster.state("a").isr == (TWO,)
    third = refusal(cluster, registration(1, incarnation=3))
    assert third.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION, "the second one has just called"


def test_a_broker_that_a_new_controller_has_heard_of_keeps_its_id() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    cluster.sessions.reset(cluster.image, cluster.now_ms)
    cluster.heartbeat(1)

    second = refusal(cluster, registration(1, incarnation=2))

    assert second.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def test_a_killed_broker_registers_once_its_cut_off_call_was_not_followed_by_another() -> None:
    """The controller has been active for less than a session, so it probes no address."""
    cluster = InMemoryController()
    cluster.start(1)
    epoch = cluster.image.brokers[ONE].epoch
    sessions, second = cluster.sessions, registration(1, incarnation=2)
    sessions.note_cut_off(ONE, epoch - 1, cluster.now_ms)
    cluster.now_ms += SILENCE_MS
    assert refusal(cluster, second).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    for call_again in (lambda: cluster.heartbeat(1), lambda: sessions.note_call(ONE)):
        sessions.note_cut_off(ONE, epoch, cluster.now_ms)
        call_again()
        cluster.now_ms += SILENCE_MS
        assert refusal(cluster, second).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION

    sessions.note_cut_off(ONE, epoch, cluster.now_ms)
    cluster.now_ms += SILENCE_MS - 1
    assert refusal(cluster, second).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    cluster.now_ms += 1
    elsewhere = registration(1, incarnation=2, directories=0)
    elsewhere.log_dirs.append(UUID(int=1 << 100).bytes)
    assert refusal(cluster, elsewhere).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert cluster.register(1, incarnation=2) > epoch


def test_a_fenced_incarnation_that_still_heartbeats_keeps_its_id() -> None:
    cluster = InMemoryController()
    cluster.register(1)

    second = registration(1, incarnation=2)

    assert refusal(cluster, second).code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


def endpoint(
    *, name: str = "PLAINTEXT", host: str = "h", port: int = 9_092, security_protocol: int = 0
) -> metadata_pb2.Endpoint:
    return metadata_pb2.Endpoint(
        name=name, host=host, port=port, security_protocol=security_protocol
    )


def altered(**changes: object) -> pb.RegisterRequest:
    request = registration(2)
    for name, value in changes.items():
        if isinstance(value, list):
            del getattr(request, name)[:]
            getattr(request, name).extend(value)
        else:
            setattr(request, name, value)
    return request


@pytest.mark.parametrize(
    ("request_", "code"),
    [
        (altered(cluster_id="other"), ErrorCode.INCONSISTENT_CLUSTER_ID),
        (altered(listeners=[]), ErrorCode.INVALID_REGISTRATION),
        *(
            (altered(listeners=[endpoint(host=host)]), ErrorCode.INVALID_REGISTRATION)
            for host in (
                "",
                "a..b",
                ".",
                "a" * 64,
                "a b",
                "a\0b",
                "a.b\n",
                "b." * 127,
                "\u0130" * 30,
            )
        ),
        *(
            (altered(listeners=[endpoint(port=port)]), ErrorCode.INVALID_REGISTRATION)
            for port in (0, 65_536, (1 << 32) - 1)
        ),
        (altered(listeners=[endpoint(security_protocol=4)]), ErrorCode.INVALID_REGISTRATION),
        (altered(listeners=[endpoint(name="n" * 40_000)]), ErrorCode.INVALID_REGISTRATION),
        (altered(listeners=[endpoint(), endpoint(port=9_093)]), ErrorCode.INVALID_REGISTRATION),
        (altered(rack="r" * 40_000), ErrorCode.INVALID_REGISTRATION),
        (altered(host="h" * 40_000), ErrorCode.INVALID_REGISTRATION),
        (altered(log_dirs=[]), ErrorCode.INVALID_REGISTRATION),
        (altered(log_dirs=[directory_id(2).bytes] * 2), ErrorCode.INVALID_REGISTRATION),
        (altered(log_dirs=[UUID(int=99).bytes]), ErrorCode.INVALID_REGISTRATION),
        (altered(log_dirs=[directory_id(1).bytes]), ErrorCode.INVALID_REGISTRATION),
        (altered(log_dirs=[b"short"]), ErrorCode.INVALID_REQUEST),
        (altered(features=[]), ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_a_wrong_registration_is_refused(request_: pb.RegisterRequest, code: ErrorCode) -> None:
    cluster = InMemoryController()
    cluster.start(1)

    assert refusal(cluster, request_).code is code
    assert TWO not in cluster.image.brokers


def test_a_broker_cannot_have_the_id_of_a_controller() -> None:
    caught = refusal(InMemoryController(), registration(CONTROLLER))

    assert caught.code is ErrorCode.INVALID_REGISTRATION
    assert caught.message == "Node id 101 is a controller's; give this broker another node.id"


def test_a_process_with_both_roles_registers_under_the_id_of_its_voter() -> None:
    cluster = InMemoryController()
    request = registration(CONTROLLER)
    request.is_controller = True

    assert CONTROLLER in decide(cluster, request).image.brokers


def test_a_silent_broker_is_fenced_and_loses_its_leaderships_in_one_batch() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    create(cluster, "b", 1, 2)
    cluster.now_ms += cluster.config.session_timeout_ms - 1
    assert cluster.fence_expired() == ()
    cluster.heartbeat(2)
    cluster.now_ms += 1

    assert cluster.fence_expired() == (ONE,)

    assert cluster.image.brokers[ONE].is_fenced
    for topic in ("a", "b"):
        state = cluster.state(topic)
        assert (state.leader, state.isr, state.leader_epoch) == (TWO, (TWO,), 1)


def test_a_heartbeat_moves_the_session_on() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    expiry = cluster.sessions.next_expiry_ms(cluster.image)
    cluster.now_ms = 5_000
    cluster.heartbeat(1)

    assert expiry == cluster.config.session_timeout_ms
    assert cluster.sessions.next_expiry_ms(cluster.image) == expiry + 5_000


def test_a_new_active_controller_gives_every_broker_a_full_session() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    cluster.now_ms = 1_000_000
    cluster.sessions.reset(cluster.image, cluster.now_ms)

    assert cluster.fence_expired() == ()
    cluster.now_ms += cluster.config.session_timeout_ms
    assert cluster.fence_expired() == (ONE,)


def test_the_only_replica_leads_again_when_its_broker_comes_back() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    create(cluster, "a", 1)
    cluster.kill(1)
    assert (cluster.state("a").leader, cluster.state("a").elr) == (NO_NODE, (ONE,))

    cluster.heartbeat(1)

    state = cluster.state("a")
    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (ONE, (ONE,), (), ())
    assert state.recovery_state is RecoveryState.RECOVERED


def test_a_crashed_broker_is_no_longer_eligible_but_may_be_the_last_resort() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    create(cluster, "a", 1)
    cluster.kill(1)

    cluster.register(1, incarnation=2, previous_epoch=-1)
    down = cluster.state("a")
    cluster.heartbeat(1)

    assert (down.isr, down.elr, down.last_known_elr) == ((), (), (ONE,))
    state = cluster.state("a")
    assert (state.leader, state.isr) == (ONE, (ONE,))
    assert state.recovery_state is RecoveryState.RECOVERING


def test_the_epoch_of_a_broker_that_crashed_is_the_offset_of_its_registration_too() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.now_ms += cluster.config.session_timeout_ms
    first_offset = cluster.next_offset

    decision = brokers.register(
        cluster.image,
        cluster.config,
        cluster.sessions,
        registration(1, incarnation=2),
        identity=IDENTITY,
        next_offset=first_offset,
        now_ms=cluster.now_ms,
    )

    *leaving, registering = decision.records
    assert leaving
    assert registering.register_broker.broker_epoch == first_offset + len(leaving)
    assert decision.reply.broker_epoch == first_offset + len(leaving)


def test_without_elr_a_crashed_broker_leaves_as_if_it_were_fenced() -> None:
    """Kafka's handleBrokerShutdown: a clean shutdown matters only where ELRs are kept."""
    cluster = InMemoryController()
    off = feature_level_record(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
    cluster.take(decided(cluster.image, (off,), None))
    cluster.start(1)
    create(cluster, "a", 1)
    cluster.kill(1)

    cluster.register(1, incarnation=2, previous_epoch=-1)
    cluster.heartbeat(1)

    state = cluster.state("a")
    assert (state.leader, state.isr, state.recovery_state) == (ONE, (ONE,), RecoveryState.RECOVERED)


def test_brokers_whose_sessions_end_together_never_elect_each_other() -> None:
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1, 2, 3)
    create(cluster, "a", 1, 2, 3)

    cluster.kill(1, 2)

    state = cluster.state("a")
    assert (state.leader, state.leader_epoch, state.partition_epoch) == (THREE, 1, 1)
    assert (state.isr, state.elr) == ((THREE,), (ONE, TWO))


def test_a_broker_that_led_much_is_fenced_by_several_decisions() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    names = ("a", "b", "c", "d")
    for name in names:
        create(cluster, name, 1, 2)
    cluster.now_ms += cluster.config.session_timeout_ms
    cluster.heartbeat(2)

    fenced = []
    led_by_one = []
    for _ in range(3):
        decision = brokers.fence_expired(
            cluster.image, cluster.config, cluster.sessions, cluster.now_ms, changes_max=2
        )
        fenced.append(cluster.take(decision))
        led_by_one.append(sum(cluster.state(name).leader == ONE for name in names))

    assert led_by_one == [2, 0, 0]
    assert fenced == [(), (), (ONE,)]
    assert cluster.image.brokers[ONE].is_fenced


def partition_of(cluster: InMemoryController, topic: str) -> TopicIdPartition:
    found = cluster.image.topic(topic)
    assert found is not None
    return TopicIdPartition(found.id, 0)


def stop_cleanly(cluster: InMemoryController, *ids: int) -> dict[int, int]:
    epochs = {}
    for broker in ids:
        epochs[broker] = cluster.image.brokers[NodeId(broker)].epoch
        cluster.kill(broker)
    return epochs


@pytest.mark.parametrize("has_elr", [True, False])
def test_a_replica_that_lost_its_log_is_not_elected_and_a_whole_one_is(has_elr: bool) -> None:
    """All brokers stop, the last one's disk loses the log, and that broker starts first."""
    cluster = InMemoryController(min_insync_replicas=2)
    if not has_elr:
        off = feature_level_record(ELIGIBLE_LEADER_REPLICAS_VERSION, 0)
        cluster.take(decided(cluster.image, (off,), None))
    cluster.start(1, 2, 3)
    create(cluster, "a", 1, 2, 3)
    epochs = stop_cleanly(cluster, 3) | stop_cleanly(cluster, 1, 2)

    lost = partition_of(cluster, "a")
    cluster.register(1, incarnation=2, previous_epoch=epochs[1], lost=[lost])
    cluster.heartbeat(1)
    assert cluster.state("a").leader == NO_NODE
    assert 1 not in (*cluster.state("a").isr, *cluster.state("a").elr)
    cluster.register(2, incarnation=2, previous_epoch=epochs[2])
    cluster.heartbeat(2)

    state = cluster.state("a")
    assert (state.leader, state.isr, state.recovery_state) == (TWO, (TWO,), RecoveryState.RECOVERED)


def test_a_partition_whose_only_replica_lost_its_log_waits_for_the_operator() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    create(cluster, "a", 1)
    epochs = stop_cleanly(cluster, 1)

    cluster.register(1, incarnation=2, previous_epoch=epochs[1], lost=[partition_of(cluster, "a")])
    cluster.heartbeat(1)
    assert (cluster.state("a").leader, cluster.state("a").isr) == (NO_NODE, ())

    topic = TopicPartitions(topic="a", partitions=[0])
    cluster.forward(ElectLeadersRequest(election_type=1, topic_partitions=[topic], timeout_ms=1))
    state = cluster.state("a")
    assert (state.leader, state.isr, state.recovery_state) == (
        ONE,
        (ONE,),
        RecoveryState.RECOVERING,
    )


def test_more_lost_replicas_are_named_in_further_registrations_of_the_incarnation() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    create(cluster, "a", 1)
    create(cluster, "b", 1)
    epochs = stop_cleanly(cluster, 1)
    lost = [partition_of(cluster, "a"), partition_of(cluster, "b")]

    epoch = cluster.register(1, incarnation=2, previous_epoch=epochs[1], lost=lost[:1])
    again = cluster.register(1, incarnation=2, previous_epoch=epochs[1], lost=lost[1:])
    cluster.heartbeat(1)

    assert epoch == again
    assert [cluster.state(name).leader for name in ("a", "b")] == [NO_NODE, NO_NODE]


def test_lost_replicas_that_are_not_there_change_nothing_and_too_many_are_refused() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 2)
    before = cluster.state("a")
    unknown = TopicIdPartition(UUID(int=77), 0)

    cluster.register(1, lost=[partition_of(cluster, "a"), unknown, unknown])
    assert cluster.state("a") == before

    request = registration(3)
    many = list(range(brokers.LOST_REPLICAS_MAX + 1))
    request.lost_replicas.add(topic_id=UUID(int=77).bytes, partitions=many)
    assert refusal(cluster, request).code is ErrorCode.INVALID_REGISTRATION


def test_a_broker_that_stopped_cleanly_stays_eligible() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    epoch = cluster.image.brokers[ONE].epoch
    create(cluster, "a", 1)
    cluster.kill(1)

    cluster.register(1, incarnation=2, previous_epoch=epoch)
    cluster.heartbeat(1)

    assert cluster.state("a").leader == ONE
    assert cluster.state("a").recovery_state is RecoveryState.RECOVERED


def test_a_controlled_shutdown_moves_leaders_first_and_waits_until_all_have_seen_it() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)

    asked = cluster.heartbeat(1, want_shut_down=True)
    moved = cluster.state("a")
    seen_before = cluster.next_offset - 1
    still = cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2, metadata_offset=seen_before)
    granted = cluster.heartbeat(1, want_shut_down=True)

    assert not asked.should_shut_down
    assert (moved.leader, moved.isr) == (TWO, (TWO,))
    assert not still.should_shut_down
    assert granted.should_shut_down
    assert cluster.image.brokers[ONE].is_fenced


def test_a_shutdown_that_another_controller_began_is_not_granted_before_all_have_seen_it() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.heartbeat(1, want_shut_down=True)
    seen_before = cluster.next_offset - 2

    cluster.sessions.reset(cluster.image, cluster.now_ms)
    cluster.heartbeat(2, metadata_offset=seen_before)
    still = cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    granted = cluster.heartbeat(1, want_shut_down=True)

    assert (still.should_shut_down, granted.should_shut_down) == (False, True)


def test_a_drained_broker_stays_fenced_while_it_wants_to_and_then_takes_part_again() -> None:
    """Controlled shutdown without an end: granted, then kept fenced, then undone."""
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)
    granted = cluster.heartbeat(1, want_shut_down=True)

    drained = cluster.heartbeat(1, want_fence=True)
    second = refusal(cluster, registration(1, incarnation=2))
    outcome = cluster.alter_isr("a", 0, 2, 1)
    at_rest = cluster.image.brokers[ONE]
    back = cluster.heartbeat(1)

    assert (granted.should_shut_down, granted.is_fenced) == (True, True)
    assert (drained.should_shut_down, drained.is_fenced) == (False, True)
    assert second.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert outcome.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert (at_rest.is_fenced, at_rest.in_controlled_shutdown) == (True, False)
    assert (back.is_fenced, cluster.image.is_active(ONE)) == (False, True)
    assert cluster.alter_isr("a", 0, 2, 1).error_code == ErrorCode.NONE


def test_a_drain_undone_before_it_is_granted_ends_with_the_broker_taking_part() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)
    cluster.heartbeat(1, want_shut_down=True)
    cluster.heartbeat(2)

    cluster.heartbeat(1)
    cluster.heartbeat(1)

    assert cluster.image.is_active(ONE)


def test_a_broker_that_leads_nothing_may_stop_at_once_and_come_back_at_once() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    epoch = cluster.image.brokers[ONE].epoch

    assert cluster.heartbeat(1, want_shut_down=True).should_shut_down
    cluster.register(1, incarnation=2, previous_epoch=epoch)
    cluster.heartbeat(1)

    assert cluster.image.is_active(ONE)


def test_a_broker_in_controlled_shutdown_joins_no_isr() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 2, 1)
    create(cluster, "b", 1, 2)
    cluster.heartbeat(1, want_shut_down=True)

    outcome = cluster.alter_isr("a", 0, 2, 1)

    assert outcome.error_code == ErrorCode.INELIGIBLE_REPLICA
    assert cluster.state("a").isr == (TWO,)


def test_an_offline_directory_takes_only_its_replicas_along() -> None:
    cluster = InMemoryController()
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    cluster.start(2)
    create(cluster, "a", 1, 2)
    create(cluster, "b", 1, 2)
    assign(cluster, 1, "a", directory_id(1, 0))
    assign(cluster, 1, "b", directory_id(1, 1))

    cluster.heartbeat(1, offline_log_dirs=(directory_id(1, 1),))

    assert cluster.image.brokers[ONE].log_dirs == (directory_id(1, 0),)
    assert cluster.state("a").leader == ONE
    assert (cluster.state("b").leader, cluster.state("b").isr) == (TWO, (TWO,))


def assign(cluster: InMemoryController, broker: int, topic: str, directory: UUID) -> None:
    found = cluster.image.topic(topic)
    assert found is not None
    reply = cluster.take(
        assign_replicas_to_dirs(
            cluster.image,
            cluster.config,
            pb.AssignReplicasToDirsRequest(
                broker_id=broker,
                broker_epoch=cluster.image.brokers[NodeId(broker)].epoch,
                directories=[
                    pb.DirectoryAssignment(
                        directory_id=directory.bytes,
                        topics=[pb.DirectoryTopic(topic_id=found.id.bytes, partitions=[0])],
                    )
                ],
            ),
        )
    )
    assert reply.directories[0].topics[0].partitions[0].error_code == 0


def test_a_replica_in_a_directory_that_is_gone_leaves_the_isr() -> None:
    cluster = InMemoryController()
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)

    assign(cluster, 1, "a", UUID(int=12345))

    assert cluster.state("a").isr == (TWO,)


def test_an_eligible_replica_whose_directory_is_offline_does_not_lead() -> None:
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1)
    cluster.register(2, directories=2)
    cluster.heartbeat(2)
    create(cluster, "a", 1, 2)
    assign(cluster, 2, "a", directory_id(2, 1))
    cluster.heartbeat(2, offline_log_dirs=(directory_id(2, 1),))
    assert cluster.state("a").elr == (TWO,)

    cluster.kill(1)

    assert cluster.image.is_active(TWO)
    assert cluster.state("a").leader == NO_NODE


def test_an_unregistered_broker_is_in_no_isr_and_eligible_nowhere() -> None:
    cluster = InMemoryController(min_insync_replicas=2)
    cluster.start(1, 2)
    create(cluster, "a", 1, 2)

    cluster.forward(UnregisterBrokerRequest(broker_id=1))

    state = cluster.state("a")
    assert ONE not in cluster.image.brokers
    assert (state.leader, state.isr, state.elr) == (TWO, (TWO,), ())
    with pytest.raises(RefusedError) as caught:
        cluster.forward(UnregisterBrokerRequest(broker_id=1))
    assert caught.value.code is ErrorCode.BROKER_ID_NOT_REGISTERED


@pytest.mark.parametrize(
    ("broker", "epoch", "code"),
    [(9, 0, ErrorCode.BROKER_ID_NOT_REGISTERED), (1, -7, ErrorCode.STALE_BROKER_EPOCH)],
)
def test_who_speaks_under_a_wrong_epoch_is_refused(
    broker: int, epoch: int, code: ErrorCode
) -> None:
    cluster = InMemoryController()
    cluster.start(1)

    with pytest.raises(RefusedError) as caught:
        brokers.heartbeat(
            cluster.image,
            cluster.config,
            cluster.sessions,
            pb.HeartbeatRequest(broker_id=broker, broker_epoch=epoch),
            next_offset=Offset(0),
            now_ms=0,
        )

    assert caught.value.code is code


def test_a_broker_whose_directories_are_all_cordoned_gets_no_new_replica() -> None:
    cluster = InMemoryController()
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    cluster.start(2)
    create(cluster, "a", 1, 2)
    both = (directory_id(1, 0), directory_id(1, 1))

    cluster.heartbeat(1, cordoned_log_dirs=both[:1])
    assert not cluster.image.brokers[ONE].is_cordoned
    cluster.heartbeat(1, cordoned_log_dirs=both)

    assert cluster.image.brokers[ONE].cordoned_log_dirs == both
    assert cluster.state("a").isr == (ONE, TWO)
    assert {states.replicas for states in NewTopics(cluster.image).place(4, 1)} == {(TWO,)}
    with pytest.raises(RefusedError, match="1 more have all their log directories cordoned"):
        NewTopics(cluster.image).place(1, 2)
    cluster.heartbeat(1, cordoned_log_dirs=())
    assert not cluster.image.brokers[ONE].cordoned_log_dirs
    assert len(NewTopics(cluster.image).place(1, 2)) == 1


def test_a_heartbeat_that_cordons_what_is_cordoned_writes_nothing() -> None:
    cluster = InMemoryController()
    cluster.start(1)
    cluster.heartbeat(1, cordoned_log_dirs=(directory_id(1),))
    offset = cluster.next_offset
    cluster.heartbeat(1, cordoned_log_dirs=(directory_id(1), directory_id(7)))
    cluster.heartbeat(1)
    assert cluster.next_offset == offset


def test_a_cordoned_directory_that_fails_is_cordoned_no_longer() -> None:
    cluster = InMemoryController()
    cluster.register(1, directories=2)
    cluster.heartbeat(1)
    both = (directory_id(1, 0), directory_id(1, 1))
    cluster.heartbeat(1, cordoned_log_dirs=both[1:])
    cluster.heartbeat(1, cordoned_log_dirs=both[1:], offline_log_dirs=both[1:])
    assert cluster.image.brokers[ONE].log_dirs == both[:1]
    assert not cluster.image.brokers[ONE].cordoned_log_dirs


def registration_as(principal: str, *, is_named: bool = False) -> pb.RegisterRequest:
    request = registration(1, incarnation=2)
    request.principal, request.is_named_by_certificate = principal, is_named
    return request


def test_an_id_belongs_to_the_certificate_that_registered_it_until_it_is_unregistered() -> None:
    cluster = InMemoryController()
    cluster.register(1, principal="User:CN=b1")
    assert cluster.image.brokers[ONE].principal == "User:CN=b1"
    cluster.now_ms += cluster.config.session_timeout_ms

    refused = refusal(cluster, registration_as("User:CN=b2"))
    assert refused.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert "User:CN=b1" in (refused.message or "")

    cluster.forward(UnregisterBrokerRequest(broker_id=1))
    cluster.register(1, incarnation=2, principal="User:CN=b2")
    assert cluster.image.brokers[ONE].principal == "User:CN=b2"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param("User:CN=b1", registration_as("User:CN=b2", is_named=True), id="named"),
        pytest.param("", registration_as("User:CN=b2"), id="the listener asks from now on"),
        pytest.param("User:CN=b1", registration_as(""), id="another listener does not ask"),
    ],
)
def test_an_id_changes_its_certificate_where_that_is_no_theft(
    before: str, after: pb.RegisterRequest
) -> None:
    cluster = InMemoryController()
    cluster.register(1, principal=before)
    cluster.now_ms += cluster.config.session_timeout_ms
    decide(cluster, after)


def test_a_broker_that_decides_by_acls_waits_for_controllers_that_do() -> None:
    cluster = InMemoryController()
    request = registration(1)
    request.has_authorizer = True
    refused = refusal(cluster, request)
    assert refused.code is ErrorCode.INVALID_REGISTRATION
    assert "Set it on all controllers first." in (refused.message or "")

    authorizer = AuthorizerConfig(class_name=STANDARD_AUTHORIZER)
    cluster.config = replace(cluster.config, authorizer=authorizer)
    decide(cluster, request)
    # The other way round is how a cluster changes over.
    decide(cluster, registration(1))
