"""Sends records with Ottla's own client, and converts the delivery report of a `send` operation to
its completion."""

import trio

from ottla.client.produce.delivery import Delivery
from ottla.client.produce.partition_queue import NotDeliveredError
from ottla.client.producer import Producer
from ottla.jepsen.clients.completions import DEADLINE_S, TROUBLE, failed, ok, unknown
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op
from ottla.model.settings.client import ProducerConfig

REQUEST_TIMEOUT_MS = 4_000
"""Request timeout of the producer in ms. It leaves time for a retry within the operation's deadline
after a request to a hung broker."""
DEADLINE_MS = int(DEADLINE_S * 1_000)


def producer_config(*, idempotent: bool) -> ProducerConfig:
    """Return the configuration of a producer with acks=all. Each delivery ends within the deadline
    of its operation."""
    return ProducerConfig(
        enable_idempotence=idempotent,
        linger_ms=0,
        request_timeout_ms=REQUEST_TIMEOUT_MS,
        delivery_timeout_ms=DEADLINE_MS,
        block_ms_max=DEADLINE_MS,
        retry_backoff_ms=50,
        client_id="jepsen",
    )


async def send_one(producer: Producer, op: Op, record_key: bytes | None = None) -> Completion:
    """Perform a `send` operation, and return its completion (outcome event)."""
    ((_, key, value),) = op.value
    topic, partition = partition_of(key)
    delivery: Delivery | None = None
    with trio.move_on_after(DEADLINE_S):
        try:
            delivery = await producer.send(
                topic, str(value).encode(), key=record_key, partition=partition
            )
            found = await delivery
            offset = None if found.offset < 0 else int(found.offset)
            return ok([["send", key, [offset, value]]])
        except NotDeliveredError as error:
            text = f"{error.code.name}: {error.message}"
            return unknown(op, text) if error.may_be_in_log else failed(text)
        except TROUBLE as error:
            # `send` raises these errors before it buffers the record.
            return failed(f"{type(error).__name__}: {error}")
    text = f"no delivery report in {DEADLINE_S:g} s"
    return failed(text) if delivery is None else unknown(op, text)
