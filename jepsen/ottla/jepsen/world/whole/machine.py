"""One simulated machine and the process on it. The process can be started, paused and killed, and
the machine can lose power.

A process ends in one of four ways:

- it stops on request;
- it fails by an error of its own;
- it is killed: its written data stays in the page cache;
- its machine loses power: a part of its unflushed data survives.

The next start is always a new process on the same disk.
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
from ottla.jepsen.world.object_store import SimulatedObjectStore
from ottla.jepsen.world.whole.clock import WALL_START_MS, MachineClock
from ottla.jepsen.world.whole.encryption import Encryption
from ottla.jepsen.world.whole.loop import TASKS, Loop, Tasks, next_instant
from ottla.jepsen.world.whole.net.network import SimulatedNetwork
from ottla.jepsen.world.whole.net.probe import MachineProbe
from ottla.jepsen.world.whole.net.rpc import RpcExchange, open_machine_rpc
from ottla.jepsen.world.whole.net.streams import MachineTransport, Ports
from ottla.model.seams import Rng
from ottla.model.settings.security.tls import TlsConfig
from ottla.node.seams import NodeSeams
from ottla.rpc.rpc_seam import Rpc
from ottla.storage.disk.disk_seam import Disk
from ottla.storage.tier.store_seam import ObjectStore
from ottla.storage.tier.store_settings import StoreSettings

BOOT_MS_MAX = 1_000_000
"""Upper limit of the time in ms for which a simulated machine was already running when the run
began."""


@dataclass(slots=True, kw_only=True, eq=False)
class Trouble:
    """A fault of a machine's disk that the machine's process must tolerate."""

    name: str
    start_count: int
    """Number of starts of the machine up to the time when the disk fault began."""
    may_fail_to_start: bool
    """True if a process that the machine starts later may end because of the disk fault."""
    has_lost_directory: bool
    """True if the machine's process must restart to use all its directories again."""

    def is_on(self, machine: "Machine") -> bool:
        """Return whether this disk fault is still active on the machine, and the process in which
        it began is still running."""
        return (
            machine.trouble is self
            and machine.is_running
            and machine.start_count == self.start_count
        )

    def allows_end_of(self, machine: "Machine") -> bool:
        """Return whether the disk fault explains why the machine's process ended by itself."""
        is_later = machine.start_count != self.start_count
        return is_later and self.may_fail_to_start


Process = Callable[["Machine", trio.Event], Awaitable[None]]
"""Main function of a simulated process. Its arguments are the machine and an event. It returns when
the event is set."""


class SharedWorld:
    """The state shared by all simulated machines of a run."""

    def __init__(self, loop: Loop, network: SimulatedNetwork, chance: Chance) -> None:
        self.loop = loop
        self.network = network
        self.ports = Ports()
        self.exchange = RpcExchange()
        self.chance = chance
        self.nursery: trio.Nursery
        self.encryption: Encryption | None = None
        """TLS configuration of the brokers' listeners, or None if they are not encrypted."""
        self.disk_delay_s = 0.000_3
        """Average duration in seconds of a disk call that the page cache cannot serve."""
        self.object_store = SimulatedObjectStore(
            chance.stream("object store"), wall_start_ms=WALL_START_MS
        )
        """The object store of tiered storage, which only some subjects use."""
        self.is_over = False
        """True at the end of the run. Errors of the tasks that are then cancelled do not matter."""


class _MachineDisk(SimulatedDisk):
    """A simulated disk. For operations of several steps, it has one worker per directory, as the
    real disk has."""

    def __init__(self, rng: Rng, *, pause: Pause) -> None:
        super().__init__(rng, pause=pause)
        self._workers: dict[str, trio.Lock] = {}
        self._workers_life = self.life

    async def write_atomically(self, path: str, data: bytes) -> None:
        """Replace the content of a file durably. Replacements in one directory run one after
        another."""
        if self._workers_life != self.life:
            # A task of an earlier life that owned a worker will never release it.
            self._workers, self._workers_life = {}, self.life
        async with self._workers.setdefault(path.split("/")[1], trio.Lock()):
            await super().write_atomically(path, data)


