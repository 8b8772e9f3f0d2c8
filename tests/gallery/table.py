"""The twenty bugs of the gallery: program, scenario, checker that finds it, and public report."""

from dataclasses import dataclass
from types import ModuleType

from tests.gallery import scenarios
from tests.gallery.bugs import (
    background_task,
    commit_early,
    commit_late,
    dead_letter_order,
    latest_reset,
    memory_dedup,
    offset_not_plus_one,
    offsets_outside,
    outbox,
    pause_resume,
    poison,
    rebalance_ignored,
    retry_reorders,
    send_not_awaited,
    shared_producer,
    static_clash,
    timestamp_dedup,
    unbounded_buffer,
    wrong_partition,
    zombie,
)

GITHUB = "https://github.com/"


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug of a consumer program, and its fixed twin."""

    module: ModuleType
    """Module with the async functions `broken` and `fixed`."""
    checker: str
    """Name of the checker that finds the bug."""
    report: str | None = None
    """Address of a public report of such a bug, or None."""
    has_lag: bool = False
    """True if a lag of the group that never ends is another sign of the bug."""

    @property
    def name(self) -> str:
        """Name of the bug: that of its module and of its scenario."""
        return self.module.__name__.rpartition(".")[2]

    @property
    def checkers(self) -> set[str]:
        """Names of the checkers that may find the bug first."""
        return {self.checker, "settles"} if self.has_lag else {self.checker}

    @property
    def broken(self) -> scenarios.Program:
        """The program with the bug."""
        program: scenarios.Program = self.module.broken
        return program

    @property
    def fixed(self) -> scenarios.Program:
        """The program without the bug."""
        program: scenarios.Program = self.module.fixed
        return program

    @property
    def scenario(self) -> scenarios.Scenario:
        """The scenario of both programs."""
        scenario: scenarios.Scenario = getattr(scenarios, self.name)
        return scenario


BUGS = (
    Bug(commit_early, "at_least_once", GITHUB + "moov-io/achgateway/pull/138"),
    Bug(commit_late, "exactly_once"),
    Bug(rebalance_ignored, "exactly_once", GITHUB + "getsentry/sentry/pull/10837"),
    Bug(shared_producer, "settles", GITHUB + "micronaut-projects/micronaut-kafka/issues/700"),
    Bug(dead_letter_order, "no_lost_dead_letter"),
    Bug(outbox, "at_least_once"),
    Bug(zombie, "exactly_once", GITHUB + "akka/alpakka-kafka/issues/369"),
    Bug(pause_resume, "settles", GITHUB + "spring-projects/spring-kafka/pull/2531"),
    Bug(retry_reorders, "in_key_order"),
    Bug(unbounded_buffer, "bounded_lag"),
    Bug(
        wrong_partition, "at_least_once", GITHUB + "confluentinc/librdkafka/pull/3258", has_lag=True
    ),
    Bug(static_clash, "settles", GITHUB + "karafka/karafka/issues/1173"),
    Bug(timestamp_dedup, "exactly_once"),
    Bug(background_task, "at_least_once", GITHUB + "aio-libs/aiokafka/issues/211"),
    Bug(offset_not_plus_one, "settles", GITHUB + "confluentinc/confluent-kafka-python/issues/817"),
    Bug(poison, "settles", GITHUB + "spring-projects/spring-kafka/issues/316"),
    Bug(memory_dedup, "exactly_once"),
    Bug(send_not_awaited, "at_least_once", GITHUB + "ag2ai/faststream/issues/1748"),
    Bug(latest_reset, "at_least_once", GITHUB + "allegro/hermes/issues/351", has_lag=True),
    Bug(offsets_outside, "exactly_once"),
)
