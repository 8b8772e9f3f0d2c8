"""The properties of a cluster of Apache Kafka."""

from pathlib import Path

from ottla.bench.kafka.kafka_cluster import node_properties


def test_each_node_has_its_role_and_knows_the_voters() -> None:
    voters = "101@127.0.0.1:1,102@127.0.0.1:2"
    text = node_properties(
        "broker",
        3,
        9092,
        directory=Path("/d"),
        voters=voters,
        settings={"min.insync.replicas": "2"},
    )
    found = dict(line.split("=", 1) for line in text.splitlines())
    assert found["process.roles"] == "broker"
    assert found["node.id"] == "3"
    assert found["listeners"] == "PLAINTEXT://127.0.0.1:9092"
    assert found["controller.quorum.voters"] == voters
    assert found["min.insync.replicas"] == "2"
    controller = node_properties(
        "controller", 101, 1, directory=Path("/d"), voters=voters, settings={}
    )
    assert "listeners=CONTROLLER://127.0.0.1:1\n" in controller
