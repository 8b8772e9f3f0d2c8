"""One machine of the world and the process on it: started, paused, killed, cut from power.

A process's end is one of four: it stops when asked to, it fails by an error of its own, it is
killed (what it wrote stays in the page cache), or its machine loses power (what it did not flush
survives in part).  The next start is always a new process on the same disk.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

import trio

from ottla.client.network.tls import TLS
from ottla.client.network.transport import TRANSPORT
from ottla.jepsen.world.chance import Chance
from ottla.jepsen.world.disk import Pause, SimulatedDisk
from ottla.jepsen.world.disk_faults import DiskOperation
from ottla.jepsen.world.whole.clock import MachineClock
from ottla.jepsen.world.whole.encryption import Encryption
from ottla.jepsen.world.whole.loop import TASKS, Loop, Tasks, next_instant
from ottla.jepsen.world.whole.network import SimulatedNetwork
from ottla.jepsen.world.whole.probe import MachineProbe
from ottla.jepsen.world.whole.rpc import RpcExchange, open_machine_rpc
from ottla.jepsen.world.whole.streams import MachineTransport, Ports
from ottla.model.seams import Rng
from ottla.model.settings.tls import TlsConfig
from ottla.node.seams import NodeSeams
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk_seam import Disk

BOOT_MS_MAX = 1_000_000
"""Machines were started at some time before the run."""


@dataclass(slots=True, kw_only=True, eq=False)
class Trouble:
    """What is wrong with a machine's disk that its process must live with."""

    name: str
    start_count: int
    """Which start of the machine met it."""
    may_fail_to_start: bool
    """Whether a later process may end by it."""
    has_lost_directory: bool
    """Whether the process must start again to have all its directories."""

    def is_on(self, machine: "Machine") -> bool:
        """Return whether the process that met it still runs in it."""
        return (
            machine.trouble is self
            and machine.is_running
            and machine.start_count == self.start_count
        )

    def allows_end_of(self, machine: "Machine") -> bool:
        """Return whether the process that ended by itself may have done so."""
        is_later = machine.start_count != self.start_count
        return is_later and self.may_fail_to_start


Process = Callable[["Machine", trio.Event], Awaitable[None]]
"""What runs on a machine, until the event is set."""


class SharedWorld:
    """What all machines of a run share."""

    def __init__(self, loop: Loop, network: SimulatedNetwork, chance: Chance) -> None:
        self.loop = loop
        self.network = network
        self.ports = Ports()
        self.exchange = RpcExchange()
        self.chance = chance
        self.nursery: trio.Nursery
        self.encryption: Encryption | None = None
        """TLS of the brokers' listeners; None where they have none."""
        self.disk_delay_s = 0.000_3
        """How long a call of a disk takes that is not answered from memory, on average."""
        self.is_over = False
        """The run ends: nothing that still unwinds matters."""


