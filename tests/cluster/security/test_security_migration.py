"""docs/deploy.md "Secure a running cluster", pasted under load; new certificates for everything.

`OTTLA_FAULTS=full` uses three controllers and three brokers, and runs all tests; otherwise there
are fewer nodes.
"""

import os
import re
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.node.local.local_nodes_driver import free_ports
from tests.cluster.conftest import Load, Processes
from tests.cluster.security.certificates import Certificates, id_of, restart, write_settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

ROOT = Path(__file__).parents[3]
IS_FULL = os.environ.get("OTTLA_FAULTS") == "full"
SIZE = {"controllers": 3, "brokers": 3} if IS_FULL else {"controllers": 1, "brokers": 2}
RATE = 500
PASSWORD = "BROKER-PASSWORD"
"""As the page has it, for all users."""
RELOAD_S = 11.0
"""A changed file is used within 10 s."""
ROLES = ("controller", "broker")


def blocks_of_the_page() -> list[dict[str, str]]:
    """Return the settings of the section, in order: of controllers and of brokers by turns."""
    page = (ROOT / "docs/deploy.md").read_text()
    section = page.partition("## Secure a running cluster\n")[2].partition("\n## ")[0]
    blocks = re.findall(r"^```properties\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [dict(line.split("=", 1) for line in block.splitlines()) for block in blocks]


class Migration:
    """The page's settings, with the addresses and files of a cluster."""

    def __init__(self, cluster: Processes, certificates: Certificates) -> None:
        self._cluster = cluster
        self._certificates = certificates
        ports = free_ports(len(cluster.names))
        self._new = {
            name: f"127.0.0.1:{port}" for name, port in zip(cluster.names, ports, strict=True)
        }
        self._blocks = blocks_of_the_page()
        assert len(self._blocks) == 8
        for name in cluster.names:
            certificates.issue(name, id_of(name))

    def client(self, user: str) -> dict[str, str]:
        """Return the settings of a client that has moved."""
        return {
            "bootstrap.servers": ",".join(self._new[one] for one in self._cluster.named("broker")),
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORD,
            "ssl.ca.location": str(self._certificates.trusted),
        }

    def paste(self, at: int, load: Load) -> None:
        """Do a restart of the page, 1 to 4, to all nodes."""
        load.mark(f"restart {at}")
        for role, block in zip(ROLES, self._blocks[2 * at - 2 : 2 * at], strict=True):
            for name in self._cluster.named(role):
                settings = {key: self._own(name, key, text) for key, text in block.items()}
                write_settings(self._cluster, name, settings)
                restart(self._cluster, name)

    def _own(self, name: str, key: str, text: str) -> str:
        if key == "controller.quorum.voters":
            return ",".join(
                f"{id_of(one)}@{self._new[one]}" for one in self._cluster.named("controller")
            )
        if key == "super.users":
            nodes = ";".join(f"User:CN={one}" for one in self._cluster.names)
            return re.sub(r"User:CN=one.*", nodes, text)
        old, new = self._cluster.node(name).address, self._new[name]
        text = text.replace("/etc/ottla/node.pem", str(self._certificates.path(name)))
        text = text.replace("/etc/ottla/ca.pem", str(self._certificates.trusted))
        for port, address in (("9092", old), ("9093", old), ("9094", new), ("9095", new)):
            text = re.sub(rf"(one\.example)?:{port}\b", address, text)
        return text


def create(client: Mapping[str, str], *topics: str) -> None:
    admin = AdminClient(dict(client))
    new = [
        NewTopic(topic, 3, replication_factor=2, config={"min.insync.replicas": "1"})
        for topic in topics
    ]
    for made in admin.create_topics(new).values():
        made.result(timeout=60)


def check(load: Load) -> None:
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == 0
    assert run.report["unanswered"] == 0


@pytest.mark.skipif(not IS_FULL, reason="OTTLA_FAULTS=full; four rolling restarts take a minute")
def test_a_plaintext_cluster_becomes_secure_under_load_as_the_page_says(
    plan_cluster: Callable[..., Processes],
    tmp_path: Path,
    start_load: Callable[..., Load],
) -> None:
    cluster = plan_cluster(**SIZE)
    cluster.start()
    create(cluster.client, "old", "new")
    cluster.wait_healthy()
    migration = Migration(cluster, Certificates(tmp_path))
    old = start_load(cluster, "old", rate=RATE)
    migration.paste(1, old)
    for user in ("broker", "admin", "app"):
        cluster.ottla("user", "add", user, password=PASSWORD)
    new = start_load(cluster, "new", rate=RATE, client=migration.client("app"), name="moved")
    migration.paste(2, old)
    migration.paste(3, old)
    cluster.client = migration.client("admin")
    for principal, topic in (("ANONYMOUS", "old"), ("app", "new")):
        which = ("--topic", topic, "--group", "ottla-bench")
        cluster.ottla("acl", "create", "--allow", principal, "--producer", "--consumer", *which)
    check(old)
    migration.paste(4, new)
    cluster.ottla("acl", "delete", "--principal", "ANONYMOUS", "--yes")
    cluster.ottla("acl", "explain", "app", "write", "--topic", "old", code=2)
    check(new)


@pytest.mark.skipif(not IS_FULL, reason="OTTLA_FAULTS=full; it waits for files to be read again")
def test_all_certificates_of_nodes_and_listeners_change_under_load(
    plan_cluster: Callable[..., Processes],
    tmp_path: Path,
    start_load: Callable[..., Load],
) -> None:
    certificates = Certificates(tmp_path)
    cluster = plan_cluster(is_secure=True, **SIZE)
    users = ["User:admin", "User:broker", *(f"User:CN={name}" for name in cluster.names)]
    for name in cluster.names:
        certificates.issue(name, id_of(name))
        settings = {**certificates.settings(name), "super.users": ";".join(users)}
        write_settings(cluster, name, settings)
    cluster.client["ssl.ca.location"] = str(certificates.trusted)
    cluster.start()
    create(cluster.client, "before", "after")
    cluster.wait_healthy()
    load = start_load(cluster, "before", rate=RATE)
    load.mark("both authorities are trusted")
    certificates.change_authority()
    time.sleep(RELOAD_S)
    load.mark("new certificates")
    for name in cluster.names:
        certificates.issue(name, id_of(name))
    time.sleep(RELOAD_S)
    newest = tmp_path / "newest.pem"
    certificates.write_newest(newest)
    cluster.client["ssl.ca.location"] = str(newest)
    later = start_load(cluster, "after", rate=RATE, name="later")
    # What restarts dials again, and is dialled, by the new ones.
    restart(cluster, cluster.named("controller")[-1])
    restart(cluster, "broker 2")
    check(load)
    check(later)


def kill_and_start(cluster: Any, load: Load, *names: str) -> None:
    load.mark(f"kill -9 {', '.join(names)}")
    cluster.kill(*names)
    cluster.start(*names)
    cluster.wait_healthy()


def test_kills_of_a_secure_cluster_lose_nothing_acknowledged(
    plan_cluster: Callable[..., Processes], start_load: Callable[..., Load]
) -> None:
    short = {"broker_session_timeout_ms": "2000", "broker_heartbeat_interval_ms": "400"}
    cluster = plan_cluster(is_secure=True, **SIZE, **short)
    cluster.start()
    create(cluster.client, "killed")
    cluster.wait_healthy()
    load = start_load(cluster, "killed", rate=RATE)
    for _ in range(6 if IS_FULL else 1):
        kill_and_start(cluster, load, cluster.leader_of_most("killed"))
        kill_and_start(cluster, load, cluster.active_controller())
        kill_and_start(cluster, load, *cluster.named("broker"))
    check(load)
