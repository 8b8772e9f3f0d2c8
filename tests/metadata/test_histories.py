"""Whatever history a controller could have written, fold, delta and snapshot agree about it."""

from dataclasses import replace
from random import Random
from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from ottla.metadata import fold, records
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.directories import LOST, UNASSIGNED
from ottla.metadata.image import (
    EMPTY,
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    MetadataImage,
    PartitionState,
    Provenance,
    RecoveryState,
)
from ottla.metadata.records import Record
from ottla.metadata.snapshot import records_of
from ottla.metadata.topics_fold import TOPIC_KINDS
from ottla.model.ids import NO_NODE, Epoch, NodeId, Offset, TopicIdPartition
from ottla.model.quotas.quota_limits import QuotaEntity
from ottla.model.security.acls import (
    AclEntry,
    AclOperation,
    AclPermission,
    PatternType,
    ResourceType,
)
from ottla.model.security.delegation_tokens import DelegationToken
from ottla.model.security.scram import ScramCredential
from ottla.proto import metadata_pb2

HOME = UUID(int=0xD000)
BROKERS = [NodeId(number) for number in (1, 2, 3, 4)]
NAMES = ["a", "b", "c"]
MOVES = [
    "register",
    "unregister",
    "change broker",
    "register controller",
    "unregister controller",
    "topic",
    "remove topic",
    "partition",
    "partition",
    "change partition",
    "change partition",
    "clear elr",
    "config",
    "feature",
    "quota",
    "credential",
    "token",
    "acl",
    "acl",
    "producer ids",
    "no-op",
]


@st.composite
def histories(draw: st.DrawFn) -> list[Record]:
    """Draw records, each of which fits the image left by those before it."""
    image = EMPTY
    history: list[Record] = []
    for move in draw(st.lists(st.sampled_from(MOVES), max_size=30)):
        record = _record(draw, image, move)
        if record is not None:
            image = fold.apply(image, record)
            history.append(record)
    return history


def _record(draw: st.DrawFn, image: MetadataImage, move: str) -> Record | None:
    if move in ("register", "unregister", "change broker"):
        return _broker(draw, image, move)
    if move in ("register controller", "unregister controller"):
        return _controller(draw, image, move)
    if move in ("topic", "remove topic", "partition", "change partition", "clear elr"):
        return _topic(draw, image, move)
    if move == "config":
        resource = draw(st.sampled_from([(2, "a"), (2, "b"), (4, ""), (4, "1")]))
        value = draw(st.none() | st.sampled_from(["1", "2"]))
        return records.config_record(*resource, draw(st.sampled_from(["k", "l"])), value)
    if move == "feature":
        name = draw(st.sampled_from(["metadata.version", "a.version", "z.version"]))
        return records.feature_level_record(name, draw(st.integers(0, 3)))
    if move == "quota":
        entity = draw(
            st.sampled_from(
                [
                    (QuotaEntity("user", False, "u"),),
                    (QuotaEntity("user", True, ""), QuotaEntity("client-id", False, "c")),
                ]
            )
        )
        limit = draw(st.none() | st.sampled_from([0.0, 10.5]))
        return records.client_quota_record(entity, "producer_byte_rate", limit)
    if move == "credential":
        user, mechanism = draw(st.sampled_from([("u", 1), ("u", 2), ("v", 1)]))
        if draw(st.booleans()):
            return records.remove_scram_credential_record(user, mechanism)
        credential = ScramCredential(b"salt", b"stored", b"server", draw(st.integers(1, 2)))
        return records.scram_credential_record(user, mechanism, credential)
    if move == "token":
        token = DelegationToken(
            id=draw(st.sampled_from(["x", "y"])),
            owner="User:u",
            requester="User:v",
            renewers=draw(st.sampled_from([(), ("User:w", "User:x")])),
            issued_ms=1,
            max_ms=9,
            expires_ms=draw(st.integers(1, 9)),
        )
        if draw(st.booleans()):
            return records.remove_delegation_token_record(token.id)
        return records.delegation_token_record(token)
    if move == "acl":
        return _acl(draw, image)
    if move == "producer ids":
        return records.producer_ids_record(
            NO_NODE, -1, image.next_producer_id + draw(st.integers(0, 2000))
        )
    return records.no_op_record()


def _acl(draw: st.DrawFn, image: MetadataImage) -> Record | None:
    entry = AclEntry(
        resource_type=draw(st.sampled_from([ResourceType.TOPIC, ResourceType.GROUP])),
        resource_name=draw(st.sampled_from(["*", "a", "ab"])),
        pattern_type=draw(st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED])),
        principal=draw(st.sampled_from(["User:u", "User:*"])),
        host=draw(st.sampled_from(["*", "10.0.0.0/8"])),
        operation=AclOperation.READ,
        permission=draw(st.sampled_from([AclPermission.DENY, AclPermission.ALLOW])),
    )
    known = image.acls.ids.get(entry)
    if known is not None:
        return records.remove_acl_record(known)
    fresh = draw(st.uuids())
    return None if fresh in image.acls.entries else records.acl_record(fresh, entry)


