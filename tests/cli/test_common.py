"""Sources of a command's bootstrap addresses, and their order."""

import argparse
from pathlib import Path

import pytest

from ottla.cli.common import CONNECTION, bootstrap_of, use_login
from ottla.cli.options import declare_options
from ottla.client.network.login import LOGIN
from ottla.model.errors import ConfigError

OF_THE_SESSION = LOGIN.get()
"""Login of the tests: none, except on clusters that are all secure."""


def addresses_of(*arguments: str) -> tuple[tuple[str, int], ...]:
    parser = argparse.ArgumentParser()
    declare_options(parser, CONNECTION)
    return bootstrap_of(parser.parse_args(arguments))


@pytest.fixture(autouse=True)
def variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "here:1,there:2")


def test_the_environment_names_the_cluster() -> None:
    assert addresses_of() == (("here", 1), ("there", 2))


def test_an_option_is_above_the_environment(tmp_path: Path) -> None:
    (tmp_path / "cluster.json").write_text('{"bootstrap": "file:4"}')

    assert addresses_of("--bootstrap", "option:3") == (("option", 3),)
    assert addresses_of("--dir", str(tmp_path)) == (("file", 4),)


def test_a_wrong_address_of_the_environment_is_named_as_such(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "nowhere:port")

    with pytest.raises(ConfigError, match="OTTLA_BOOTSTRAP: is 'nowhere:port'"):
        addresses_of()


@pytest.mark.parametrize("turn", [1, 2])
def test_a_test_leaves_no_login_to_the_next(turn: int) -> None:
    assert LOGIN.get() is OF_THE_SESSION, f"turn {turn}"
    use_login(
        {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}
        | {"sasl.username": "al", "sasl.password": "pw"}
    )
    assert LOGIN.get() is not OF_THE_SESSION
