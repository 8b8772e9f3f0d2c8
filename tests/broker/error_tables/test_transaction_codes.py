"""Every refusal of a transaction has Kafka's own error code, in each version, over a socket.

The codes are those of Apache Kafka 4.3, which answered this very table (`conftest.py` says how).
The codes of TxnOffsetCommit 6, which it lacks, are from the source of Kafka 4.4. A version whose
answer is that of the version before is tested only with OTTLA_ALL_VERSIONS in the environment.
"""

from collections.abc import Awaitable, Callable
from typing import Any

import pytest
import trio

from ottla.wire.messages.describe_transactions_response import DescribeTransactionsResponse
from ottla.wire.messages.end_txn_response import EndTxnResponse
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from tests.broker.error_tables.transaction_requests import (
    ABSENT,
    BEFORE,
    ELSEWHERE,
    NEXT,
    NO_NAME,
    OFFSETS,
    OTHER,
    STATE,
    TIMEOUT_MAX_MS,
    TOPIC,
    Producer,
    Row,
    abort,
    aborted,
    aborted_with_bump,
    aborting,
    add,
    add_offsets,
    commit,
    commit_offsets,
    committed,
    committed_with_bump,
    committing,
    committing_with_bump,
    describe,
    describe_producers,
    empty,
    epoch,
    find,
    init,
    init_again,
    initialised_again,
    list_all,
    mark,
    ongoing,
    produce,
    produce_in_two,
    produce_of_two,
    row,
    state_of,
    unknown_producer,
    verify,
)

# Tables


async def outcomes(
    broker: Any, make: Callable[[Any], Awaitable[Producer]], rows: list[Row]
) -> dict[str, dict[int, str]]:
    """Ask everything of a table in every version that both sides have, each of a new producer."""
    found: dict[str, dict[int, str]] = {}
    for one in rows:
        for version in one.versions:
            producer = await make(broker)
            request = one.request(producer, version)
            if broker.serves(request, version):
                answer = await broker.ask(request, version)
                found.setdefault(one.name, {})[version] = described(
                    broker.names(answer), answer, producer
                )
    return found


def described(codes: str, answer: Any, producer: Producer) -> str:
    """Return the codes of a response, and the producer id and epoch, or the state, that it has."""
    if isinstance(answer, DescribeTransactionsResponse):
        return f"{codes} {answer.transaction_states[0].transaction_state}".strip()
    if not isinstance(answer, InitProducerIdResponse | EndTxnResponse):
        return codes
    if (answer.producer_id, answer.producer_epoch) == (-1, -1):
        return codes
    if answer.producer_id != producer.producer_id:
        return f"{codes} new id, epoch {answer.producer_epoch}"
    return f"{codes} epoch {answer.producer_epoch - producer.epoch:+}"


ABSENT_PARTITION = "UNKNOWN_TOPIC_OR_PARTITION"
NO_SUCH_ID = "INVALID_PRODUCER_ID_MAPPING"
CONCURRENT = "CONCURRENT_TRANSACTIONS"
ABORTABLE = "TRANSACTION_ABORTABLE"
OLD_EPOCH = "INVALID_PRODUCER_EPOCH"
IS_FENCED = "PRODUCER_FENCED"
BAD_STATE = "INVALID_TXN_STATE"
NEW_ID = "NONE new id, epoch 0"
OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"
BAD_TIMEOUT = "INVALID_TRANSACTION_TIMEOUT"
SERVER_ERROR = "UNKNOWN_SERVER_ERROR"
UNAUTHORIZED = "TRANSACTIONAL_ID_AUTHORIZATION_FAILED"
NOT_ATTEMPTED = "OPERATION_NOT_ATTEMPTED UNKNOWN_TOPIC_OR_PARTITION"