def _broker(draw: st.DrawFn, image: MetadataImage, move: str) -> Record | None:
    broker_id = draw(st.sampled_from(BROKERS))
    known = image.brokers.get(broker_id)
    flags = st.none() | st.booleans()
    if move == "register":
        return records.register_broker_record(
            BrokerRegistration(
                id=broker_id,
                epoch=draw(st.integers(0, 1 << 40)),
                incarnation_id=draw(st.uuids()),
                endpoints=(Endpoint("PLAINTEXT", "::1", draw(st.integers(1, 65535)), 0),),
                features=(FeatureRange("metadata.version", 30, 30),),
                rack=draw(st.none() | st.sampled_from(["", "r"])),
                host=draw(st.none() | st.just("h")),
                is_fenced=draw(st.booleans()),
                in_controlled_shutdown=draw(st.booleans()),
                log_dirs=tuple(draw(st.lists(st.uuids(), max_size=2, unique=True))),
                cordoned_log_dirs=tuple(draw(st.lists(st.uuids(), max_size=2, unique=True))),
            )
        )
    if known is None:
        return None
    if move == "unregister":
        return records.unregister_broker_record(known)
    return records.broker_change_record(
        known,
        is_fenced=draw(flags),
        in_controlled_shutdown=draw(flags),
        log_dirs=draw(st.none() | st.lists(st.uuids(), max_size=2)),
        cordoned_log_dirs=draw(st.none() | st.lists(st.uuids(), max_size=2)),
    )


def _controller(draw: st.DrawFn, image: MetadataImage, move: str) -> Record | None:
    controller_id = draw(st.sampled_from(BROKERS))
    if move == "unregister controller":
        known = controller_id in image.controllers
        return records.unregister_controller_record(controller_id) if known else None
    return records.register_controller_record(
        ControllerRegistration(
            id=controller_id,
            incarnation_id=draw(st.uuids()),
            endpoints=(Endpoint("CONTROLLER", "::1", draw(st.integers(1, 65535)), 1),),
            features=(FeatureRange("metadata.version", 30, 33),),
        )
    )


def _topic(draw: st.DrawFn, image: MetadataImage, move: str) -> Record | None:
    name = draw(st.sampled_from(NAMES))
    topic = image.topic(name)
    if move == "topic":
        fresh = draw(st.uuids())
        return None if topic or fresh in image.topics else records.topic_record(name, fresh)
    if move == "clear elr" and draw(st.booleans()):
        return records.clear_elr_record("")
    if topic is None:
        return None
    if move == "clear elr":
        return records.clear_elr_record(name)
    if move == "remove topic":
        return records.remove_topic_record(topic.id)
    partition_id = draw(st.integers(0, 2))
    state = draw(partition_states())
    if move == "partition":
        return records.partition_record(topic.id, partition_id, state)
    if partition_id not in topic.partitions:
        return None
    return _change(draw, topic.id, partition_id, state)


def _change(draw: st.DrawFn, topic_id: UUID, partition_id: int, state: PartitionState) -> Record:
    return records.partition_change_record(
        topic_id,
        partition_id,
        isr=state.isr,
        elr=state.elr,
        leader=state.leader,
        replicas=state.replicas,
        directories=state.directories,
        last_known_elr=draw(st.none() | st.just(state.last_known_elr)),
        adding=draw(st.none() | st.just(state.adding)),
        removing=draw(st.none() | st.just(state.removing)),
        recovery_state=draw(st.none() | st.sampled_from(RecoveryState)),
    )


@st.composite
def partition_states(draw: st.DrawFn) -> PartitionState:
    """Draw a partition that keeps the promises of the image."""
    replicas = draw(st.lists(st.sampled_from(BROKERS), min_size=1, max_size=4, unique=True))
    homes = draw(st.lists(st.sampled_from("ie-"), min_size=len(replicas), max_size=len(replicas)))
    isr = tuple(one for one, home in zip(replicas, homes, strict=True) if home == "i")
    elr = tuple(one for one, home in zip(replicas, homes, strict=True) if home == "e")
    return PartitionState(
        replicas=tuple(replicas),
        directories=tuple(draw(st.sampled_from([UNASSIGNED, LOST, HOME])) for _ in replicas),
        isr=tuple(draw(st.permutations(isr))),
        elr=elr,
        last_known_elr=(replicas[0],) if not isr else (),
        leader=draw(st.sampled_from([NO_NODE, *isr])),
        leader_epoch=Epoch(draw(st.integers(0, 5))),
        partition_epoch=draw(st.integers(0, 5)),
        adding=tuple(draw(st.lists(st.sampled_from(replicas), max_size=2, unique=True))),
        removing=tuple(draw(st.lists(st.sampled_from(replicas), max_size=2, unique=True))),
        recovery_state=draw(st.sampled_from(RecoveryState)),
    )


@given(histories())
def test_a_snapshot_rebuilds_the_image(history: list[Record]) -> None:
    image = fold.apply_all(EMPTY, history)

    assert fold.apply_all(EMPTY, records_of(image)) == image


