"""Instances of the user's program: processes on simulated machines of their own.

An instance may have several lives (runs of the program). Each life begins with the program's first
line, in a new event loop. A killed life ends without any cleanup: its tasks never run again, and
the network resets its connections. The folder of the instance is kept.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Literal, Protocol, TypeAlias

import trio

from ottla.jepsen.world.whole.loop import INSTANTS_PER_S
from ottla.jepsen.world.whole.machine import Machine, SharedWorld
from ottla.testing.world.errors import ProgramExitError
from ottla.testing.world.life import LIFE, InstanceLife
from ottla.testing.world.program_modules import LifeModules, Program, check_program
from ottla.testing.world.runtime.asyncio_loop import ABANDONED, run_asyncio
from ottla.testing.world.runtime.guards import enter
from ottla.testing.world.runtime.sources import InstanceSources
from ottla.testing.world.timeline import Timeline
from ottla.testing.world.timeline_event import Fact, TimelineEvent

Runtime: TypeAlias = Literal["asyncio", "trio"]

RESTART_AFTER_S = 1.0
"""Virtual seconds after which an instance that ended with an exception is started again, as by a
supervisor."""

STOP_PATIENCE_S = 30.0
"""Virtual seconds after which an instance that was stopped cleanly but still runs is killed, as by
Kubernetes."""


class InstanceHost(Protocol):
    """Interface through which an instance uses its simulated world."""

    shared: SharedWorld
    timeline: Timeline
    is_ending: bool
    """True once the world no longer restarts failed instances."""

    @property
    def now_s(self) -> float:
        """Virtual seconds since the start of the scenario."""

    def on_mark(self, instance: str, name: str) -> bool:
        """Handle a call of `mark` in the program. Returns True if a fault begins at this call."""


class Instance:
    """One instance of the user's program. `World.start` creates it."""

    def __init__(
        self,
        host: InstanceHost,
        name: str,
        directory: Path,
        program: Program,
        arguments: tuple[object, ...],
        *,
        runtime: Runtime,
        restarts: bool,
        modules: Sequence[str] = (),
    ) -> None:
        self.name = name
        self.directory = directory
        """Real folder of the instance. Its files are kept when the program ends and starts again,
        and are deleted after the run."""
        self.failure: BaseException | None = None
        """Exception that ended the last failed life (run of the program). None if no life has
        failed."""
        self.life: InstanceLife | None = None
        """Current life (run of the program from a start to its end) of the instance. After the end,
        its last life."""
        self._host = host
        self._program = program
        self._arguments = arguments
        self._runtime = runtime
        self._restarts = restarts
        self._modules = modules
        """Names of the modules that are copied for each life (run of the program)."""
        self._planned_start_count = 0
        """Number of starts that are planned for a later moment."""
        self._is_kill_due = False
        """True from a call of `kill` until the program is killed."""
        self._scope = trio.CancelScope()
        self._stopping = trio.Event()
        self._machine = Machine(host.shared, name, self._run)
        self._sources = InstanceSources(self._machine)

    @property
    def machine(self) -> Machine:
        """Simulated machine of the instance."""
        return self._machine

    @property
    def is_running(self) -> bool:
        """True if the program runs or is paused."""
        return self._machine.is_running

    @property
    def has_ended(self) -> bool:
        """True if the program does not run, and no start of it is planned."""
        return not self.is_running and not self._planned_start_count

    @property
    def is_paused(self) -> bool:
        """True if the program is paused."""
        return self._machine.is_running and self._machine.is_paused

    @property
    def start_count(self) -> int:
        """Number of starts of the program so far."""
        return self._machine.start_count

    def kill(self) -> None:
        """Kill the program, as by SIGKILL, before any of its tasks takes another step."""
        self._is_kill_due = True
        self._host.shared.loop.between_steps(self._end)

    def pause(self, seconds: float) -> None:
        """Pause the program for a number of virtual seconds, as by SIGSTOP and SIGCONT."""
        if not self.is_running or self.is_paused:
            return
        machine = self._machine
        self.note("pause", f"paused for {seconds:g} s")
        machine.pause()
        life = machine.start_count
        self._later(seconds, lambda: self._resume(life))

    def resume(self) -> None:
        """Resume the paused program. Does nothing if it is not paused."""
        self._resume(self._machine.start_count)

    async def stop(self) -> None:
        """Stop the program cleanly and wait for its end. Its handler of SIGTERM or SIGINT is
        called. Without a handler, its main task is cancelled, as by Ctrl-C.

        The program is killed if it still runs after 30 virtual seconds.
        """
        if not self.is_running:
            return
        self.resume()
        self.note("stop", "asked to stop")
        self._stopping.set()
        if self._runtime == "trio":
            self._scope.cancel()
        with trio.move_on_after(STOP_PATIENCE_S):
            await self._machine.has_ended.wait()
        if self.is_running:
            self.note("note", f"still runs {STOP_PATIENCE_S:g} s after it was asked to stop")
            self.kill()
            await self._machine.has_ended.wait()

    def restart(self) -> None:
        """Start the program again. Does nothing if it is running."""
        self.restart_after(0.0)

    async def upgrade(self, program: Program, *arguments: object) -> None:
        """Stop the program cleanly, and start another version of it with the same folder."""
        if self._modules:
            check_program(program, self._modules)
        await self.stop()
        self._program, self._arguments = program, arguments
        self._start()

    def note(self, kind: str, text: str, **facts: Fact) -> None:
        """Add an event of this instance to the timeline."""
        facts = {"life": self._machine.start_count, **facts}
        self._host.timeline.add(TimelineEvent(self._host.now_s, self.name, kind, text, facts))

    def restart_after(self, seconds: float) -> None:
        """Start the program again after a number of virtual seconds. Does nothing if the program is
        running at that time."""
        self._planned_start_count += 1
        self._later(seconds, self._start_as_planned)

    def _start_as_planned(self) -> None:
        if self._is_kill_due:
            # The kill was requested in the same instant, and this start before the end of its step.
            # The program still runs, and a start now would do nothing.
            self._later(1 / INSTANTS_PER_S, self._start_as_planned)
            return
        self._planned_start_count -= 1
        self._start()

    def _start(self) -> None:
        if not self.is_running and not self._host.is_ending:
            self._machine.start()

    def _later(self, seconds: float, action: Callable[[], None]) -> None:
        # A message of the network: it belongs to no machine, and is in order with all others.
        self._host.shared.network.call_at(trio.current_time() + seconds, action)

    def _end(self) -> None:
        self._is_kill_due = False
        machine = self._machine
        if not machine.is_running:
            return
        self.note("kill", "killed")
        if self.life is not None:
            self.life.end()
        machine.kill()

    def _resume(self, life: int) -> None:
        if self.is_paused and self._machine.start_count == life:
            self.note("resume", "runs again")
            self._machine.resume()

    async def _run(self, machine: Machine, _: trio.Event) -> None:
        """Run the program once, from its start to its end. The machine has already set the context
        of its process."""
        life = self.life = InstanceLife(
            self.name,
            machine.start_count,
            self.directory,
            self._step,
            lambda name: self._host.on_mark(self.name, name),
        )
        LIFE.set(life)
        enter(self._sources)
        self._stopping = trio.Event()
        self.note("start", f"start {machine.start_count} of {self._program.__qualname__}")
        try:
            with trio.CancelScope() as self._scope:
                result = await self._run_program(life)
                self.note("end", "returned" if result is None else f"returned {result!r}"[:200])
                return
            self.note("end", "stopped")
        except (Exception, BaseExceptionGroup) as error:
            if life.is_over or self._host.shared.is_over:
                raise
            self.failure = error
            ABANDONED.add_failure(error)
            if self._stopping.is_set():
                self.note("error", f"failed while it stopped: {described(error)}")
                return
            self.note("error", f"ended with {described(error)}")
            if self._restarts:
                self.restart_after(RESTART_AFTER_S)
            raise
        finally:
            life.end()

    async def _run_program(self, life: InstanceLife) -> object:
        try:
            program = self._program
            if self._modules:
                modules = life.modules = LifeModules(self._modules)
                program = modules.load(program)
            if self._runtime == "trio":
                return await program(*self._arguments)
            return await run_asyncio(lambda: program(*self._arguments), self._stopping)
        except SystemExit as error:
            if error.code in (None, 0):
                return None
            raise ProgramExitError(f"the program exited: {error.code}") from error
        except asyncio.CancelledError as error:
            raise ProgramExitError("the program was cancelled by its own code") from error

    async def _step(self, name: str) -> None:
        if not self._host.on_mark(self.name, name):
            return
        if self._runtime == "trio":
            await trio.lowlevel.checkpoint()
        else:
            await asyncio.sleep(0)


def described(error: BaseException) -> str:
    """Return the type and message of an exception, or of the first exception in an exception
    group."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    text = str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
