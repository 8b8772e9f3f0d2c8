"""The topic `__remote_log_metadata` (the metadata topic): its specification, and the mapping of
tiered partitions to its partitions. Pure.

As in Kafka, the metadata topic is an ordinary topic that ACLs protect. Brokers read and write it as
clients of their own cluster. The topic is compacted, because its records have keys
(`remote_records`).
"""

from ottla.model.ids import TopicIdPartition
from ottla.wire.messages.create_topics_request import CreatableTopic, CreatableTopicConfig

REMOTE_METADATA_TOPIC = "__remote_log_metadata"

_SETTINGS = {
    "cleanup.policy": "compact",
    "compression.type": "producer",
    "unclean.leader.election.enable": "false",
    # The cleaner waits for this long, so that a reader sees the tombstones of all segments that it
    # has seen before.
    "delete.retention.ms": str(24 * 60 * 60 * 1000),
}


def remote_metadata_topic(
    *, partition_count: int, replication_factor: int, min_insync_replicas: int
) -> CreatableTopic:
    """Return the CreateTopics entry of the topic `__remote_log_metadata`: name, partitions,
    replicas and settings."""
    settings = _SETTINGS | {"min.insync.replicas": str(min_insync_replicas)}
    return CreatableTopic(
        name=REMOTE_METADATA_TOPIC,
        num_partitions=partition_count,
        replication_factor=replication_factor,
        configs=[CreatableTopicConfig(name=name, value=text) for name, text in settings.items()],
    )


def metadata_partition_of(partition: TopicIdPartition, partition_count: int) -> int:
    """Return the index of the partition of `__remote_log_metadata` that stores the metadata of a
    tiered partition. Kafka computes the same index (RemoteLogMetadataTopicPartitioner)."""
    # Only brokers with tiered partitions need the client's modules.
    from ottla.client.produce.partitioner import murmur2

    key = partition.topic_id.bytes + partition.partition.to_bytes(4, "big")
    return (murmur2(key) & 0x7FFFFFFF) % partition_count
