"""Benchmark of the metadata of very many partitions: the cost on one controller.

`python -m ottla.bench.performance.metadata_scale [PARTITIONS …]` builds images in which each
partition has three replicas, and each broker leads 10,000 partitions.  For each image it prints the
size of its snapshot, the CPU times of writing and loading the snapshot, and the memory of the
image. It also prints the CPU times of a failover: of deciding on new leaders for all partitions of
a lost broker, and of applying that decision.

A node runs these steps in slices on its event loop, with the garbage collector paused, and so does
the benchmark. The decision is an exception, because a controller makes it in a thread. The longest
slice is printed, too. The CPU time of one thread is measured, so other work on the machine has
little effect.
"""

import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import Any
from uuid import UUID

from ottla.bench.processes import usage_of
from ottla.bench.tables import table_of
from ottla.controller.replication.elections import brokers_unavailable
from ottla.metadata import fold
from ottla.metadata.delta import MetadataDelta
from ottla.metadata.image import (
    EMPTY,
    BrokerRegistration,
    MetadataImage,
    PartitionState,
)
from ottla.metadata.records import (
    Record,
    partition_record,
    register_broker_record,
    topic_record,
)
from ottla.metadata.snapshot import records_of
from ottla.model.garbage import collection_paused
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.model.limits import MIB
from ottla.model.settings.controller import ControllerConfig
from ottla.node.quorum.record_batches import replay_in_slices
from ottla.node.quorum.snapshot_file import SnapshotFile

PARTITIONS = (10_000, 100_000, 1_000_000)
LED = 10_000
"""Number of partitions with the same leader in the measured metadata."""
PARTITIONS_OF_A_TOPIC = 100
REPLICAS = 3
EPOCH = Epoch(1)
SNAPSHOT_ID = OffsetAndEpoch(Offset(1), EPOCH)


def records(partition_count: int) -> Iterator[Record]:
    """Yield the metadata records of the brokers, the topics and `partition_count` partitions."""
    broker_count = max(REPLICAS + 1, partition_count // LED)
    for number in range(broker_count):
        yield register_broker_record(
            BrokerRegistration(
                id=NodeId(number), epoch=number, incarnation_id=UUID(int=number), is_fenced=False
            )
        )
    directories = tuple(UUID(int=500) for _ in range(REPLICAS))
    for topic in range(-(-partition_count // PARTITIONS_OF_A_TOPIC)):
        topic_id = UUID(int=1_000 + topic)
        yield topic_record(f"topic-{topic}", topic_id)
        first = topic * PARTITIONS_OF_A_TOPIC
        for at in range(first, min(partition_count, first + PARTITIONS_OF_A_TOPIC)):
            replicas = tuple(NodeId((at + step) % broker_count) for step in range(REPLICAS))
            yield partition_record(
                topic_id,
                at - first,
                PartitionState(
                    replicas=replicas, directories=directories, isr=replicas, leader=replicas[0]
                ),
            )


class SliceTimes:
    """CPU time in seconds of work that is done in slices: the total, and the longest slice."""

    def __init__(self) -> None:
        self.sum_s = 0.0
        self.longest_s = 0.0
        self._began_s = time.thread_time()

    def end(self) -> None:
        """End a slice of the work, add its CPU time, and start the next slice."""
        now_s = time.thread_time()
        self.sum_s += now_s - self._began_s
        self.longest_s = max(self.longest_s, now_s - self._began_s)
        self._began_s = now_s


def written(image: MetadataImage) -> tuple[bytes, SliceTimes]:
    """Write a snapshot of the metadata image, batch by batch. Returns its bytes, and the CPU times
    of writing it."""
    times = SliceTimes()
    file = SnapshotFile(id=SNAPSHOT_ID, last_contained_timestamp_ms=0, voters=None)
    found = []
    for batch in file.batches(records_of(image)):
        found.append(batch)
        times.end()
    return b"".join(found), times


def loaded(data: bytes) -> tuple[MetadataImage, SliceTimes]:
    """Load the metadata image of a snapshot in slices. Returns the image, and the total and the
    longest CPU time of the slices in seconds."""
    times = SliceTimes()
    delta = MetadataDelta(EMPTY)
    for _ in replay_in_slices(delta, data):
        times.end()
    return delta.image, times


def failed_over(image: MetadataImage) -> tuple[int, SliceTimes, SliceTimes]:
    """Move the leadership of each partition of a lost broker to another broker. Returns the
    number of changed partitions, the CPU time of the decision, and the CPU time of applying its
    records."""
    decision = SliceTimes()
    changes = tuple(brokers_unavailable(image, ControllerConfig(), (NodeId(0),)))
    decision.end()
    application = SliceTimes()
    fold.apply_all(image, changes)
    application.end()
    return len(changes), decision, application


def resident_mib() -> float:
    """Return the resident memory of this process in MiB."""
    return usage_of([os.getpid()]).rss_bytes / MIB


def measure(partition_count: int) -> dict[str, Any]:
    """Measure a metadata image with this number of partitions. Returns sizes in MiB, times in
    seconds, and the longest slices in ms. The names of the values end with the unit."""
    gc.collect()
    before_mib = resident_mib()
    image = fold.apply_all(EMPTY, records(partition_count))
    gc.collect()
    memory_mib = resident_mib() - before_mib
    data, writing = written(image)
    again, loading = loaded(data)
    assert again.topics == image.topics
    del again
    changed, decision, application = failed_over(image)
    return {
        "partitions": partition_count,
        "image_mib": round(memory_mib),
        "snapshot_mib": round(len(data) / MIB, 1),
        "write_s": round(writing.sum_s, 2),
        "write_hold_ms": round(1_000 * writing.longest_s, 1),
        "load_s": round(loading.sum_s, 2),
        "load_hold_ms": round(1_000 * loading.longest_s, 1),
        "failed_over": changed,
        "decide_s": round(decision.sum_s, 2),
        "apply_s": round(application.sum_s, 2),
    }


def main(arguments: list[str]) -> None:
    """Measure the metadata of each given number of partitions. Prints one line of results for each
    number."""
    counts = [int(one) for one in arguments] or PARTITIONS
    rows = []
    for count in counts:
        with collection_paused():  # the collector would visit a million objects again and again
            rows.append(measure(count))
    print(table_of([name.upper() for name in rows[0]], [list(row.values()) for row in rows]))


if __name__ == "__main__":
    main(sys.argv[1:])
