"""Computes the difference between two metadata images (states of the cluster), by key.

A delta has the image at its start (`base`) and the image after the records applied so far
(`image`). It lists the changed keys, sorted; their new values are in `image`.
"""

from collections.abc import Iterable
from dataclasses import replace
from itertools import groupby
from typing import Any
from uuid import UUID

from ottla.metadata import fold
from ottla.metadata.image import (
    ConfigResource,
    MetadataImage,
    Provenance,
    Topic,
    order_of_partition,
)
from ottla.metadata.persistent_map import PersistentMap
from ottla.metadata.records import TOPIC_RESOURCE, Record
from ottla.metadata.topics_fold import read_uuid
from ottla.model.ids import NodeId, TopicIdPartition
from ottla.model.quotas.quota_limits import QuotaEntity


class MetadataDelta:
    """Differences between the metadata image `base` and the image that `apply` returns.

    All keys whose values differ are listed. A key whose value was changed and then changed back may
    be listed too.
    """

    def __init__(self, base: MetadataImage) -> None:
        self.base = base
        self.image = base
        self._features: set[str] = set()
        self._brokers: set[NodeId] = set()
        self._controllers: set[NodeId] = set()
        self._topics: set[UUID] = set()
        self._partitions: set[TopicIdPartition] = set()
        self._configs: set[ConfigResource] = set()
        self._quotas: set[tuple[QuotaEntity, ...]] = set()
        self._scram_users: set[tuple[int, str]] = set()
        self._tokens: set[str] = set()
        self._acls: set[UUID] = set()
        self._topic_ids: dict[bytes, UUID] = {}
        """Cache of topic ids decoded from bytes, because the records of a topic's partitions repeat
        its id."""

    @classmethod
    def between(cls, base: MetadataImage, image: MetadataImage) -> "MetadataDelta":
        """Return the delta (differences by key) between two complete metadata images, for example
        after a snapshot was loaded."""
        delta = cls(base)
        delta.image = image
        delta._features = _differing(base.features, image.features)
        delta._brokers = _differing(base.brokers, image.brokers)
        delta._controllers = _differing(base.controllers, image.controllers)
        delta._configs = _differing(base.configs, image.configs)
        delta._quotas = _differing(base.client_quotas, image.client_quotas)
        delta._tokens = _differing(base.delegation_tokens, image.delegation_tokens)
        for mechanism in {*base.scram_credentials, *image.scram_credentials}:
            differing_users = _differing(
                base.scram_credentials.get(mechanism, PersistentMap()),
                image.scram_credentials.get(mechanism, PersistentMap()),
            )
            delta._scram_users.update((mechanism, user) for user in differing_users)
        delta._acls = base.acls.differing(image.acls)
        delta._topics = _differing(base.topics, image.topics)
        for topic_id in delta._topics:
            old, new = base.topics.get(topic_id), image.topics.get(topic_id)
            differing = _differing(
                PersistentMap() if old is None else old.partitions,
                PersistentMap() if new is None else new.partitions,
            )
            delta._partitions.update(TopicIdPartition(topic_id, one) for one in differing)
        return delta

    def replay(self, record: Record) -> None:
        """Apply one metadata record to the image under construction, and list the keys that the
        record changes."""
        kind = record.WhichOneof("record")
        if kind is not None:
            self._note(kind, getattr(record, kind))
        self.image = fold.apply(self.image, record)

    def replay_all(self, records: Iterable[Record]) -> None:
        """Apply metadata records to the image under construction, in order. Frequent kinds of
        records are applied in bulk."""
        for family, run in groupby(records, key=fold.family_of):
            if family not in fold.MANY_AT_ONCE:
                for record in run:
                    self.replay(record)
                continue
            together = list(run)
            for record in together:
                kind = record.WhichOneof("record")
                assert kind is not None
                self._note(kind, getattr(record, kind))
            self.image = fold.apply_all(self.image, together)

    def apply(self, provenance: Provenance) -> MetadataImage:
        """Return the metadata image after all records applied so far. `provenance` is the offset,
        epoch and timestamp of the last of them."""
        self.image = replace(self.image, provenance=provenance)
        return self.image

    @property
    def changed_features(self) -> tuple[str, ...]:
        """Names of the features whose finalised level was added, changed or removed since the base
        image."""
        return tuple(sorted(self._features))

    @property
    def changed_brokers(self) -> tuple[NodeId, ...]:
        """Ids of the brokers that were added, changed or removed since the base image."""
        return tuple(sorted(self._brokers))

    @property
    def changed_controllers(self) -> tuple[NodeId, ...]:
        """Ids of the controllers that were registered, changed or unregistered since the base
        image."""
        return tuple(sorted(self._controllers))

    @property
    def changed_topics(self) -> tuple[UUID, ...]:
        """Ids of the topics in the new image that are new or have a changed partition."""
        return tuple(sorted(one for one in self._topics if one in self.image.topics))

    @property
    def created_topics(self) -> tuple[UUID, ...]:
        """Ids of the topics in the new image that are not in the base image."""
        return tuple(one for one in self.changed_topics if one not in self.base.topics)

    @property
    def deleted_topics(self) -> tuple[Topic, ...]:
        """Topics of the base image that the new image does not have, with their state in the base
        image."""
        gone = sorted(one for one in self._topics if one not in self.image.topics)
        return tuple(self.base.topics[one] for one in gone if one in self.base.topics)

    @property
    def changed_partitions(self) -> tuple[TopicIdPartition, ...]:
        """The partitions in the new image that are new or changed since the base image."""
        # Comparing UUIDs themselves costs a function call each.
        return tuple(
            sorted(
                (one for one in self._partitions if self.image.partition(one) is not None),
                key=order_of_partition,
            )
        )

    @property
    def changed_configs(self) -> tuple[ConfigResource, ...]:
        """Resources with a dynamic setting that was added, changed or removed since the base
        image."""
        return tuple(sorted(self._configs))

    @property
    def changed_quotas(self) -> tuple[tuple[QuotaEntity, ...], ...]:
        """Client quota entities (such as a user) with a quota that was added, changed or removed
        since the base image."""
        return tuple(sorted(self._quotas))

    @property
    def changed_scram_users(self) -> tuple[tuple[int, str], ...]:
        """The SCRAM credentials that were added, changed or removed since the base image, as
        (Kafka's number of the mechanism, user)."""
        return tuple(sorted(self._scram_users))

    @property
    def changed_acls(self) -> frozenset[UUID]:
        """Ids of the ACLs that were added or removed since the base image."""
        return frozenset(self._acls)

    @property
    def changed_tokens(self) -> tuple[str, ...]:
        """Ids of the delegation tokens that were added, changed or removed since the base image."""
        return tuple(sorted(self._tokens))

    @property
    def is_empty(self) -> bool:
        """True if no key changed between the base image and the new image."""
        return not (
            self._features
            or self._brokers
            or self._controllers
            or self._topics
            or self._configs
            or self._quotas
            or self._scram_users
            or self._tokens
            or self._acls
            or self.base.next_producer_id != self.image.next_producer_id
        )

    def _note(self, kind: str, body: Any) -> None:
        if kind == "feature_level":
            self._features.add(body.name)
        elif kind in ("register_broker", "unregister_broker", "broker_registration_change"):
            self._brokers.add(NodeId(body.broker_id))
        elif kind in ("register_controller", "unregister_controller"):
            self._controllers.add(NodeId(body.controller_id))
        elif kind == "topic":
            self._topics.add(read_uuid(body.topic_id))
        elif kind in ("partition", "partition_change"):
            self._note_partition(self._topic_id(body.topic_id), body.partition_id)
        elif kind == "remove_topic":
            self._note_removal(read_uuid(body.topic_id))
        elif kind == "clear_elr":
            for topic_id, partition_id in fold.partitions_to_clear(self.image, body):
                self._note_partition(topic_id, partition_id)
        elif kind == "config":
            self._configs.add((body.resource_type, body.resource_name))
        elif kind == "client_quota":
            self._quotas.add(fold.quota_entity(body))
        elif kind in ("user_scram_credential", "remove_user_scram_credential"):
            self._scram_users.add((body.mechanism, body.name))
        elif kind in ("delegation_token", "remove_delegation_token"):
            self._tokens.add(body.token_id)
        elif kind in ("access_control_entry", "remove_access_control_entry"):
            self._acls.add(read_uuid(body.id))

    def _topic_id(self, data: bytes) -> UUID:
        found = self._topic_ids.get(data)
        if found is None:
            found = self._topic_ids[data] = read_uuid(data)
        return found

    def _note_partition(self, topic_id: UUID, partition_id: int) -> None:
        self._topics.add(topic_id)
        self._partitions.add(TopicIdPartition(topic_id, partition_id))

    def _note_removal(self, topic_id: UUID) -> None:
        self._topics.add(topic_id)
        topic = self.image.topics.get(topic_id)
        if topic is not None and (TOPIC_RESOURCE, topic.name) in self.image.configs:
            self._configs.add((TOPIC_RESOURCE, topic.name))


def _differing(old: PersistentMap[Any, Any], new: PersistentMap[Any, Any]) -> set[Any]:
    if old is new or not (old or new):
        return set()
    missing = object()
    changed = {key for key, value in new.unordered_items() if old.get(key, missing) != value}
    return changed | {key for key, _ in old.unordered_items() if key not in new}
