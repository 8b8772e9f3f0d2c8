"""Transaction coordinator over real logs: responses and markers are sent only after the commit."""

from dataclasses import replace
from typing import Any

import pytest
import trio
import trio.testing

from ottla.broker.transactions.transaction import TransactionFacts, TransactionStatus
from ottla.broker.transactions.transaction_coordinator import HELD_MS_MAX
from ottla.broker.transactions.transaction_records import read_state_record, state_record
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset, ProducerId, TopicPartition
from ottla.model.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from ottla.model.settings.storage.topic import TopicConfig
from ottla.model.settings.transactions import TransactionConfig
from ottla.model.unexpected_errors import UnexpectedErrors
from ottla.wire.batch import batches
from ottla.wire.batch_builder import BatchBuilder
from ottla.wire.messages.add_offsets_to_txn_request import AddOffsetsToTxnRequest
from ottla.wire.messages.add_offsets_to_txn_response import AddOffsetsToTxnResponse
from ottla.wire.messages.end_txn_request import EndTxnRequest
from ottla.wire.messages.list_transactions_request import ListTransactionsRequest
from ottla.wire.messages.list_transactions_response import ListTransactionsResponse
from ottla.wire.records import scan

NONE = ErrorCode.NONE
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
ORDERS = TopicPartition("orders", 0)


def written(led: Any) -> list[tuple[str, TransactionFacts | None]]:
    """Return the records of the transaction state log, decoded."""
    log = led.log
    read = log.read(Offset(0), bytes_max=10_000_000, end_offset=log.end_offset, at_least_one=True)
    if read.slice is None:
        return []
    data = read.slice.read()
    found = [
        read_state_record(record.key, record.value)
        for at, header in batches(data)
        for record in scan(data, at, header)
    ]
    return [one for one in found if one is not None]


def statuses(led: Any) -> list[str]:
    return ["-" if facts is None else facts.status.title for _, facts in written(led)]


@pytest.mark.parametrize("is_commit", [True, False])
async def test_a_transaction_from_its_begin_to_its_end(
    world: Any, coordinated: Any, is_commit: bool
) -> None:
    async with coordinated(world) as (transactions, led):
        code, *producer = await transactions.init()
        assert (code, producer) == (NONE, [1_000, 0])
        assert await transactions.add(producer) == [NONE]
        assert await transactions.add_offsets(producer) is NONE
        assert await transactions.add_offsets(producer, group_id="") is NONE, (
            "a name like any other"
        )
        assert (await transactions.end(producer, is_commit=is_commit))[0] is NONE
        (order,) = transactions.orders
        assert (order.producer_id, order.producer_epoch, order.coordinator_epoch) == (1_000, 0, 3)
        assert order.is_commit is is_commit
        assert order.missing == {ORDERS, TopicPartition("__consumer_offsets", 0)}
        assert await transactions.init() == (CONCURRENT, -1, -1)
        await transactions.mark(order, ORDERS)
        assert await transactions.init() == (CONCURRENT, -1, -1)
        await transactions.mark(order)
        done = "CompleteCommit" if is_commit else "CompleteAbort"
        assert await transactions.state() == done
        prepared = done.replace("Complete", "Prepare")
        assert statuses(led) == ["Empty", "Ongoing", "Ongoing", prepared, done]
        assert (await transactions.end(producer, is_commit=is_commit))[0] is NONE
        assert await transactions.init() == (NONE, 1_000, 1)


