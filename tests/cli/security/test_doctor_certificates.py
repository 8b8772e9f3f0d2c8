"""Certificates that will fail are found before they fail a client."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from ottla.cli.security.doctor_certificates import look_at_file
from ottla.insight.rules.certificate_findings import FAILED, OK, WARNING, is_fit
from ottla.model.errors import ConfigError
from ottla.node.local.certificate_authority_driver import CertificateAuthority

CA = CertificateAuthority.make("otters")


def node_file(
    directory: Path,
    *,
    hosts: tuple[str, ...] = ("b1.example",),
    days: int = 100,
    begins: datetime | None = None,
    trusted: str = CA.certificate,
    **settings: str,
) -> Path:
    """Write a broker's file, its certificate and the CAs that it trusts."""
    CA.issue("b1", hosts, valid_from=begins, valid_for=timedelta(days=days)).write(
        directory / "own.pem"
    )
    (directory / "trusted.pem").write_text(trusted)
    texts = {
        "listeners": "OUT://:9092,IN://:9093",
        "advertised.listeners": "OUT://b1.example:9092",
        "listener.security.protocol.map": "OUT:SSL,IN:PLAINTEXT",
        "ssl.keystore.location": str(directory / "own.pem"),
        "ssl.truststore.location": str(directory / "trusted.pem"),
        **{key.replace("_", "."): text for key, text in settings.items()},
    }
    path = directory / "broker.properties"
    path.write_text("".join(f"{key}={text}\n" for key, text in texts.items()))
    return path


def test_a_certificate_that_holds_is_shown_with_its_names_and_its_end(tmp_path: Path) -> None:
    own, trusted = look_at_file(node_file(tmp_path))
    assert (own.where, own.subject, own.names) == ("listener OUT", "CN=b1", ("DNS:b1.example",))
    assert own.valid_until is not None
    assert own.valid_until - datetime.now(UTC) > timedelta(days=99)
    assert (trusted.where, trusted.state) == ("listener OUT, trusted", OK)
    assert is_fit([own, trusted])


def test_a_certificate_that_ends_soon_is_a_warning(tmp_path: Path) -> None:
    own, _ = look_at_file(node_file(tmp_path, days=20))
    assert own.state == WARNING
    assert own.cure == "it ends in 19 days; renew it"


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        ({"begins": datetime.now(UTC) - timedelta(days=9), "days": 3}, "it has expired on "),
        ({"begins": datetime.now(UTC) + timedelta(days=9)}, "it is not valid before "),
        ({"hosts": ("b2.example",)}, "it is not for b1.example, where clients connect; "),
        ({"trusted": CertificateAuthority.make("x").certificate}, "the trusted CAs do not vouch"),
        ({"trusted": "nothing"}, "ssl.truststore.location: has no certificate in PEM"),
        ({"ssl_keystore_location": "/missing"}, "ssl.keystore.location: is /missing, which cannot"),
        ({"ssl_keystore_location": ""}, "listener.name.out.ssl.keystore.location: is not set"),
    ],
)
def test_a_certificate_that_clients_refuse_fails(
    tmp_path: Path, wrong: dict[str, object], cure: str
) -> None:
    own, *_ = look_at_file(node_file(tmp_path, **wrong))  # type: ignore[arg-type]  # by case
    assert own.state == FAILED
    assert own.cure.startswith(cure)
    assert not is_fit([own])


def test_listeners_of_controllers_are_looked_at_too(tmp_path: Path) -> None:
    path = node_file(
        tmp_path,
        controller_listener_names="CTL",
        listener_security_protocol_map="OUT:PLAINTEXT,IN:PLAINTEXT,CTL:SSL",
    )
    own, _ = look_at_file(path)
    assert (own.where, own.state) == ("listener CTL", OK)


def test_a_listener_may_trust_the_authority_of_users_only(tmp_path: Path) -> None:
    users = tmp_path / "users.pem"
    users.write_text(CertificateAuthority.make("users").certificate)
    settings = {
        "listener_security_protocol_map": "OUT:SSL,IN:SSL",
        "listener_name_out_ssl_truststore_location": str(users),
        "listener_name_out_ssl_client_auth": "required",
    }
    found = {one.where: one.state for one in look_at_file(node_file(tmp_path, **settings))}  # type: ignore[arg-type]  # texts
    assert found["listener OUT"] == OK

    wrong = node_file(tmp_path, hosts=("b2.example",), **settings)  # type: ignore[arg-type]  # texts
    assert look_at_file(wrong)[0].cure.startswith("it is not for b1.example")


def test_a_file_without_encryption_has_nothing_to_look_at(tmp_path: Path) -> None:
    path = tmp_path / "plain.properties"
    path.write_text("listeners=PLAINTEXT://:9092\n")
    with pytest.raises(ConfigError, match="no listener of SSL or SASL_SSL"):
        look_at_file(path)
    with pytest.raises(ConfigError, match="cannot be read"):
        look_at_file(tmp_path / "missing")


def test_a_certificate_in_pem_is_looked_at_without_settings(tmp_path: Path) -> None:
    node_file(tmp_path)
    own, issuers = tmp_path / "own.pem", tmp_path / "trusted.pem"
    (found,) = look_at_file(own)
    assert (found.where, found.subject, found.state) == ("certificate", "CN=b1", OK)
    assert found.names == ("DNS:b1.example",)
    assert is_fit(look_at_file(own, authority=issuers))
    assert is_fit(look_at_file(issuers)), "a CA has no key in its file"

    issuers.write_text(CertificateAuthority.make("x").certificate)
    (found,) = look_at_file(own, authority=issuers)
    assert found.cure.startswith("the trusted CAs do not vouch for it")
    node_file(tmp_path, days=20)
    assert look_at_file(own)[0].cure == "it ends in 19 days; renew it"


def test_a_pem_file_is_refused_or_failed_with_its_problem(tmp_path: Path) -> None:
    settings = node_file(tmp_path)
    own = tmp_path / "own.pem"
    with pytest.raises(ConfigError, match="--ca: is for a PEM file"):
        look_at_file(settings, authority=tmp_path / "trusted.pem")
    text = own.read_text()
    at = text.index("-----BEGIN CERTIFICATE")
    begin = text.index("-----BEGIN PRIVATE")
    key = text[begin : at if begin < at else len(text)]
    own.write_text(key)
    with pytest.raises(ConfigError, match="has no certificate in PEM"):
        look_at_file(own)
    other = CertificateAuthority.make("x").certificate
    own.write_text(key + other)
    own.chmod(0o600)
    (found,) = look_at_file(own)
    assert found.state == FAILED
    assert "key" in found.cure
    own.write_text("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
    with pytest.raises(ConfigError, match="cannot be decoded"):
        look_at_file(own)
