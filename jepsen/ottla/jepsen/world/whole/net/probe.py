"""Probes of addresses between simulated machines. `MachineProbe` implements the protocol `Probe`.

The address of a killed process refuses connections, and the address of a paused process accepts
them. A machine without power, or behind a cut link, does not respond in time.
"""

import trio

from ottla.jepsen.world.whole.net.network import Host, SimulatedNetwork
from ottla.jepsen.world.whole.net.rpc import RpcExchange
from ottla.jepsen.world.whole.net.streams import Ports
from ottla.node.address_probe import PROBE_TIMEOUT_MS, ProbeResult
from ottla.rpc.rpc_seam import join_address


class MachineProbe:
    """Probe of one simulated machine that checks whether a process listens at an address."""

    def __init__(
        self, network: SimulatedNetwork, ports: Ports, exchange: RpcExchange, host: Host
    ) -> None:
        self._network = network
        self._ports = ports
        self._exchange = exchange
        self._host = host

    async def __call__(self, host: str, port: int, /) -> ProbeResult:
        """Connect to an address. Returns whether a process there accepts or refuses connections, or
        UNKNOWN if there is no response in time."""
        network, ours, theirs = self._network, self._host, self._network.host(host)
        is_answered = trio.Event()
        probed = ProbeResult.UNKNOWN

        def arrive() -> None:
            nonlocal probed
            if theirs.is_silent:
                return
            probed = ProbeResult.ACCEPTED if self._is_open(host, port) else ProbeResult.REFUSED
            network.send(theirs.name, ours.name, is_answered.set)

        network.send(ours.name, host, arrive)
        with trio.move_on_after(PROBE_TIMEOUT_MS / 1000):
            await is_answered.wait()
            return probed
        return ProbeResult.UNKNOWN

    def _is_open(self, host: str, port: int) -> bool:
        if self._ports.find(host, port) is not None:
            return True
        server = self._exchange.servers.get(join_address(host, port))
        return server is not None and server.is_reachable
