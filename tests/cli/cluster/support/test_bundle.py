"""`ottla bundle`: everything that helps, and no secret."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.cluster.support import bundle
from ottla.cli.cluster.support.plain_values import HIDDEN, is_secret, plain
from ottla.cli.cluster.support.sections import SECTIONS
from ottla.cli.main import run
from ottla.client.admin import open_admin
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import NodeId, TopicPartition
from ottla.testing.in_process import open_in_process_cluster

SECRET = "hunter2-is-my-password"


async def test_the_files_have_the_state_of_the_cluster_and_no_secret() -> None:
    async with (
        open_in_process_cluster(broker_count=2) as cluster,
        open_admin(cluster.bootstrap) as admin,
    ):
        await admin.create_topic("orders", partition_count=2, replication_factor=2)
        await admin.alter_broker_configs(
            None, {"my.client.password.file": SECRET, "my.plugin": SECRET}
        )
        await admin.alter_topic_configs("orders", {"retention.ms": "60000"})
        contents, failures = await bundle.collected(admin)
        assert failures == {}
        assert contents.keys() == SECTIONS.keys()
        assert contents["topics"]["orders"][0]["replicas"]
        assert contents["topic-settings"]["orders"]["retention.ms"]["value"] == "60000"
        assert set(contents["broker-settings"]) == {"cluster", "1", "2"}
        assert [one["id"] for one in contents["brokers"]] == [1, 2]
        text = json.dumps(contents)
        assert SECRET not in text
        assert HIDDEN in text


async def test_a_section_that_fails_costs_one_file(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refused(admin: Any) -> Any:
        raise RefusedError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)

    async with open_in_process_cluster() as cluster, open_admin(cluster.bootstrap) as admin:
        monkeypatch.setitem(SECTIONS, "groups", refused)
        contents, failures = await bundle.collected(admin)
        assert list(failures) == ["groups"]
        assert contents.keys() == SECTIONS.keys() - {"groups"}


def test_the_archive_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "a.tar.gz"
    bundle.write_archive(path, {"status": {"healthy": True}}, wall_s=1)
    assert path.stat().st_mode & 0o077 == 0
    with tarfile.open(path) as archive:
        assert archive.getnames() == ["a/status.json"]
        found = archive.extractfile("a/status.json")
        assert found is not None
        assert json.load(found) == {"healthy": True}


def test_a_file_that_exists_is_not_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "a.tar.gz"
    path.write_text("mine")
    assert run(["bundle", "--output", str(path), "--bootstrap", "127.0.0.1:1"]) == 1
    assert "which exists" in capsys.readouterr().err
    assert path.read_text() == "mine"


@pytest.mark.parametrize(
    ("key", "is_hidden"),
    [
        ("ssl.keystore.password", True),
        ("sasl.jaas.config", True),
        ("listener.name.x.plain.sasl.jaas.config", True),
        ("delegation.token.secret.key", True),
        ("retention.ms", False),
    ],
)
def test_secret_settings_are_known_by_their_keys(key: str, is_hidden: bool) -> None:
    assert is_secret(key) is is_hidden


def test_values_become_json() -> None:
    at = TopicPartition("t", 0)
    assert plain({at: [NodeId(1), ErrorCode.NONE, b"abc", None]}) == {
        "t-0": [1, "NONE", "3 bytes", None]
    }
