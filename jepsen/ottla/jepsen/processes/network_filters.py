"""Classic BPF that picks the packets which shall not arrive.  Pure.

A program is text for `tc filter … bpf bytecode`: the number of its instructions and, for each, its
code, the two jumps and its constant (linux/filter.h).  It answers -1 for a packet that is picked
and 0 for one that is not; what happens to the picked is the filter's action.
"""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv4Address
from typing import NamedTuple

WHOLE = 1 << 32
PICKED = WHOLE - 1
"""-1, which for a classifier is its own class: the packet is picked."""

INSTRUCTIONS_MAX = 255
"""A jump counts at most so many; with the few nodes of a run no program comes near."""

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06
_NETWORK_HEADER = WHOLE - 0x100000
"""SKF_NET_OFF: offsets from here are into the IP header, whatever comes before it."""
_RANDOM = WHOLE - 0x1000 + 56
"""SKF_AD_OFF + SKF_AD_RANDOM: loading it draws a random word."""


class PacketAddress(IntEnum):
    """Which address of a packet is looked at: its offset in the IPv4 header."""

    SOURCE = 12
    DESTINATION = 16


class Instruction(NamedTuple):
    """One instruction; `match` and `otherwise` are how many of the next ones are jumped over."""

    code: int
    match: int
    otherwise: int
    constant: int


def program(shares: Mapping[str, float], which: PacketAddress) -> list[Instruction]:
    """Pick of each address' packets such a share (1.0: all of them)."""
    found: list[Instruction] = []
    for address, share in sorted(shares.items()):
        assert 0 < share <= 1
        picking = _picking(share)
        found.append(Instruction(_LOAD_WORD, 0, 0, _NETWORK_HEADER + which))
        found.append(Instruction(_JUMP_EQUAL, 0, len(picking), int(IPv4Address(address))))
        found += picking
    found.append(Instruction(_RETURN, 0, 0, 0))
    assert len(found) <= INSTRUCTIONS_MAX
    return found


def bytecode(instructions: list[Instruction]) -> str:
    """Return a program as tc reads it."""
    return ",".join([str(len(instructions)), *(" ".join(map(str, one)) for one in instructions)])


def _picking(share: float) -> list[Instruction]:
    picked = Instruction(_RETURN, 0, 0, PICKED)
    if share == 1:
        return [picked]
    return [
        Instruction(_LOAD_WORD, 0, 0, _RANDOM),
        Instruction(_JUMP_AT_LEAST, 1, 0, int(share * WHOLE)),
        picked,
    ]
