"""A network in the kernel: each node has its own network namespace, and all are on one bridge.
Needs root.

Only iproute2 is used. A BPF classifier selects the packets to drop where they leave the bridge for
their receiver, and redirects them to a bridge without connections. So the sender gets no error.
Slow links are limited by a token bucket in each direction.
"""

from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import NamedTuple

import trio

from ottla.jepsen.processes.cluster_claim import MachineClaim
from ottla.jepsen.processes.commands_async import run_async
from ottla.jepsen.processes.network import NodeEndpoint
from ottla.jepsen.processes.network_filters import PacketAddress, bytecode, program
from ottla.jepsen.processes.network_links import CLIENTS, Links

PORT = 9092
"""Port at which every node listens. All nodes can use the same port, because each has its own
address."""

HARNESS_HOST = 254
FIRST_HOST = 1
BUCKET_BYTES = 32_768
"""Size in bytes of the token bucket that limits a slow link. The largest packet must fit."""
QUEUE_MS = 400
"""Longest time in ms that a packet on a slow link may wait. A packet that would wait longer is
dropped, as by a router."""


class Hook(NamedTuple):
    """Place in the kernel at which one traffic control rule (`tc`) is installed."""

    namespace: str | None
    """Network namespace of the traffic rule. None means the harness's own namespace."""
    put: str
    """Arguments of `tc` that add the traffic rule. The rule itself is appended to them."""
    remove: str
    """Arguments of `tc` that remove the traffic rule."""


class NamespaceNetwork:
    """The network of one run, in kernel namespaces. Owns its bridge, links and namespaces."""

    def __init__(self, claim: MachineClaim, nodes: Sequence[str]) -> None:
        self.links = Links(nodes)
        self.find_pid: Callable[[str], int | None] = lambda _node: None
        self._claim = claim
        self._addresses = {node: claim.address(FIRST_HOST + at) for at, node in enumerate(nodes)}
        self.harness_host = self._addresses[CLIENTS] = claim.address(HARNESS_HOST)
        self._lock = trio.Lock()
        self._in_force: dict[Hook, str] = {}
        self.endpoints: Mapping[str, NodeEndpoint] = {node: self._endpoint(node) for node in nodes}

    def _endpoint(self, node: str) -> NodeEndpoint:
        address = f"{self._addresses[node]}:{PORT}"
        namespace = f"/run/netns/{self._claim.namespace_of(node)}"
        # Unlike `ip netns exec`, nsenter keeps the node in the harness' mount namespace.
        return NodeEndpoint(address, address, ("nsenter", f"--net={namespace}", "--"))

    async def set_up(self) -> None:
        """Create the network's bridges, and a namespace with a link for every node."""
        claim = self._claim
        lines = [
            f"link add {claim.bridge} type bridge",
            f"link add {claim.sink} type bridge",
            f"link set {claim.sink} up",
            f"address add {self._addresses[CLIENTS]}/24 dev {claim.bridge}",
            f"link set {claim.bridge} up",
        ]
        for node in self.links.nodes:
            link, namespace = claim.link_of(node), claim.namespace_of(node)
            lines += [
                f"netns add {namespace}",
                f"link add {link} type veth peer name eth0 netns {namespace}",
                f"link set {link} master {claim.bridge} up",
            ]
        await run_async(["ip", "-batch", "-"], given=_batch(lines))
        hooks = [f"qdisc add dev {claim.link_of(node)} clsact" for node in self.links.nodes]
        await run_async(["tc", "-batch", "-"], given=_batch(hooks))
        for node in self.links.nodes:
            lines = [
                f"address add {self._addresses[node]}/24 dev eth0",
                "link set eth0 up",
                "link set lo up",
            ]
            await run_async(self._inside(node, "ip", "-batch", "-"), given=_batch(lines))

    async def apply(self) -> None:
        """Make the kernel's traffic rules match the active faults in `links`. Rules that already
        match are not touched."""
        async with self._lock:
            wanted = self._wanted()
            changes: dict[str | None, list[str]] = {}
            for hook in sorted({*wanted, *self._in_force}, key=str):
                if wanted.get(hook) != self._in_force.get(hook):
                    rule = wanted.get(hook)
                    line = hook.remove if rule is None else f"{hook.put} {rule}"
                    changes.setdefault(hook.namespace, []).append(line)
            with trio.CancelScope(shield=True):
                for namespace, lines in changes.items():
                    place = [] if namespace is None else ["-netns", namespace]
                    await run_async(["tc", *place, "-batch", "-"], given=_batch(lines))
            self._in_force = wanted

    async def reset(self, nodes: Iterable[str]) -> int:
        """Reset every TCP connection of `nodes`, as a middlebox might. Returns the number of
        connections."""
        count = 0
        for node in nodes:
            kill = ["ss", "-K", "-H", "-t", "-n", "state", "connected", "dst", "10.231.0.0/16"]
            said = await run_async(self._inside(node, *kill), is_checked=False)
            count += sum("10.231." in line for line in said.splitlines())
        return count

    def _wanted(self) -> dict[Hook, str]:
        wanted: dict[Hook, str] = {}
        away = f"action mirred egress redirect dev {self._claim.sink}"
        for node in self.links.nodes:
            link, namespace = self._claim.link_of(node), self._claim.namespace_of(node)
            # The harness' end of a link sends the packets that the node receives.
            lost = {self._addresses[one]: share for one, share in self.links.lost_to(node).items()}
            if lost:
                code = bytecode(program(lost, PacketAddress.SOURCE))
                wanted[_filter_hook(link, "egress")] = f"bpf bytecode '{code}' {away}"
            share = self.links.lost(node, CLIENTS)
            if share > 0:
                to_us = {self._addresses[CLIENTS]: share}
                code = bytecode(program(to_us, PacketAddress.DESTINATION))
                wanted[_filter_hook(link, "ingress")] = f"bpf bytecode '{code}' {away}"
            rate = self.links.rate_of(node)
            if rate is not None:
                bucket = f"rate {rate}bit burst {BUCKET_BYTES} latency {QUEUE_MS}ms"
                wanted[_rate_hook(None, link)] = bucket
                wanted[_rate_hook(namespace, "eth0")] = bucket
        return wanted

    def _inside(self, node: str, *command: str) -> list[str]:
        return [*self.endpoints[node].command_prefix, *command]


@asynccontextmanager
async def open_namespaces(
    claim: MachineClaim, nodes: Sequence[str]
) -> AsyncIterator[NamespaceNetwork]:
    """Create and yield the network of a run in kernel namespaces. Raises CommandError if the
    machine does not allow it. The end of the run's claim (`cluster_claim`) removes the network
    together with all other resources."""
    network = NamespaceNetwork(claim, nodes)
    await network.set_up()
    yield network


def _filter_hook(link: str, direction: str) -> Hook:
    where = f"dev {link} {direction} protocol ip pref 1"
    return Hook(None, f"filter replace {where} handle 1", f"filter delete {where}")


def _rate_hook(namespace: str | None, device: str) -> Hook:
    return Hook(
        namespace, f"qdisc replace dev {device} root tbf", f"qdisc delete dev {device} root"
    )


def _batch(lines: Iterable[str]) -> str:
    return "".join(f"{line}\n" for line in lines)
