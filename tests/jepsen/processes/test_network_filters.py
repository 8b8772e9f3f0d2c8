"""Programs for the kernel, run here by an interpreter of the few instructions they use."""

import random
from ipaddress import IPv4Address

import pytest

from ottla.jepsen.processes.network_filters import PICKED, WHOLE, PacketAddress, bytecode, program

LOAD, EQUAL, AT_LEAST, RETURN = 0x20, 0x15, 0x35, 0x06
NETWORK_HEADER = -0x100000
RANDOM = -0x1000 + 56


def is_picked(code: str, source: str, destination: str, drawn: int = 0) -> bool:
    """Run a program over one packet, as linux/filter.h has it."""
    count, *lines = code.split(",")
    instructions = [tuple(map(int, line.split())) for line in lines]
    assert len(instructions) == int(count)
    word, at = 0, 0
    while True:
        operation, match, otherwise, constant = instructions[at]
        at += 1
        if operation == RETURN:
            assert constant in (0, PICKED)
            return constant == PICKED
        if operation == LOAD:
            signed = constant - WHOLE
            values = {
                NETWORK_HEADER + 12: int(IPv4Address(source)),
                NETWORK_HEADER + 16: int(IPv4Address(destination)),
                RANDOM: drawn,
            }
            word = values[signed]
            continue
        holds = {EQUAL: word == constant, AT_LEAST: word >= constant}[operation]
        at += match if holds else otherwise


def test_only_packets_of_the_named_addresses_are_picked() -> None:
    code = bytecode(program({"10.231.1.1": 1.0, "10.231.1.3": 1.0}, PacketAddress.SOURCE))
    picked = [is_picked(code, f"10.231.1.{host}", "10.231.1.3") for host in range(1, 5)]
    assert picked == [True, False, True, False]


def test_the_receiver_can_be_looked_at_instead_of_the_sender() -> None:
    code = bytecode(program({"10.231.1.2": 1.0}, PacketAddress.DESTINATION))
    assert is_picked(code, "10.231.1.1", "10.231.1.2")
    assert not is_picked(code, "10.231.1.2", "10.231.1.1")


@pytest.mark.parametrize("share", [0.05, 0.3, 0.9])
def test_such_a_share_is_picked_as_was_asked_for(share: float) -> None:
    shares = {"10.231.1.1": share, "10.231.1.2": 1.0, "10.231.1.3": share}
    code = bytecode(program(shares, PacketAddress.SOURCE))
    dice = random.Random(7)
    for host, expected in ((1, share), (2, 1.0), (3, share), (4, 0.0)):
        drawn = [dice.randrange(WHOLE) for _ in range(2_000)]
        picked = sum(is_picked(code, f"10.231.1.{host}", "10.231.1.9", one) for one in drawn)
        assert abs(picked / len(drawn) - expected) < 0.05


def test_without_addresses_nothing_is_picked() -> None:
    assert not is_picked(bytecode(program({}, PacketAddress.SOURCE)), "10.231.1.1", "10.231.1.2")
