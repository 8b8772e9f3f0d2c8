"""Every option of Spark's own Kafka connector: its meaning, and the refused ones."""

import pickle
import re

import pytest

from ottla.model.errors import ConfigError
from ottla.model.ids import TopicPartition
from ottla.model.limits import MIB
from ottla.pipeline.option_values import parse_duration_ms
from ottla.pipeline.read.offsets import (
    EARLIEST,
    LATEST,
    AllPartitions,
    FromTimestamp,
    OffsetPerPartition,
    TimestampPerPartition,
)
from ottla.pipeline.read.source_options import (
    Assign,
    SourceOptions,
    Subscribe,
    SubscribePattern,
    parse_columns,
    parse_source_options,
)

LEAST = {"kafka.bootstrap.servers": "a:9092", "subscribe": "t"}
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def batch(**texts: str) -> SourceOptions:
    return parse_source_options(LEAST | named(texts), is_stream=False)


def stream(**texts: str) -> SourceOptions:
    return parse_source_options(LEAST | named(texts), is_stream=True)


def named(texts: dict[str, str]) -> dict[str, str]:
    return {name.replace("__", "."): text for name, text in texts.items()}


def test_defaults_are_those_of_the_connector() -> None:
    options = batch()
    assert options.topics == Subscribe(frozenset("t"))
    assert (options.start, options.end) == (AllPartitions(EARLIEST), AllPartitions(LATEST))
    assert stream().start == AllPartitions(LATEST)
    read = options.read
    assert read.bootstrap == "a:9092"
    assert (read.poll_timeout_ms, read.fetch_retries, read.fetch_retry_interval_ms) == (
        120_000,
        3,
        10,
    )
    assert read.fail_on_data_loss
    assert not read.include_headers
    assert options.trigger_delay_ms_max == 15 * 60 * 1_000


def test_names_are_the_same_in_any_case() -> None:
    texts = {"KAFKA.Bootstrap.Servers": "a:1", "SUBSCRIBEPATTERN": "t.*", "MinPartitions": "4"}
    options = parse_source_options(texts, is_stream=False)
    assert options.read.bootstrap == "a:1"
    assert options.topics == SubscribePattern("t.*")
    assert options.min_partitions == 4


def test_topics_are_assigned_subscribed_or_matched() -> None:
    assign = {"kafka.bootstrap.servers": "a:1", "assign": '{"t": [0, 1]}'}
    assert parse_source_options(assign, is_stream=False).topics == Assign(frozenset({T0, T1}))
    assert batch(subscribe=" t , u,").topics == Subscribe(frozenset({"t", "u"}))


def test_a_time_for_all_goes_before_times_for_each_and_these_before_offsets() -> None:
    offsets = {"startingOffsets": '{"t": {"0": 23, "1": -2}}', "endingOffsets": '{"t": {"0": -1}}'}
    assert batch(**offsets).start == OffsetPerPartition({T0: 23, T1: EARLIEST})
    assert batch(**offsets).end == OffsetPerPartition({T0: LATEST})
    times = {
        "startingOffsetsByTimestamp": '{"t": {"0": 5}}',
        "endingOffsetsByTimestamp": '{"t": {"0": 6}}',
    }
    assert batch(**offsets, **times).start == TimestampPerPartition({T0: 5})
    assert batch(**offsets, **times).end == TimestampPerPartition({T0: 6})
    one = {"startingTimestamp": "7", "endingTimestamp": "8"}
    assert batch(**offsets, **times, **one).start == FromTimestamp(7)
    assert batch(**offsets, **times, **one).end == FromTimestamp(8)


def test_kafka_options_reach_the_client_without_their_prefix() -> None:
    options = batch(kafka__isolation__level="read_committed", kafka__client__id=" me ")
    assert options.read.client == (("client.id", "me"), ("isolation.level", "read_committed"))
    assert options.read.isolation_level == "read_committed"
    assert options.read.consumer_config().client_id == "me"
    assert batch(kafka__security__protocol="plaintext", kafka__group__id="g").read.client == ()


def test_a_fetch_of_a_task_is_larger_than_one_of_a_consumer_unless_the_user_sets_it() -> None:
    assert batch().read.consumer_config().partition_bytes_max == 4 * MIB
    own = batch(kafka__max__partition__fetch__bytes="70000")
    assert own.read.consumer_config().partition_bytes_max == 70_000


