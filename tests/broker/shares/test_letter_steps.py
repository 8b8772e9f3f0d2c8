"""Dead letters at the leader of a share partition: sending, back-off and failover."""

from collections.abc import Sequence

from ottla.broker.shares.dead_letters import DeadLetter
from ottla.broker.shares.delivery_window import DeliveryState
from ottla.broker.shares.led_share import LedShare
from ottla.model.errors import ErrorCode
from ottla.model.settings.share_groups import ShareGroupSettings
from tests.broker.shares.conftest import ShareBench, ack_codes, acquired

T = ("t", 0)
REJECT = [3]


class LetterLog:
    """Sender that records dead letters."""

    is_enabled = True

    def __init__(self) -> None:
        self.sent: list[tuple[LedShare, DeadLetter]] = []

    def send(self, led: LedShare, letters: Sequence[DeadLetter]) -> None:
        self.sent += [(led, letter) for letter in letters]


def with_letters(bench: ShareBench) -> LetterLog:
    """Give the group a dead letter topic, and return the sender."""
    log = LetterLog()
    bench.settings = ShareGroupSettings(offset_reset="earliest", dead_letter_topic="dlq.t")
    shares = bench.apis.delivery.shares
    shares._ports = shares._ports._replace(letters=log)
    return log


async def test_a_rejected_record_is_sent_until_its_letter_is_written(bench: ShareBench) -> None:
    log = with_letters(bench)
    partition = await bench.add()
    bench.append(partition, b"a")
    state = bench.persister.states[bench.key(partition)]
    bench.fetch(T, epoch=0)
    assert ack_codes(bench.acknowledge({T: [(0, 0, REJECT)]}, epoch=1)) == [ErrorCode.NONE]
    assert [batch.delivery_state for batch in state.as_read().batches] == [DeliveryState.ARCHIVING]
    ((led, letter),) = log.sent
    led.on_letters([letter], is_written=False)
    bench.world.pass_time(99)
    assert len(log.sent) == 1
    bench.world.pass_time(1)
    assert len(log.sent) == 2
    assert state.as_read().start_offset == 0
    led.on_letters([letter], is_written=True)
    assert state.as_read().start_offset == 1


async def test_the_end_of_the_last_lock_makes_a_letter(bench: ShareBench) -> None:
    log = with_letters(bench)
    partition = await bench.add()
    bench.append(partition, b"a")
    for epoch in range(5):
        assert acquired(bench.fetch(T, epoch=epoch)) == [(0, 0, epoch + 1)]
        bench.world.pass_time(30_000)
    ((_, letter),) = log.sent
    assert (letter.offset, letter.count, letter.is_rejected) == (0, 5, False)


async def test_a_dropped_leader_ignores_the_outcome_and_the_next_one_sends_again(
    bench: ShareBench,
) -> None:
    log = with_letters(bench)
    partition = await bench.add()
    bench.append(partition, b"a")
    bench.fetch(T, epoch=0)
    bench.acknowledge({T: [(0, 0, REJECT)]}, epoch=1)
    ((old, letter),) = log.sent
    old.drop(ErrorCode.NONE)
    old.on_letters([letter], is_written=True)
    assert acquired(bench.fetch(T, epoch=0)) == []
    (_, (new, again)) = log.sent
    assert new is not old
    new.on_letters([again], is_written=True)
    assert bench.persister.states[bench.key(partition)].start_offset == 1
