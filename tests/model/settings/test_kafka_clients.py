"""Settings of clients from the keys of Java's clients and librdkafka."""

import logging

import pytest

from ottla.model.errors import ConfigError
from ottla.model.settings.client import AdminConfig, ConsumerConfig, ProducerConfig
from ottla.model.settings.declare import definitions
from ottla.model.settings.kafka_clients import ALIASES, REFUSED, WITHOUT_EFFECT
from ottla.model.settings.security.client_security import ClientSecurity

STRING_SERIALIZER = "org.apache.kafka.common.serialization.StringSerializer"


def test_javas_keys_and_python_values_have_their_effect() -> None:
    found = ProducerConfig.from_kafka(
        {
            "bootstrap.servers": "localhost:9092",
            "acks": -1,
            "enable.idempotence": True,
            "linger.ms": 7.0,
            "buffer.memory": "1048576",
            "client.id": None,
        }
    )

    assert found == ProducerConfig(acks="-1", linger_ms=7, buffer_bytes_max=1 << 20)


def test_librdkafkas_names_units_and_values_are_translated() -> None:
    producer = ProducerConfig.from_kafka(
        {
            "message.timeout.ms": 60_000,
            "queue.buffering.max.kbytes": 2_048,
            "compression.codec": "lz4",
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-256",
            "sasl.username": "alice",
            "sasl.password": "secret",
            "ssl.ca.location": "/ca.pem",
        }
    )
    consumer = ConsumerConfig.from_kafka(
        {"auto.offset.reset": "smallest", "group.id": "g", "fetch.wait.max.ms": "100"}
    )

    assert producer.delivery_timeout_ms == 60_000
    assert producer.buffer_bytes_max == 2 << 20
    assert producer.compression_type == "lz4"
    assert producer.security_protocol == "SASL_SSL"
    assert producer.login() is not None
    assert producer.ssl_truststore_location == "/ca.pem"
    assert (consumer.auto_offset_reset, consumer.fetch_wait_ms_max) == ("earliest", 100)


def test_javas_assignors_are_named_by_their_classes() -> None:
    classes = [
        "org.apache.kafka.clients.consumer.CooperativeStickyAssignor",
        "org.apache.kafka.clients.consumer.RangeAssignor",
    ]
    for value in (classes, ", ".join(classes)):
        found = ConsumerConfig.from_kafka({"partition.assignment.strategy": value})
        assert found.partition_assignment_strategy == ("cooperative-sticky", "range")


def test_unknown_and_unsupported_keys_are_all_named_with_what_to_do() -> None:
    with pytest.raises(ConfigError) as caught:
        ProducerConfig.from_kafka(
            {"linger.mss": 5, "value.serializer": STRING_SERIALIZER, "on_delivery": print}
        )

    said = str(caught.value)
    assert "linger.mss is unknown; is linger.ms meant?" in said
    assert "value.serializer is not supported: use SerializingProducer" in said
    assert "on_delivery is not supported: await the delivery" in said


def test_a_keyword_of_a_python_client_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"linger_ms is unknown; is linger\.ms meant\?"):
        ProducerConfig.from_kafka({"linger_ms": 5})


def test_a_bad_value_is_reported_under_the_callers_key() -> None:
    with pytest.raises(ConfigError, match=r"^message\.timeout\.ms: is 'soon'"):
        ProducerConfig.from_kafka({"message.timeout.ms": "soon"})
    with pytest.raises(ConfigError, match=r"^acks: is a dict; it must be a text or a number"):
        ProducerConfig.from_kafka({"acks": {}})


def test_two_names_of_one_setting_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"linger\.ms and queue\.buffering\.max\.ms are"):
        ProducerConfig.from_kafka({"queue.buffering.max.ms": 5, "linger.ms": 10})


def test_settings_without_effect_are_named_once(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, logger="ottla.client"):
        ConsumerConfig.from_kafka(
            {
                "log_level": 7,
                "socket.keepalive.enable": True,
                "key.deserializer": STRING_SERIALIZER.replace("StringS", "ByteArrayDes"),
            }
        )

    (record,) = caplog.records
    assert record.getMessage() == (
        "settings without effect here: key.deserializer, log_level, socket.keepalive.enable"
    )


def test_an_admin_has_its_timeout_and_login() -> None:
    found = AdminConfig.from_kafka({"default.api.timeout.ms": 5_000, "client.id": "deploy"})

    assert (found.default_api_timeout_ms, found.client_id) == (5_000, "deploy")


def test_no_key_is_in_two_tables() -> None:
    known = {
        key
        for kind in (ProducerConfig, ConsumerConfig, AdminConfig, ClientSecurity)
        for key in definitions(kind)
    }
    tables = [known, set(ALIASES), set(WITHOUT_EFFECT), set(REFUSED)]

    assert sum(map(len, tables)) == len(set().union(*tables))
    assert set(ALIASES.values()) <= known
