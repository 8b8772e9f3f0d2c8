import pytest

from ottla.model.ids import NodeId
from ottla.model.security.acls import ANONYMOUS
from ottla.node.local.certificate_authority_driver import CertificateAuthority
from ottla.rpc.caller import CERTIFICATE, Caller, caller_of, host_of

AUTHORITY = CertificateAuthority.make("otters")


def same(name: str) -> str | None:
    return name


def called(*hosts: str, node_id: int | None = None) -> Caller:
    pem = AUTHORITY.issue("c1.example", hosts, node_id=node_id).certificate.encode()
    return caller_of("10.0.0.7", {CERTIFICATE: [pem]}, same)


def test_a_caller_without_a_certificate_is_anonymous() -> None:
    caller = caller_of("10.0.0.7", {"transport_security_type": [b"ssl"]}, same)
    assert (caller.host, caller.principal, caller.is_authenticated) == (
        "10.0.0.7",
        ANONYMOUS,
        False,
    )


def test_a_caller_is_who_its_certificate_says() -> None:
    caller = called("C1.example", "10.0.0.7")
    assert caller.principal == "User:CN=c1.example"
    assert caller.is_authenticated
    assert caller.names == {"c1.example", "10.0.0.7"}
    assert caller.node_ids == frozenset()


def test_a_caller_whose_name_no_rule_maps_is_not_authenticated() -> None:
    pem = AUTHORITY.issue("c1.example").certificate.encode()
    assert not caller_of("", {CERTIFICATE: [pem]}, lambda name: None).is_authenticated


def test_a_certificate_that_cannot_be_read_authenticates_no_one() -> None:
    for pem in (b"", b"\xff", b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----"):
        assert not caller_of("", {CERTIFICATE: [pem]}, same).is_authenticated


def test_a_certificate_may_name_a_node_id() -> None:
    caller = called("c1.example", node_id=3)
    assert caller.node_ids == {NodeId(3)}
    assert caller.names == {"c1.example"}


@pytest.mark.parametrize(
    ("name", "host", "speaks"),
    [
        ("c1.example", "C1.example.", True),
        ("c1.example", "c2.example", False),
        ("*.example", "c2.example", True),
        ("*.example", "a.c2.example", False),
        ("*.example", "example", False),
        ("10.0.0.7", "10.0.0.7", True),
    ],
)
def test_a_certificate_speaks_for_its_hosts(name: str, host: str, speaks: bool) -> None:
    assert called(name).speaks_for_host(host) is speaks


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:127.0.0.1:1", "127.0.0.1"),
        ("ipv6:%5B::1%5D:19503", "::1"),
        ("ipv6:[fe80::1]:2", "fe80::1"),
        ("unix:/run/x", ""),
        ("", ""),
    ],
)
def test_the_host_of_a_peer_has_no_port(peer: str, host: str) -> None:
    assert host_of(peer) == host
