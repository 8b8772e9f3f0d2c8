"""Hosts of ACLs: addresses and ranges of them, in the forms that Kafka accepts."""

import pytest

from ottla.model.security.acl_hosts import address_of, host_pattern_of, range_of

KAFKA_TAKES = [
    "10.0.0.0/8",
    "10.0.0.5/8",
    "010.0.0.0/8",
    "10.0.0.0/0",
    "10.0.0.0/32",
    "10.0.0.0/08",
    "2001:db8::/32",
    "2001:db8::1/128",
    "2001:DB8::/032",
    "::/0",
    "::10.0.0.0/100",
]
KAFKA_REFUSES = [
    "10.0.0.0/33",
    "10.0.0/8",
    "10.0.0.256/8",
    "10.0.0.0/",
    "10.0.0.0/8 ",
    " 10.0.0.0/8",
    "10.0.0.0/8/9",
    "10.0.0.0/255.0.0.0",
    "١٠.0.0.0/8",
    "/8",
    "host/8",
    ":/8",
    "abc:/8",
    "2001:db8::/129",
    "2001:db8::/-1",
    "2001:db8:::/32",
    "::ffff:10.0.0.0/104",
]


def holds(pattern: str, host: str) -> bool:
    found = host_pattern_of(pattern)
    return found is not None and found.holds(address_of(host))


@pytest.mark.parametrize("text", KAFKA_TAKES)
def test_what_kafka_takes_for_a_range_is_one(text: str) -> None:
    assert range_of(text) is not None


@pytest.mark.parametrize("text", KAFKA_REFUSES)
def test_what_kafka_refuses_as_a_range_is_none(text: str) -> None:
    assert range_of(text) is None


def test_a_range_holds_the_addresses_between_its_bounds() -> None:
    assert holds("10.2.0.0/15", "10.2.0.0")
    assert holds("10.2.0.0/15", "10.3.255.255")
    assert not holds("10.2.0.0/15", "10.4.0.0")
    assert not holds("10.2.0.0/15", "10.1.255.255")
    assert holds("2001:db8::/32", "2001:db8:ffff::1")
    assert not holds("2001:db8::/32", "2001:db9::")


def test_a_range_of_one_version_holds_no_address_of_the_other() -> None:
    assert not holds("0.0.0.0/0", "::1")
    assert not holds("::/0", "10.0.0.1")


def test_an_address_is_the_same_however_it_is_written() -> None:
    assert holds("2001:db8::1", "2001:db8:0:0:0:0:0:1")
    assert holds("2001:DB8:0:0:0:0:0:1", "2001:db8::1")
    assert not holds("2001:db8::1", "2001:db8::2")


def test_a_name_is_no_address() -> None:
    assert address_of("broker.example") is None
    assert host_pattern_of("broker.example") is None
    assert not holds("10.0.0.0/8", "broker.example")
