"""Collectors over TLS, real ones on loopback: trusted CAs, client certificates, renewed
certificates."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.declare import values_of
from ottla.model.settings.telemetry.exporters import OTLP_KEYSTORE, OTLP_TRUSTSTORE, ExporterConfig
from ottla.model.tls import changed_files_driver
from ottla.telemetry.exporters.export_queue import ExportVerdict
from ottla.telemetry.exporters.otlp_exporter_driver import OtlpSender, open_sender

Collector = Any  # the class of the fixture, in conftest.py
Authority = Any  # likewise, in tests/conftest.py
SENT, RETRY = ExportVerdict.SENT, ExportVerdict.RETRY


def sender_to(collector: Collector, trusted: Path | None, own: Path | None = None) -> OtlpSender:
    config = ExporterConfig(
        otlp_endpoints=(collector.endpoint(),),
        otlp_truststore_location=None if trusted is None else str(trusted),
        otlp_keystore_location=None if own is None else str(own),
        otlp_timeout_ms=5_000,
    )
    return open_sender(collector.endpoint(), config)


async def sent_to(collector: Collector, trusted: Path | None, own: Path | None = None) -> Any:
    sender = sender_to(collector, trusted, own)
    try:
        return (await sender.send(b"")).verdict
    finally:
        sender.close()


async def test_a_collector_is_trusted_by_the_ca_that_is_set_and_by_no_other(
    encrypted_collector: Collector,
    authority: Authority,
    new_authority: Callable[[str], Authority],
) -> None:
    encrypted_collector.up()
    assert await sent_to(encrypted_collector, authority.file) is SENT
    assert await sent_to(encrypted_collector, new_authority("stranger").file) is RETRY
    assert await sent_to(encrypted_collector, None) is RETRY
    assert len(encrypted_collector.requests) == 1


async def test_without_a_ca_those_of_the_machine_hold(
    encrypted_collector: Collector, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    encrypted_collector.up()
    assert await sent_to(encrypted_collector, None) is SENT


async def test_a_certificate_of_another_host_is_not_accepted(
    encrypted_collector: Collector, authority: Authority
) -> None:
    encrypted_collector.certificate = authority.issue("elsewhere.example")
    encrypted_collector.up()
    assert await sent_to(encrypted_collector, authority.file) is RETRY


async def test_a_node_shows_its_certificate_to_a_collector_that_asks(
    encrypted_collector: Collector, authority: Authority
) -> None:
    encrypted_collector.clients_ca = authority.file
    encrypted_collector.up()
    assert await sent_to(encrypted_collector, authority.file) is RETRY
    assert await sent_to(encrypted_collector, authority.file, authority.issue()) is SENT


async def test_new_files_hold_for_what_is_sent_after(
    encrypted_collector: Collector,
    authority: Authority,
    new_authority: Callable[[str], Authority],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(changed_files_driver, "LOOK_INTERVAL_S", 0)
    encrypted_collector.up()
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(new_authority("stranger").file.read_bytes())
    sender = sender_to(encrypted_collector, trusted)
    try:
        assert (await sender.send(b"")).verdict is RETRY
        trusted.write_text("no certificate any more")
        assert (await sender.send(b"")).verdict is RETRY
        assert (await sender.send(b"")).verdict is RETRY
        trusted.write_bytes(authority.file.read_bytes())
        assert (await sender.send(b"")).verdict is SENT
    finally:
        sender.close()
    complaints = [one for one in caplog.records if one.levelno >= logging.ERROR]
    assert len(complaints) == 1
    assert OTLP_TRUSTSTORE in complaints[0].getMessage()


class _Traces(trace_service_pb2_grpc.TraceServiceServicer):
    def __init__(self) -> None:
        self.requests: list[Any] = []

    def Export(self, request: Any, context: Any) -> Any:  # noqa: N802  # the service's name
        self.requests.append(request)
        return ExportTraceServiceResponse()


@pytest.mark.parametrize("is_set", [True, False])
@pytest.mark.parametrize("scheme", ["grpc", "http"])
async def test_traces_go_by_the_same_certificates(
    scheme: str,
    is_set: bool,
    authority: Authority,
    new_collector: Callable[[str], Collector],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from ottla.telemetry.exporters.otel_sdk_driver import (
        close_tracer_provider,
        open_tracer_provider,
    )

    # What settings say holds, whatever the environment has for other programs.
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", "/etc/absent.pem")
    traces = _Traces()
    collector = new_collector(scheme)
    collector.certificate = authority.issue()
    collector.clients_ca = authority.file
    collector.traces = traces
    collector.up()
    config = ExporterConfig(
        otlp_endpoints=(collector.endpoint(),),
        otlp_truststore_location=str(authority.file) if is_set else None,
        otlp_keystore_location=str(authority.issue()),
    )
    if not is_set:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
    provider = open_tracer_provider(config, {})
    provider.get_tracer("test").start_span("a").end()
    assert await trio.to_thread.run_sync(provider.force_flush)
    await close_tracer_provider(provider)
    assert len(traces.requests) == 1


@pytest.mark.parametrize("key", [OTLP_KEYSTORE, OTLP_TRUSTSTORE])
@pytest.mark.parametrize("endpoint", ["", "grpc://h,http://h"])
def test_certificates_for_collectors_that_are_not_encrypted_are_refused(
    key: str, endpoint: str
) -> None:
    texts = {
        "node.id": "1",
        "controller.quorum.voters": "3@localhost:9093",
        "telemetry.otlp.endpoint": endpoint,
        key: "/etc/ottla/x.pem",
    }
    with pytest.raises(ConfigError, match="is set, and no collector in "):
        load_broker_config(texts)
    encrypted = texts | {"telemetry.otlp.endpoint": "grpc://h,https://h"}
    load_broker_config(encrypted)


def test_files_that_cannot_be_used_refuse_the_start_by_the_name_of_the_setting(
    authority: Authority, tmp_path: Path
) -> None:
    def problem(key: str, path: Path) -> str:
        texts = {"telemetry.otlp.endpoint": "grpcs://h", key: str(path)}
        config = ExporterConfig(**values_of(ExporterConfig, texts)[0])
        with pytest.raises(ConfigError) as caught:
            open_sender(config.otlp_endpoints[0], config)
        assert caught.value.setting == key
        return caught.value.problem

    assert "cannot be read" in problem(OTLP_TRUSTSTORE, tmp_path / "absent.pem")
    assert "no private key" in problem(OTLP_KEYSTORE, authority.file)
    shown = authority.issue()
    shown.chmod(0o644)
    assert "every user of this machine can read" in problem(OTLP_KEYSTORE, shown)
    encrypted = tmp_path / "encrypted.pem"
    encrypted.touch(0o600)
    text = authority.issue().read_text()
    encrypted.write_text(text.replace("EC PRIVATE KEY", "ENCRYPTED PRIVATE KEY"))
    assert "encrypted private key" in problem(OTLP_KEYSTORE, encrypted)
