"""The brokers of a host with many cores, from one settings file."""

from pathlib import Path

import pytest

from ottla.cli.cluster.server.cores import usable_cores
from ottla.cli.cluster.server.host_brokers import host_brokers, wanted_brokers
from ottla.model.errors import ConfigError
from ottla.model.settings.broker import load_broker_config
from tests.stock_files import broker_settings, server_settings


def host_settings(directory: Path, **changes: str) -> dict[str, str]:
    """Return Kafka's stock settings of a broker, for host 7."""
    return broker_settings(directory) | {"node.id": "7"} | changes


def test_each_broker_has_its_own_id_ports_and_directories(tmp_path: Path) -> None:
    settings = host_settings(
        tmp_path / "data",
        **{
            "log.dirs": f"{tmp_path}/one,{tmp_path}/two",
            "metrics.prometheus.port": "9404",
            "log.file": f"{tmp_path}/broker.log",
            "metadata.log.dir": f"{tmp_path}/metadata",
        },
    )

    first, second = host_brokers(settings, 2)

    assert (first.id, second.id) == (700, 701)
    config, unknown = load_broker_config({**settings, **second.overrides})
    assert config.node_id == 701
    assert [one.port for one in config.listeners] == [9102]
    assert [one.port for one in config.advertised_listeners] == [9102]
    assert config.log_dirs == (f"{tmp_path}/one/broker-701", f"{tmp_path}/two/broker-701")
    assert config.metadata_directory == f"{tmp_path}/metadata/broker-701"
    assert config.metrics.prometheus_port == 9414
    assert config.log_output.file == f"{tmp_path}/broker-701.log"
    assert config.brokers_per_host is None or config.brokers_per_host == ""
    assert "ottla.brokers.per.host" not in unknown


def test_a_broker_keeps_its_identity_when_others_are_added(tmp_path: Path) -> None:
    settings = host_settings(tmp_path)
    assert host_brokers(settings, 1) == host_brokers(settings, 5)[:1]


def test_a_free_port_stays_free(tmp_path: Path) -> None:
    settings = host_settings(tmp_path, listeners="PLAINTEXT://:0")
    assert host_brokers(settings, 2)[1].overrides["listeners"] == "PLAINTEXT://:0"


def test_a_broker_beyond_the_number_runs_on_while_it_has_replicas(tmp_path: Path) -> None:
    for name in ("broker-702/orders-0", "broker-703/orders-1.abc-delete", "broker-704"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "broker-704" / "__cluster_metadata-0").mkdir()

    found = host_brokers(host_settings(tmp_path), 2)

    assert [(one.id, one.is_surplus) for one in found] == [
        (700, False),
        (701, False),
        (702, True),
    ]
    assert found[2].overrides["cordoned.log.dirs"] == "*"
    assert [one.is_surplus for one in host_brokers(host_settings(tmp_path), 3)] == [False] * 3


@pytest.mark.parametrize(
    ("option", "file", "count"),
    [(None, "", None), ("3", "5", 3), (None, "5", 5), ("auto", "", 16), (None, "auto", 16)],
)
def test_the_number_is_that_of_the_option_or_of_the_file(
    tmp_path: Path, option: str | None, file: str, count: int | None
) -> None:
    settings = host_settings(tmp_path, **{"ottla.brokers.per.host": file})
    assert wanted_brokers(settings, option, 16) == count


@pytest.mark.parametrize("text", ["0", "101", "-1", "many", "1.5"])
def test_an_impossible_number_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigError, match="auto or a number from 1 to 100"):
        wanted_brokers(host_settings(tmp_path), text, 16)


def test_several_brokers_need_a_file_of_their_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="give the controller a file of its own"):
        wanted_brokers(server_settings(tmp_path), "2", 16)


def test_directories_of_a_single_broker_are_refused(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("node.id=7\n")
    with pytest.raises(ConfigError, match="belongs to a broker of its own"):
        host_brokers(host_settings(tmp_path), 2)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"node.id": "21474836"}, "it is the number of the host, 0 to"),
        ({"node.id": ""}, "it is the number of the host"),
        ({"listeners": "A://:9092,B://:9102"}, "port 9102"),
        ({"listeners": "PLAINTEXT://:65530"}, "that of core 1 would be 65540"),
        ({"metrics.prometheus.port": "9102"}, "gives port 9102 to"),
        ({"log.dirs": ""}, "name the directories of this host"),
    ],
)
def test_settings_that_cannot_be_shared_are_refused(
    tmp_path: Path, changes: dict[str, str], sentence: str
) -> None:
    with pytest.raises(ConfigError, match=sentence):
        host_brokers(host_settings(tmp_path, **changes), 2)


@pytest.mark.parametrize(
    ("quota", "cores"),
    [("", 8), ("max 100000", 8), ("400000 100000", 4), ("50000 100000", 1), ("9900000 100000", 8)],
)
def test_a_quota_of_the_control_group_bounds_the_cores(quota: str, cores: int) -> None:
    assert usable_cores(8, quota) == cores
