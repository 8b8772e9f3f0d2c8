"""Options of a write, and one sentence for each error."""

import pickle

import pytest

from ottla.model.errors import ConfigError
from ottla.pipeline.write.sink_options import HEADERS, Columns, find_columns, read_target

WHERE = {"kafka.bootstrap.servers": "localhost:9092"}
VALUE = [("value", "binary")]


def test_a_target_knows_where_what_and_how_and_travels_to_the_tasks() -> None:
    texts = {
        "KAFKA.bootstrap.Servers": "a:1,b:2",
        "Topic": "t",
        "kafka.compression.type": "zstd",
        "checkpointLocation": "/x",
        "sortrows": "true",
    }
    target = read_target(texts, [("id", "bigint"), *VALUE, ("KEY", "string")], is_streaming=True)

    assert pickle.loads(pickle.dumps(target)) == target
    assert target.bootstrap == "a:1,b:2"
    assert target.columns == Columns(value=1, key=2)
    assert target.options.topic == "t"
    assert target.options.sort_rows
    assert target.producer_config().compression_type == "zstd"
    assert target.producer_config().acks == "all"


@pytest.mark.parametrize(
    ("texts", "sentence"),
    [
        ({}, "topic: is not set, and the rows have no column topic"),
        ({"topc": "t"}, "topc: there is no such option; is it topic?"),
        (
            {"topic": "t", "kafka.acks": "1"},
            "kafka.acks: is 1; enable.idempotence needs all, or set it to false",
        ),
        (
            {"topic": "t", "kafka.acks": "1", "kafka.enable.idempotence": "false"},
            "kafka.enable.idempotence: is false; the sink writes in order, once",
        ),
        (
            {"topic": "t", "kafka.value.serializer": "x"},
            "kafka.value.serializer: may not be set: the columns value and key are written as "
            "they are, bytes or text",
        ),
        (
            {"topic": "t", "kafka.security.protocol": "TLS"},
            "kafka.security.protocol: is 'TLS'; it must be one of PLAINTEXT, SSL, SASL_PLAINTEXT",
        ),
        (
            {"topic": "t", "txnAppId": "a"},
            "txnVersion: is not set; txnAppId and txnVersion need each other",
        ),
        (
            {"topic": "t", "txnAppId": "a", "txnVersion": "-1"},
            "txnVersion: is '-1'; it must be an integer of at least 0",
        ),
        ({"topic": "t", "kafka.bootstrap.servers": "x"}, "kafka.bootstrap.servers: is 'x'; "),
    ],
)
def test_what_can_not_be_honoured_is_refused_by_its_name(
    texts: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        read_target({**WHERE, **texts}, VALUE, is_streaming=False)
    assert str(refused.value).startswith(sentence)


def test_a_streaming_query_has_an_id_of_its_own() -> None:
    texts = {**WHERE, "topic": "t", "txnAppId": "a", "txnVersion": "1"}

    assert read_target(texts, VALUE, is_streaming=False).options.txn_version == 1
    with pytest.raises(ConfigError, match="txnAppId: is for batch writes"):
        read_target(texts, VALUE, is_streaming=True)


def test_the_columns_are_found_whatever_their_order_and_case() -> None:
    fields = [
        ("Partition", "int"), ("x", "map<string,int>"), ("TOPIC", "string"), ("value", "string"),
        ("headers", HEADERS), ("key", "binary"),
    ]  # fmt: skip

    assert find_columns(fields) == Columns(value=3, key=5, headers=4, topic=2, partition=0)


def test_headers_may_be_left_out() -> None:
    fields = [*VALUE, ("headers", HEADERS)]
    texts = {**WHERE, "topic": "t", "includeHeaders": "false"}

    assert read_target(texts, fields, is_streaming=False).columns == Columns(value=0)


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ([("key", "binary")], "column value: is missing: it is what a record holds"),
        (
            [("value", "struct<a:int>")],
            "column value: is of type struct<a:int>; it must be binary or string",
        ),
        ([*VALUE, ("partition", "bigint")], "column partition: is of type bigint; it must be int"),
        ([*VALUE, ("headers", "map<string,binary>")], "column headers: is of type map<"),
        ([*VALUE, ("VALUE", "string")], "column VALUE: is there twice"),
    ],
)
def test_a_column_that_can_not_be_part_of_a_record_is_named(
    fields: list[tuple[str, str]], sentence: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        find_columns(fields)
    assert str(refused.value).startswith(sentence)