def test_options_travel_to_the_tasks() -> None:
    options = batch(columns="value,key", maxRecordsPerPartition="7")
    assert pickle.loads(pickle.dumps(options)) == options
    assert options.read.columns == ("key", "value")


def test_columns_are_the_connectors_with_headers_where_they_are_asked_for() -> None:
    everything = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    assert parse_columns(LEAST) == everything
    assert parse_columns(LEAST | {"includeHeaders": "true"}) == (*everything, "headers")
    assert parse_columns(LEAST | {"columns": "headers, Offset"}) == ("offset", "headers")
    assert batch(columns="headers").read.include_headers


SAYS = [
    ({"subscribe": "t", "kafka.bootstrap.servers": ""}, "kafka.bootstrap.servers: is not set"),
    (
        {"subscribe": "t", "kafka.bootstrap.servers": "a:b"},
        "kafka.bootstrap.servers: is 'a:b'; it must be a list of host:port",
    ),
    ({"kafka.bootstrap.servers": "a"}, "kafka.bootstrap.servers: is 'a'"),
    ({"assign": '{"t": [0]}'}, "subscribe: may not be set together with assign"),
    ({"subscribe": ","}, "subscribe: is ','"),
    ({"startingOffset": "earliest"}, "there is no such option; is it startingOffsets?"),
    ({"quux": "1"}, "quux: there is no such option"),
    ({"startingOffsets": "newest"}, "startingOffsets: is 'newest'; it must be earliest, latest"),
    ({"startingOffsets": '{"t": {"0": -3}}'}, "startingOffsets: is"),
    ({"startingOffsets": "latest"}, "startingOffsets: is latest (-1)"),
    ({"startingOffsets": '{"t": {"0": -1}}'}, "startingOffsets: is latest (-1)"),
    ({"endingOffsets": "earliest"}, "endingOffsets: is earliest (-2)"),
    ({"endingOffsets": '{"t": {"0": -2}}'}, "endingOffsets: is earliest (-2)"),
    ({"failOnDataLoss": "maybe"}, "failOnDataLoss: is 'maybe'; it must be true or false"),
    ({"minPartitions": "0"}, "minPartitions: is '0'; it must be an integer of at least 1"),
    ({"maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "minOffsetsPerTrigger: is 6"),
    ({"maxTriggerDelay": "soon"}, "maxTriggerDelay: is 'soon'; it must be a time such as"),
    ({"columns": "valeu"}, "columns: there is no column 'valeu'; did you mean value?"),
    ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer: may not be set: keys are shipped"),
    ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit: may not be set"),
    ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset: may not be set: use"),
    (
        {"kafka.security.protocol": "TLS"},
        "'TLS'; it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL",
    ),
    ({"kafka.sasl.mechanism": "PLAIN"}, "kafka.security.protocol: is PLAINTEXT, and se"),
    (
        {"kafka.ssl.truststore.location": "x"},
        "kafka.security.protocol: is PLAINTEXT, and settings of ssl. are given; SSL and SASL_SSL",
    ),
    ({"kafka.ssl.truststore.type": "JKS"}, "kafka.ssl.truststore.type: is 'JKS'; only PEM is read"),
    ({"kafka.fetch.min.byte": "1"}, "there is no such option; is it kafka.fetch.min.bytes?"),
    ({"kafka.fetch.min.bytes": "x"}, "kafka.fetch.min.bytes: is 'x'; it must be an integer"),
    ({"kafka.session.timeout.ms": "1"}, "kafka.heartbeat.interval.ms: is 3000"),
]


@pytest.mark.parametrize(("texts", "sentence"), SAYS, ids=[sentence for _, sentence in SAYS])
def test_what_is_wrong_or_can_not_be_honoured_is_one_sentence(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        parse_source_options(LEAST | texts, is_stream=False)


def test_one_way_to_name_topics_is_needed() -> None:
    with pytest.raises(ConfigError, match=r"^subscribe: is not set; one of assign, subscribe"):
        parse_source_options({"kafka.bootstrap.servers": "a:1"}, is_stream=True)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    text = {"endingTimestamp": "7"}.get(name, '{"t": {"0": 7}}')
    with pytest.raises(ConfigError, match=f"^{name}: may not be set: a stream has no end$"):
        stream(**{name: text})


@pytest.mark.parametrize(
    ("text", "ms"),
    [("7", 7), ("500ms", 500), ("30 s", 30_000), ("15m", 900_000), ("2H", 7_200_000)],
)
def test_a_time_has_a_unit(text: str, ms: int) -> None:
    assert parse_duration_ms(text) == ms
