"""Named profiles of clusters: precedence of option, environment and profile, and file
permissions."""

import argparse
from pathlib import Path

import pytest

from ottla.cli.common import CONNECTION, bootstrap_of
from ottla.cli.options import declare_options
from ottla.client.network.login import LOGIN
from ottla.model.errors import ConfigError
from ottla.model.settings.security.sasl import SaslLogin

CONFIG = """
[profiles.prod]
bootstrap = ["prod-1:1", "prod-2:2"]
security.protocol = "SASL_PLAINTEXT"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "alice"
sasl.password = "secret"

[profiles.test]
"bootstrap.servers" = "test:3"

[profiles.shared]
bootstrap = "shared:4"
command-config = "login.properties"
"sasl.password" = "another"

[profiles.wrong]
"security.protocol" = "SASL_PLAINTEXT"
"sasl.mechanism" = "GSSAPI"
"""
ALICE = SaslLogin("SCRAM-SHA-512", "alice", "secret")


@pytest.fixture(autouse=True)
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's config.toml."""
    path = tmp_path / "config/ottla/config.toml"
    path.parent.mkdir(parents=True)
    path.write_text(CONFIG)
    path.chmod(0o600)
    (path.parent / "login.properties").write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n"
        "sasl.username=bob\nsasl.password=one\n"
    )
    (path.parent / "login.properties").chmod(0o600)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("OTTLA_BOOTSTRAP", raising=False)
    monkeypatch.delenv("OTTLA_PROFILE", raising=False)
    return path


def connection_of(*words: str) -> tuple[str, SaslLogin | None]:
    """Return the address and the login of a command's words."""
    parser = argparse.ArgumentParser()
    declare_options(parser, CONNECTION)
    token = LOGIN.set(None)
    try:
        found = bootstrap_of(parser.parse_args(words))
        return ",".join(f"{host}:{port}" for host, port in found), LOGIN.get()
    finally:
        LOGIN.reset(token)


def test_a_profile_has_address_and_login() -> None:
    assert connection_of("--profile", "prod") == ("prod-1:1,prod-2:2", ALICE)
    assert connection_of("--profile", "test") == ("test:3", None)


def test_a_profile_may_name_a_file_and_say_some_keys_itself() -> None:
    assert connection_of("--profile", "shared") == (
        "shared:4",
        SaslLogin("PLAIN", "bob", "another"),
    )


def test_the_environment_names_a_profile(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "prod")
    assert connection_of() == ("prod-1:1,prod-2:2", ALICE)


def test_an_option_is_above_the_environment_and_that_above_a_profile_it_names(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OTTLA_PROFILE", "prod")
    monkeypatch.setenv("OTTLA_BOOTSTRAP", "environment:9")

    assert connection_of() == ("environment:9", ALICE)
    assert connection_of("--profile", "test") == ("test:3", None)
    assert connection_of("--bootstrap", "option:8") == ("option:8", ALICE)
    assert connection_of("--bootstrap", "option:8", "--profile", "test") == ("option:8", None)


def test_a_file_of_settings_is_above_the_login_of_a_profile(config: Path) -> None:
    file = str(config.parent / "login.properties")
    assert connection_of("--profile", "prod", "--command-config", file) == (
        "prod-1:1,prod-2:2",
        SaslLogin("PLAIN", "bob", "one"),
    )


def test_a_local_cluster_has_no_profile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cluster.json").write_text('{"bootstrap": "file:4"}')
    monkeypatch.setenv("OTTLA_PROFILE", "prod")

    assert connection_of("--dir", str(tmp_path)) == ("file:4", None)
    with pytest.raises(ConfigError, match="--profile: names another cluster than --dir"):
        connection_of("--dir", str(tmp_path), "--profile", "prod")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("prdo", r"--profile: is 'prdo', and .*config.toml has no .* \(did you mean 'prod'\?\)"),
        ("wrong", "profile wrong: sasl.mechanism: "),
    ],
)
def test_what_is_wrong_with_a_profile_is_named(name: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        connection_of("--profile", name)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[profiles", "is not TOML"),
        ("profiles = 7", "are no tables"),
        ("profiles.prod = 7", "is no table"),
        ("[profiles.prod]\nbootstrap = [1]", "bootstrap: must be a text"),
        ("[profiles.prod]\nbootstrap = 'nonsense'", "bootstrap of profile prod: is 'nonsense'"),
        ("[profiles.prod]\nbotstrap = 'a:1'", "profile prod: botstrap: "),
        ("[profiles.prod]\ncommand-config = 'none'", "none cannot be read"),
    ],
)
def test_a_config_that_cannot_be_meant_is_refused(text: str, reason: str, config: Path) -> None:
    config.write_text(text)
    with pytest.raises(ConfigError, match=reason):
        connection_of("--profile", "prod")


def test_a_missing_config_is_named(config: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config.unlink()
    monkeypatch.setenv("OTTLA_PROFILE", "prod")
    with pytest.raises(ConfigError, match=r"OTTLA_PROFILE: needs .*ottla/config.toml"):
        connection_of()


@pytest.mark.parametrize(
    ("profile", "mode", "is_warned"),
    [("prod", 0o600, False), ("prod", 0o640, False), ("prod", 0o644, True), ("test", 0o644, False)],
)
def test_a_password_that_every_user_can_read_is_warned_of(
    profile: str, mode: int, is_warned: bool, config: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config.chmod(mode)
    connection_of("--profile", profile)

    said = capsys.readouterr().err
    assert (f"every user can read {config}" in said) is is_warned
    assert "secret" not in said


def test_so_is_a_file_of_settings(config: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = config.parent / "login.properties"
    file.chmod(0o644)
    connection_of("--bootstrap", "a:1", "--command-config", str(file))
    assert f"run chmod 600 {file}" in capsys.readouterr().err
