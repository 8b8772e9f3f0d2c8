"""Access that the listeners of a cluster grant, probed from outside and judged."""

import argparse
import json
import socket
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.cli.cluster import doctor
from ottla.cli.verbs import declare
from ottla.client.testing import import_cluster
from ottla.insight.rules.certificate_findings import FAILED, OK, WARNING

import_cluster()

HOST = "127.0.0.1"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
NAMES = ("PLAINTEXT", "PLAIN", "OPEN", "KNOWN", "LOGIN")


def found_at(addresses: str, *options: str) -> tuple[int, list[dict[str, Any]]]:
    """Return exit code and findings of the command, which has a loop of its own."""
    parser = argparse.ArgumentParser()
    declare(parser, doctor)
    given = ["listeners", addresses, "--format", "json", *options]
    printed: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(doctor, "print_json", printed.append)
        arguments = parser.parse_args(given)
        code = arguments.handler(arguments)
    (answer,) = printed
    rows: list[dict[str, Any]] = json.loads(json.dumps(answer["findings"]))
    return code, rows


async def test_each_kind_of_listener_is_described_by_its_security(
    authority: Any, new_authority: Callable[[str], Any], tmp_path: Path
) -> None:
    settings = {
        "listeners": ",".join(f"{name}://{HOST}:0" for name in NAMES),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,PLAIN:SASL_PLAINTEXT,OPEN:SSL,"
        "KNOWN:SSL,LOGIN:SASL_SSL",
        "inter.broker.listener.name": "PLAINTEXT",
        "ssl.keystore.location": str(
            authority.issue(common_name="broker", ends_in=timedelta(days=99))
        ),
        "ssl.truststore.location": str(authority.file),
        "listener.name.known.ssl.client.auth": "required",
        "listener.name.plain.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plain.plain.sasl.jaas.config": f'{MODULE} required user_al="x";',
        "listener.name.login.sasl.enabled.mechanisms": "SCRAM-SHA-512,SCRAM-SHA-256",
    }
    trusting, doubting = tmp_path / "ours.properties", tmp_path / "theirs.properties"
    for path, ca in ((trusting, authority), (doubting, new_authority("other"))):
        path.write_text(f"security.protocol=SSL\nssl.truststore.location={ca.file}\n")
    async with open_in_process(settings) as broker:
        addresses = ",".join("{}:{}".format(*broker.addresses[name]) for name in NAMES)

        def ask(path: Path) -> tuple[int, list[dict[str, Any]]]:
            return found_at(addresses, "--command-config", str(path))

        code, rows = await trio.to_thread.run_sync(ask, trusting)
        plain, readable, served, known, login = rows
        assert code == 0
        states = [row["state"] for row in rows]
        assert states == [WARNING, WARNING, WARNING, OK, OK], rows
        assert plain["tls_version"] is None and plain["serves_strangers"]
        assert "it serves everyone who reaches it" in plain["cure"]
        assert readable["mechanisms"] == ["PLAIN"] and not readable["serves_strangers"]
        assert "PLAIN can be read on the network" in readable["cure"]
        assert served["tls_version"] == "TLSv1.3" and served["serves_strangers"]
        assert served["cipher"].startswith("TLS_") and served["trusted"]
        assert f"IP:{HOST}" in served["names"] and "CN=broker" in served["subject"]
        assert known["asks_certificate"] and not known["serves_strangers"]
        assert sorted(login["mechanisms"]) == ["SCRAM-SHA-256", "SCRAM-SHA-512"]
        assert not login["serves_strangers"]

        code, rows = await trio.to_thread.run_sync(ask, doubting)
        assert code == doctor.UNHEALTHY
        assert [row["state"] for row in rows] == [WARNING, WARNING, FAILED, FAILED, FAILED]
        assert "not of a CA that is trusted" in rows[2]["cure"]


def open_in_process(settings: dict[str, str]) -> Any:
    """Open a cluster of one broker; its settings are the broker's alone."""
    from contextlib import asynccontextmanager

    from ottla.testing.in_process import open_in_process_cluster

    @asynccontextmanager
    async def opened() -> Any:
        async with open_in_process_cluster(broker_count=1, broker_settings=settings) as cluster:
            yield next(iter(cluster.brokers.values()))

    return opened()


def test_what_is_no_broker_fails_and_says_so() -> None:
    with socket.socket() as closed:
        closed.bind((HOST, 0))
        code, (row,) = found_at(f"{HOST}:{closed.getsockname()[1]}")
    assert code == doctor.UNHEALTHY
    assert row["state"] == FAILED
    assert "no process listens there" in row["cure"]


async def test_names_from_the_wire_do_not_reach_a_terminal_raw(
    capsys: pytest.CaptureFixture[str],
) -> None:
    from datetime import UTC, datetime

    from ottla.cli.tables import print_table
    from ottla.insight.facts.listeners_driver import ListenerFacts
    from ottla.insight.rules.listener_findings import COLUMNS, judge

    hostile = ListenerFacts(address="h:1", mechanisms=("\x1b]0;x\x07", "\u202eNIALP"))
    print_table(COLUMNS, [judge(hostile, datetime.now(UTC)).row])
    out = capsys.readouterr().out
    assert "\\x1b]0;x\\x07, \\u202eNIALP" in out
    assert "\x1b" not in out and "\u202e" not in out