FENCED = {0: OLD_EPOCH, 2: IS_FENCED}
FENCED_AT_INIT = {3: OLD_EPOCH, 4: IS_FENCED}
"""Older versions get an error code that their clients know."""
LATER_UNADDED = {3: BAD_STATE, 11: ABORTABLE, 12: OUT_OF_ORDER}
PRODUCED_UNADDED = {3: BAD_STATE, 11: ABORTABLE, 12: "NONE"}
COMMITTED_UNADDED = {0: BAD_STATE, 4: ABORTABLE, 5: "NONE"}
"""Error code for a partition that is not in the transaction yet."""
ABSENT_BY_ID = {0: ABSENT_PARTITION, 6: "UNKNOWN_TOPIC_ID"}
ABSENT_AT_PRODUCE = {3: ABSENT_PARTITION, 13: "UNKNOWN_TOPIC_ID"}
HERE, THERE, IN_OFFSETS = (TOPIC, 0), (ELSEWHERE, 0), (OFFSETS, 0)
BOTH_WAYS = ((ABSENT, 0), HERE)

UNKNOWN_PRODUCER = [
    row("init", init, NEW_ID),
    row("init without a name", init, "INVALID_REQUEST", id=""),
    row("init of no transactions", init, NEW_ID, id=None),
    row("init of no transactions at once", init, NEW_ID, id=None, timeout_ms=0),
    row("init with an id alone", init_again, "INVALID_REQUEST", since=3, epoch=-1),
    row("init with an epoch alone", init_again, "INVALID_REQUEST", since=3, producer_id=-1),
    row("init with an id below 0", init_again, NEW_ID, since=3, producer_id=-2),
    row("init with an epoch below 0", init_again, NEW_ID, since=3, epoch=-2),
    row("plain init with an id alone", init_again, "INVALID_REQUEST", since=3, id=None, epoch=-1),
    row("plain init with id and epoch", init_again, NEW_ID, since=3, id=None),
    row("init with id and epoch", init_again, NEW_ID, since=3),
    row("init with a timeout of 0", init, BAD_TIMEOUT, timeout_ms=0),
    row("init with a timeout below 0", init, BAD_TIMEOUT, timeout_ms=-1),
    row("init with the longest timeout", init, NEW_ID, timeout_ms=TIMEOUT_MAX_MS),
    row("init with too long a timeout", init, BAD_TIMEOUT, timeout_ms=TIMEOUT_MAX_MS + 1),
    row("add", add, NO_SUCH_ID),
    row("add of a producer below 0", add, NO_SUCH_ID, producer_id=-1, epoch=-1),
    row("add without a name", add, "INVALID_REQUEST", id=""),
    row("add of an absent topic", add, ABSENT_PARTITION, at=((ABSENT, 0),)),
    row("add of a name that is none", add, ABSENT_PARTITION, at=((NO_NAME, 0),)),
    row("add of nothing", add, "NONE", at=()),
    row("verify", verify, NO_SUCH_ID, since=4),
    row("add of offsets", add_offsets, NO_SUCH_ID),
    row("add of offsets without a name", add_offsets, "INVALID_REQUEST", id=""),
    row("add of offsets without a group", add_offsets, NO_SUCH_ID, group_id=""),
    row("commit", commit, NO_SUCH_ID),
    row("abort", abort, NO_SUCH_ID),
    row("commit of no producer", commit, NO_SUCH_ID, producer_id=-1, epoch=-1),
    row("commit without a name", commit, "INVALID_REQUEST", id=""),
    row("offsets", commit_offsets, NO_SUCH_ID),
    row("offsets without a name", commit_offsets, "INVALID_REQUEST", id=""),
    row("offsets without a group", commit_offsets, "INVALID_GROUP_ID", group_id=""),
    row("offsets of an absent topic", commit_offsets, ABSENT_BY_ID, topic=ABSENT),
    row("offsets of an absent partition", commit_offsets, ABSENT_PARTITION, index=9),
    row(
        "offsets of an absent topic without a group",
        commit_offsets,
        ABSENT_BY_ID,
        topic=ABSENT,
        group_id="",
    ),
    row("offsets of a name that is none", commit_offsets, ABSENT_PARTITION, topic=NO_NAME, until=5),
    row("offsets of nothing", commit_offsets, "", topics=[]),
    row("produce", produce, NO_SUCH_ID),
    row("produce of no producer", produce, "NONE", producer_id=-1, epoch=-1, sequence=-1),
    row("produce without a sequence", produce, NO_SUCH_ID, sequence=-1),
    row("produce of an epoch below 0", produce, NO_SUCH_ID, epoch=-1),
    row("produce without a name", produce, UNAUTHORIZED, id=None),
    row("produce with an empty name", produce, "INVALID_REQUEST", id=""),
    row("produce to an absent topic", produce, ABSENT_AT_PRODUCE, at=(ABSENT, 0)),
    row("produce to a name that is none", produce, ABSENT_AT_PRODUCE, at=(NO_NAME, 0)),
    row("produce to offsets", produce, NO_SUCH_ID, at=IN_OFFSETS, until=12),
    row("produce to an absent partition", produce, ABSENT_PARTITION, at=(TOPIC, 9)),
    row("plain batch with a name", produce, "NONE", is_transactional=False),
    row("abort by a marker", mark, "NONE"),
    row("commit by a marker", mark, "NONE", is_commit=True),
    row("marker for an absent topic", mark, "NONE UNKNOWN_TOPIC_OR_PARTITION", at=BOTH_WAYS),
    row("marker for an absent partition", mark, ABSENT_PARTITION, at=((TOPIC, 9),)),
    row("marker for offsets", mark, "NONE", at=(IN_OFFSETS,)),
    row("marker for absent offsets", mark, ABSENT_PARTITION, at=((OFFSETS, 999),)),
    row("marker for a name that is none", mark, ABSENT_PARTITION, at=((NO_NAME, 0),)),
    row("marker for offsets of no producer", mark, SERVER_ERROR, at=(IN_OFFSETS,), producer_id=-1),
    row(
        "marker for an absent topic of no producer",
        mark,
        ABSENT_PARTITION,
        at=((ABSENT, 0),),
        producer_id=-1,
    ),
    row("marker for a topic without a name", mark, ABSENT_PARTITION, at=(("", 0),)),
    row("marker for the state of transactions", mark, "NONE", at=((STATE, 0),)),
    row("marker for nothing", mark, "", at=()),
    row("marker of an epoch below 0", mark, SERVER_ERROR, epoch=-1),
    row("marker of no producer", mark, SERVER_ERROR, producer_id=-1),
    row("describe", describe, "TRANSACTIONAL_ID_NOT_FOUND"),
    row("describe without a name", describe, "INVALID_REQUEST", id=""),
    row("list", list_all, "NONE"),
    row("list of a state that is none", list_all, "NONE", state_filters=["Busy"]),
    row(
        "list of half an expression",
        list_all,
        "INVALID_REGULAR_EXPRESSION",
        since=2,
        transactional_id_pattern="(",
    ),
    row("list of an empty expression", list_all, "NONE", since=2, transactional_id_pattern=""),
    row("list of a duration below 0", list_all, "NONE", since=1, duration_filter=-5),
    row("producers", describe_producers, "NONE"),
    row("producers of an absent topic", describe_producers, ABSENT_PARTITION, topic=ABSENT),
    row("producers of an absent partition", describe_producers, ABSENT_PARTITION, index=9),
    row("producers of offsets", describe_producers, "NONE", topic=OFFSETS),
    row(
        "producers of a name that is none",
        describe_producers,
        "INVALID_TOPIC_EXCEPTION",
        topic=NO_NAME,
    ),
    row("producers without a topic", describe_producers, "INVALID_TOPIC_EXCEPTION", topic=""),
    row("find", find, "NONE", since=1),
    row("find without a name", find, "NONE", since=1, id=""),
    row("find of no kind", find, "INVALID_REQUEST", since=1, key_type=9),
]

