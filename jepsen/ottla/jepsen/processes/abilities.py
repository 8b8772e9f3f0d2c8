"""What this machine lets a harness do to nodes: found out by doing it, with the reason where not.

Nothing is skipped in silence: whoever leaves out a fault says which ability it lacked, and why.
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
    """One thing that a machine may let us do."""

    NAMESPACES = "namespaces"
    """Each node in a network of its own, in which packets are lost in the kernel.  Without it,
    connections go through our own proxies: cuts, loss, slowness and resets are theirs then."""
    RATES = "rates"
    """Links with a bound on bits a second."""
    RESETS = "resets"
    """Connections reset from outside."""
    IMAGES = "images"
    """Each node on a file system of its own: power cuts and full disks."""
    CLOCKS = "clocks"
    """Wall clocks that jump."""


@dataclass(frozen=True, slots=True)
class Abilities:
    """What may be used, and why the rest may not."""

    missing: Mapping[Ability, str]
    """What is not there, with the reason."""

    def __contains__(self, ability: Ability) -> bool:
        """Return whether an ability is there."""
        return ability not in self.missing

    @property
    def has_namespaces(self) -> bool:
        """Whether nodes have networks of their own, or proxies."""
        return Ability.NAMESPACES in self

    def without(self, *abilities: Ability, reason: str) -> "Abilities":
        """Return the same with some taken away."""
        return Abilities({**self.missing, **dict.fromkeys(abilities, reason)})

    def to_json(self) -> dict[str, str | None]:
        """Return the reason why each is not there, None where it is."""
        return {str(one): self.missing.get(one) for one in Ability}


NOTHING = Abilities(
    {
        one: "not asked for"
        for one in Ability
        if one not in (Ability.RATES, Ability.RESETS)  # our proxies have these
    }
)
"""As on a machine where we are nobody: processes on loopback, behind our proxies."""


async def probe(directory: Path) -> Abilities:
    """Try everything, below a directory; it takes about a second, and nothing is left of it."""
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
        if Ability.NAMESPACES not in missing:  # else all that is done to links is our proxies' work
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
    """Reset a connection that the node has with itself."""
    network.links.lift_all()
    await network.apply()
    host, _, _port = network.seats[NODE].binds.rpartition(":")
    script = RESET_SCRIPT.format(host=host)
    words = [*network.seats[NODE].command_prefix, sys.executable, "-c", script]
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
