"""Calls of other Python clients are answered with their counterpart."""

from typing import Any

import pytest

from ottla.client import open_admin, open_consumer, open_producer
from ottla.client.aio_consumer import AioConsumer
from ottla.client.aio_producer import AioProducer
from ottla.client.consumer import Consumer
from ottla.client.network.calls_of_others import COUNTERPARTS
from ottla.client.producer import Producer

ADDRESS = "localhost:1"
CLIENTS = [Producer, Consumer, AioProducer, AioConsumer]


async def test_a_call_of_another_client_is_answered_with_its_counterpart() -> None:
    async with open_producer(ADDRESS) as producer:
        client: Any = producer
        with pytest.raises(AttributeError) as caught:
            client.send_and_wait("orders", b"tea")
        assert str(caught.value) == (
            "'Producer' object has no attribute 'send_and_wait'; "
            "write `await (await producer.send(topic, value))`"
        )
    async with open_consumer(ADDRESS) as consumer:
        client = consumer
        with pytest.raises(AttributeError, match=r"write `await consumer\.poll\(timeout_s\)`"):
            client.getmany(timeout_ms=100)
        with pytest.raises(AttributeError, match=r"has no attribute 'pol'$"):
            client.pol()
        assert not hasattr(client, "__len__")


@pytest.mark.parametrize("kind", CLIENTS)
def test_no_counterpart_hides_a_call_that_exists(kind: type) -> None:
    kept = {"close", "start", "stop"}
    assert not [name for name in COUNTERPARTS if name not in kept and hasattr(kind, name)]


@pytest.mark.parametrize("kind", CLIENTS)
def test_attributes_are_read_without_a_function_of_ours(kind: type) -> None:
    """Each call of `send`, and each step of `async for`, reads attributes of the client."""
    hooks = ("__getattr__", "__getattribute__")
    assert not [base for base in kind.__mro__[:-1] if any(hook in vars(base) for hook in hooks)]


async def test_a_client_does_not_list_the_calls_of_others() -> None:
    async with open_producer(ADDRESS) as producer:
        assert "send" in dir(producer)
        assert "send_and_wait" not in dir(producer)


async def test_an_argument_that_needs_its_name_says_so() -> None:
    async with open_admin(ADDRESS) as admin:
        client: Any = admin
        with pytest.raises(TypeError) as caught:
            client.create_topic("orders", 3)
    assert str(caught.value) == (
        "create_topic() takes name by position, not 2 arguments; give the others by name: "
        "partition_count=…, replication_factor=…, configs=…, is_rehearsal=…"
    )
