"""Strangers send TLS records that no library sends to real processes, and disturb no other client.

By default it ends after a connection of every kind at every listener; `OTTLA_ORACLE_SECONDS` sets a
duration instead, and `OTTLA_ORACLE_SEED` another seed.
"""

import os
import ssl
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import trio

from ottla.client.admin import open_admin
from ottla.client.network.login import LOGIN
from ottla.client.network.tls import TLS, TlsDialer
from ottla.jepsen.processes.runs.run_evidence import errors_in
from ottla.model.settings.security.jaas import PLAIN_MODULE
from ottla.model.settings.security.sasl import PLAIN, SASL_SSL, SaslLogin
from ottla.model.settings.security.tls import SSL, TlsConfig
from ottla.model.tls.context_driver import client_context
from ottla.node.local.local_nodes_driver import free_ports
from tests.jepsen.oracles.end_of_process import (
    SETTINGS,
    STEADY_TOPIC,
    BrokerPort,
    HuntReport,
    Neighbour,
    deaths_among,
)
from tests.jepsen.oracles.tls_end_of_process import (
    TlsHuntReport,
    hunt_listeners,
    kinds_of_manners,
    scrape,
)
from tests.jepsen.oracles.tls_hold import TlsTarget
from tests.jepsen.oracles.tls_targets import SCRAPE, target_of

if TYPE_CHECKING:
    from tests.cluster.conftest import Processes
    from tests.conftest import CertificateAuthority

SECONDS = float(os.environ.get("OTTLA_ORACLE_SECONDS", "240"))
ENDS_WHEN_SENT = "OTTLA_ORACLE_SECONDS" not in os.environ
SEED = int(os.environ.get("OTTLA_ORACLE_SEED", "15"))
HOST = "127.0.0.1"
METRICS = "/metrics"
LOGINS = f'{PLAIN_MODULE} required user_al="plain";'
GUARDED = "GUARDED"
PROTOCOLS = {SSL: None, GUARDED: SaslLogin(PLAIN, "al", "plain")}
"""Listeners of clients (the second is SASL_SSL), and how their neighbours log in."""


def settings_of(ports: dict[str, int], plain: str, certificate: str) -> dict[str, str]:
    """Return the settings of a broker that listens in each way with TLS."""
    encrypted = ",".join(f"{name}://{HOST}:{ports[name]}" for name in PROTOCOLS)
    return {
        "listeners": f"PLAINTEXT://{plain},{encrypted}",
        "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,"
        f"{GUARDED}:{SASL_SSL}",
        "sasl.enabled.mechanisms": PLAIN,
        "listener.name.guarded.plain.sasl.jaas.config": LOGINS,
        "ssl.keystore.location": certificate,
        "metrics.prometheus.port": str(ports[METRICS]),
        "metrics.prometheus.ssl.keystore.location": certificate,
    }


async def neighbour_at(
    node: BrokerPort, trust: TlsConfig, login: SaslLogin | None, report: HuntReport
) -> None:
    TLS.set(TlsDialer(trust))
    LOGIN.set(login)
    await Neighbour(node, 0, report, 1).run()


async def hunt_over(
    processes: "Processes", ports: dict[str, int], trust: TlsConfig, folder: Path
) -> TlsHuntReport:
    def new_context() -> ssl.SSLContext:
        return client_context(trust)

    def deaths() -> list[str]:
        return deaths_among(processes.running, processes.log_of)

    async with open_admin(processes.bootstrap) as admin:
        await admin.create_topic(STEADY_TOPIC, partition_count=1)
    node_id = processes.node("broker 1").id
    targets: list[TlsTarget] = [
        target_of(name, ports[name], new_context, None) for name in PROTOCOLS
    ]
    targets.append(target_of(METRICS, ports[METRICS], new_context, None, SCRAPE))
    neighbours = [
        partial(neighbour_at, BrokerPort(name, node_id, f"{HOST}:{ports[name]}"), trust, login)
        for name, login in PROTOCOLS.items()
    ]
    scraper = partial(scrape, (HOST, ports[METRICS]), new_context(), METRICS)
    return await hunt_listeners(
        targets,
        [*neighbours, scraper],
        deaths,
        seed=SEED,
        seconds=SECONDS,
        folder=folder,
        ends_when_sent=ENDS_WHEN_SENT,
    )


@pytest.mark.cluster
@pytest.mark.timeout(SECONDS + 240)
def test_no_tls_record_ends_a_process_or_a_neighbours_connection(
    plan_cluster: Callable[..., Any], authority: "CertificateAuthority", tmp_path: Path
) -> None:
    processes = plan_cluster(controllers=1, brokers=1, is_secure=False, **SETTINGS)
    names = (*PROTOCOLS, METRICS)
    ports = dict(zip(names, free_ports(len(names), HOST), strict=True))
    certificate = str(authority.issue("localhost", HOST))
    plain = processes.node("broker 1").address
    processes.start("controller")
    processes.start("broker", **settings_of(ports, plain, certificate))
    trust = TlsConfig(trust_location=str(authority.file))

    report = trio.run(hunt_over, processes, ports, trust, tmp_path)

    hunted = report.neighbours
    hunted.unforeseen = [f"{node}: {line}" for node, line in errors_in(processes.plan.directory)]
    print(report)
    assert not hunted.violations, str(report)
    assert not hunted.unforeseen, str(report)
    assert len(report.sent) == len(names) * len(kinds_of_manners()) or not ENDS_WHEN_SENT
    assert hunted.neighbour_answers
    assert report.newcomer_count
