"""Arguments are checked at the call, and errors name them as the caller wrote them."""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest

from ottla.client import (
    Admin,
    ConfigKind,
    Consumer,
    ConsumerConfig,
    ProducerConfig,
    TopicPartition,
    aio,
    open_admin,
    open_consumer,
    open_producer,
)
from ottla.client.network.arguments import checked
from ottla.client.network.bootstrap import addresses_of
from ottla.client.testing import ClusterUnderTest
from ottla.model.errors import ConfigError


@checked
def example(
    name: str = "",
    *,
    count: int = 0,
    wait_s: float | None = None,
    names: Iterable[str] = (),
    offsets: Mapping[TopicPartition, int] | None = None,
    kind: ConfigKind = ConfigKind.TOPIC,
    reported: Callable[[], None] | None = None,
) -> str:
    return name


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": 5}, "name is 5 (int); it must be a str"),
        ({"count": "3"}, "count is '3' (str); it must be an int"),
        ({"count": True}, "count is True (bool); it must be an int"),
        ({"wait_s": "3"}, "wait_s is '3' (str); it must be a number"),
        ({"names": "abc"}, "names is the text 'abc' (str); give a list: ['abc']"),
        ({"names": ["a", 1]}, "names[1] is 1 (int); it must be a str"),
        ({"names": 1}, "names is 1 (int); it must be a list of a str"),
        (
            {"offsets": {("t", 0): 1}},
            "a key of offsets is ('t', 0) (tuple); it must be a TopicPartition(topic, partition)",
        ),
        ({"reported": 1}, "reported is 1 (int); it must be a function"),
    ],
)
def test_an_error_names_the_argument(given: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError) as caught:
        example(**given)
    assert str(caught.value) == sentence


def test_an_enum_is_asked_for_by_its_names() -> None:
    with pytest.raises(TypeError, match=r"kind is 'topic' .str.; it must be one of ConfigKind"):
        example(kind="topic")  # type: ignore[arg-type]  # the mistake itself


def test_what_fits_passes_and_an_iterator_is_not_used_up() -> None:
    names = iter(["a"])
    assert example("x", count=1, wait_s=1, names=names, offsets={}, reported=print) == "x"
    assert list(names) == ["a"]


@pytest.mark.parametrize(
    ("given", "found"),
    [
        ("localhost", [("localhost", 9_092)]),
        ("a:1, b ,[::1],[::1]:5", [("a", 1), ("b", 9_092), ("::1", 9_092), ("::1", 5)]),
        (["a", "b:2"], [("a", 9_092), ("b", 2)]),
        ([("a", 1)], [("a", 1)]),
    ],
)
def test_an_address_without_a_port_means_9092(given: Any, found: list[tuple[str, int]]) -> None:
    assert addresses_of(given) == found


@pytest.mark.parametrize("given", ["", " , ", "a:b", "a:0", "::1", "http://a:1", "a b:1", []])
def test_a_text_that_is_no_address_is_refused(given: Any) -> None:
    with pytest.raises(ValueError, match=r"bootstrap.*write host:port"):
        addresses_of(given)


