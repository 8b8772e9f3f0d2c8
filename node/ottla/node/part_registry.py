"""Registry in which the components of a broker register their tasks, metrics and settings. Pure.

A component does this in its method `register_with(parts)`. The broker starts all registered tasks,
serves all metrics and applies all settings, without a list of the components.
"""

from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol

from ottla.model.seams import Clock
from ottla.telemetry.metrics.instruments import Collector, Registry


class PartRegistry:
    """Registry of the tasks, metrics, settings, status values and problem reports of one broker's
    components."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.metrics = Registry()
        self.tasks: list[tuple[str, Callable[[], Awaitable[None]]]] = []
        """Background tasks of the broker's components with their names in error logs, in the order
        of their start."""
        self.settings: dict[str, Callable[[Any], None]] = {}
        """Functions that apply a new value of a dynamic setting, by the setting's name."""
        self._figures: list[Callable[[], Mapping[str, float]]] = []
        self._problems: list[Callable[[], Iterable[str]]] = []

    def task(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Register a background task of a component, under its name in error logs."""
        self.tasks.append((name, work))

    def families(self, collect: Collector) -> None:
        """Register a component's function that yields metric families."""
        self.metrics.register(collect)

    def setting(self, key: str, apply: Callable[[Any], None]) -> None:
        """Register a component's function that applies a new value of a dynamic setting."""
        assert key not in self.settings, key
        self.settings[key] = apply

    def figures(self, read: Callable[[], Mapping[str, float]]) -> None:
        """Register a component's function that returns named status values, which DescribeNode
        reports."""
        self._figures.append(read)

    def problems(self, read: Callable[[], Iterable[str]]) -> None:
        """Register a component's function that yields a description of each problem, which
        DescribeNode reports."""
        self._problems.append(read)

    def all_figures(self) -> dict[str, float]:
        """Return the status values that all components have registered, by name."""
        return {name: value for read in self._figures for name, value in read().items()}

    def all_problems(self) -> Iterator[str]:
        """Yield the problem descriptions of all components, in the order in which the components
        registered."""
        for read in self._problems:
            yield from read()


class BrokerPart(Protocol):
    """Component of a broker that registers its tasks and metrics in a `PartRegistry`."""

    def register_with(self, parts: PartRegistry) -> None:
        """Register this component's background tasks, metrics, settings, status values and problem
        reports in `parts`."""
        ...