EMPTY = [
    row("init", init, "NONE epoch +1"),
    row("init of its epoch", init_again, "NONE epoch +1", since=3),
    row("init of the epoch before", init_again, FENCED_AT_INIT, epoch=BEFORE),
    row("init of the next epoch", init_again, FENCED_AT_INIT, epoch=NEXT),
    row("init of another id", init_again, FENCED_AT_INIT, producer_id=OTHER),
    row(
        "init of another id at the last epoch",
        init_again,
        FENCED_AT_INIT,
        producer_id=OTHER,
        epoch=32766,
    ),
    row("add", add, "NONE"),
    row("add of nothing", add, "NONE", at=()),
    row("add of an absent topic beside another", add, NOT_ATTEMPTED, at=BOTH_WAYS),
    row("add of an absent partition", add, ABSENT_PARTITION, at=((TOPIC, 9),)),
    row(
        "add of offsets by partition",
        add,
        {0: "OPERATION_NOT_ATTEMPTED TOPIC_AUTHORIZATION_FAILED", 4: "NONE"},
        at=(IN_OFFSETS, HERE),
    ),
    row("add of another id", add, NO_SUCH_ID, producer_id=OTHER),
    row("add of the epoch before", add, FENCED, epoch=BEFORE),
    row("add of the next epoch", add, FENCED, epoch=NEXT),
    row("add of another id and epoch", add, NO_SUCH_ID, producer_id=OTHER, epoch=NEXT),
    row("verify", verify, ABORTABLE, since=4),
    row("verify of an absent topic", verify, NOT_ATTEMPTED, since=4, at=BOTH_WAYS),
    row("verify of offsets", verify, ABORTABLE, since=4, at=(IN_OFFSETS,)),
    row("verify of another id", verify, NO_SUCH_ID, since=4, producer_id=OTHER),
    row("verify of the epoch before", verify, IS_FENCED, since=4, epoch=BEFORE),
    row("add of offsets", add_offsets, "NONE"),
    row("add of offsets without a group", add_offsets, "NONE", group_id=""),
    row("add of offsets of another id", add_offsets, NO_SUCH_ID, producer_id=OTHER),
    row("add of offsets of the epoch before", add_offsets, FENCED, epoch=BEFORE),
    row("commit", commit, BAD_STATE),
    row("abort", abort, {0: BAD_STATE, 5: "NONE epoch +1"}),
    row("commit of the epoch before", commit, FENCED, epoch=BEFORE),
    row("abort of the epoch before", abort, FENCED, epoch=BEFORE),
    row("commit of the next epoch", commit, FENCED, epoch=NEXT),
    row("abort of the next epoch", abort, FENCED, epoch=NEXT),
    row("commit of another id", commit, NO_SUCH_ID, producer_id=OTHER),
    row("abort of another id", abort, NO_SUCH_ID, producer_id=OTHER),
    row("offsets", commit_offsets, COMMITTED_UNADDED),
    row("offsets of the epoch before", commit_offsets, OLD_EPOCH, epoch=BEFORE),
    row("offsets of the next epoch", commit_offsets, OLD_EPOCH, epoch=NEXT),
    row("offsets of another id", commit_offsets, NO_SUCH_ID, producer_id=OTHER),
    row("produce", produce, PRODUCED_UNADDED),
    row("produce of the epoch before", produce, OLD_EPOCH, epoch=BEFORE),
    row("produce of the next epoch", produce, OLD_EPOCH, epoch=NEXT),
    row("produce of another id", produce, NO_SUCH_ID, producer_id=OTHER),
    row("produce from a later sequence", produce, LATER_UNADDED, sequence=5),
    row("produce of two producers", produce_of_two, NO_SUCH_ID),
    row("produce for one replica", produce, PRODUCED_UNADDED, acks=1),
    row("describe", describe, "NONE Empty"),
]

