"""`ottla txn` with the transactions of a librdkafka producer, on a real broker."""

import json
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
import trio

from ottla.cli.transactions import txn
from ottla.client.admin import open_admin
from ottla.client.network.connection import open_connection
from ottla.client.testing import open_test_cluster
from ottla.model.errors import ConfigError, ErrorCode, RefusedError
from ottla.model.ids import ProducerId, TopicPartition
from ottla.model.settings.endpoints import parse_bootstrap
from ottla.wire.batch_builder import RecordToBuild, build_batch
from ottla.wire.messages.init_producer_id_request import InitProducerIdRequest
from ottla.wire.messages.init_producer_id_response import InitProducerIdResponse
from ottla.wire.messages.produce_request import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla.wire.messages.produce_response import ProduceResponse
from ottla.wire.offset_timestamps import LATEST
from tests.cli_verbs import run_verb

TIMEOUT_S = 60


async def in_thread(work: Callable[[], Any]) -> Any:
    return await trio.to_thread.run_sync(work, abandon_on_cancel=True)


async def ottla_txn(bootstrap: str, *arguments: str) -> int:
    async with open_admin(bootstrap) as admin:
        return await run_verb(txn, admin, *arguments)


def open_transaction(bootstrap: str, transactional_id: str) -> Any:
    """Return a producer with a transaction of one record in t-0 that is open."""
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "transactional.id": transactional_id, "linger.ms": 0}
    )
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"x", partition=0)
    producer.flush(60)
    return producer


async def test_a_transaction_is_seen_by_all_verbs_until_it_has_ended(capsys: Any) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            bootstrap = cluster.bootstrap
            async with open_admin(bootstrap) as admin:
                await admin.create_topic("t", partition_count=2)
            producer = await in_thread(lambda: open_transaction(bootstrap, "payments"))

            assert await ottla_txn(bootstrap, "list", "--state", "Ongoing") == 0
            assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["payments", "Ongoing"]
            assert await ottla_txn(bootstrap, "list", "--match", "pay.*", "--format=json") == 0
            (listed,) = json.loads(capsys.readouterr().out)
            assert await ottla_txn(bootstrap, "list", "--longer-than", "1h") == 0
            assert "payments" not in capsys.readouterr().out

            assert await ottla_txn(bootstrap, "describe", "payments", "--format=json") == 0
            (described,) = json.loads(capsys.readouterr().out)
            assert described["state"] == "Ongoing"
            assert described["partitions"] == ["t-0"]
            assert described["producer_id"] == listed["producer_id"]

            assert await ottla_txn(bootstrap, "producers", "t", "--format=json") == 0
            (written,) = json.loads(capsys.readouterr().out)
            assert (written["partition"], written["open_from"]) == (0, 0)
            assert written["producer_id"] == listed["producer_id"]

            # Its coordinator has it: it does not hang, however long it is open.
            assert await ottla_txn(bootstrap, "find-hanging", "--longer-than", "0s") == 0
            assert "no transaction hangs" in capsys.readouterr().out
            with pytest.raises(RefusedError, match="--force"):
                await ottla_txn(bootstrap, "abort", "t:0", "--start-offset", "0")

            await in_thread(lambda: producer.commit_transaction(30))
            assert await ottla_txn(bootstrap, "producers", "t", "--format=json") == 0
            (written,) = json.loads(capsys.readouterr().out)
            assert written["open_from"] is None


async def test_what_is_aborted_by_force_is_open_no_longer(capsys: Any) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            bootstrap = cluster.bootstrap
            async with open_admin(bootstrap) as admin:
                await admin.create_topic("t")
                producer = await in_thread(lambda: open_transaction(bootstrap, "payments"))
                wanted = ["abort", "t:0", "--start-offset", "0", "--force", "--yes"]
                assert await ottla_txn(bootstrap, *wanted) == 0
                assert capsys.readouterr().out.splitlines()[1].split()[:2] == ["t", "0"]
                (found,) = (await admin.describe_producers([TopicPartition("t", 0)])).values()
                assert [one.transaction_start for one in found] == [None]
            del producer


