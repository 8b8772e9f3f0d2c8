"""Hypothesis state machines over a simulated world: rules produce, start, kill and upgrade
instances.

The world runs in a thread. The thread waits between two rules, so that virtual time does not
advance. A run is therefore determined by the plan and the rules.
"""

import threading
from collections.abc import Awaitable, Callable
from queue import SimpleQueue
from typing import Any, Concatenate, ParamSpec, TypeVar

import hypothesis
from hypothesis.control import current_build_context
from hypothesis.core import encode_failure
from hypothesis.stateful import RuleBasedStateMachine

from ottla.testing.world.errors import WorldError
from ottla.testing.world.failure_files import RuleChoices, current_test, run_to_replay
from ottla.testing.world.plans import FaultSchedule, WorldPlan
from ottla.testing.world.run import WorldRun
from ottla.testing.world.timeline import TIMELINE, Timeline
from ottla.testing.world.world import SimulatedWorld

P = ParamSpec("P")
T = TypeVar("T")

TIMEOUT_S = 86_400.0
"""Maximum virtual seconds for which a simulated world runs in a thread."""


class _Outcome:
    """Result or exception of one call in a `WorldThread`."""

    __slots__ = ("error", "value")

    def __init__(self, value: Any = None, error: BaseException | None = None) -> None:
        self.value = value
        self.error = error


class WorldThread:
    """A simulated world in a thread. Its virtual time advances only during calls."""

    def __init__(
        self,
        plan: WorldPlan,
        faults: FaultSchedule,
        rules: Callable[[], RuleChoices] | None = None,
    ) -> None:
        self._run = WorldRun(self._serve, plan, faults, TIMEOUT_S)
        self._run.rules = rules
        self._calls: SimpleQueue[Callable[[SimulatedWorld], Awaitable[Any]] | None] = SimpleQueue()
        self._outcomes: SimpleQueue[_Outcome | None] = SimpleQueue()
        """Queue of the outcomes of calls. None is the last entry."""
        self._failure: BaseException | None = None
        self._is_open = True
        self._thread = threading.Thread(target=self._main, name="ottla-world", daemon=True)
        self._thread.start()
        self._next_outcome()  # of the start

    @property
    def timeline(self) -> Timeline:
        """Events of the run so far."""
        return self._run.timeline

    def call(
        self,
        function: Callable[Concatenate[SimulatedWorld, P], Awaitable[T]],
        *args: P.args,
        **options: P.kwargs,
    ) -> T:
        """Call an async function with the simulated world and further arguments, and return its
        result. Other tasks of the world run meanwhile.

        Raises the function's exception, and WorldError if the world is closed.
        """
        if not self._is_open:
            raise WorldError("this world is closed")
        self._calls.put(lambda world: function(world, *args, **options))
        result: T = self._next_outcome()
        return result

    def close(self) -> None:
        """End the run. Raises the error of the simulated cluster, if it failed."""
        if self._is_open:
            self._is_open = False
            self._calls.put(None)
        self._thread.join()
        if self._failure is not None:
            failure, self._failure = self._failure, None
            raise failure

    def _next_outcome(self) -> Any:
        outcome = self._outcomes.get()
        if outcome is None:
            self._is_open = False
            self.close()
            raise WorldError("the world has ended")
        if outcome.error is not None:
            raise outcome.error
        return outcome.value

    def _main(self) -> None:
        try:
            self._run.run()
        except BaseException as error:
            self._failure = error
        self._outcomes.put(None)

    async def _serve(self, world: SimulatedWorld) -> None:
        self._outcomes.put(_Outcome())
        while (call := self._calls.get()) is not None:
            try:
                outcome = _Outcome(await call(world))
            except Exception as error:
                self._run.explain(error, list(world.instances))
                outcome = _Outcome(error=error)
            self._outcomes.put(outcome)


class _ChoicesToReplay:
    """Class attribute with the choices that Hypothesis must repeat, or None. It is evaluated when
    a test begins, and has the form of the attribute that `hypothesis.reproduce_failure` sets."""

    def __get__(self, machine: object, owner: type) -> tuple[str, bytes] | None:
        replayed = run_to_replay()
        if replayed is None or replayed.rules is None or replayed.test != current_test():
            return None
        version = replayed.rules.version
        if version != hypothesis.__version__:
            raise WorldError(
                f"this failure was found with Hypothesis {version}, and only that version can "
                f"repeat its rules; type: pip install hypothesis=={version}"
            )
        return version, replayed.rules.blob.encode()


def _choices_so_far() -> Callable[[], RuleChoices] | None:
    """Return a function that returns the choices of the current example of Hypothesis. Returns None
    outside of Hypothesis."""
    if not hypothesis.currently_in_test_context():
        return None
    data = current_build_context().data
    return lambda: RuleChoices(
        version=hypothesis.__version__, blob=encode_failure(data.choices).decode()
    )


class WorldStateMachine(RuleBasedStateMachine):
    """State machine whose rules act on a simulated world with `self.world.call(async_function, …)`.

    The world begins with the first use of `world`. Until then, an `initialize` rule may set `plan`
    and `faults`.
    """

    plan = WorldPlan()
    """Cluster of the simulated world: its nodes, topics and settings."""
    faults = FaultSchedule()
    """Faults of the simulated world that are active in addition to the faults caused by rules."""
    _hypothesis_internal_use_reproduce_failure = _ChoicesToReplay()

    def __init__(self) -> None:
        super().__init__()
        self._world: WorldThread | None = None

    @property
    def world(self) -> WorldThread:
        """The simulated world of this example."""
        if self._world is None:
            self._world = WorldThread(self.plan, self.faults, _choices_so_far())
            # Checkers outside of `call` show the events, too.
            TIMELINE.set(self._world.timeline)
        return self._world

    def teardown(self) -> None:
        """End the simulated world. An override that checks the final state calls this method
        last."""
        super().teardown()
        TIMELINE.set(None)
        if self._world is not None:
            self._world.close()