AGAIN = [
    row("init of its epoch", init_again, "NONE epoch +1", since=3),
    row("init of the epoch before", init_again, "NONE epoch +0", since=3, epoch=BEFORE),
    row("init of two epochs before", init_again, FENCED_AT_INIT, epoch=epoch(-2)),
]

ONGOING = [
    row("init", init, CONCURRENT),
    row("init of its epoch", init_again, CONCURRENT, since=3),
    row("init of the epoch before", init_again, CONCURRENT, since=3, epoch=BEFORE),
    row("init of another id", init_again, FENCED_AT_INIT, producer_id=OTHER),
    row("add of what it has", add, "NONE"),
    row("add of more", add, "NONE", at=(THERE,)),
    row("add of nothing", add, "NONE", at=()),
    row("add of the epoch before", add, FENCED, epoch=BEFORE),
    row("verify", verify, "NONE", since=4),
    row("verify of more", verify, "NONE TRANSACTION_ABORTABLE", since=4, at=(HERE, THERE)),
    row("verify of nothing", verify, "NONE", since=4, at=()),
    row("verify of the epoch before", verify, IS_FENCED, since=4, epoch=BEFORE),
    row("verify of the next epoch", verify, IS_FENCED, since=4, epoch=NEXT),
    row("add of offsets", add_offsets, "NONE"),
    row("commit", commit, {0: "NONE", 5: "NONE epoch +1"}),
    row("abort", abort, {0: "NONE", 5: "NONE epoch +1"}),
    row("commit of the epoch before", commit, FENCED, epoch=BEFORE),
    row("abort of the epoch before", abort, FENCED, epoch=BEFORE),
    row("commit of the next epoch", commit, FENCED, epoch=NEXT),
    row("commit of another id", commit, NO_SUCH_ID, producer_id=OTHER),
    row("offsets", commit_offsets, "NONE"),
    row("offsets of the epoch before", commit_offsets, OLD_EPOCH, epoch=BEFORE),
    row("offsets of another id", commit_offsets, NO_SUCH_ID, producer_id=OTHER),
    row(
        "offsets with too long a text",
        commit_offsets,
        "OFFSET_METADATA_TOO_LARGE",
        text="x" * 4_097,
    ),
    row("offsets of an absent topic", commit_offsets, ABSENT_BY_ID, topic=ABSENT),
    row("offsets of an absent partition", commit_offsets, ABSENT_PARTITION, index=9),
    row(
        "offsets of no member",
        commit_offsets,
        "UNKNOWN_MEMBER_ID",
        since=3,
        member_id="m",
        generation_id_or_member_epoch=1,
    ),
    row(
        "offsets of a generation alone",
        commit_offsets,
        "UNKNOWN_MEMBER_ID",
        since=3,
        generation_id_or_member_epoch=1,
    ),
    row("offsets of a member alone", commit_offsets, "NONE", since=3, member_id="m"),
    row(
        "offsets of no instance",
        commit_offsets,
        "NONE",
        since=3,
        member_id="m",
        group_instance_id="i",
    ),
    row("produce", produce, "NONE"),
    row("produce again", produce, "NONE", sequence=0),
    row("produce with a gap", produce, OUT_OF_ORDER, sequence=7),
    row("produce of the epoch before", produce, OLD_EPOCH, epoch=BEFORE),
    row("produce of the next epoch", produce, OLD_EPOCH, epoch=NEXT),
    row("produce elsewhere", produce, PRODUCED_UNADDED, at=THERE, sequence=0),
    row(
        "produce elsewhere as well",
        produce_in_two,
        {3: "INVALID_TXN_STATE NONE", 11: "NONE TRANSACTION_ABORTABLE", 12: "NONE"},
    ),
    row("produce elsewhere from a later sequence", produce, LATER_UNADDED, at=THERE, sequence=3),
    row("produce under another name", produce, "NONE", id="t-other"),
    row("produce without a name", produce, UNAUTHORIZED, id=None),
    row("produce of two producers", produce_of_two, NO_SUCH_ID),
    row("plain batch", produce, BAD_STATE, is_transactional=False),
    row("plain batch elsewhere", produce, "NONE", is_transactional=False, at=THERE, sequence=0),
    row("abort by a marker", mark, "NONE"),
    row("marker of the epoch before", mark, OLD_EPOCH, epoch=BEFORE),
    row("marker of the next epoch", mark, "NONE", epoch=NEXT),
    row("marker of transaction.version 2", mark, OLD_EPOCH, since=2, transaction_version=2),
    row(
        "later marker of transaction.version 2",
        mark,
        "NONE",
        since=2,
        transaction_version=2,
        epoch=NEXT,
    ),
    row("marker for offsets", mark, "NONE", at=(IN_OFFSETS,)),
    row("marker for offsets of the epoch before", mark, "NONE", at=(IN_OFFSETS,), epoch=BEFORE),
    row("describe", describe, "NONE Ongoing"),
]

