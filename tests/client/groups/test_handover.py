"""Between two polls: reassignments, and notifications of the application."""

import trio
import trio.testing

from ottla.client import ErrorCode, RefusedError, TopicPartition
from ottla.client.fetch.positions import Positions
from ottla.client.groups.handover import Handover
from ottla.model.settings.offset_reset import parse_offset_reset

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class Application:
    """An application that records its notifications."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.failures: list[Exception] = []
        self.ends = 0
        self.handover = Handover(
            Positions(parse_offset_reset("earliest"), 1),
            on_end=self.on_end,
            on_failure=self.failures.append,
        )
        self.handover.on_assigned = self.listener("assigned")
        self.handover.on_revoked = self.listener("revoked")

    def listener(self, word: str):  # type: ignore[no-untyped-def]
        async def listen(partitions: tuple[TopicPartition, ...]) -> None:
            self.heard.append(f"{word} {' '.join(str(at.partition) for at in partitions)}")

        return listen

    def on_end(self) -> None:
        self.ends += 1

    def poll(self) -> None:
        self.handover.has_polled = True
        if self.handover.is_held:
            self.handover.begin()

    async def give(self, *partitions: TopicPartition) -> None:
        async with self.handover.held():
            await self.handover.give(partitions)

    async def revoke(self, *partitions: TopicPartition) -> None:
        async with self.handover.held():
            await self.handover.revoke(partitions)


async def test_who_has_nothing_is_not_waited_for() -> None:
    app = Application()

    await app.give(A)

    assert app.heard == ["assigned 0"]
    assert not app.handover.is_held


async def test_partitions_go_with_the_next_poll_and_no_sooner(
    nursery: trio.Nursery,
) -> None:
    app = Application()
    await app.give(A, B)
    nursery.start_soon(app.revoke, A)
    await trio.testing.wait_all_tasks_blocked()
    assert app.heard == ["assigned 0 1"], "what was handed out is still being processed"
    assert app.handover.is_held, "and nothing more is handed out"

    app.poll()
    await trio.testing.wait_all_tasks_blocked()

    assert app.heard == ["assigned 0 1", "revoked 0"]
    assert list(app.handover.positions) == [B]
    assert not app.handover.is_held


async def test_a_poll_that_does_not_wait_is_enough(nursery: trio.Nursery) -> None:
    app = Application()
    await app.give(A)
    nursery.start_soon(app.revoke, A)
    await trio.testing.wait_all_tasks_blocked()

    app.poll()
    app.handover.set_waiting(True)
    app.handover.set_waiting(False)
    await trio.testing.wait_all_tasks_blocked()

    assert app.heard[-1] == "revoked 0"


async def test_what_is_lost_is_gone_at_once_and_reported_as_revoked_without_a_listener() -> None:
    app = Application()
    await app.give(A)

    app.handover.lose()
    assert list(app.handover.positions) == []
    await app.handover.notify_lost()
    await app.handover.notify_lost()
    assert app.heard == ["assigned 0", "revoked 0"], "reported once"

    app.handover.on_lost = app.listener("lost")
    await app.give(B)
    app.handover.lose()
    await app.handover.notify_lost()
    assert app.heard[-2:] == ["assigned 1", "lost 1"]


async def test_records_of_lost_partitions_are_in_work_until_the_next_poll() -> None:
    app = Application()
    await app.give(A)
    app.handover.set_waiting(True)
    app.handover.lose()
    assert not app.handover.has_lost_records, "the application has none: it waits in a poll"

    await app.give(A)
    app.handover.set_waiting(False)
    app.handover.lose()
    assert app.handover.has_lost_records
    await app.give(A)
    assert app.handover.has_lost_records, "a new assignment does not change this"


async def test_a_refusal_in_a_listener_is_reported_and_holds_nothing_up() -> None:
    app = Application()
    await app.give(A)

    async def refuse(_: tuple[TopicPartition, ...]) -> None:
        raise RefusedError(ErrorCode.UNKNOWN_MEMBER_ID)

    app.handover.on_revoked = refuse
    app.handover.set_waiting(True)
    await app.revoke(A)

    assert [type(one) for one in app.failures] == [RefusedError]
    assert list(app.handover.positions) == []


async def test_silence_counts_from_the_last_poll(autojump_clock: trio.testing.MockClock) -> None:
    app = Application()
    app.poll()
    assert app.handover.silent_ms() == 0
    await trio.sleep(3)
    assert app.handover.silent_ms() == 3_000
    app.handover.set_waiting(True)
    await trio.sleep(3)
    assert app.handover.silent_ms() == 0
    app.handover.set_waiting(False)
    assert app.handover.silent_ms() == 0
    await trio.sleep(1)
    assert app.handover.silent_ms() == 1_000
