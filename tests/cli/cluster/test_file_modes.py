"""Warnings at a node's start about files that other users of the machine may read or write."""

import argparse
from pathlib import Path

import pytest

from ottla.cli.cluster import file_modes
from ottla.cli.cluster.file_modes import NAMED_MAX, warning_of_modes
from ottla.cli.cluster.node_process import config_of
from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    # Directories of tests are below one that others cannot enter.
    monkeypatch.setattr(file_modes, "_is_reached_by_others", lambda path: True)
    found = tmp_path / "data"
    found.mkdir()
    return found


@pytest.mark.parametrize(
    ("mode", "has_secrets", "is_said"),
    [
        (0o750, True, False),
        (0o755, True, True),
        (0o755, False, False),
        (0o757, False, True),
        (0o770, True, False),
    ],
)
def test_a_directory_is_said_where_others_have_too_much_of_it(
    data: Path, mode: int, has_secrets: bool, is_said: bool
) -> None:
    data.chmod(mode)
    found = warning_of_modes([str(data), str(data)], [], has_secrets=has_secrets)
    assert (found is not None) is is_said
    if found is not None:
        assert found.count(f"{data} (chmod 750)") == 1


def test_a_file_of_certificates_may_be_read_by_all_and_written_by_its_owner(data: Path) -> None:
    file = data / "ca.pem"
    file.touch(mode=0o644)
    assert warning_of_modes([], [str(file)], has_secrets=True) is None
    file.chmod(0o646)
    said = warning_of_modes([], [str(file)], has_secrets=True)
    assert said == f"every user of this machine may read or write {file} (chmod 640)"


def test_many_are_counted_and_what_is_not_there_is_not_said(data: Path) -> None:
    paths = [data / str(number) for number in range(NAMED_MAX + 2)]
    for path in paths:
        path.mkdir()
        path.chmod(0o777)
    found = warning_of_modes([str(data / "none"), *map(str, paths)], [], has_secrets=False)
    assert found is not None
    assert found.endswith("(chmod 750), 2 more")


def test_a_directory_below_one_that_others_cannot_enter_is_closed(tmp_path: Path) -> None:
    inner = tmp_path / "closed" / "data"
    inner.mkdir(parents=True)
    inner.chmod(0o777)
    inner.parent.chmod(0o750)
    assert warning_of_modes([str(inner)], [], has_secrets=True) is None


SECURED = "authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.mark.parametrize("role", ["broker", "controller"])
def test_a_node_says_it_once_at_its_start(
    data: Path, capsys: pytest.CaptureFixture[str], role: str
) -> None:
    data.chmod(0o755)
    path = data.parent / "node.properties"
    node_id = 1 if role == "broker" else 101
    path.write_text(
        f"node.id={node_id}\ncontroller.quorum.voters=101@localhost:1\nlog.dirs={data}\n"
        f"metadata.log.dir={data}\n{SECURED}\nsuper.users=User:a\n"
    )
    arguments = argparse.Namespace(config=str(path), set=[])
    if role == "broker":
        config_of(arguments, role, load_broker_config)
    else:
        config_of(arguments, role, load_controller_config)
    said = capsys.readouterr().err.splitlines()
    assert [line for line in said if str(data) in line] == [
        f"ottla: warning: every user of this machine may read or write {data} (chmod 750)"
    ]
