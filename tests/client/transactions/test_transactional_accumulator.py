"""The records of transactions without a socket."""

import pytest

from ottla.client.produce.accumulator import Accumulator, ProducerIdentity
from ottla.client.transactions.transaction_flow import TransactionFlow, TransactionProtocol
from ottla.client.transactions.transactional_accumulator import TransactionalAccumulator
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.client import ProducerConfig
from ottla.wire.batch import parse_header

AT = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
FIRST = ProducerIdentity(ProducerId(7), 0)
NEXT = ProducerIdentity(ProducerId(7), 1)
CONFIG = ProducerConfig(transactional_id="x", linger_ms=0)


class World:
    """An accumulator in its first transaction."""

    def __init__(self, protocol: TransactionProtocol) -> None:
        self.flow = TransactionFlow()
        self.wanted_count = 0
        self.gathered = TransactionalAccumulator(CONFIG, self.flow, self.on_wanted)
        self.flow.identify(FIRST)
        self.gathered.become(FIRST)
        self.flow.begin(protocol)
        self.gathered.open()

    def on_wanted(self) -> None:
        self.wanted_count += 1

    def put(self, at: TopicPartition = AT) -> None:
        self.gathered.append(at, 0, None, b"x", (), 0)


def test_explicit_batches_wait_until_their_partition_is_added() -> None:
    world = World(TransactionProtocol.EXPLICIT)
    world.put()
    world.put(OTHER)

    assert world.wanted_count == 2
    assert world.gathered.drain([AT, OTHER], 1) == []
    assert not world.flow.must_end
    world.flow.add([AT])
    (batch,) = world.gathered.drain([AT, OTHER], 1)
    assert batch.partition == AT
    assert world.flow.must_end
    assert world.gathered.produce_version_max == 11


def test_batches_are_transactional_and_numbered_from_0_in_every_epoch() -> None:
    world = World(TransactionProtocol.IMPLICIT)
    for identity, following in ((FIRST, NEXT), (NEXT, NEXT)):
        world.put()
        (batch,) = world.gathered.drain([AT], 1)
        assert batch.encoded is not None
        header = parse_header(batch.encoded)
        assert header.is_transactional
        assert (header.producer_epoch, header.base_sequence) == (identity.epoch, 0)
        world.gathered.on_acknowledged(batch, base_offset=0)
        world.gathered.become(following)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.INVALID_TXN_STATE,
    ],
)
def test_a_batch_that_fails_takes_all_that_waits_with_it(code: ErrorCode) -> None:
    world = World(TransactionProtocol.IMPLICIT)
    world.put()
    (batch,) = world.gathered.drain([AT], 1)
    world.put(OTHER)
    world.gathered.on_answer(batch, code, None, 1)

    assert world.gathered.ended_by is batch.failure
    assert world.gathered.refusal is batch.failure
    assert batch.failure is not None
    assert batch.failure.code is code
    assert not world.gathered.has_open
    assert not world.gathered.is_identity_due, "the epoch stays until the transaction has ended"


def test_a_transaction_before_that_is_still_ending_is_waited_for() -> None:
    world = World(TransactionProtocol.IMPLICIT)
    world.put()
    (batch,) = world.gathered.drain([AT], 1)
    world.gathered.on_answer(batch, ErrorCode.CONCURRENT_TRANSACTIONS, None, 1)

    assert not batch.is_settled
    assert not batch.is_uncertain
    assert world.gathered.drain([AT], 10_000) == [batch]


def test_what_was_accepted_is_still_sent_after_the_close_and_nothing_else() -> None:
    world = World(TransactionProtocol.IMPLICIT)
    world.put()
    world.gathered.close()

    assert world.gathered.refusal is not None
    assert len(world.gathered.drain([AT], 1)) == 1


def test_an_abort_drops_what_waits_and_a_batch_that_is_to_be_repeated() -> None:
    world = World(TransactionProtocol.IMPLICIT)
    world.put()
    (batch,) = world.gathered.drain([AT], 1)
    world.put()
    world.gathered.require_abort(RefusedError(ErrorCode.TRANSACTION_ABORTABLE, "aborted"))

    assert world.gathered.has_open, "the answer of the one in flight is waited for"
    world.gathered.on_lost(batch, "cut", 2)
    assert not world.gathered.has_open
    assert world.gathered.drain([AT], 10_000) == []


def test_a_plain_producer_is_not_of_a_transaction() -> None:
    assert not Accumulator.is_transactional
    assert Accumulator(ProducerConfig()).refusal is None