ENDED = [
    row("init", init, "NONE epoch +1"),
    row("init of its epoch", init_again, "NONE epoch +1", since=3),
    row("add", add, "NONE"),
    row("add of the epoch before", add, FENCED, epoch=BEFORE),
    row("verify", verify, ABORTABLE, since=4),
    row("commit of the next epoch", commit, FENCED, epoch=NEXT),
    row("produce", produce, PRODUCED_UNADDED),
    row("produce of the epoch before", produce, OLD_EPOCH, epoch=BEFORE),
    row("produce again", produce, PRODUCED_UNADDED, sequence=0),
    row("plain batch", produce, "NONE", is_transactional=False),
    row("offsets", commit_offsets, COMMITTED_UNADDED),
    row("offsets of the epoch before", commit_offsets, OLD_EPOCH, epoch=BEFORE),
    row("marker again", mark, "NONE"),
    row("marker of the epoch before", mark, OLD_EPOCH, epoch=BEFORE),
    row(
        "marker of an older coordinator",
        mark,
        "TRANSACTION_COORDINATOR_FENCED",
        coordinator_epoch=-1,
    ),
    row("marker of transaction.version 2", mark, "NONE", since=2, transaction_version=2),
]

COMMITTED = [
    row("commit", commit, {0: "NONE", 5: BAD_STATE}),
    row("abort", abort, {0: BAD_STATE, 5: "NONE epoch +1"}),
    row("describe", describe, "NONE CompleteCommit"),
]
RETRIES_OF_COMMIT = [
    row("commit of the epoch before", commit, {**FENCED, 5: "NONE epoch +0"}, epoch=BEFORE),
    row("abort of the epoch before", abort, {**FENCED, 5: BAD_STATE}, epoch=BEFORE),
]