class Machine:
    """A simulated machine with its disk, its clocks, and the process that runs on it."""

    def __init__(
        self, world: SharedWorld, name: str, process: Process, *, drift_ppm: int = 0
    ) -> None:
        chance = world.chance.stream(f"machine/{name}")
        self.name = name
        self.world = world
        self.host = world.network.host(name)
        self.clock = MachineClock(boot_ms=chance.below(BOOT_MS_MAX), drift_ppm=drift_ppm)
        self.slow_disk_s = 0.0
        """Delay in seconds that is added to every disk call, as by a loaded disk."""
        self.disk = _MachineDisk(chance.stream("disk"), pause=self._pause)
        self.disk.wall_ms = self.clock.wall_ms
        self.rng = chance.stream("process")
        self.has_bad_disk = False
        """True if calls of the machine's disk fail. The failures may end a process."""
        self.trouble: Trouble | None = None
        self.is_paused = False
        self.failure: BaseException | None = None
        """The error that ended the machine's last process, or None if the process did not fail by
        itself."""
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
        """True if the machine has a process, paused or not."""
        return not self.has_ended.is_set()

    @property
    def seams(self) -> NodeSeams:
        """The simulated disk, clock, network and other interfaces that a node on this machine
        uses."""
        world = self.world
        return NodeSeams(
            clock=self.clock,
            rng=self.rng,
            open_disk=self._open_disk,
            open_rpc=self._open_rpc,
            probe=MachineProbe(world.network, world.ports, world.exchange, self.host),
            open_object_store=self._open_object_store,
        )

    @property
    def tasks(self) -> Tasks:
        """The tasks of the machine's current process."""
        return self._tasks

    def start(self) -> None:
        """Start a new process on the machine."""
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
        """Request the machine's process to stop, and wait for its end."""
        self._is_stopping.set()
        await self.has_ended.wait()

    def kill(self) -> None:
        """End the machine's process between two event-loop steps. The files that it wrote
        remain."""
        self.world.loop.between_steps(lambda: self._end(is_silent=False))

    def cut_power(self) -> None:
        """Cut the machine's power: its process ends, and a random part of the unflushed data is
        lost."""
        self.world.loop.between_steps(lambda: self._end(is_silent=True))

    def pause(self) -> None:
        """Pause the machine's process until `resume`."""
        self.is_paused = True
        self.world.loop.between_steps(self._pause_tasks)

    def resume(self) -> None:
        """Resume the machine's paused process."""
        self.is_paused = False
        self.world.loop.between_steps(self._resume)

    def break_disk(
        self, operation: DiskOperation, number: int, *, skip_count: int, times: int
    ) -> None:
        """Make calls of the machine's disk fail, which may end the process."""
        self.has_bad_disk = True
        self.disk.fail(operation, number, skip_count=skip_count, times=times)

    def repair_disk(self) -> None:
        """Repair the machine's disk after its process has ended. A part of the process's unflushed
        data is lost."""
        self.has_bad_disk = False
        self.disk.heal()
        if not self.is_running:
            self.disk.crash()
        if not isinstance(self.failure, AssertionError):
            self.failure = None

    def _pause_tasks(self) -> None:
        if not self.world.is_over:
            self.world.loop.stop(self._tasks)

    def _resume(self) -> None:
        if self.is_running:
            self.world.loop.resume(self._tasks)

    def _end(self, *, is_silent: bool) -> None:
        if not self.is_running or self.world.is_over:
            return  # at the end of a run, all tasks must run to be cancelled
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

    @asynccontextmanager
    async def _open_object_store(self, settings: StoreSettings) -> AsyncIterator[ObjectStore]:
        yield self.world.object_store

    async def _pause(self) -> None:
        mean_s = self.world.disk_delay_s + self.slow_disk_s
        if not mean_s:
            await trio.lowlevel.checkpoint()
            return
        share = self._delays.random()
        await trio.sleep_until(next_instant(trio.current_time() + mean_s * (share + share**8 * 4)))
