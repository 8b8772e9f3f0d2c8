"""A producer to which no record is given."""

import trio
from trio.testing import MockClock

from ottla.client import ProducerConfig, open_producer

STEPS_MAX = 2_000


class StepLimit(trio.abc.Instrument):
    """Cancels a scope after STEPS_MAX steps of the event loop's tasks."""

    def __init__(self, scope: trio.CancelScope) -> None:
        self.scope = scope
        self.count = 0

    def after_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1
        if self.count == STEPS_MAX:
            self.scope.cancel()


async def test_a_producer_without_topics_sleeps_when_its_metadata_is_old(
    autojump_clock: MockClock,
) -> None:
    config = ProducerConfig(metadata_age_ms_max=1_000)
    with trio.CancelScope() as scope:
        limit = StepLimit(scope)
        trio.lowlevel.add_instrument(limit)
        try:
            async with open_producer(["127.0.0.1:1"], config):
                await trio.sleep(10)
        finally:
            trio.lowlevel.remove_instrument(limit)
    assert limit.count < STEPS_MAX
