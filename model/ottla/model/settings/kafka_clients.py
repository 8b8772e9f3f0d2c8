"""Conversion of settings: from the keys of Kafka's Java clients and of librdkafka to those of
Ottla's clients.

Pure. Each key either has its effect or is refused with the reason. Keys that only tune another
implementation, and change no result, lead to one warning that names them (`WITHOUT_EFFECT`).
"""

import logging
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeVar, cast

from ottla.model.errors import ConfigError
from ottla.model.settings.declare import definitions, load
from ottla.model.settings.misspelt import meant_key

C = TypeVar("C")

LOG = logging.getLogger("ottla.client")

ALIASES: Mapping[str, str] = MappingProxyType(
    {
        "request.required.acks": "acks",
        "queue.buffering.max.ms": "linger.ms",
        "compression.codec": "compression.type",
        "message.max.bytes": "max.request.size",
        "max.in.flight": "max.in.flight.requests.per.connection",
        "message.timeout.ms": "delivery.timeout.ms",
        "message.send.max.retries": "retries",
        "topic.metadata.refresh.interval.ms": "metadata.max.age.ms",
        "socket.timeout.ms": "request.timeout.ms",
        "fetch.wait.max.ms": "fetch.max.wait.ms",
        "fetch.message.max.bytes": "max.partition.fetch.bytes",
        "queue.buffering.max.kbytes": "buffer.memory",
    }
)
"""Keys of librdkafka that differ from Kafka's, each with Kafka's key for the same setting."""
KIBIBYTES = frozenset({"queue.buffering.max.kbytes"})
"""Keys of librdkafka whose values are in KiB. The values of Kafka's corresponding keys are in
bytes."""

_CONSUMER = "org.apache.kafka.clients.consumer."
_SERIALIZATION = "org.apache.kafka.common.serialization."

VALUES: Mapping[str, Mapping[str, str]] = MappingProxyType(
    {
        "auto.offset.reset": {
            "smallest": "earliest",
            "beginning": "earliest",
            "largest": "latest",
            "end": "latest",
            "error": "none",
        },
        "partition.assignment.strategy": {
            f"{_CONSUMER}RangeAssignor": "range",
            f"{_CONSUMER}RoundRobinAssignor": "roundrobin",
            f"{_CONSUMER}StickyAssignor": "sticky",
            f"{_CONSUMER}CooperativeStickyAssignor": "cooperative-sticky",
        },
        "metadata.recovery.strategy": {one.upper(): one for one in ("none", "rebootstrap")},
        "security.protocol": {
            one.lower(): one for one in ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        },
    }
)
"""Values for which librdkafka and Kafka use different texts, each with Kafka's text, grouped by
Kafka's key."""

ADDRESSES = frozenset({"bootstrap.servers", "metadata.broker.list"})
"""Key of the bootstrap addresses. Ottla's clients have no such setting: the addresses are the first
argument of `open_producer`, `open_consumer` and `open_admin`."""

BYTE_CLASSES = frozenset(
    f"{_SERIALIZATION}{name}"
    for name in (
        "ByteArraySerializer",
        "ByteArrayDeserializer",
        "BytesSerializer",
        "BytesDeserializer",
    )
)
"""Java class names of serializers that leave bytes unchanged. Ottla's clients accept them because
they do the same."""

WITHOUT_EFFECT = frozenset(
    {
        "api.version.fallback.ms",
        "api.version.request",
        "api.version.request.timeout.ms",
        "auto.include.jmx.reporter",
        "batch.num.messages",
        "broker.address.family",
        "broker.address.ttl",
        "broker.version.fallback",
        "client.dns.lookup",
        "connections.max.idle.ms",
        "debug",
        "enable.sparse.connections",
        "internal.termination.signal",
        "log.connection.close",
        "log.queue",
        "log.thread.name",
        "log_level",
        "metrics.num.samples",
        "metrics.recording.level",
        "metrics.sample.window.ms",
        "queue.buffering.max.messages",
        "queued.max.messages.kbytes",
        "queued.min.messages",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "send.buffer.bytes",
        "socket.connection.setup.timeout.max.ms",
        "socket.connection.setup.timeout.ms",
        "socket.keepalive.enable",
        "socket.max.fails",
        "socket.nagle.disable",
        "socket.receive.buffer.bytes",
        "socket.send.buffer.bytes",
        "topic.metadata.propagation.max.ms",
        "topic.metadata.refresh.fast.interval.ms",
        "topic.metadata.refresh.sparse",
    }
)
"""Keys that only tune another implementation and change no result. If a program sets any of them,
one warning names these keys."""

