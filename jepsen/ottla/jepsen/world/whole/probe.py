"""Probes of addresses between the world's machines; `MachineProbe` satisfies the seam `Probe`.

A killed process refuses, a paused one accepts, and a machine without power, or behind a cut link,
does not answer in time.
"""

import trio

from ottla.jepsen.world.whole.network import Host, SimulatedNetwork
from ottla.jepsen.world.whole.rpc import RpcExchange
from ottla.jepsen.world.whole.streams import Ports
from ottla.node.address_probe import PROBE_TIMEOUT_MS, Probed
from ottla.rpc.rpc_seam import join_address


class MachineProbe:
    """How one machine finds out whether anything listens somewhere."""

    def __init__(
        self, network: SimulatedNetwork, ports: Ports, exchange: RpcExchange, host: Host
    ) -> None:
        self._network = network
        self._ports = ports
        self._exchange = exchange
        self._host = host

    async def __call__(self, host: str, port: int, /) -> Probed:
        """Knock, and wait for the kernel's answer."""
        network, ours, theirs = self._network, self._host, self._network.host(host)
        is_answered = trio.Event()
        probed = Probed.UNKNOWN

        def arrive() -> None:
            nonlocal probed
            if theirs.is_silent:
                return
            probed = Probed.ACCEPTED if self._is_open(host, port) else Probed.REFUSED
            network.send(theirs.name, ours.name, is_answered.set)

        network.send(ours.name, host, arrive)
        with trio.move_on_after(PROBE_TIMEOUT_MS / 1000):
            await is_answered.wait()
            return probed
        return Probed.UNKNOWN

    def _is_open(self, host: str, port: int) -> bool:
        if self._ports.find(host, port) is not None:
            return True
        server = self._exchange.servers.get(join_address(host, port))
        return server is not None and server.is_reachable
