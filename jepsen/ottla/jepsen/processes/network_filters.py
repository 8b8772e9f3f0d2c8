"""Classic BPF programs that select the packets to drop. The module is pure.

A program is text for `tc filter … bpf bytecode`: the number of its instructions and, for each, its
code, the two jumps and its constant (linux/filter.h). It returns -1 for a selected packet and 0 for
others. The filter's action decides what happens to selected packets.
"""

from collections.abc import Mapping
from enum import IntEnum
from ipaddress import IPv4Address
from typing import NamedTuple

WHOLE = 1 << 32
PICKED = WHOLE - 1
"""Return value of a BPF program for a selected packet: -1, with which a classifier assigns the
packet to its own class."""

INSTRUCTIONS_MAX = 255
"""Maximum number of instructions in a BPF program, because a jump skips at most this many. The
programs for the few nodes of a run are far shorter."""

_LOAD_WORD = 0x20
_JUMP_EQUAL = 0x15
_JUMP_AT_LEAST = 0x35
_RETURN = 0x06
_NETWORK_HEADER = WHOLE - 0x100000
"""BPF constant SKF_NET_OFF. Offsets from it refer to the IP header, regardless of the preceding
headers."""
_RANDOM = WHOLE - 0x1000 + 56
"""BPF constant SKF_AD_OFF + SKF_AD_RANDOM: loading it draws a random word."""


class PacketAddress(IntEnum):
    """The address in an IPv4 header that a BPF program compares: of the sender or of the receiver.
    The value is the position of the address in bytes."""

    SOURCE = 12
    DESTINATION = 16


class Instruction(NamedTuple):
    """One BPF instruction. `match` and `otherwise` are the numbers of instructions to skip if its
    condition is true or false."""

    code: int
    match: int
    otherwise: int
    constant: int


def program(shares: Mapping[str, float], which: PacketAddress) -> list[Instruction]:
    """Return a BPF program that selects packets at random. `shares` has the fraction of packets to
    select for each address; 1.0 selects all of them."""
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
    """Return a BPF program in the text form that tc reads."""
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
