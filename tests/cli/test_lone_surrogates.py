"""Texts that UTF-8 cannot encode: every entrance refuses them, and no exit ends with one."""

import json
import logging
from collections.abc import Callable
from uuid import UUID

import pytest
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric, MetricsData

from ottla.cli.main import REFUSED, run
from ottla.cli.terminal import complain, say, say_json
from ottla.metadata import audit_log
from ottla.model.errors import OttlaError
from ottla.model.security.oauthbearer import parse_bearer_message, parse_object
from ottla.model.security.scram import parse_client_first
from ottla.model.settings.broker import BrokerConfig
from ottla.model.settings.declare import load
from ottla.model.settings.telemetry.exporters import ExporterConfig
from ottla.node.authentication.jwks import parse_jwks
from ottla.node.authentication.plain import PlainMechanism
from ottla.node.log_output_driver import JsonFormatter, TextFormatter
from ottla.telemetry.clients.client_labels import ClientLabels
from ottla.telemetry.clients.client_record import encode_records
from ottla.telemetry.clients.client_series import ClientSeries
from ottla.telemetry.clients.exporter import LabelledPush
from ottla.telemetry.clients.otlp import Point, PointKind, label
from ottla.telemetry.clients.outline import split_points
from ottla.telemetry.metrics.instruments import Family, MetricKind
from ottla.telemetry.metrics.own_otlp import messages_of, resource_of
from ottla.telemetry.metrics.prometheus_text import render, render_series
from ottla.wire import headers
from ottla.wire.apis import METADATA
from ottla.wire.codec import decode, encode
from ottla.wire.messages.join_group_request import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.wire.messages.offset_commit_request import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)

HOSTILE = 'User:\ud800\udfff\udc80\x00\u202e"\\\n'
"""Surrogates in an order that is no pair, and all else that an exit may stumble over."""
ENCODED = b"User:\xed\xa0\x80"
"""A surrogate as bytes that are no UTF-8."""
LABELS = ClientLabels(UUID(int=300), HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE, 1)
FAMILY = Family("ottla_things", MetricKind.GAUGE, HOSTILE, ("who",), [((HOSTILE,), 1)])
LINE = logging.LogRecord("ottla.x", logging.INFO, "x.py", 1, "login of %s", (HOSTILE,), None)
MARK = "mark"


def _replaced(data: bytes) -> bytes:
    """Put a lone surrogate where the mark is, of the same length."""
    assert MARK.encode() in data
    return data.replace(MARK.encode(), b"m\xed\xa0\x80")


def _commit() -> None:
    one = OffsetCommitRequestPartition(partition_index=0, committed_metadata=MARK)
    topic = OffsetCommitRequestTopic(name="t", partitions=[one])
    data = encode(OffsetCommitRequest(group_id="g", topics=[topic]), 8)
    decode(OffsetCommitRequest, 8, _replaced(data))


def _join() -> None:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
    request = JoinGroupRequest(group_id="g", group_instance_id=MARK, protocols=protocols)
    decode(JoinGroupRequest, 9, _replaced(encode(request, 9)))


def _client_id() -> None:
    data = headers.encode_request_header(METADATA, 9, 1, MARK)
    headers.decode_request_header(_replaced(data))


def _jwks() -> None:
    key = {"kty": "OKP", "crv": "Ed25519", "kid": "\ud800", "x": "A" * 43}
    parse_jwks(json.dumps({"keys": [key]}).encode())


ENTRANCES: dict[str, Callable[[], object]] = {
    "the subject of a token, escaped": lambda: parse_object(b'{"sub": "\\ud800"}'),
    "the subject of a token, escaped in capitals": lambda: parse_object(b'{"sub": "\\uDFFF"}'),
    "the subject of a token, as bytes": lambda: parse_object(b'{"sub": "\xed\xa0\x80"}'),
    "a claim deep in a token": lambda: parse_object(b'{"a": [{"\\udc80": 1}]}'),
    "a token in UTF-16": lambda: parse_object('{"sub": "al"}'.encode("utf-16")),
    "the id of a key": _jwks,
    "a message of OAUTHBEARER": lambda: parse_bearer_message(ENCODED),
    "a message of PLAIN": lambda: PlainMechanism({}).respond(b"\0" + ENCODED + b"\0x"),
    "a message of SCRAM": lambda: parse_client_first(b"n,,n=" + ENCODED + b",r=x"),
    "the client id of a request": _client_id,
    "the metadata of an offset": _commit,
    "an instance id": _join,
    "a setting of a broker": lambda: load(BrokerConfig, {"broker.rack": "\udcff"}),
    "the settings of exporters": lambda: load(ExporterConfig, {"telemetry.otlp.headers": "\udcff"}),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_an_entrance_refuses_what_utf_8_cannot_encode(name: str) -> None:
    with pytest.raises(OttlaError):
        ENTRANCES[name]()


def test_a_command_refuses_an_argument_that_is_no_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["topic", "describe", "orders\udcff"]) == REFUSED
    assert "is no text" in capsys.readouterr().err


def test_a_pair_of_surrogates_in_json_is_one_character() -> None:
    assert parse_object(b'{"sub": "\\ud83d\\ude00"}') == {"sub": "\U0001f600"}


# Exits: each returns what it wrote.


def _pushed() -> MetricsData:
    data = MetricsData()
    data.resource_metrics.add().scope_metrics.add().metrics.append(Metric(name="m"))
    return data


def _series() -> bytes:
    series = ClientSeries()
    point = Point("m", "", PointKind.GAUGE, False, False, (), 0, 1, 1.0)
    series.apply(LABELS, *split_points([point]))
    return b"".join(render_series(series.rows()))


def _record() -> bytes:
    return encode_records(LabelledPush(LABELS, 1, label(_pushed(), LABELS)))[0][0]


def _own_otlp() -> bytes:
    resource = resource_of({"service.instance.id": HOSTILE})
    family = Family("ottla_things", MetricKind.GAUGE, "Things.", ("who",), [((HOSTILE,), 1)])
    return b"".join(filter(None, messages_of([family], resource, start_ns=0, now_ns=1)))


EXITS: dict[str, Callable[[], bytes]] = {
    "/metrics, a node's own": lambda: b"".join(render([FAMILY])),
    "/metrics, of clients": _series,
    "OTLP, a node's own": _own_otlp,
    "OTLP, of clients": lambda: label(_pushed(), LABELS),
    "the topic of client metrics": _record,
    "a line of a log": lambda: TextFormatter("broker 1").format(LINE).encode(),
    "a line of a log in JSON": lambda: JsonFormatter("broker 1").format(LINE).encode(),
    "the audit log": lambda: audit_log._safe(HOSTILE).encode(),
}


@pytest.mark.parametrize("name", EXITS)
def test_no_exit_ends_with_what_utf_8_cannot_encode(name: str) -> None:
    assert b"User:" in EXITS[name]()


@pytest.mark.parametrize("put_out", [say, complain, say_json])
def test_a_command_prints_what_utf_8_cannot_encode(
    put_out: Callable[[str], None], capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    put_out(HOSTILE)
    written = b"".join(capfdbinary.readouterr())
    assert b"User:" in written
    written.decode()
