"""`ottla bench security`: the report, and its rows on a real ottla server."""

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from ottla.bench.kafka import mixed_load, security, security_rows
from ottla.bench.kafka.kafka_server import properties
from ottla.bench.kafka.mixed_load import measure_mix, prepare_mix
from ottla.bench.kafka.security import PLAIN_ROWS, ROWS, SecurityPairs
from ottla.bench.kafka.security_rows import (
    ENTRIES_ROWS,
    IS_HIGHER_BETTER,
    TLS_ROWS,
    SecurityWork,
    measure_entries,
    prepare_entries,
    prepare_tls,
)
from ottla.bench.kafka.security_servers import (
    TLS12,
    TLS13,
    TLS_USERS,
    SecurityServer,
    make_certificate,
    open_ottla,
    tls_settings,
)
from ottla.cli.main import run
from ottla.model.errors import RefusedError

WORK = SecurityWork(
    records=200, handshake_s=0.2, requests=40, connections=2, in_flight=1, entries=10
)


@pytest.fixture
def pairs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Four fake servers: a row takes twice as long with TLS, and 4 % longer with ACLs.

    Kafka's figures are half of ottla's.
    """
    ours, theirs = (SecurityServer(addresses={}, pids=(os.getpid(),)) for _ in range(2))

    @contextmanager
    def opened(jars: Path) -> Iterator[SecurityPairs]:
        servers = {"ottla": ours, "kafka": theirs}
        yield SecurityPairs("4.3.0", servers, servers, Path())

    def row(figure: str, rate: float) -> security_rows.SecurityRow:
        def measure(server: SecurityServer, work: SecurityWork, ca: Path) -> Mapping[str, float]:
            return {figure: rate if server is ours else rate / 2}

        return measure

    def entries(
        kind: str, without: SecurityServer, with_entries: SecurityServer, work: SecurityWork
    ) -> dict[str, float]:
        rates = {"off_per_second": 100.0, "on_per_second": 96.0}
        return {**rates, "off_cpu_us_each": 50.0, "on_cpu_us_each": 52.0}

    for name in TLS_ROWS:
        figure = "per_second" if name.startswith("handshakes") else "mb_per_second"
        monkeypatch.setitem(TLS_ROWS, name, row(figure, 100 if name.endswith("plain") else 50))
    mix = {"per_second": 10.0, "commit_p50_ms": 1.0}
    monkeypatch.setattr(security, "measure_mix", lambda server, ca: mix)
    monkeypatch.setattr(security, "open_pairs", opened)
    monkeypatch.setattr(security, "prepare", lambda *_: None)
    monkeypatch.setattr(security, "measure_entries", entries)
    monkeypatch.setattr(SecurityServer, "long_holds", lambda self: 3)


def test_costs_are_reported_beside_the_comparison(
    pairs: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["bench", "security", "--kafka=jars", "--rounds=2", "--format=json"]) == 0

    found = json.loads(capsys.readouterr().out)
    assert (found["kafka_version"], found["rounds"]) == ("4.3.0", 2)
    assert found["loop_holds_above_20_ms"] == 0, "those of the rounds alone count"
    ratios = {(one["row"], one["figure"]): one["ratio"] for one in found["rows"]}
    assert ratios["produce-tls13", "mb_per_second"] == 2.0
    costs = {
        what: {name: one["median"] for name, one in spreads.items()}
        for what, spreads in found["costs"].items()
    }
    assert costs["fetch-tls12 / fetch-plain: mb_per_second"] == {"ottla": 0.5, "kafka": 0.5}
    assert costs["produce-acls on / off: per_second"]["ottla"] == 0.96
    assert costs["metadata-acls on / off: cpu_us_each"]["kafka"] == 1.04


def test_the_table_names_what_is_compared(pairs: None, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["bench", "security", "--kafka=jars", "--rounds=1"]) == 0

    text = capsys.readouterr().out
    assert "produce-acls on / off: per_second" in text
    assert "Kafka 4.3.0; 1 rounds" in text and "held above 20 ms 0 times" in text


def test_rows_are_held_against_rows_that_there_are() -> None:
    assert {*PLAIN_ROWS, *PLAIN_ROWS.values(), *ENTRIES_ROWS} <= set(ROWS)


def test_kafka_has_the_listeners_that_are_asked_for(tmp_path: Path) -> None:
    text = properties(tmp_path, 1, 2, {}, listeners={TLS13: ("SSL", 3)})
    assert (
        "listeners=PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:2,TLS13://127.0.0.1:3\n" in text
    )
    assert "advertised.listeners=PLAINTEXT://127.0.0.1:1,TLS13://127.0.0.1:3\n" in text
    assert ",TLS13:SSL\n" in text
    assert "inter.broker.listener.name=PLAINTEXT\n" in text


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[SecurityServer, Path]]:
    """An ottla broker with an authorizer, in processes of its own, and its CA."""
    certificates, directory = tmp_path_factory.mktemp("tls"), tmp_path_factory.mktemp("nodes")
    make_certificate(certificates)
    with open_ottla(directory, tls_settings(certificates), has_authorizer=True) as opened:
        yield opened, certificates / "ca.pem"


def test_a_user_whom_no_entry_allows_is_no_one_to_measure(
    server: tuple[SecurityServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_rows, "ALLOWED_WITHIN_S", 0.0)
    monkeypatch.setattr(security_rows, "_make_entries", lambda *_: None)
    with pytest.raises(RefusedError, match="produce of load"):
        prepare_entries(server[0], WORK, has_authorizer=True)


def test_each_row_does_its_work_on_a_broker_of_ours(server: tuple[SecurityServer, Path]) -> None:
    ours, ca = server
    prepare_tls(ours, WORK)
    prepare_entries(ours, WORK, has_authorizer=True)
    for name, row in TLS_ROWS.items():
        figures = row(ours, WORK, ca)
        assert figures.keys() <= IS_HIGHER_BETTER.keys()
        assert all(value > 0 for value in figures.values()), name
    for kind in ENTRIES_ROWS.values():
        figures = measure_entries(kind, ours, ours, WORK)
        assert figures.keys() <= IS_HIGHER_BETTER.keys()
        assert all(value > 0 for value in figures.values()), kind
    assert ours.long_holds() >= 0
    assert set(ours.addresses) == {"PLAINTEXT", TLS13, TLS12, "USERS", TLS_USERS}


def test_the_mix_commits_records_of_a_user_with_acls_over_tls(
    server: tuple[SecurityServer, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mixed_load, "MIX_S", 0.3)
    monkeypatch.setattr(mixed_load, "TRANSACTION_S", 0.05)
    ours, ca = server
    prepare_mix(ours)
    figures = measure_mix(ours, ca)
    assert figures.keys() <= IS_HIGHER_BETTER.keys()
    assert figures["per_second"] > 0 and figures["broker_cpu_us_each"] > 0