class _MachineDisk(SimulatedDisk):
    """A disk with one worker a directory for what takes several steps, as the real one has."""

    def __init__(self, rng: Rng, *, pause: Pause) -> None:
        super().__init__(rng, pause=pause)
        self._workers: dict[str, trio.Lock] = {}
        self._workers_life = self.life

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the file durably, one after another."""
        if self._workers_life != self.life:
            # Whoever held one in an earlier life will never let it go.
            self._workers, self._workers_life = {}, self.life
        async with self._workers.setdefault(path.split("/")[1], trio.Lock()):
            await super().write_atomically(path, data)


class Machine:
    """A machine, its disk, and the process on it."""

    def __init__(
        self, world: SharedWorld, name: str, process: Process, *, drift_ppm: int = 0
    ) -> None:
        chance = world.chance.stream(f"machine/{name}")
        self.name = name
        self.world = world
        self.host = world.network.host(name)
        self.clock = MachineClock(boot_ms=chance.below(BOOT_MS_MAX), drift_ppm=drift_ppm)
        self.slow_disk_s = 0.0
        """What a disk under load adds to every call."""
        self.disk = _MachineDisk(chance.stream("disk"), pause=self._pause)
        self.disk.wall_ms = self.clock.wall_ms
        self.rng = chance.stream("process")
        self.has_bad_disk = False
        """Its disk fails calls: a process may end by that."""
        self.trouble: Trouble | None = None
        self.is_paused = False
        self.failure: BaseException | None = None
        """What the last process ended by, if it did so by an error of its own."""
        self.start_count = 0
        self._process = process
        self._delays = chance.stream("delays")
        self._tasks = Tasks(name)
        self._is_stopping = trio.Event()
        self._scope = trio.CancelScope()
        self.has_ended = trio.Event()
        self.has_ended.set()

    @property
    def is_running(self) -> bool:
        """Whether a process is there, paused or not."""
        return not self.has_ended.is_set()

    @property
    def seams(self) -> NodeSeams:
        """Return what a node on this machine stands on."""
        world = self.world
        return NodeSeams(
            clock=self.clock,
            rng=self.rng,
            open_disk=self._open_disk,
            open_rpc=self._open_rpc,
            probe=MachineProbe(world.network, world.ports, world.exchange, self.host),
        )

    def start(self) -> None:
        """Start a process."""
        assert not self.is_running
        self.start_count += 1
        self.failure = None
        self.has_ended = trio.Event()
        self._is_stopping = trio.Event()
        self._scope = trio.CancelScope()
        self._tasks = Tasks(self.name)
        self.world.network.on_start(self.host)
        self.world.nursery.start_soon(self._run, self._tasks, self._scope, self.has_ended)

    async def stop(self) -> None:
        """Ask the process to stop, and wait until it has."""
        self._is_stopping.set()
        await self.has_ended.wait()

    def kill(self) -> None:
        """End the process between two steps; its files stay as it wrote them."""
        self.world.loop.between_steps(lambda: self._end(is_silent=False))

    def cut_power(self) -> None:
        """End the process, and lose of its files what was not flushed, as chance has it."""
        self.world.loop.between_steps(lambda: self._end(is_silent=True))

    def pause(self) -> None:
        """Let the process do nothing until `resume`."""
        self.is_paused = True
        self.world.loop.between_steps(lambda: self.world.loop.stop(self._tasks))

    def resume(self) -> None:
        """Let it go on."""
        self.is_paused = False
        self.world.loop.between_steps(self._resume)

    def break_disk(
        self, operation: DiskOperation, number: int, *, skip_count: int, times: int
    ) -> None:
        """Let calls of the disk fail; the process may end by it."""
        self.has_bad_disk = True
        self.disk.fail(operation, number, skip_count=skip_count, times=times)

    def mend_disk(self) -> None:
        """Mend the disk under a process that is gone; what was not flushed is lost in part."""
        self.has_bad_disk = False
        self.disk.heal()
        if not self.is_running:
            self.disk.crash()
        if not isinstance(self.failure, AssertionError):
            self.failure = None

    def _resume(self) -> None:
        if self.is_running:
            self.world.loop.resume(self._tasks)

    def _end(self, *, is_silent: bool) -> None:
        if not self.is_running:
            return
        self.is_paused = False
        self.world.loop.stop(self._tasks)
        self._release(is_silent=is_silent)
        self.has_ended.set()

    def _release(self, *, is_silent: bool) -> None:
        if is_silent:
            self.disk.crash()
        else:
            self.disk.kill()
        self.world.ports.close_host(self.name)
        self.world.network.on_end(self.host, is_silent=is_silent)

    async def _run(self, tasks: Tasks, scope: trio.CancelScope, has_ended: trio.Event) -> None:
        TASKS.set(tasks)
        TRANSPORT.set(MachineTransport(self.world.network, self.world.ports, self.host))
        encryption = self.world.encryption
        TLS.set(None if encryption is None else encryption.dialer(self.name))
        failure: BaseException | None = None
        try:
            with scope:
                await self._process(self, self._is_stopping)
        except (Exception, BaseExceptionGroup) as error:
            failure = error
        if not tasks.is_stopped and not has_ended.is_set() and not self.world.is_over:
            self.failure = failure
            self._release(is_silent=False)
            has_ended.set()

    @asynccontextmanager
    async def _open_disk(self, directories: Sequence[str]) -> AsyncIterator[Disk]:
        yield self.disk

    @asynccontextmanager
    async def _open_rpc(self, tls: TlsConfig | None = None) -> AsyncIterator[Rpc]:
        async with open_machine_rpc(self.world.network, self.world.exchange, self.host) as rpc:
            yield rpc

    async def _pause(self) -> None:
        mean_s = self.world.disk_delay_s + self.slow_disk_s
        if not mean_s:
            await trio.lowlevel.checkpoint()
            return
        share = self._delays.random()
        await trio.sleep_until(next_instant(trio.current_time() + mean_s * (share + share**8 * 4)))