@pytest.mark.parametrize("given", [9_092, None, b"a:1", ("a", 1), [5], [("a", "1")]])
def test_what_cannot_be_a_bootstrap_is_refused(given: Any) -> None:
    with pytest.raises(TypeError, match="bootstrap"):
        addresses_of(given)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("linger_ms", "5", "linger_ms (linger.ms): is '5'; it must be an integer of at least 0"),
        ("linger_ms", -1, "linger_ms (linger.ms): is -1; it must be an integer of at least 0"),
        ("enable_idempotence", 1, "enable_idempotence (enable.idempotence): is 1; it must be true"),
        ("acks", 2, "acks: is '2'; it must be one of all, -1, 0, 1"),
        ("batch_bytes", 0, "batch_bytes (batch.size): is 0; it must be an integer of at least 1"),
    ],
)
def test_a_config_names_the_field(field: str, value: Any, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig(**{field: value})
    assert str(caught.value).startswith(sentence)


RECORDS: list[tuple[dict[str, Any], str]] = [
    ({"value": "x"}, "value is 'x' (str); it must be bytes or None: encode it"),
    ({"key": "k"}, "key is 'k' (str); it must be bytes or None: encode it (key.encode())"),
    ({"key": 5}, "key is 5 (int); it must be bytes or None: encode it (str(key).encode()), or"),
    ({"value": {}}, "value is {} (dict)"),
    ({"headers": {"a": b"b"}}, "headers is {'a': b'b'} (dict); it must be a list of"),
    ({"headers": [("a", "b")]}, "the value in headers[0] is 'b' (str)"),
    ({"headers": [(b"a", b"b")]}, "the name in headers[0] is b'a' (bytes)"),
    ({"topic": b"t"}, "topic is b't' (bytes); it must be a str"),
    ({"partition": "0"}, "partition is '0' (str); it must be an int or None"),
    ({"timestamp_ms": 1.5}, "timestamp_ms is 1.5 (float); it must be an int or None"),
]


async def test_a_record_is_checked_before_it_is_taken(ottla_cluster: ClusterUnderTest) -> None:
    async with open_producer(ottla_cluster.bootstrap) as producer:
        usual: dict[str, Any] = {"topic": "t", "value": b"v"}
        await producer.send(**usual)
        for wrong, sentence in RECORDS:
            with pytest.raises(TypeError) as caught:
                await producer.send(**{**usual, **wrong})
            assert str(caught.value).startswith(sentence)
        with pytest.raises(ValueError, match="timestamp_ms is -5"):
            await producer.send("t", b"v", timestamp_ms=-5)
        # Nothing of the refused records is left in a batch.
        usual["value"] = bytearray(b"w")
        assert (await (await producer.send(**usual))).offset == 1


async def test_clients_refuse_other_configs() -> None:
    other: Any = ConsumerConfig()
    with pytest.raises(TypeError, match=r"config is .* it must be a ProducerConfig"):
        async with open_producer("localhost", other):
            raise AssertionError
    other = 5
    with pytest.raises(TypeError, match=r"config is .* it must be a ConsumerConfig"):
        async with open_consumer("localhost", other):
            raise AssertionError


@pytest.mark.parametrize(
    ("opener", "name"),
    [
        (open_producer, "ProducerConfig"),
        (open_consumer, "ConsumerConfig"),
        (open_admin, "AdminConfig"),
    ],
)
async def test_a_dict_as_settings_is_answered_with_from_kafka_and_not_shown(
    opener: Callable[..., AbstractAsyncContextManager[object]], name: str
) -> None:
    settings = {"sasl.password": "secret"}
    with pytest.raises(TypeError) as caught:
        async with opener("localhost", settings):
            raise AssertionError
    assert str(caught.value) == f"config is a mapping; give {name}.from_kafka({{…}})"

    with pytest.raises(TypeError, match="bootstrap is a mapping; it must be a text") as caught:
        async with opener(settings):
            raise AssertionError
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("opener", [open_producer, open_consumer, open_admin])
def test_a_trio_client_in_an_asyncio_program_is_answered_with_the_other_module(
    opener: Callable[..., AbstractAsyncContextManager[object]],
) -> None:
    async def program() -> None:
        async with opener("localhost:1"):
            raise AssertionError

    with pytest.raises(RuntimeError, match=r"with asyncio import it from ottla\.client\.aio"):
        asyncio.run(program())


@pytest.mark.parametrize("opener", [aio.open_producer, aio.open_consumer, aio.open_admin])
async def test_an_asyncio_client_in_a_trio_program_is_answered_with_the_other_module(
    opener: Callable[..., AbstractAsyncContextManager[object]],
) -> None:
    with pytest.raises(RuntimeError, match=r"with trio import it from ottla\.client"):
        async with opener("localhost:1"):
            raise AssertionError


async def test_a_subscription_is_checked_at_the_call() -> None:
    async with open_consumer("localhost", ConsumerConfig(group_id="g")) as consumer:
        wrongs: list[dict[str, Any]] = [{}, {"topics": ["a"], "pattern": "b"}, {"pattern": "["}]
        for wrong in wrongs:
            with pytest.raises(ValueError, match=r"subscribe|pattern"):
                consumer.subscribe(**wrong)
        with pytest.raises(ValueError, match="record_count_max is 0"):
            await consumer.poll(record_count_max=0)


def test_all_calls_of_consumers_and_admins_are_checked() -> None:
    for call in (Admin.create_topic, Admin.list_offsets, Consumer.poll, Consumer.seek):
        assert hasattr(call, "__wrapped__")
