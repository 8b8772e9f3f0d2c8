"""`ottla certificates`: authorities, certificates of nodes and users, and their renewal."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from ottla.cli.main import run
from ottla.cli.security.doctor_certificates import look_at_file
from ottla.insight.rules.certificate_findings import is_fit
from ottla.rpc.caller import NODE_URI

REFUSED = 1


def certificates(*words: object) -> int:
    return run(["certificates", *map(str, words)])


def read(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def names_of(path: Path) -> list[str]:
    extensions = read(path).extensions
    found = extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    return [str(one.value) for one in found]


@pytest.fixture
def nodes_ca(tmp_path: Path) -> Path:
    assert certificates("ca", tmp_path / "nodes") == 0
    return tmp_path / "nodes"


@pytest.fixture
def users_ca(tmp_path: Path) -> Path:
    assert certificates("ca", tmp_path / "users", "--users") == 0
    return tmp_path / "users"


def test_a_node_gets_a_certificate_that_the_doctor_approves(nodes_ca: Path, tmp_path: Path) -> None:
    issued = ("node", 1, 101, "--host", "b1.example,127.0.0.1", "--ca", nodes_ca)
    assert certificates(*issued) == 0

    path = nodes_ca / "node-1.pem"
    assert names_of(path) == ["b1.example", "127.0.0.1", f"{NODE_URI}1", f"{NODE_URI}101"]
    assert read(path).subject.rfc4514_string() == "CN=b1.example"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    settings = {
        "listeners": "OUT://b1.example:9092",
        "listener.security.protocol.map": "OUT:SSL",
        "ssl.keystore.location": path,
        "ssl.truststore.location": nodes_ca / "ca.pem",
    }
    file = tmp_path / "broker.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    assert is_fit(look_at_file(file))
    assert certificates(*issued) == REFUSED, "an existing file is renewed, never overwritten"


def test_an_authority_of_nodes_issues_no_certificate_to_users(
    nodes_ca: Path, users_ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every holder of a certificate that nodes trust may join the cluster."""
    assert certificates("user", "alice", "--ca", nodes_ca) == REFUSED
    assert "is an authority of nodes; name one of users" in capsys.readouterr().err
    assert certificates("node", 1, "--host", "h", "--ca", users_ca) == REFUSED
    assert "is an authority of users; name one of nodes" in capsys.readouterr().err

    assert certificates("user", "alice", "--ca", users_ca) == 0
    found = read(users_ca / "alice.pem")
    usage = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(usage) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert found.subject.rfc4514_string() == "CN=alice"


def test_an_authority_is_never_replaced(nodes_ca: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = (nodes_ca / "ca-key.pem").read_bytes()
    assert certificates("ca", nodes_ca) == REFUSED
    assert "an authority is never replaced" in capsys.readouterr().err
    assert (nodes_ca / "ca-key.pem").read_bytes() == before
    assert stat.S_IMODE((nodes_ca / "ca-key.pem").stat().st_mode) == 0o600


def test_a_certificate_that_ends_soon_is_renewed_with_its_names(
    nodes_ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    common = ("--host", "b.example", "--ca", nodes_ca)
    assert certificates("node", 1, *common, "--valid-for", "30d") == 0
    assert certificates("node", 2, *common) == 0
    old, other = nodes_ca / "node-1.pem", nodes_ca / "node-2.pem"
    old.chmod(0o640)
    before, kept = read(old), other.read_bytes()
    capsys.readouterr()

    assert certificates("renew", old, other, "--ca", nodes_ca, "--format", "json") == 0

    states = {one["file"]: one["state"] for one in json.loads(capsys.readouterr().out)}
    assert states == {str(old): "renewed", str(other): "not due"}
    after = read(old)
    assert (after.subject, names_of(old)) == (before.subject, ["b.example", f"{NODE_URI}1"])
    assert after.public_key() != before.public_key()
    assert after.not_valid_after_utc - datetime.now(UTC) > timedelta(days=800)
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert other.read_bytes() == kept


def test_a_certificate_of_another_authority_is_not_renewed(
    nodes_ca: Path, users_ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert certificates("user", "alice", "--ca", users_ca) == 0
    path = users_ca / "alice.pem"
    before = path.read_bytes()
    assert certificates("renew", path, "--all", "--ca", nodes_ca) == REFUSED
    assert "its certificate is of another authority" in capsys.readouterr().err
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("node", -1, "--host", "h"), "must be a node.id"),
        (("node", 1, "--host", "no host"), "must be a host name or an address"),
        (("node", 1, "--host", "h", "--valid-for", "soon"), "must be a duration"),
        (("renew", "/absent.pem"), "cannot be renewed"),
    ],
)
def test_bad_input_is_refused_with_a_sentence(
    words: tuple[object, ...],
    sentence: str,
    nodes_ca: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert certificates(*words, "--ca", nodes_ca) == REFUSED
    assert sentence in capsys.readouterr().err


@pytest.mark.parametrize("damage", ["absent", "damaged", "mixed"])
def test_a_directory_without_a_usable_authority_is_refused(
    damage: str, nodes_ca: Path, users_ca: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = nodes_ca / "ca-key.pem"
    match damage:
        case "absent":
            key.unlink()
        case "damaged":
            key.write_text("no key")
        case "mixed":
            key.write_bytes((users_ca / "ca-key.pem").read_bytes())
    assert certificates("node", 1, "--host", "h", "--ca", nodes_ca) == REFUSED
    assert capsys.readouterr().err.startswith("ottla certificates: --ca")
