"""Probes the kinds of faults that this machine allows, by trying each kind once.

No fault is skipped silently. A caller that leaves out a fault reports which ability is missing and
why.
"""

import os
import sys
import time
from collections.abc import Awaitable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from ottla.jepsen.processes.clocks import Clocks, compile_shim
from ottla.jepsen.processes.cluster_claim import claimed
from ottla.jepsen.processes.commands import CommandError
from ottla.jepsen.processes.commands_async import run_async
from ottla.jepsen.processes.disks import ImageDisk
from ottla.jepsen.processes.network_links import CLIENTS, lossy, slow
from ottla.jepsen.processes.network_namespaces import NamespaceNetwork

PROBE = "probe"
NODE = "b1"
IMAGE_BYTES = 64 << 20
PROBE_OFFSET_MS = 3_600_000
PROBE_TOLERANCE_S = 60

RESET_SCRIPT = """
import socket, subprocess
server = socket.create_server(("{host}", 0))
port = server.getsockname()[1]
client = socket.create_connection(("{host}", port))
peer = server.accept()[0]
peer.settimeout(5)
subprocess.run(["ss", "-K", "-t", "dport", "=", str(port)], check=True, capture_output=True)
try:
    print("said", peer.recv(1))
except OSError as error:
    print("reset", error)
"""


class Ability(StrEnum):
    """A privilege or tool of this machine that some faults need."""

    NAMESPACES = "namespaces"
    """Ability to create network namespaces, one for each node, in which the kernel drops packets.
    Without this ability, connections go through the harness's own proxies, which then simulate
    cuts, losses, delays and resets."""
    RATES = "rates"
    """Ability to limit the bit rate of network links."""
    RESETS = "resets"
    """Ability to reset TCP connections of nodes as a third party."""
    IMAGES = "images"
    """Ability to mount one file system per node. Power cuts and full disks need it."""
    CLOCKS = "clocks"
    """Ability to make the wall clocks of single nodes jump."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """The abilities of this machine to inject faults, and the reason for each missing ability."""

    missing: Mapping[Ability, str]
    """The abilities that this machine lacks, each with the reason."""

    def __contains__(self, ability: Ability) -> bool:
        """Return whether this machine has an ability."""
        return ability not in self.missing

    @property
    def has_namespaces(self) -> bool:
        """True if each node can have its own network namespace. If not, the test harness uses
        proxies."""
        return Ability.NAMESPACES in self

    def without(self, *abilities: Ability, reason: str) -> "Abilities":
        """Return a copy in which `abilities` are missing. `reason` is the reason stored for each of
        them."""
        return Abilities({**self.missing, **dict.fromkeys(abilities, reason)})

    def to_json(self) -> dict[str, str | None]:
        """Return the reason why each ability is missing, by the name of the ability. The reason is
        None if the machine has the ability."""
        return {str(one): self.missing.get(one) for one in Ability}


NOTHING = Abilities(
    {
        one: "not asked for"
        for one in Ability
        if one not in (Ability.RATES, Ability.RESETS)  # the harness' own proxies have these
    }
)
"""The abilities of a machine without privileges. Node processes then run on loopback, behind the
test harness's own proxies."""


async def probe(directory: Path) -> Abilities:
    """Probe all abilities of this machine to inject faults, and return the available ones with the
    reasons for the missing ones. Takes about one second. Temporary files below `directory` are
    removed."""
    place = directory / PROBE
    place.mkdir(parents=True, exist_ok=True)
    missing: dict[Ability, str] = {}

    async def attempt(ability: Ability, trying: Awaitable[None]) -> None:
        try:
            await trying
        except (CommandError, OSError) as error:
            missing[ability] = str(error)

    with claimed(place) as claim:
        network = NamespaceNetwork(claim, [NODE])
        await attempt(Ability.NAMESPACES, _lose_packets(network))
        if Ability.NAMESPACES not in missing:  # otherwise proxies do all faults of links
            await attempt(Ability.RATES, _slow_down(network))
            await attempt(Ability.RESETS, _reset(network))
        await attempt(Ability.IMAGES, _lose_power(ImageDisk(place, NODE, size_bytes=IMAGE_BYTES)))
    await attempt(Ability.CLOCKS, _shift_clock(place))
    return Abilities(missing)


def _must_be_root() -> None:
    if os.geteuid() != 0:
        raise CommandError("only root may")


async def _lose_packets(network: NamespaceNetwork) -> None:
    _must_be_root()
    await network.set_up()
    network.links.put(NODE, lossy([NODE], [CLIENTS], 0.5))
    await network.apply()


async def _slow_down(network: NamespaceNetwork) -> None:
    network.links.put(NODE, slow([NODE], 1_000_000))
    await network.apply()


async def _reset(network: NamespaceNetwork) -> None:
    """Test whether TCP connections can be reset, with a connection that the probed node opens to
    itself."""
    network.links.lift_all()
    await network.apply()
    host, _, _port = network.endpoints[NODE].binds.rpartition(":")
    script = RESET_SCRIPT.format(host=host)
    words = [*network.endpoints[NODE].command_prefix, sys.executable, "-c", script]
    said = await run_async(words)
    if "reset" not in said:
        raise CommandError(f"ss -K resets no connection: {said.strip()}")


async def _lose_power(disk: ImageDisk) -> None:
    _must_be_root()
    await disk.open()
    kept, lost = disk.data / "kept", disk.data / "lost"
    kept.write_bytes(b"flushed")
    await run_async(["sync", str(kept), str(disk.data)])
    lost.write_bytes(b"not flushed")
    await disk.cut_power()
    if not kept.exists() or (lost.exists() and lost.read_bytes()):
        raise CommandError("a copy of a mounted image is not what a power cut would leave")


async def _shift_clock(place: Path) -> None:
    clocks = Clocks(place, [NODE], library=await compile_shim(place))
    clocks.set(NODE, PROBE_OFFSET_MS)
    environment = [f"{key}={value}" for key, value in clocks.environment(NODE).items()]
    script = "import time; print(time.time())"
    said = await run_async(["env", *environment, sys.executable, "-c", script])
    seen_s = float(said) - time.time()
    if abs(seen_s - PROBE_OFFSET_MS / 1_000) > PROBE_TOLERANCE_S:
        raise CommandError(f"a clock set {PROBE_OFFSET_MS} ms ahead was {seen_s:g} s ahead")
