"""What each record does to an image: `apply(image, record) -> image`.

The active controller, the standbys and every broker run this same function, so they agree.  A
record that does not fit the image (a change of a partition that does not exist) means that the
log lies: CorruptDataError, and the process must not go on.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, cast
from uuid import UUID

from ottla.metadata.image import (
    NO_CONFIG,
    NO_PARTITIONS,
    BrokerRegistration,
    Endpoint,
    FeatureRange,
    MetadataImage,
    PartitionState,
    RecoveryState,
    Topic,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import TOPIC_RESOURCE, Record
from ottla.model.acls import AclEntry, AclOperation, AclPermission, PatternType, ResourceType
from ottla.model.delegation_tokens import DelegationToken
from ottla.model.errors import CorruptDataError
from ottla.model.ids import Epoch, NodeId, ProducerId, TopicIdPartition
from ottla.model.quota_limits import QuotaEntity
from ottla.model.scram import ScramCredential
from ottla.proto import metadata_pb2 as pb


def apply(image: MetadataImage, record: Record) -> MetadataImage:
    """Return the image after one more record; its provenance stays for the caller to move."""
    kind = record.WhichOneof("record")
    if kind is None:
        raise CorruptDataError("metadata record: of a kind this release does not know")
    return FOLDS[kind](image, getattr(record, kind))


def apply_all(image: MetadataImage, records: Iterable[Record]) -> MetadataImage:
    """Return the image after all of the records."""
    for kind, run in groupby(records, key=kind_of):
        if kind == "partition_change":
            image = _change_partitions(image, (record.partition_change for record in run))
        elif kind == "partition":
            image = _set_partitions(image, (record.partition for record in run))
        elif kind == "access_control_entry":
            image = _add_acls(image, (record.access_control_entry for record in run))
        elif kind == "remove_access_control_entry":
            image = _remove_acls(image, (record.remove_access_control_entry for record in run))
        else:
            for record in run:
                image = apply(image, record)
    return image


MANY_AT_ONCE = frozenset(
    ("partition_change", "partition", "access_control_entry", "remove_access_control_entry")
)
"""The kinds of which `apply_all` folds many for less than one after the other."""


def kind_of(record: Record) -> str | None:
    """Return the name of what a record is; None for one that this release does not know."""
    kind: str | None = record.WhichOneof("record")
    return kind


def _register_broker(image: MetadataImage, record: pb.RegisterBroker) -> MetadataImage:
    broker = BrokerRegistration(
        id=NodeId(record.broker_id),
        epoch=record.broker_epoch,
        incarnation_id=read_uuid(record.incarnation_id),
        endpoints=tuple(
            Endpoint(found.name, found.host, found.port, found.security_protocol)
            for found in record.endpoints
        ),
        features=tuple(
            FeatureRange(found.name, found.min_supported_version, found.max_supported_version)
            for found in record.features
        ),
        rack=record.rack if record.HasField("rack") else None,
        host=record.host if record.HasField("host") else None,
        is_fenced=record.is_fenced,
        in_controlled_shutdown=record.in_controlled_shutdown,
        log_dirs=tuple(map(read_uuid, record.log_dirs)),
        cordoned_log_dirs=tuple(map(read_uuid, record.cordoned_log_dirs)),
        principal=record.principal,
    )
    return replace(image, brokers=image.brokers.set(broker.id, broker))


def _unregister_broker(image: MetadataImage, record: pb.UnregisterBroker) -> MetadataImage:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    return replace(image, brokers=image.brokers.delete(broker.id))


def _change_broker(image: MetadataImage, record: pb.BrokerRegistrationChange) -> MetadataImage:
    broker = _broker(image, record.broker_id, record.broker_epoch)
    changed = replace(
        broker,
        is_fenced=record.is_fenced if record.HasField("is_fenced") else broker.is_fenced,
        in_controlled_shutdown=(
            record.in_controlled_shutdown
            if record.HasField("in_controlled_shutdown")
            else broker.in_controlled_shutdown
        ),
        log_dirs=(
            tuple(map(read_uuid, record.log_dirs.ids))
            if record.HasField("log_dirs")
            else broker.log_dirs
        ),
        cordoned_log_dirs=(
            tuple(map(read_uuid, record.cordoned_log_dirs.ids))
            if record.HasField("cordoned_log_dirs")
            else broker.cordoned_log_dirs
        ),
    )
    return replace(image, brokers=image.brokers.set(broker.id, changed))


def _add_topic(image: MetadataImage, record: pb.Topic) -> MetadataImage:
    topic = Topic(record.name, read_uuid(record.topic_id))
    if topic.name in image.topic_ids or topic.id in image.topics:
        raise CorruptDataError(f"metadata record: topic {topic.name} exists already")
    return replace(
        image,
        topics=image.topics.set(topic.id, topic),
        topic_ids=image.topic_ids.set(topic.name, topic.id),
    )


def _remove_topic(image: MetadataImage, record: pb.RemoveTopic) -> MetadataImage:
    topic = _topic(image, record.topic_id)
    index = image.partitions_by_broker
    for partition_id, state in topic.partitions.items():
        index = _reindex(index, TopicIdPartition(topic.id, partition_id), state.replicas, ())
    return replace(
        image,
        topics=image.topics.delete(topic.id),
        topic_ids=image.topic_ids.delete(topic.name),
        configs=image.configs.discard((TOPIC_RESOURCE, topic.name)),
        partitions_by_broker=index,
    )


def _set_partition(image: MetadataImage, record: pb.Partition) -> MetadataImage:
    return _set_partitions(image, (record,))


def _set_partitions(image: MetadataImage, records: Iterable[pb.Partition]) -> MetadataImage:
    """Apply many at once, since a topic comes with all its partitions."""
    topics, index = image.topics, image.partitions_by_broker
    for topic_id, run in groupby(records, key=_topic_id_of):
        topic = topics.get(read_uuid(topic_id))
        if topic is None:
            raise _no_topic(topic_id)
        states: dict[int, PartitionState] = {}
        held: dict[NodeId, dict[TopicIdPartition, None]] = {}
        for record in run:
            state = _read_partition(record)
            _check(topic, record.partition_id, state)
            old = states.get(record.partition_id) or topic.partitions.get(record.partition_id)
            partition = TopicIdPartition(topic.id, record.partition_id)
            if old is not None:
                index, held = _with_held(index, held), {}
                index = _reindex(index, partition, old.replicas, state.replicas)
            else:
                for broker in state.replicas:
                    held.setdefault(broker, {})[partition] = None
            states[record.partition_id] = state
        changed = Topic(topic.name, topic.id, topic.partitions.update(states))
        topics, index = topics.set(topic.id, changed), _with_held(index, held)
    return replace(image, topics=topics, partitions_by_broker=index)


def _topic_id_of(record: pb.Partition) -> bytes:
    return record.topic_id


def _read_partition(record: pb.Partition) -> PartitionState:
    return PartitionState(
        replicas=_node_ids(record.replicas),
        directories=tuple(read_uuid(directory) for directory in record.directories),
        isr=_node_ids(record.isr),
        elr=_node_ids(record.eligible_leader_replicas),
        last_known_elr=_node_ids(record.last_known_elr),
        leader=NodeId(record.leader),
        leader_epoch=Epoch(record.leader_epoch),
        partition_epoch=record.partition_epoch,
        adding=_node_ids(record.adding_replicas),
        removing=_node_ids(record.removing_replicas),
        recovery_state=_recovery_state(record.leader_recovery_state),
    )


def _with_held(
    index: PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]],
    held: dict[NodeId, dict[TopicIdPartition, None]],
) -> PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]]:
    for broker, partitions in held.items():
        index = index.set(broker, index.get(broker, NO_PARTITIONS).update(partitions))
    return index


def _change_partition(image: MetadataImage, record: pb.PartitionChange) -> MetadataImage:
    return _change_partitions(image, (record,))


def _change_partitions(
    image: MetadataImage, records: Iterable[pb.PartitionChange]
) -> MetadataImage:
    """Apply many at once, since a broker that leaves changes all the partitions it held."""
    topics, index = image.topics, image.partitions_by_broker
    for record in records:
        topic = topics.get(read_uuid(record.topic_id))
        if topic is None:
            raise _no_topic(record.topic_id)
        old = topic.partitions.get(record.partition_id)
        if old is None:
            raise CorruptDataError(
                f"metadata record: a change of {topic.name}-{record.partition_id}, "
                "which is not there"
            )
        state = merge(old, record)
        _check(topic, record.partition_id, state)
        topics = topics.set(
            topic.id,
            Topic(topic.name, topic.id, topic.partitions.set(record.partition_id, state)),
        )
        if state.replicas != old.replicas:
            partition = TopicIdPartition(topic.id, record.partition_id)
            index = _reindex(index, partition, old.replicas, state.replicas)
    return replace(image, topics=topics, partitions_by_broker=index)


def merge(old: PartitionState, record: pb.PartitionChange) -> PartitionState:
    """Return the partition after the change: what the record leaves out stays."""
    has = record.HasField
    leads = has("leader")
    return PartitionState(
        replicas=_node_ids(record.replicas.ids) if has("replicas") else old.replicas,
        directories=(
            tuple(read_uuid(one) for one in record.directories.ids)
            if has("directories")
            else old.directories
        ),
        isr=_node_ids(record.isr.ids) if has("isr") else old.isr,
        elr=(
            _node_ids(record.eligible_leader_replicas.ids)
            if has("eligible_leader_replicas")
            else old.elr
        ),
        last_known_elr=(
            _node_ids(record.last_known_elr.ids) if has("last_known_elr") else old.last_known_elr
        ),
        leader=NodeId(record.leader) if leads else old.leader,
        leader_epoch=Epoch(old.leader_epoch + 1) if leads else old.leader_epoch,
        partition_epoch=old.partition_epoch + 1,
        adding=_node_ids(record.adding_replicas.ids) if has("adding_replicas") else old.adding,
        removing=(
            _node_ids(record.removing_replicas.ids) if has("removing_replicas") else old.removing
        ),
        recovery_state=(
            _recovery_state(record.leader_recovery_state)
            if has("leader_recovery_state")
            else old.recovery_state
        ),
    )


def _clear_elr(image: MetadataImage, record: pb.ClearElr) -> MetadataImage:
    for partition in partitions_to_clear(image, record):
        topic = image.topics[partition.topic_id]
        state = topic.partitions[partition.partition]
        cleared = replace(
            state, elr=(), last_known_elr=(), partition_epoch=state.partition_epoch + 1
        )
        image = _with_partition(image, topic, partition.partition, cleared)
    return image


def partitions_to_clear(image: MetadataImage, record: pb.ClearElr) -> tuple[TopicIdPartition, ...]:
    """Return the partitions whose eligible replicas such a record forgets.

    Those with nobody in sync keep them, other than in Kafka: nothing can be committed there under
    the new min.insync.replicas before one of them leads, and without them nobody ever would.
    """
    topics: Iterable[Topic] = image.topics.values()
    if record.topic_name:
        topic = image.topic(record.topic_name)
        if topic is None:
            raise CorruptDataError(f"metadata record: there is no topic {record.topic_name}")
        topics = (topic,)
    return tuple(
        TopicIdPartition(topic.id, partition_id)
        for topic in topics
        for partition_id, state in topic.partitions.items()
        if state.isr and (state.elr or state.last_known_elr)
    )


def _set_config(image: MetadataImage, record: pb.Config) -> MetadataImage:
    resource = (record.resource_type, record.resource_name)
    values = image.configs.get(resource, NO_CONFIG)
    if record.HasField("value"):
        values = values.set(record.key, record.value)
    else:
        values = values.discard(record.key)
    configs = image.configs.set(resource, values) if values else image.configs.discard(resource)
    return replace(image, configs=configs)


def _set_feature(image: MetadataImage, record: pb.FeatureLevel) -> MetadataImage:
    if record.level == 0:
        return replace(image, features=image.features.discard(record.name))
    return replace(image, features=image.features.set(record.name, record.level))


def _set_quota(image: MetadataImage, record: pb.ClientQuota) -> MetadataImage:
    entity = quota_entity(record)
    quotas: PersistentMap[str, float] = image.client_quotas.get(entity, PersistentMap())
    if record.HasField("value"):
        quotas = quotas.set(record.key, record.value)
    else:
        quotas = quotas.discard(record.key)
    by_entity = image.client_quotas
    by_entity = by_entity.set(entity, quotas) if quotas else by_entity.discard(entity)
    return replace(image, client_quotas=by_entity)


def quota_entity(record: pb.ClientQuota) -> tuple[QuotaEntity, ...]:
    """Return whom the quota is for, sorted, so that one entity has one form."""
    return tuple(
        sorted(
            QuotaEntity(part.entity_type, not part.HasField("entity_name"), part.entity_name)
            for part in record.entity
        )
    )


def _set_scram_credential(image: MetadataImage, record: pb.UserScramCredential) -> MetadataImage:
    users: PersistentMap[str, ScramCredential] = image.scram_credentials.get(
        record.mechanism, PersistentMap()
    )
    credential = ScramCredential(
        record.salt, record.stored_key, record.server_key, record.iterations
    )
    users = users.set(record.name, credential)
    return replace(image, scram_credentials=image.scram_credentials.set(record.mechanism, users))


def _remove_scram_credential(
    image: MetadataImage, record: pb.RemoveUserScramCredential
) -> MetadataImage:
    by_mechanism = image.scram_credentials
    users: PersistentMap[str, ScramCredential] = by_mechanism.get(record.mechanism, PersistentMap())
    users = users.discard(record.name)
    by_mechanism = (
        by_mechanism.set(record.mechanism, users)
        if users
        else by_mechanism.discard(record.mechanism)
    )
    return replace(image, scram_credentials=by_mechanism)


def _add_acl(image: MetadataImage, record: pb.AccessControlEntry) -> MetadataImage:
    return _add_acls(image, (record,))


def _add_acls(image: MetadataImage, records: Iterable[pb.AccessControlEntry]) -> MetadataImage:
    added: dict[UUID, AclEntry] = {}
    entries: set[AclEntry] = set()
    for record in records:
        entry_id, entry = read_uuid(record.id), _read_acl(record)
        is_known = entry_id in image.acls.entries or entry in image.acls.ids
        if is_known or entry_id in added or entry in entries:
            raise CorruptDataError(f"metadata record: ACL {entry_id} exists already")
        added[entry_id] = entry
        entries.add(entry)
    return replace(image, acls=image.acls.with_entries(added))


def _read_acl(record: pb.AccessControlEntry) -> AclEntry:
    try:
        return AclEntry(
            resource_type=ResourceType(record.resource_type),
            resource_name=record.resource_name,
            pattern_type=PatternType(record.pattern_type),
            principal=record.principal,
            host=record.host,
            operation=AclOperation(record.operation),
            permission=AclPermission(record.permission_type),
        )
    except ValueError as error:
        # An entry that denies must not be passed over.
        raise CorruptDataError(f"metadata record: an ACL with an unknown code: {error}") from error


def _remove_acl(image: MetadataImage, record: pb.RemoveAccessControlEntry) -> MetadataImage:
    return _remove_acls(image, (record,))


def _remove_acls(
    image: MetadataImage, records: Iterable[pb.RemoveAccessControlEntry]
) -> MetadataImage:
    removed: dict[UUID, None] = {}
    for record in records:
        entry_id = read_uuid(record.id)
        if entry_id not in image.acls.entries or entry_id in removed:
            raise CorruptDataError(f"metadata record: there is no ACL {entry_id}")
        removed[entry_id] = None
    return replace(image, acls=image.acls.without_entries(removed))


def _set_token(image: MetadataImage, record: pb.DelegationToken) -> MetadataImage:
    token = DelegationToken(
        id=record.token_id,
        owner=record.owner,
        requester=record.requester,
        renewers=tuple(record.renewers),
        issued_ms=record.issue_timestamp_ms,
        max_ms=record.max_timestamp_ms,
        expires_ms=record.expiration_timestamp_ms,
    )
    return replace(image, delegation_tokens=image.delegation_tokens.set(token.id, token))


def _remove_token(image: MetadataImage, record: pb.RemoveDelegationToken) -> MetadataImage:
    return replace(image, delegation_tokens=image.delegation_tokens.discard(record.token_id))


def _set_producer_ids(image: MetadataImage, record: pb.ProducerIds) -> MetadataImage:
    if record.next_producer_id < image.next_producer_id:
        raise CorruptDataError("metadata record: producer ids would be handed out twice")
    return replace(image, next_producer_id=ProducerId(record.next_producer_id))


def _do_nothing(image: MetadataImage, record: pb.NoOp) -> MetadataImage:
    return image


FOLDS: dict[str, Callable[[MetadataImage, Any], MetadataImage]] = {
    "register_broker": _register_broker,
    "unregister_broker": _unregister_broker,
    "broker_registration_change": _change_broker,
    "topic": _add_topic,
    "remove_topic": _remove_topic,
    "partition": _set_partition,
    "partition_change": _change_partition,
    "clear_elr": _clear_elr,
    "config": _set_config,
    "feature_level": _set_feature,
    "client_quota": _set_quota,
    "user_scram_credential": _set_scram_credential,
    "remove_user_scram_credential": _remove_scram_credential,
    "access_control_entry": _add_acl,
    "remove_access_control_entry": _remove_acl,
    "delegation_token": _set_token,
    "remove_delegation_token": _remove_token,
    "producer_ids": _set_producer_ids,
    "no_op": _do_nothing,
}
"""One row a record; a test holds it against the oneof."""


def _with_partition(
    image: MetadataImage, topic: Topic, partition_id: int, state: PartitionState
) -> MetadataImage:
    _check(topic, partition_id, state)
    old = topic.partitions.get(partition_id)
    changed = Topic(topic.name, topic.id, topic.partitions.set(partition_id, state))
    index = image.partitions_by_broker
    before = () if old is None else old.replicas
    if before != state.replicas:
        partition = TopicIdPartition(topic.id, partition_id)
        index = _reindex(index, partition, before, state.replicas)
    return replace(image, topics=image.topics.set(topic.id, changed), partitions_by_broker=index)


def _check(topic: Topic, partition_id: int, state: PartitionState) -> None:
    """Refuse a partition that breaks what the image promises."""
    replicas = set(state.replicas)
    where = f"metadata record: {topic.name}-{partition_id}"
    if not replicas or len(replicas) != len(state.replicas):
        raise CorruptDataError(f"{where}: replicas {state.replicas}")
    if len(state.directories) != len(state.replicas):
        raise CorruptDataError(f"{where}: one directory is needed for each replica")
    if not replicas.issuperset(state.isr) or not replicas.issuperset(state.elr):
        raise CorruptDataError(f"{where}: ISR or ELR outside the replicas")
    if not set(state.isr).isdisjoint(state.elr):
        raise CorruptDataError(f"{where}: ISR and ELR share a replica")
    if state.leader >= 0 and state.leader not in state.isr:
        raise CorruptDataError(f"{where}: the leader {state.leader} is not in the ISR")


def _reindex(
    index: PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]],
    partition: TopicIdPartition,
    before: Sequence[NodeId],
    after: Sequence[NodeId],
) -> PersistentMap[NodeId, PersistentMap[TopicIdPartition, None]]:
    for broker in before:
        if broker not in after:
            rest = index[broker].delete(partition)
            index = index.set(broker, rest) if rest else index.delete(broker)
    for broker in after:
        if broker not in before:
            index = index.set(broker, index.get(broker, NO_PARTITIONS).set(partition, None))
    return index


def _broker(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = image.brokers.get(NodeId(broker_id))
    if broker is None or broker.epoch != epoch:
        raise CorruptDataError(f"metadata record: no broker {broker_id} of epoch {epoch}")
    return broker


def _topic(image: MetadataImage, topic_id: bytes) -> Topic:
    topic = image.topics.get(read_uuid(topic_id))
    if topic is None:
        raise _no_topic(topic_id)
    return topic


def _no_topic(topic_id: bytes) -> CorruptDataError:
    return CorruptDataError(f"metadata record: there is no topic of id {topic_id.hex()}")


def _node_ids(ids: Iterable[int]) -> tuple[NodeId, ...]:
    return tuple(cast(Iterable[NodeId], ids))


def _recovery_state(number: int) -> RecoveryState:
    if number not in tuple(RecoveryState):
        raise CorruptDataError(f"metadata record: leader recovery state {number}")
    return RecoveryState(number)


def read_uuid(data: bytes) -> UUID:
    """Return the id in a record; raise CorruptDataError if it has not 16 bytes."""
    if len(data) != 16:
        raise CorruptDataError(f"metadata record: a uuid of {len(data)} bytes")
    return UUID(bytes=data)
