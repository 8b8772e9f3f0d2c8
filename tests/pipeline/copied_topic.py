"""A topic of a running cluster, whose closed segments are also in a bucket."""

from pathlib import Path
from typing import TYPE_CHECKING

import trio

from ottla.model.ids import Epoch, Offset, uuid_text
from ottla.pipeline.read.ranges import OffsetRange
from ottla.pipeline.read.read_options import ReadOptions
from ottla.storage.segments.epoch_cache import EpochEntry
from ottla.storage.tier.cluster_marker import claim_prefix
from ottla.storage.tier.obstore_driver import open_object_store
from ottla.storage.tier.store_settings import StoreSettings
from tests.storage.tier.example_bucket import CLUSTER_ID, ExampleTopic, upload_log

if TYPE_CHECKING:
    from tests.pipeline.conftest import LiveCluster

SMALL_SEGMENTS = {"segment.index.bytes": "96", "index.interval.bytes": "0"}
"""Settings of a topic whose segments have some ten batches."""
FIRST_EPOCH = (EpochEntry(Epoch(0), Offset(0)),)
"""Leader epochs of a topic whose leader never changed."""


class CopiedTopic:
    """A topic of a running cluster, whose closed segments are in a bucket, too."""

    def __init__(self, cluster: "LiveCluster", bucket: Path) -> None:
        self.cluster = cluster
        self.bucket = bucket
        self.store = StoreSettings(uri=f"file://{bucket}")
        self.name = cluster.new_topic(2, configs=SMALL_SEGMENTS)
        # Enough for more than five closed segments, however many records each batch has.
        values = [b"%06d" % at + bytes(at * 7 % 300) for at in range(600)]
        cluster.produce(self.name, values, linger_ms=0, batch_bytes=1_000)
        steps = [
            ([b"t%d-%d" % (number, at) for at in range(7)], number % 3 != 1) for number in range(12)
        ]
        cluster.transact(self.name, steps)
        topic = cluster.ask(lambda admin: admin.describe_topic(self.name))
        self.topic_id = topic.topic_id
        self.upload()

    def upload(self) -> None:
        """Copy the closed segments of the topic into the bucket."""
        trio.run(self._upload)

    def ranges(self) -> list[OffsetRange]:
        """Return the whole topic."""
        ends = self.cluster.ends(self.name)
        return [
            OffsetRange(self.name, partition, 0, end, uuid_text(self.topic_id))
            for partition, end in sorted(ends.items())
        ]

    def options(self, **options: object) -> ReadOptions:
        """Return options that read copied segments directly."""
        return ReadOptions(
            bootstrap=self.cluster.bootstrap,
            **{"poll_timeout_ms": 10_000, "tier": self.store, **options},  # type: ignore[arg-type]
        )

    async def _upload(self) -> None:
        async with open_object_store(self.store) as store:
            await claim_prefix(store, CLUSTER_ID)
            topic = ExampleTopic(self.name, self.topic_id, partition_count=2)
            for partition in (0, 1):
                path = self.cluster.log_dir / f"{self.name}-{partition}"
                await upload_log(store, path, topic, partition, epochs=FIRST_EPOCH)