_SERIALIZERS = "use SerializingProducer and DeserializingConsumer of ottla.client"
_CALLBACK = "await the delivery that send returns"
REFUSED: Mapping[str, str] = MappingProxyType(
    {
        "key.serializer": _SERIALIZERS,
        "value.serializer": _SERIALIZERS,
        "key.deserializer": _SERIALIZERS,
        "value.deserializer": _SERIALIZERS,
        "interceptor.classes": "wrap the client; docs/client.md, 'Instead of interceptors'",
        "partitioner.class": "set partitioner, or pass partition_by to open_producer",
        "metric.reporters": "metrics are pushed to the cluster, or read by OpenTelemetry",
        "statistics.interval.ms": "metrics are pushed to the cluster, or read by OpenTelemetry",
        "enable.auto.offset.store": "set enable.auto.commit to false and call commit",
        "enable.partition.eof": "compare a position with end_offsets",
        "on_delivery": _CALLBACK,
        "dr_cb": _CALLBACK,
        "dr_msg_cb": _CALLBACK,
        "error_cb": "errors are raised by the calls that they concern",
        "stats_cb": "metrics are pushed to the cluster, or read by OpenTelemetry",
        "throttle_cb": "metrics are pushed to the cluster, or read by OpenTelemetry",
        "rebalance_cb": "pass a listener to subscribe",
        "oauth_cb": "pass sasl_token_provider to the configuration",
        "logger": "configure the logger 'ottla.client' of Python's logging",
    }
)
"""Keys that have no counterpart in Ottla, each with advice on how to achieve the same effect."""


def config_from_kafka(
    kind: type[C], settings: Mapping[str, object], aliases: Mapping[str, str]
) -> C:
    """Return the settings of a client from a mapping with Kafka's or librdkafka's keys.

    `aliases` contains further keys with Kafka's key for each. Raises ConfigError for an invalid
    value. If keys are unknown or have no counterpart in Ottla, one ConfigError names all of them as
    the caller wrote them.
    """
    aliases = {**ALIASES, **aliases}
    known = definitions(cast("type", kind))
    texts: dict[str, str] = {}
    spellings: dict[str, str] = {}
    problems: list[str] = []
    without_effect: list[str] = []
    for given, value in settings.items():
        key = aliases.get(given, given)
        is_for_bytes = isinstance(value, str) and value in BYTE_CLASSES
        if given in ADDRESSES or value is None:
            continue
        if given in REFUSED and not is_for_bytes:
            problems.append(f"{given} is not supported: {REFUSED[given]}")
        elif given in WITHOUT_EFFECT or is_for_bytes:
            without_effect.append(given)
        elif key not in known:
            dotted = given.replace("_", ".")  # the spelling of Python's keyword arguments
            keys = {*known, *aliases}
            meant = dotted if dotted in keys else meant_key(given, keys)
            problems.append(f"{given} is unknown" + (f"; is {meant} meant?" if meant else ""))
        elif spellings.get(key, given) != given:
            problems.append(f"{given} and {spellings[key]} are the same setting")
        else:
            spellings[key] = given
            texts[key] = _text(given, key, value)
    if problems:
        raise ConfigError("settings", "; ".join(problems))
    try:
        config, _ = load(kind, texts)
    except ConfigError as error:
        raise ConfigError(spellings.get(error.setting, error.setting), error.problem) from None
    if without_effect:
        LOG.warning("settings without effect here: %s", ", ".join(sorted(without_effect)))
    return config


def _text(given: str, key: str, value: Any) -> str:
    """Return a setting's value as text in Kafka's notation."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if given in KIBIBYTES and str(value).isdecimal():
        value = int(value) << 10
    if isinstance(value, list | tuple):
        value = ",".join(map(str, value))
    if not isinstance(value, str | int | float):
        raise ConfigError(given, f"is a {type(value).__name__}; it must be a text or a number")
    others = VALUES.get(key, {})
    return (
        ",".join(others.get(part.strip(), part.strip()) for part in str(value).split(","))
        if others
        else str(value)
    )
