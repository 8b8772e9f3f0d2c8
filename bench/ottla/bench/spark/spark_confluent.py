"""A Spark data source in Python that reads topics with confluent-kafka's consumer, for comparison.

It is optimised: it reads thousands of messages at a time, collects columns as lists, and converts
them to Arrow batches.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ottla.bench.load import library
from ottla.pipeline.read.arrow_schema import arrow_schema, column_names, spark_ddl

NAME = "confluent"
NAMES = column_names(None, False)
MESSAGES_AT_ONCE = 10_000
TIMEOUT_S = 30.0


@dataclass
class PartitionToRead(InputPartition):
    """One partition that a Spark task reads, and its end offset when the query was planned."""

    number: int
    end: int


class ConfluentSource(DataSource):
    """Spark data source that reads one topic from its start to its end with confluent-kafka."""

    @classmethod
    def name(cls) -> str:
        """Return the name by which queries select this source in `format(…)`."""
        return NAME

    def schema(self) -> str:
        """Return the schema of the records. Spark's own Kafka connector has the same schema."""
        return spark_ddl(NAMES)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader of a batch query over the topic."""
        return ConfluentReader(dict(self.options))


class ConfluentReader(DataSourceReader):
    """Reader of a topic by confluent-kafka, with one Spark task for each partition."""

    def __init__(self, options: dict[str, str]) -> None:
        self._bootstrap = options["kafka.bootstrap.servers"]
        self._topic = options["subscribe"]

    def partitions(self) -> list[InputPartition]:
        """Return every partition of the topic with its current end offset."""
        confluent = library("confluent_kafka")
        consumer = self._consumer()
        found = consumer.list_topics(self._topic, timeout=TIMEOUT_S).topics[self._topic]
        tasks: list[InputPartition] = []
        for number in sorted(found.partitions):
            at = confluent.TopicPartition(self._topic, number)
            tasks.append(PartitionToRead(number, consumer.get_watermark_offsets(at)[1]))
        consumer.close()
        return tasks

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the records of one partition up to its planned end offset."""
        assert isinstance(partition, PartitionToRead)
        confluent = library("confluent_kafka")
        consumer = self._consumer()
        consumer.assign([confluent.TopicPartition(self._topic, partition.number, 0)])
        at = 0
        while at < partition.end:
            # `consume` waits until it has the requested number of messages.
            wanted = min(MESSAGES_AT_ONCE, partition.end - at)
            messages = consumer.consume(wanted, timeout=TIMEOUT_S)
            if not messages:
                raise TimeoutError(f"no records of partition {partition.number} at {at}")
            at = messages[-1].offset() + 1
            yield _batch(messages)
        consumer.close()

    def _consumer(self) -> Any:
        return library("confluent_kafka").Consumer(
            {
                "bootstrap.servers": self._bootstrap,
                "group.id": "ottla-bench-spark",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "log_level": 3,
            }
        )


def _batch(messages: list[Any]) -> pa.RecordBatch:
    stamps = [message.timestamp() for message in messages]
    columns = [
        [message.key() for message in messages],
        [message.value() for message in messages],
        [message.topic() for message in messages],
        [message.partition() for message in messages],
        [message.offset() for message in messages],
        [1_000 * stamp for _, stamp in stamps],
        # librdkafka's numbers of timestamp types start at 1, Kafka's at 0.
        [kind - 1 for kind, _ in stamps],
    ]
    schema = arrow_schema(NAMES)
    arrays = [
        pa.array(column, type=field.type) for column, field in zip(columns, schema, strict=True)
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)