async def test_an_add_that_meets_the_markers_waits_for_the_last_of_them(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        _, *producer = await transactions.init()
        await transactions.add(producer)
        await transactions.end(producer)
        call = await transactions.add(producer)
        assert not call.is_completed
        (order,) = transactions.orders
        await transactions.mark(order)
        assert transactions.codes_of_add(call) == [NONE]
        assert statuses(led)[-2:] == ["CompleteCommit", "Ongoing"]


async def test_the_ends_of_a_response_and_the_next_begins_are_written_before_other_tasks_run(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        calls = []
        for name in ("a", "b"):
            _, *producer = await transactions.init(name)
            await transactions.add(producer, transactional_id=name)
            await transactions.end(producer, transactional_id=name)
            calls.append(await transactions.add(producer, transactional_id=name))
        before = len(statuses(led))
        with transactions.coordinator.one_flush():
            for order in transactions.orders:
                transactions.coordinator.on_marked(order, frozenset(order.missing))
            assert len(statuses(led)) == before
        assert statuses(led)[before:] == ["CompleteCommit"] * 2 + ["Ongoing"] * 2
        assert [transactions.codes_of_add(call) for call in calls] == [[NONE]] * 2


async def test_an_add_of_offsets_waits_for_the_markers_too(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (transactions, _):
        _, *producer = await transactions.init()
        await transactions.add(producer)
        await transactions.end(producer)
        request = AddOffsetsToTxnRequest(
            transactional_id="t", producer_id=1_000, producer_epoch=0, group_id="g"
        )
        call = await transactions.ask(request, 3)
        assert not call.is_completed
        await transactions.mark(transactions.orders[0])
        assert call.response(AddOffsetsToTxnResponse).error_code == NONE


async def test_an_add_is_sent_away_where_the_markers_take_long(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, _):
        _, *producer = await transactions.init()
        await transactions.add(producer)
        await transactions.end(producer)
        call = await transactions.add(producer)
        world.pass_time(HELD_MS_MAX)
        assert transactions.codes_of_add(call) == [CONCURRENT]
        await transactions.mark(transactions.orders[0])
        assert await transactions.add(producer) == [NONE]


async def test_a_waiting_add_fails_when_the_coordinator_changes(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        _, *producer = await transactions.init()
        await transactions.add(producer)
        await transactions.end(producer)
        call = await transactions.add(producer)
        moved = world.state(leader=2, leader_epoch=4, partition_epoch=1)
        world.know(TRANSACTIONS_TOPIC, moved)
        led.apply(moved, led.config, 0)
        await transactions.publish()
        world.pass_time(HELD_MS_MAX)
        assert transactions.codes_of_add(call) == [ErrorCode.NOT_COORDINATOR]


async def test_a_client_of_version_2_gets_its_next_epoch_with_the_end(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        _, *producer = await transactions.init()
        assert await transactions.add(producer, version=5) == [NONE]
        assert await transactions.end(producer, version=5) == (NONE, 1_000, 1)
        (order,) = transactions.orders
        assert (order.producer_epoch, order.transaction_version) == (1, 2)
        assert await transactions.end(producer, version=5) == (CONCURRENT, -1, -1)
        await transactions.mark(order)
        assert await transactions.end(producer, version=5) == (NONE, 1_000, 1)
        # Nothing was produced: the abort has neither partitions nor markers.
        again = await transactions.end((1_000, 1), is_commit=False, version=5)
        assert again == (NONE, 1_000, 2)
        assert len(transactions.orders) == 1
        assert statuses(led)[-2:] == ["PrepareAbort", "CompleteAbort"]


async def test_no_answer_and_no_marker_is_sent_before_the_commit(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        call = await transactions.init()
        assert not call.is_completed
        assert await transactions.init() == (CONCURRENT, -1, -1)
        transactions.replicate(led)
        await trio.testing.wait_all_tasks_blocked()
        assert call.is_completed
        call = await transactions.add((1_000, 0))
        assert not call.is_completed
        transactions.replicate(led)
        call = await transactions.end((1_000, 0))
        assert not call.is_completed
        assert transactions.orders == []
        transactions.replicate(led)
        assert transactions.outcome_of(call)[0] is NONE
        assert len(transactions.orders) == 1


async def test_a_step_that_is_committed_late_is_taken_all_the_same(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        call = await transactions.init(timeout_ms=5_000)
        transactions.replicate(led)
        await trio.testing.wait_all_tasks_blocked()
        await transactions.add((1_000, 0))
        transactions.replicate(led)
        call = await transactions.end((1_000, 0))
        world.pass_time(5_000)
        assert transactions.outcome_of(call)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        # It may be committed yet: nothing else is decided before that is known.
        assert (await transactions.end((1_000, 0), is_commit=False))[0] is CONCURRENT
        assert transactions.orders == []
        transactions.replicate(led)
        await trio.testing.wait_all_tasks_blocked()
        assert [order.is_commit for order in transactions.orders] == [True]


async def test_too_few_replicas_in_sync_refuse_a_step_and_leave_nothing(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        led.apply_config(TopicConfig(min_insync_replicas=2), 0)
        led.isr = frozenset((NodeId(1),))
        assert (await transactions.init())[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert await transactions.state() is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert led.log is not None
        assert led.log.end_offset == 0


async def test_a_completion_is_written_when_there_are_enough_replicas_again(
    world: Any, coordinated: Any, autojump_clock: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        await transactions.init()
        transactions.replicate(led)
        await transactions.add((1_000, 0))
        transactions.replicate(led)
        await transactions.end((1_000, 0))
        transactions.replicate(led)
        (order,) = transactions.orders
        led.isr, led.min_isr_count = frozenset((NodeId(1),)), 2
        await transactions.mark(order)
        await trio.sleep(1)
        assert statuses(led)[-1] == "PrepareCommit"
        led.min_isr_count = 1
        await trio.sleep(1)
        assert statuses(led)[-1] == "CompleteCommit"


async def test_the_next_coordinator_sends_the_markers_again(
    world: Any, coordinated: Any, make_coordinator: Any, running: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        _, *producer = await transactions.init()
        await transactions.add(producer)
        await transactions.end(producer)
        await transactions.init("open")
        await transactions.add((1_001, 0), transactional_id="open")
    led.leader_epoch += 1
    async with running(make_coordinator(world, TransactionConfig(), first_id=2_000)) as after:
        (order,) = after.orders
        assert (order.transactional_id, order.is_commit) == ("t", True)
        assert (order.producer_id, order.coordinator_epoch) == (1_000, 4)
        assert await after.init() == (CONCURRENT, -1, -1)
        await after.mark(order)
        assert await after.state() == "CompleteCommit"
        assert await after.state("open") == "Ongoing"
        assert (await after.end(producer))[0] is NONE


async def test_markers_are_not_sent_again_before_what_was_loaded_is_committed(
    world: Any, coordinated: Any, make_coordinator: Any, running: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        for step in (transactions.init(), transactions.add((1_000, 0))):
            await step
            transactions.replicate(led)
            await trio.testing.wait_all_tasks_blocked()
        await transactions.end((1_000, 0))
    async with running(make_coordinator(world, TransactionConfig(), first_id=2_000)) as after:
        assert after.coordinator.is_loading
        assert (await after.init())[0] is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert after.orders == []
        after.replicate(led)
        await trio.testing.wait_all_tasks_blocked()
        assert len(after.orders) == 1
        assert not after.coordinator.is_loading


async def test_waiting_requests_fail_when_another_broker_coordinates(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, led):
        call = await transactions.init()
        world.know(TRANSACTIONS_TOPIC, world.state(replicas=(1, 2), leader=2, leader_epoch=4))
        led.apply(
            world.state(replicas=(1, 2), leader=2, leader_epoch=4, partition_epoch=1),
            led.config,
            0,
        )
        await transactions.publish()
        assert call.is_completed
        assert (await transactions.init())[0] is ErrorCode.NOT_COORDINATOR
        assert transactions.cancelled == [0]


async def test_a_transaction_that_is_open_for_too_long_is_aborted(
    world: Any, coordinated: Any, autojump_clock: Any
) -> None:
    config = TransactionConfig(abort_check_interval_ms=100)
    async with coordinated(world, config=config) as (transactions, _):
        await transactions.init(timeout_ms=5_000)
        await transactions.add((1_000, 0))
        world.pass_time(5_000)
        await trio.sleep(0.2)
        assert transactions.orders == []
        world.pass_time(1)
        await trio.sleep(0.2)
        (order,) = transactions.orders
        assert (order.is_commit, order.producer_epoch) == (False, 1)
        await transactions.mark(order)
        assert (await transactions.end((1_000, 0)))[0] is ErrorCode.PRODUCER_FENCED
        assert (await transactions.end((1_000, 0), version=1))[0] is (
            ErrorCode.INVALID_PRODUCER_EPOCH
        )
        assert await transactions.add((1_000, 0)) == [ErrorCode.PRODUCER_FENCED]


@pytest.mark.parametrize(("server_version", "epoch"), [(0, 2), (2, 2)])
async def test_a_new_producer_has_what_the_old_one_left_open_aborted(
    world: Any, coordinated: Any, server_version: int, epoch: int
) -> None:
    async with coordinated(world, transaction_version=server_version) as (transactions, _):
        await transactions.init()
        await transactions.add((1_000, 0))
        assert await transactions.init() == (CONCURRENT, -1, -1)
        (order,) = transactions.orders
        assert (order.is_commit, order.producer_epoch) == (False, 1)
        await transactions.mark(order)
        assert await transactions.init() == (NONE, 1_000, epoch)


async def test_an_id_that_was_not_used_for_long_is_forgotten(
    world: Any, coordinated: Any, make_coordinator: Any, running: Any, autojump_clock: Any
) -> None:
    config = TransactionConfig(expiry_check_interval_ms=100, id_expiration_ms=5_000)
    async with coordinated(world, config=config) as (transactions, led):
        await transactions.init("old")
        await transactions.init("open")
        await transactions.add((1_001, 0), transactional_id="open")
        world.pass_time(5_000)
        await transactions.init("new")
        await trio.sleep(0.2)
        assert await transactions.state("old") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await transactions.state("open") == "Ongoing"
        (shard,) = transactions.coordinator.shards()
        assert +shard.counts == {TransactionStatus.EMPTY: 1, TransactionStatus.ONGOING: 1}
        assert written(led)[-1] == ("old", None)
        mapping = ErrorCode.INVALID_PRODUCER_ID_MAPPING
        assert await transactions.add((1_000, 0), transactional_id="old") == [mapping]
    async with running(make_coordinator(world, config, first_id=2_000)) as after:
        assert await after.state("old") is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        assert await after.state("new") == "Empty"


async def test_a_record_that_cannot_be_read_costs_its_own_id_alone(
    world: Any, coordinated: Any, make_coordinator: Any, running: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        await transactions.init("a")
        builder = BatchBuilder()
        builder.append(0, b"\0\0\0\1x", b"\0\7later")
        builder.append(0, b"\0\1\0\1x", b"\0\0")
        led.append_of_coordinator(builder.build(), now_ms=0, mono_ms=0)
        await transactions.init("b")
    async with running(make_coordinator(world, TransactionConfig(), first_id=2_000)) as after:
        assert [await after.state("a"), await after.state("b")] == ["Empty", "Empty"]
        assert after.coordinator.metrics()["transactions.records.skipped"] == 2


async def test_a_transaction_too_large_for_its_topic_is_refused_alone(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        await transactions.init()
        led.apply_config(TopicConfig(cleanup_policy=("compact",), max_message_bytes=150), 0)
        assert await transactions.add((1_000, 0)) == [ErrorCode.UNKNOWN_SERVER_ERROR]
        assert await transactions.state() == "Empty"


async def test_ids_go_on_with_the_next_block(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (transactions, _):
        given = [await transactions.init(f"t{number}") for number in range(25)]
        assert given == [(NONE, 1_000 + number, 0) for number in range(25)]
        assert await transactions.init(None) == (NONE, 1_025, 0)


async def test_an_epoch_that_is_used_up_ends_with_another_id(
    world: Any, coordinated: Any, make_coordinator: Any, running: Any
) -> None:
    facts = TransactionFacts(
        producer_id=ProducerId(7),
        producer_epoch=32_766,
        timeout_ms=60_000,
        status=TransactionStatus.ONGOING,
        partitions=frozenset((ORDERS,)),
        start_ms=world.clock.wall_ms(),
        last_update_ms=world.clock.wall_ms(),
        client_version=2,
    )
    async with coordinated(world) as (_, led):
        builder = BatchBuilder()
        builder.append(0, *state_record("t", facts, 2))
        builder.append(0, *state_record("u", replace(facts, producer_id=ProducerId(8)), 2))
        led.append_of_coordinator(builder.build(), now_ms=0, mono_ms=0)
    config = TransactionConfig()
    async with running(make_coordinator(world, config, first_id=2_000)) as transactions:
        assert await transactions.end((7, 32_766), version=5) == (NONE, 2_000, 0)
        (order,) = transactions.orders
        assert (order.producer_id, order.producer_epoch) == (7, 32_767)
    # The coordinator dies before the markers: the new id is in the log.
    async with running(make_coordinator(world, config, first_id=3_000)) as after:
        (order,) = after.orders
        assert (order.producer_id, order.producer_epoch) == (7, 32_767)
        await after.mark(order)
        assert await after.end((7, 32_766), version=5) == (NONE, 2_000, 0)
        assert await after.add((2_000, 0), version=5) == [NONE]


# ---- what needs no state


async def test_requests_are_checked_before_the_state_is_asked(world: Any, coordinated: Any) -> None:
    invalid = (ErrorCode.INVALID_REQUEST, -1, -1)
    async with coordinated(world) as (transactions, _):
        assert await transactions.init("") == invalid
        assert await transactions.init(producer=(5, -1)) == invalid
        assert await transactions.init(producer=(-1, 5)) == invalid
        assert await transactions.init(None) == (NONE, 1_000, 0)
        assert await transactions.init("x" * 9_000) == invalid
        for timeout_ms in (0, -1, 900_001):
            code, *_ = await transactions.init(timeout_ms=timeout_ms)
            assert code is ErrorCode.INVALID_TRANSACTION_TIMEOUT
        assert (await transactions.end((1, 0), transactional_id=""))[0] is (
            ErrorCode.INVALID_REQUEST
        )


async def test_partitions_are_added_all_or_none(world: Any, coordinated: Any) -> None:
    missing = TopicPartition("missing", 0)
    not_attempted = ErrorCode.OPERATION_NOT_ATTEMPTED
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    async with coordinated(world) as (transactions, _):
        _, *producer = await transactions.init()
        for version in (0, 3, 4, 5):
            codes = await transactions.add(producer, ORDERS, missing, version=version)
            assert codes == [not_attempted, unknown]
        offsets = TopicPartition("__consumer_offsets", 0)
        refused = [not_attempted, ErrorCode.TOPIC_AUTHORIZATION_FAILED]
        assert await transactions.add(producer, ORDERS, offsets) == refused
        assert await transactions.state() == "Empty"
        assert await transactions.add(producer, offsets, version=5) == [NONE]


@pytest.mark.parametrize("version", [4, 5])
async def test_a_leader_learns_whether_a_partition_is_in_the_transaction(
    world: Any, coordinated: Any, version: int
) -> None:
    async with coordinated(world) as (transactions, led):
        _, *producer = await transactions.init()
        asked = {"version": version, "is_verification": True}
        # As in Kafka: the leader translates the code for old clients.
        assert await transactions.add(producer, **asked) == [ErrorCode.TRANSACTION_ABORTABLE]
        assert await transactions.add(producer) == [NONE]
        assert await transactions.add(producer, **asked) == [NONE]
        assert statuses(led) == ["Empty", "Ongoing"]


async def test_offsets_of_a_first_group_have_their_topic_made(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (transactions, _):
        _, *producer = await transactions.init()
        image = world.table.image
        world.table.image = replace(image, topic_ids=image.topic_ids.delete(OFFSETS_TOPIC))
        assert await transactions.add_offsets(producer) is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert transactions.created == [OFFSETS_TOPIC]


@pytest.mark.parametrize(
    ("version", "code"),
    [(1, ErrorCode.INVALID_PRODUCER_EPOCH), (2, ErrorCode.PRODUCER_FENCED)],
)
async def test_old_clients_hear_of_a_fence_in_their_own_word(
    world: Any, coordinated: Any, version: int, code: ErrorCode
) -> None:
    async with coordinated(world) as (transactions, _):
        await transactions.init()
        await transactions.init()
        assert await transactions.add((1_000, 0), version=version) == [code]
        assert await transactions.add_offsets((1_000, 0), version=version) is code
        assert (await transactions.end((1_000, 0), version=version))[0] is code
        of_init = {1: 3, 2: 4}[version]
        assert (await transactions.init(producer=(1_000, 0), version=of_init))[0] is code


async def test_transactions_are_listed_by_what_they_are(world: Any, coordinated: Any) -> None:
    async with coordinated(world) as (transactions, _):
        await transactions.init("a.idle")
        await transactions.init("b.open")
        await transactions.add((1_001, 0), transactional_id="b.open")
        world.pass_time(10_000)

        async def listed(**filters: Any) -> tuple[ErrorCode, list[str], list[str]]:
            call = await transactions.ask(ListTransactionsRequest(**filters))
            answer = call.response(ListTransactionsResponse)
            names = [one.transactional_id for one in answer.transaction_states]
            return ErrorCode(answer.error_code), names, answer.unknown_state_filters

        both = ["a.idle", "b.open"]
        assert await listed() == (NONE, both, [])
        assert await listed(state_filters=["Ongoing", "Odd"]) == (NONE, ["b.open"], ["Odd"])
        assert await listed(state_filters=["Odd"]) == (NONE, [], ["Odd"])
        assert await listed(producer_id_filters=[1_000]) == (NONE, ["a.idle"], [])
        assert await listed(state_filters=["Ongoing"], duration_filter=9_999) == (
            NONE,
            ["b.open"],
            [],
        )
        assert await listed(state_filters=["Ongoing"], duration_filter=10_000) == (NONE, [], [])
        assert await listed(transactional_id_pattern="a.*") == (NONE, ["a.idle"], [])
        bad = await listed(transactional_id_pattern="(")
        assert bad[0] is ErrorCode.INVALID_REGULAR_EXPRESSION


async def test_the_first_end_of_a_turn_is_answered_before_the_turn_ends(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, _):
        ends = []
        for name in ("t", "u", "v"):
            _, producer_id, epoch = await transactions.init(name)
            await transactions.add((producer_id, epoch), transactional_id=name)
            ends.append(
                EndTxnRequest(
                    transactional_id=name,
                    producer_id=producer_id,
                    producer_epoch=epoch,
                    committed=True,
                )
            )
        for end, *others in (ends[:2], ends[2:]):
            transactions.turn_end.begin()
            assert transactions.begin(end).is_completed
            calls = [transactions.begin(other) for other in others]
            assert not any(call.is_completed for call in calls), "written together at the end"
            transactions.turn_end.end(UnexpectedErrors())
            assert all(call.is_completed for call in calls)
        assert len(transactions.orders) == 3


async def test_additions_for_a_partition_leader_of_this_broker_are_answered_at_once(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world) as (transactions, led):
        _, producer_id, epoch = await transactions.init()
        answers: list[Any] = []

        def add(index: int, own_epoch: int = epoch) -> None:
            transactions.coordinator.add_at_once(
                "t", producer_id, own_epoch, [("orders", index)], answers.append
            )

        assert transactions.coordinator.writes_alone("t")
        transactions.turn_end.begin()
        for index in range(3):
            add(index)
            assert answers == [NONE] * (index + 1), "not at the end of the turn"
        add(0)
        add(3, epoch - 1)
        transactions.turn_end.end(UnexpectedErrors())
        assert answers == [NONE] * 4 + [ErrorCode.PRODUCER_FENCED]
        assert statuses(led) == ["Empty", "Ongoing", "Ongoing", "Ongoing"]
        _, facts = written(led)[-1]
        assert facts is not None
        assert facts.client_version == 2
        assert len(facts.partitions) == 3


async def test_additions_that_a_follower_must_confirm_are_not_written_alone(
    world: Any, coordinated: Any
) -> None:
    async with coordinated(world, replicas=(1, 2)) as (transactions, _):
        assert not transactions.coordinator.writes_alone("t")