async def write_unknown_to_the_coordinator(bootstrap: str, transactional_id: str) -> None:
    """Write a record of a transaction into t-0 without adding the partition to it."""
    ((host, port),) = parse_bootstrap(bootstrap)
    async with open_connection(host, port) as connection:
        init = InitProducerIdRequest(
            transactional_id=transactional_id, transaction_timeout_ms=60_000
        )
        found = await connection.request(init, InitProducerIdResponse)
        records = build_batch(
            [RecordToBuild(1, None, b"x")],
            producer_id=ProducerId(found.producer_id),
            producer_epoch=found.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )
        data = [PartitionProduceData(index=0, records=records)]
        produce = ProduceRequest(
            transactional_id=transactional_id,
            acks=-1,
            timeout_ms=10_000,
            topic_data=[TopicProduceData(name="t", partition_data=data)],
        )
        answer = await connection.request(produce, ProduceResponse, version=11)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE


async def test_a_hanging_transaction_is_found_and_aborted(capsys: Any) -> None:
    settings = {"transaction.partition.verification.enable": "false"}
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster(settings=settings) as cluster:
            bootstrap = cluster.bootstrap
            async with open_admin(bootstrap) as admin:
                await admin.create_topic("t")
                # Its coordinator is found by the first one, which ends in order.
                producer = await in_thread(lambda: open_transaction(bootstrap, "payments"))
                await in_thread(lambda: producer.commit_transaction(30))
                await write_unknown_to_the_coordinator(bootstrap, "lost")

                assert await ottla_txn(bootstrap, "find-hanging", "--longer-than", "0s") == 1
                found = capsys.readouterr().out
                assert "ottla txn abort t:0 --start-offset 2" in found
                wanted = ["abort", "t:0", "--start-offset", "2", "--yes"]
                assert await ottla_txn(bootstrap, *wanted) == 0
                assert await ottla_txn(bootstrap, "find-hanging", "--longer-than", "0s") == 0
                end = await admin.list_offsets(
                    {TopicPartition("t", 0): LATEST}, isolation_level="read_committed"
                )
                assert [one.offset for one in end.values()] == [4], "behind its marker"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["describe", "lost"], "no coordinator knows transactional id 'lost'"),
        (["list", "--state", "Busy"], "there is no state 'Busy'"),
        (["list", "--match", "("], "INVALID_REGULAR_EXPRESSION"),
        (["list", "--longer-than", "soon"], "must be a duration"),
        (["producers", "none"], "there is no topic 'none'"),
        (["producers", "t:7"], "topic 't' has no partition 7; it has 1 partition"),
        (["abort", "t", "--start-offset", "0"], "must name one partition"),
        (["abort", "t:0", "--start-offset", "3"], "no transaction is open in t-0 from offset 3"),
    ],
)
async def test_what_is_not_there_is_one_sentence(arguments: list[str], error: str) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            async with open_admin(cluster.bootstrap) as admin:
                await admin.create_topic("t")
            with pytest.raises((RefusedError, ConfigError), match=error.replace("(", r"\(")):
                await ottla_txn(cluster.bootstrap, *arguments)


async def test_unknown_ids_are_reported_after_the_known_ones(capsys: Any) -> None:
    with trio.fail_after(TIMEOUT_S):
        async with open_test_cluster() as cluster:
            async with open_admin(cluster.bootstrap) as admin:
                await admin.create_topic("t")
            producer = await in_thread(lambda: open_transaction(cluster.bootstrap, "known"))
            with pytest.raises(RefusedError) as refused:
                await ottla_txn(cluster.bootstrap, "describe", "unknown", "known")
            assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
            assert "known: Ongoing" in capsys.readouterr().out
            del producer
