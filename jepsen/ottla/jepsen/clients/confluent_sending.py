"""Sends records with confluent-kafka, and converts the delivery report of a `send` operation to its
completion.

librdkafka knows whether a message may have been written, but does not expose this in Python. A
failed message therefore has an unknown outcome, unless it was certainly not sent.
"""

from time import monotonic
from typing import Any

from ottla.jepsen.clients.completions import DEADLINE_S, failed, ok, unknown
from ottla.jepsen.clients.confluent import admin_module, library
from ottla.jepsen.clients.topics import TopicMaker
from ottla.jepsen.workloads.keys import PARTITION_COUNT, partition_of
from ottla.jepsen.workloads.load import Completion, LoadPlan, Op

NOT_TAKEN = frozenset({"MSG_SIZE_TOO_LARGE", "_QUEUE_FULL", "_UNKNOWN_PARTITION"})
"""Names of librdkafka's errors that show that a record was never sent."""


def send_one(producer: Any, op: Op, record_key: bytes | None = None) -> Completion:
    """Perform a `send` operation: produce, then poll until the delivery report arrives. Returns the
    completion (outcome event)."""
    ((_, key, value),) = op.value
    topic, partition = partition_of(key)
    reports: list[tuple[Any, Any]] = []
    try:
        producer.produce(
            topic,
            str(value).encode(),
            key=record_key,
            partition=partition,
            on_delivery=lambda error, message: reports.append((error, message)),
        )
    except BufferError as error:
        return failed(str(error))
    end = monotonic() + DEADLINE_S
    while not reports and (left := end - monotonic()) > 0:
        producer.poll(left)
    if not reports:
        return unknown(op, f"no delivery report in {DEADLINE_S:g} s")
    failure, message = reports[0]
    if failure is None:
        offset = message.offset()
        return ok([["send", key, [None if offset is None or offset < 0 else offset, value]]])
    text = f"{failure.name()}: {failure.str()}"
    return failed(text) if failure.name() in NOT_TAKEN else unknown(op, text)


def create_topic(admin: Any, op: Op, plan: LoadPlan) -> Completion:
    """Perform a `create-topic` operation, and return its completion (outcome event). A topic that
    exists already counts as created."""
    maker = TopicMaker(plan)
    topic = admin_module().NewTopic(
        op.value,
        num_partitions=PARTITION_COUNT,
        replication_factor=maker.copies,
        config=maker.configs,
    )
    try:
        admin.create_topics([topic], request_timeout=DEADLINE_S)[op.value].result()
    except library().KafkaException as error:
        if error.args[0].name() != "TOPIC_ALREADY_EXISTS":
            raise
    return ok()
