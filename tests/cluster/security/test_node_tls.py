"""Nodes that know each other by certificates: impostors, new certificates, and the way there."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.model.settings.security.node_tls import CONTROLLER_LISTENER_NAMES
from ottla.model.settings.security.security_keys import PROTOCOL_MAP
from ottla.node.local.local_nodes_driver import free_port
from tests.cluster.conftest import Load, Processes
from tests.cluster.security.certificates import Certificates, id_of, restart, write_settings

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RATE = 500


def secure(cluster: Processes, certificates: Certificates, *names: str) -> None:
    """Have nodes accept TLS only from each other."""
    for name in names:
        certificates.issue(name, id_of(name))
        settings = {
            PROTOCOL_MAP: "CONTROLLER:SSL,PLAINTEXT:PLAINTEXT",
            CONTROLLER_LISTENER_NAMES: "CONTROLLER",
            **certificates.settings(name),
        }
        write_settings(cluster, name, settings)


def create(cluster: Processes, topic: str) -> None:
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = NewTopic(topic, 3, replication_factor=2, config={"min.insync.replicas": "1"})
    admin.create_topics([new])[topic].result(timeout=60)


def test_a_certificate_speaks_for_its_node_alone(
    plan_cluster: Callable[..., Processes], tmp_path: Path
) -> None:
    certificates = Certificates(tmp_path)
    cluster = plan_cluster(controllers=1, brokers=2)
    secure(cluster, certificates, *cluster.names)
    cluster.start("controller", "broker 1")
    certificates.issue("broker 2", 1)

    impostor = cluster.spawn("broker 2")
    sentence = "User:CN=broker 2 is node 1, not node 2"
    cluster.wait_for(lambda: sentence in cluster.log_of("broker 2").read_text(), "refusal")
    assert [row["id"] for row in cluster.status()["brokers"]] == [1]
    cluster.end("broker 2")
    os.close(impostor.ready_reader)

    certificates.issue("broker 2", 2)
    cluster.start("broker 2")
    cluster.wait_healthy()


def test_all_certificates_and_their_authority_change_under_load(
    plan_cluster: Callable[..., Processes],
    tmp_path: Path,
    start_load: Callable[..., Load],
) -> None:
    certificates = Certificates(tmp_path)
    cluster = plan_cluster(controllers=3, brokers=2)
    secure(cluster, certificates, *cluster.names)
    cluster.start()
    create(cluster, "rotated")
    cluster.wait_healthy()
    load = start_load(cluster, "rotated", rate=RATE)
    certificates.change_authority()
    for name in cluster.names:
        certificates.issue(name, id_of(name))
    # A restarted node dials, and is dialled again, with the files that the others have reloaded.
    restart(cluster, "controller 102")
    restart(cluster, "broker 2")
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == 0


def test_a_plaintext_cluster_changes_over_to_tls_between_nodes_under_load(
    plan_cluster: Callable[..., Processes],
    tmp_path: Path,
    start_load: Callable[..., Load],
) -> None:
    """Both listeners, then all nodes dial the new one, then the old one goes; node by node."""
    certificates = Certificates(tmp_path)
    cluster = plan_cluster(controllers=3, brokers=2)
    cluster.start()
    create(cluster, "moved")
    cluster.wait_healthy()
    load = start_load(cluster, "moved", rate=RATE)
    ports = {name: free_port("127.0.0.1") for name in cluster.named("controller")}
    voters = ",".join(f"{id_of(name)}@127.0.0.1:{port}" for name, port in ports.items())

    load.mark("both listeners")
    for name in ports:
        old, new = cluster.node(name).address, f"127.0.0.1:{ports[name]}"
        certificates.issue(name, id_of(name))
        settings = {
            "listeners": f"CONTROLLER://{old},SAFE://{new}",
            PROTOCOL_MAP: "CONTROLLER:PLAINTEXT,SAFE:SSL",
            CONTROLLER_LISTENER_NAMES: "CONTROLLER,SAFE",
            **certificates.settings(name),
        }
        write_settings(cluster, name, settings)
        restart(cluster, name)
    load.mark("the new one is dialled")
    for name in cluster.names:
        settings = {
            "controller.quorum.voters": voters,
            CONTROLLER_LISTENER_NAMES: "SAFE,CONTROLLER",
        }
        if name not in ports:
            certificates.issue(name, id_of(name))
            settings |= {
                PROTOCOL_MAP: "PLAINTEXT:PLAINTEXT,SAFE:SSL",
                CONTROLLER_LISTENER_NAMES: "SAFE",
                **certificates.settings(name),
            }
        write_settings(cluster, name, settings)
        restart(cluster, name)
    load.mark("the old one goes")
    for name in ports:
        settings = {
            "listeners": f"SAFE://127.0.0.1:{ports[name]}",
            PROTOCOL_MAP: "SAFE:SSL",
            CONTROLLER_LISTENER_NAMES: "SAFE",
        }
        write_settings(cluster, name, settings)
        restart(cluster, name)
    run = load.stop()
    assert run.is_clean
    assert run.report["failed"] == 0