@given(histories())
def test_records_folded_in_runs_reach_what_each_alone_reaches(history: list[Record]) -> None:
    image = EMPTY
    for record in history:
        image = fold.apply(image, record)

    assert fold.apply_all(EMPTY, history) == image


@given(histories())
def test_equal_images_make_equal_snapshots(history: list[Record]) -> None:
    image = fold.apply_all(EMPTY, history)
    rebuilt = fold.apply_all(EMPTY, records_of(image))

    assert [*map(records.encode_record, records_of(rebuilt))] == [
        *map(records.encode_record, records_of(image))
    ]


@given(histories())
def test_a_record_survives_the_log(history: list[Record]) -> None:
    for record in history:
        assert records.decode_record(records.encode_record(record)) == record


@given(histories(), st.integers(0, 30))
def test_a_delta_reaches_what_the_fold_reaches(history: list[Record], split: int) -> None:
    provenance = Provenance(Offset(7), Epoch(1), 123)
    base = fold.apply_all(EMPTY, history[:split])
    delta = MetadataDelta(base)

    for record in history[split:]:
        delta.replay(record)

    image = delta.apply(provenance)
    assert image == replace(fold.apply_all(base, history[split:]), provenance=provenance)
    assert delta.base == base


@given(histories(), st.integers(0, 30))
def test_a_delta_of_records_in_runs_is_that_of_each_alone(
    history: list[Record], split: int
) -> None:
    base = fold.apply_all(EMPTY, history[:split])
    together, alone = MetadataDelta(base), MetadataDelta(base)

    together.replay_all(history[split:])
    for record in history[split:]:
        alone.replay(record)

    assert together.image == alone.image
    assert together.changed_topics == alone.changed_topics
    assert together.changed_partitions == alone.changed_partitions
    assert together.changed_configs == alone.changed_configs
    assert together.deleted_topics == alone.deleted_topics


@given(histories(), st.integers(0, 30))
def test_a_snapshot_and_what_came_after_it_reach_what_a_full_replay_reaches(
    history: list[Record], split: int
) -> None:
    """A broker that starts from a snapshot has the same image as one that read the whole log."""
    snapshot = map(records.encode_record, records_of(fold.apply_all(EMPTY, history[:split])))
    started = fold.apply_all(EMPTY, map(records.decode_record, snapshot))
    delta = MetadataDelta(started)

    for record in history[split:]:
        delta.replay(record)

    whole = fold.apply_all(EMPTY, history)
    assert delta.apply(whole.provenance) == whole
    assert snapshot_bytes(delta.image) == snapshot_bytes(whole)


def snapshot_bytes(image: MetadataImage) -> bytes:
    return b"".join(map(records.encode_record, records_of(image)))


@given(histories(), st.randoms())
def test_the_order_in_which_topics_and_brokers_came_does_not_show_in_a_snapshot(
    history: list[Record], random: Random
) -> None:
    image = fold.apply_all(EMPTY, history)
    shuffled = list(records_of(image))
    # A partition follows its topic; else any order leads there.
    random.shuffle(shuffled)
    shuffled.sort(key=lambda record: record.HasField("partition"))

    assert snapshot_bytes(fold.apply_all(EMPTY, shuffled)) == snapshot_bytes(image)


@given(histories(), st.integers(0, 30))
def test_a_delta_names_all_that_differs(history: list[Record], split: int) -> None:
    base = fold.apply_all(EMPTY, history[:split])
    delta = MetadataDelta(base)
    for record in history[split:]:
        delta.replay(record)

    differing = MetadataDelta.between(base, delta.image)

    assert set(differing.changed_features) <= set(delta.changed_features)
    assert set(differing.changed_brokers) <= set(delta.changed_brokers)
    assert set(differing.changed_topics) <= set(delta.changed_topics)
    assert set(differing.changed_partitions) <= set(delta.changed_partitions)
    assert set(differing.changed_configs) <= set(delta.changed_configs)
    assert set(differing.changed_quotas) <= set(delta.changed_quotas)
    assert differing.deleted_topics == delta.deleted_topics
    assert differing.created_topics == delta.created_topics


@given(histories())
def test_the_indexes_say_what_the_topics_say(history: list[Record]) -> None:
    image = fold.apply_all(EMPTY, history)

    assert dict(image.topic_ids) == {topic.name: topic.id for topic in image.topics.values()}
    held = {
        (broker, TopicIdPartition(topic.id, partition_id))
        for topic in image.topics.values()
        for partition_id, state in topic.partitions.items()
        for broker in state.replicas
    }
    indexed = {
        (broker, partition)
        for broker, partitions in image.partitions_by_broker.items()
        for partition in partitions
    }
    assert indexed == held
    assert all(image.partitions_by_broker.values())


def test_every_record_of_the_protocol_has_its_fold() -> None:
    kinds = metadata_pb2.MetadataRecord.DESCRIPTOR.oneofs_by_name["record"].fields

    assert set(fold.FOLDS) | TOPIC_KINDS == {field.name for field in kinds}
    assert not set(fold.FOLDS) & TOPIC_KINDS
