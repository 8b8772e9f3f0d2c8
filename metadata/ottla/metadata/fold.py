"""Applies each metadata record to an image (the state of the cluster): `apply(image, record) ->
image`.

The active controller, the standby controllers and every broker run this same function, so they
agree. A record that does not fit the image, such as a change of an unknown partition, raises
CorruptDataError: the log is corrupt, and the process must not continue.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any
from uuid import UUID

from ottla.metadata.image import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    FeatureRange,
    MetadataImage,
    Topic,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import Record
from ottla.metadata.topics_fold import TOPIC_KINDS, TopicsFold, fold_topics, read_uuid
from ottla.model.errors import CorruptDataError
from ottla.model.ids import NodeId, ProducerId, TopicIdPartition
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
from ottla.proto import metadata_pb2 as pb


def apply(image: MetadataImage, record: Record) -> MetadataImage:
    """Return the metadata image after one more record. The new image keeps the old provenance
    (offset of its last record), which the caller updates."""
    kind = record.WhichOneof("record")
    if kind is None:
        raise CorruptDataError("metadata record: of a kind this release does not know")
    if kind in TOPIC_KINDS:
        return fold_topics(image, (record,))
    return FOLDS[kind](image, getattr(record, kind))


def apply_all(image: MetadataImage, records: Iterable[Record]) -> MetadataImage:
    """Return the metadata image after all of the records have been applied to it."""
    for family, run in groupby(records, key=family_of):
        if family == TOPICS:
            image = fold_topics(image, run)
        elif family == "access_control_entry":
            image = _add_acls(image, (record.access_control_entry for record in run))
        elif family == "remove_access_control_entry":
            image = _remove_acls(image, (record.remove_access_control_entry for record in run))
        else:
            for record in run:
                image = apply(image, record)
    return image


TOPICS = "topics"

MANY_AT_ONCE = frozenset((TOPICS, "access_control_entry", "remove_access_control_entry"))
"""Kinds of metadata records that `apply_all` applies in bulk, which is faster than one by one.
TOPICS is a group of several kinds."""


def family_of(record: Record) -> str | None:
    """Return the group of a metadata record; `apply_all` applies records of one group together.

    The group is TOPICS for records about topics, otherwise the record's own kind. Returns None if
    this release does not know the kind.
    """
    kind: str | None = record.WhichOneof("record")
    return TOPICS if kind in TOPIC_KINDS else kind


def _register_broker(image: MetadataImage, record: pb.RegisterBroker) -> MetadataImage:
    broker = BrokerRegistration(
        id=NodeId(record.broker_id),
        epoch=record.broker_epoch,
        incarnation_id=read_uuid(record.incarnation_id),
        endpoints=_endpoints(record.endpoints),
        features=_feature_ranges(record.features),
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


def _register_controller(image: MetadataImage, record: pb.RegisterController) -> MetadataImage:
    controller = ControllerRegistration(
        id=NodeId(record.controller_id),
        incarnation_id=read_uuid(record.incarnation_id),
        endpoints=_endpoints(record.endpoints),
        features=_feature_ranges(record.features),
        software_version=record.software_version,
    )
    return replace(image, controllers=image.controllers.set(controller.id, controller))


def _unregister_controller(image: MetadataImage, record: pb.UnregisterController) -> MetadataImage:
    controller_id = NodeId(record.controller_id)
    if controller_id not in image.controllers:
        raise CorruptDataError(f"metadata record: no controller {controller_id}")
    return replace(image, controllers=image.controllers.delete(controller_id))


def _clear_elr(image: MetadataImage, record: pb.ClearElr) -> MetadataImage:
    topics = TopicsFold(image)
    for topic_id, partition_id in partitions_to_clear(image, record):
        topic = image.topics[topic_id]
        state = topic.partitions[partition_id]
        cleared = replace(
            state, elr=(), last_known_elr=(), partition_epoch=state.partition_epoch + 1
        )
        topics.set_state(topic, partition_id, cleared)
    return topics.finish()


def partitions_to_clear(image: MetadataImage, record: pb.ClearElr) -> tuple[TopicIdPartition, ...]:
    """Return the partitions whose eligible leader replicas (ELR) a ClearElr record clears.

    Unlike in Kafka, partitions with an empty ISR keep their ELR. Such a partition has no leader
    until one of its eligible replicas is elected. If its ELR were cleared, no replica could be
    elected.
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
    """Return the entity of a quota record as a sorted tuple, so that equal entities compare
    equal."""
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
        # An entry that denies must not be skipped.
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
        raise CorruptDataError("metadata record: producer ids would be allocated twice")
    return replace(image, next_producer_id=ProducerId(record.next_producer_id))


def _do_nothing(image: MetadataImage, record: pb.NoOp) -> MetadataImage:
    return image


FOLDS: dict[str, Callable[[MetadataImage, Any], MetadataImage]] = {
    "register_broker": _register_broker,
    "unregister_broker": _unregister_broker,
    "broker_registration_change": _change_broker,
    "register_controller": _register_controller,
    "unregister_controller": _unregister_controller,
    "clear_elr": _clear_elr,
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
"""Functions that apply one metadata record to an image, by the kind of the record. Kinds in
`MANY_AT_ONCE` are excluded. A test compares the kinds with the protobuf oneof."""


def _endpoints(endpoints: Iterable[pb.Endpoint]) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(found.name, found.host, found.port, found.security_protocol) for found in endpoints
    )


def _feature_ranges(features: Iterable[pb.FeatureRange]) -> tuple[FeatureRange, ...]:
    return tuple(
        FeatureRange(found.name, found.min_supported_version, found.max_supported_version)
        for found in features
    )


def _broker(image: MetadataImage, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = image.brokers.get(NodeId(broker_id))
    if broker is None or broker.epoch != epoch:
        raise CorruptDataError(f"metadata record: no broker {broker_id} of epoch {epoch}")
    return broker
