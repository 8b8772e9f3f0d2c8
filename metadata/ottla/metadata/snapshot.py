"""Metadata records that rebuild an image (the state of the cluster): `fold(records_of(image)) ==
image`.

Features come first, with metadata.version at the very start, so that a reader can interpret all
other records. All records are sorted, so that equal images result in equal snapshots on every node.
A snapshot contains only records that the finalised level of ottla.version allows, because no others
were written to the log (`record_levels.py`).
"""

from collections.abc import Iterator

from ottla.metadata.features import METADATA_VERSION
from ottla.metadata.image import MetadataImage
from ottla.metadata.records import (
    Record,
    acl_record,
    client_quota_record,
    config_record,
    delegation_token_record,
    feature_level_record,
    partition_record,
    producer_ids_record,
    register_broker_record,
    register_controller_record,
    scram_credential_record,
    topic_record,
)
from ottla.model.ids import NO_NODE


def records_of(image: MetadataImage) -> Iterator[Record]:
    """Yield the metadata records of a snapshot of the image, in the snapshot's order."""
    yield from _features(image)
    for broker in image.brokers.values():
        yield register_broker_record(broker)
    for controller in image.controllers.values():
        yield register_controller_record(controller)
    for topic_id in image.topic_ids.values():
        topic = image.topics[topic_id]
        yield topic_record(topic.name, topic.id)
        for partition_id, state in topic.partitions.items():
            yield partition_record(topic.id, partition_id, state)
    for (resource_type, name), values in image.configs.items():
        for key, value in values.items():
            yield config_record(resource_type, name, key, value)
    for entity, quotas in image.client_quotas.items():
        for key, limit in quotas.items():
            yield client_quota_record(entity, key, limit)
    for mechanism, users in image.scram_credentials.items():
        for user, credential in users.items():
            yield scram_credential_record(user, mechanism, credential)
    for entry_id in image.acls.entries.keys_by(int):
        yield acl_record(entry_id, image.acls.entries[entry_id])
    for token in image.delegation_tokens.values():
        yield delegation_token_record(token)
    if image.next_producer_id > 0:
        yield producer_ids_record(NO_NODE, -1, image.next_producer_id)


def _features(image: MetadataImage) -> Iterator[Record]:
    if METADATA_VERSION in image.features:
        yield feature_level_record(METADATA_VERSION, image.features[METADATA_VERSION])
    for name, level in image.features.items():
        if name != METADATA_VERSION:
            yield feature_level_record(name, level)
