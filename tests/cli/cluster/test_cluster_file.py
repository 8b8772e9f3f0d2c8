"""cluster.json is edited by people: its content is accepted, or refused with a sentence."""

import json
from pathlib import Path

import pytest

from ottla.cli.cluster.cluster_file import ListedNode, make_plan, properties_of
from ottla.cli.cluster.local_tier import use_tier
from ottla.cli.common import CLUSTER_FILE, read_cluster_file
from ottla.jepsen.fuzz.plain_driver import fuzz
from ottla.jepsen.fuzz.target import FuzzTarget
from ottla.model.errors import ConfigError
from ottla.node.properties import parse_properties


def test_any_bytes_are_a_cluster_or_refused(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=2, brokers=2)
    plan.write()
    good = (tmp_path / CLUSTER_FILE).read_bytes()
    path = tmp_path / "changed.json"

    def check(data: bytes) -> None:
        path.write_bytes(data)
        found = read_cluster_file(path)
        for row in (*found["controllers"], *found["brokers"]):
            assert ListedNode(**row).port >= 0

    target = FuzzTarget(
        name="cluster-file",
        sentence="cluster.json",
        check=check,
        seeds=lambda random: [good, json.dumps(json.loads(good)).encode(), b'{"bootstrap":""}'],
        refusals=(ConfigError,),
    )
    judge = fuzz(target, count=800, seconds=5)
    assert not judge.findings, list(judge.findings.values())
    assert judge.input_count > judge.refused_count


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"bootstrap": 7}',
        '{"bootstrap": "h:1", "brokers": 7}',
        '{"bootstrap": "h:1", "brokers": [{"id": 1}]}',
        '{"bootstrap": "h:1", "brokers": [{"id": 1, "address": "h:x", "dir": "d"}]}',
        '{"bootstrap": "h:1", "brokers": [{"id": "1", "address": "h:1", "dir": "d"}]}',
        '{"bootstrap": "h:1", "brokers": [{"id": 1, "address": "h:1", "dir": "d", "new": 1}]}',
    ],
)
def test_what_up_never_wrote_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / CLUSTER_FILE
    path.write_text(text)
    with pytest.raises(ConfigError, match="remove it"):
        read_cluster_file(path)


@pytest.mark.parametrize(
    ("wanted", "ports"),
    [("9404", ["9404", "9405", "9406", "9407"]), ("0", ["0"] * 4), ("-1", ["-1"] * 4)],
)
def test_nodes_of_one_machine_are_scraped_at_ports_of_their_own(
    tmp_path: Path, wanted: str, ports: list[str]
) -> None:
    """Brokers first, then controllers; 0 is free for each, and -1 is none."""
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=2, brokers=2)
    plan.settings = {"metrics.prometheus.port": wanted}
    plan.write_properties()
    nodes = [("broker", node) for node in plan.brokers]
    nodes += [("controller", node) for node in plan.controllers]
    found = [parse_properties(properties_of(role, node).read_text()) for role, node in nodes]
    assert [one["metrics.prometheus.port"] for one in found] == ports


def test_only_brokers_have_the_settings_of_client_logins(tmp_path: Path) -> None:
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=1, brokers=1)
    login = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": 'Module required\n  password="a\\b";',
    }
    plan.settings = {**login, "metadata.max.idle.interval.ms": "0"}
    plan.write_properties()
    broker, controller = (
        parse_properties(properties_of(role, node).read_text())
        for role, node in (("broker", plan.brokers[0]), ("controller", plan.controllers[0]))
    )
    assert login.items() <= broker.items()
    assert not login.keys() & controller.keys()
    assert controller["metadata.max.idle.interval.ms"] == "0"


def test_the_object_store_of_a_cluster_is_remembered(tmp_path: Path) -> None:
    pytest.importorskip("obstore")
    uri = f"file://{tmp_path / 'tier'}"
    plan = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=1, brokers=1)
    use_tier(plan, uri)
    assert (tmp_path / "tier").is_dir()
    plan.write()
    again = make_plan(tmp_path, host="127.0.0.1", port=0, controllers=None, brokers=None)
    again.write_properties()
    broker = parse_properties((tmp_path / "broker-1.properties").read_text())
    controller = parse_properties((tmp_path / "controller-101.properties").read_text())
    assert broker["remote.log.storage.uri"] == uri
    assert broker["remote.log.storage.system.enable"] == "true"
    assert controller["remote.log.storage.system.enable"] == "true"
    assert not any(key.startswith(("remote.log.storage.u", "rlmm.")) for key in controller)
    with pytest.raises(ConfigError, match="has its segments in file:///"):
        use_tier(again, "s3://bucket/other")
    with pytest.raises(ConfigError, match="for tests"):
        use_tier(plan, "memory:")
