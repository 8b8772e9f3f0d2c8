"""Encoder and decoder of `checkpoint-topic-ids`, the side file with the topic ids of the lines in a
directory's offset checkpoints. Pure.

Kafka's checkpoints name partitions by topic name alone. This file records the topic id to which
each partition's lines belong, and is written before the first line of a partition. Kafka's tools
ignore it. Its format is similar: version, count, then one line `topic partition topic-id` for each
partition.
"""

from collections.abc import Mapping
from uuid import UUID

from ottla.model.errors import CorruptDataError
from ottla.model.ids import TopicPartition

CHECKPOINT_TOPICS_FILE = "checkpoint-topic-ids"
VERSION = 0


def format_topic_ids(topic_ids: Mapping[TopicPartition, UUID]) -> bytes:
    """Return the bytes of a `checkpoint-topic-ids` file with a topic id for each partition."""
    lines = [str(VERSION), str(len(topic_ids))]
    lines += [f"{key.topic} {key.partition} {topic_ids[key]}" for key in sorted(topic_ids)]
    return ("\n".join(lines) + "\n").encode()


def parse_topic_ids(data: bytes) -> dict[TopicPartition, UUID]:
    """Return the topic ids in a `checkpoint-topic-ids` file, by partition.

    Raises CorruptDataError if the file is malformed.
    """
    lines = data.decode("utf-8", "replace").splitlines()
    try:
        version, count = int(lines[0]), int(lines[1])
        words = [line.split(" ") for line in lines[2:]]
        topic_ids = {
            TopicPartition(topic, int(partition)): UUID(topic_id)
            for topic, partition, topic_id in words
        }
    except (ValueError, IndexError):
        raise CorruptDataError("checkpoint topic ids: not the format") from None
    if version != VERSION or not count == len(words) == len(topic_ids):
        raise CorruptDataError("checkpoint topic ids: version or count is wrong")
    return topic_ids
