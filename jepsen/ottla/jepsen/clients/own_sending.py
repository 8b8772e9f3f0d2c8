"""Sending by our own client: what a delivery report means for a `send` operation."""

import trio

from ottla.client.produce.delivery import Delivery
from ottla.client.produce.producer_lane import NotDeliveredError
from ottla.client.producer import Producer
from ottla.jepsen.clients.completions import DEADLINE_S, TROUBLE, failed, ok, unknown
from ottla.jepsen.workloads.keys import partition_of
from ottla.jepsen.workloads.load import Completion, Op
from ottla.model.settings.client import ProducerConfig

REQUEST_TIMEOUT_MS = 4_000
"""A broker that stands still is given up in time for another one to answer within the deadline."""
DEADLINE_MS = int(DEADLINE_S * 1_000)


def producer_config(*, idempotent: bool) -> ProducerConfig:
    """Return how load is sent: acknowledged by all, and settled when the operation ends."""
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
    """Do a `send` operation."""
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
            # `send` refuses before it takes anything.
            return failed(f"{type(error).__name__}: {error}")
    text = f"not settled in {DEADLINE_S:g} s"
    return failed(text) if delivery is None else unknown(op, text)