ABORTED = [
    row("commit", commit, BAD_STATE),
    row("abort", abort, {0: "NONE", 5: "NONE epoch +1"}),
    row("describe", describe, "NONE CompleteAbort"),
]
RETRIES_OF_ABORT = [
    # From KAFKA-20785 on; 4.4.0 answers INVALID_TXN_STATE in version 5.
    row("commit of the epoch before", commit, FENCED, epoch=BEFORE),
    row("abort of the epoch before", abort, {**FENCED, 5: "NONE epoch +0"}, epoch=BEFORE),
]

NOT_BUMPED = [
    row("init of the epoch before", init_again, FENCED_AT_INIT, epoch=BEFORE),
    # Kafka 4.4.0 answers as after a bump, and so gives a fenced producer the living one's epoch.
    row("commit of the epoch before", commit, FENCED, epoch=BEFORE),
    row("abort of the epoch before", abort, FENCED, epoch=BEFORE),
]
BUMPED = [row("init of the epoch before", init_again, "NONE epoch +0", since=3, epoch=BEFORE)]

PREPARED = [
    row("init", init, CONCURRENT),
    row("init of its epoch", init_again, CONCURRENT, since=3),
    row("init of another id", init_again, CONCURRENT, since=3, producer_id=OTHER),
    row("add", add, CONCURRENT),
    row("add of the epoch before", add, CONCURRENT, epoch=BEFORE),
    row("add of another id", add, CONCURRENT, producer_id=OTHER),
    row("verify", verify, CONCURRENT, since=4),
    row("verify of another id", verify, NO_SUCH_ID, since=4, producer_id=OTHER),
    row("verify of the epoch before", verify, IS_FENCED, since=4, epoch=BEFORE),
    row("add of offsets", add_offsets, CONCURRENT),
    row("commit", commit, CONCURRENT),
    row("abort", abort, CONCURRENT),
    row("commit of the epoch before", commit, {**FENCED, 5: CONCURRENT}, epoch=BEFORE),
    row("abort of the epoch before", abort, {**FENCED, 5: CONCURRENT}, epoch=BEFORE),
    row("commit of another id", commit, {0: NO_SUCH_ID, 5: CONCURRENT}, producer_id=OTHER),
    row("produce", produce, {3: "NOT_ENOUGH_REPLICAS", 12: CONCURRENT}),
    row("offsets", commit_offsets, CONCURRENT),
]

TABLES = {
    "unknown_producer": (unknown_producer, UNKNOWN_PRODUCER),
    "empty": (empty, EMPTY),
    "again": (initialised_again, AGAIN),
    "ongoing": (ongoing, ONGOING),
    "committed": (committed, ENDED + COMMITTED + NOT_BUMPED),
    "aborted": (aborted, ENDED + ABORTED + NOT_BUMPED),
    "committed with a bump": (committed_with_bump, ENDED + COMMITTED + RETRIES_OF_COMMIT + BUMPED),
    "aborted with a bump": (aborted_with_bump, ENDED + ABORTED + RETRIES_OF_ABORT + BUMPED),
    "committing": (committing, PREPARED),
    "aborting": (aborting, PREPARED),
    "committing with a bump": (committing_with_bump, PREPARED),
}

OURS = {
    # It would belong to no transaction, and count as committed.
    "produce of no producer": NO_SUCH_ID,
    # No client writes to it.
    "marker for the state of transactions": "INVALID_TOPIC_EXCEPTION",
}
"""Requests that ottla refuses and Kafka accepts."""


@pytest.mark.parametrize("table", TABLES)
async def test_each_code_is_kafkas_in_every_version(broker: Any, table: str) -> None:
    make, rows = TABLES[table]
    found = await outcomes(broker, make, rows)
    assert found.keys() == {row.name for row in rows}
    ours = OURS if broker.is_ours else {}
    wanted = {
        row.name: {version: ours.get(row.name, row.code(version)) for version in found[row.name]}
        for row in rows
    }
    assert found == wanted


# Exhausted epochs of a producer id: requests in order, and the answer to each.

LAST_EPOCH = {
    "by the new protocol": [
        (12, row("a record", produce, "NONE")),
        (5, row("commit", commit, NEW_ID)),
        (5, row("commit again", commit, NEW_ID)),
        (5, row("abort after it", abort, BAD_STATE)),
        (5, row("commit of the epoch before", commit, NO_SUCH_ID, epoch=BEFORE)),
        (4, row("commit by the old protocol", commit, NO_SUCH_ID)),
        (3, row("add", add, NO_SUCH_ID)),
        (13, row("a record more", produce, OLD_EPOCH, sequence=1)),
        (11, row("a record more by the old protocol", produce, OLD_EPOCH, sequence=1)),
        (5, row("init", init_again, NEW_ID)),
        (5, row("init again", init_again, IS_FENCED)),
        (5, row("init of the epoch before", init_again, IS_FENCED, epoch=BEFORE)),
    ],
    "by an empty abort": [
        (5, row("abort", abort, NEW_ID)),
        (5, row("abort again", abort, NEW_ID)),
        (5, row("commit after it", commit, IS_FENCED)),  # 4.4.0: INVALID_TXN_STATE
    ],
    "by the old protocol": [
        (3, row("add", add, "NONE")),
        (4, row("commit", commit, "NONE")),
        (4, row("commit again", commit, "NONE")),
        (5, row("init", init_again, NEW_ID)),
        (5, row("init again", init_again, NEW_ID)),
        (4, row("abort after it", abort, NO_SUCH_ID)),
        (3, row("add after it", add, NO_SUCH_ID)),
    ],
    "by fencing": [
        (3, row("add", add, "NONE")),
        (5, row("init", init, CONCURRENT)),
        (5, row("init after the abort", init, "NONE new id, epoch 1")),
        (4, row("commit", commit, NO_SUCH_ID)),
        (5, row("commit by the new protocol", commit, NO_SUCH_ID)),
    ],
}


async def ask_in_turn(broker: Any, steps: list[tuple[int, Row]]) -> dict[str, str]:
    """Ask by the last epoch that a producer can have; return each answer."""
    producer = await unknown_producer(broker)
    answer = await broker.accepted(init(producer, 5))
    producer = producer._replace(producer_id=answer.producer_id)
    producer = producer._replace(epoch=await broker.use_up_epochs(init(producer, 5)))
    found: dict[str, str] = {}
    for version, step in steps:
        answer = await broker.ask(step.request(producer, version), version)
        with trio.fail_after(60):
            while (await state_of(broker, producer)).startswith("Prepare"):
                await trio.sleep(0.01)
        found[step.name] = described(broker.names(answer), answer, producer)
    return found


@pytest.mark.parametrize("case", LAST_EPOCH)
async def test_after_the_last_epoch_comes_another_id(broker: Any, case: str) -> None:
    steps = LAST_EPOCH[case]
    assert await ask_in_turn(broker, steps) == {one.name: one.code(how) for how, one in steps}
