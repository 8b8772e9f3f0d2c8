"""A cluster that was restored from a bucket serves its topics as the former one did."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

from ottla.broker.groups.offsets.uploaded_offsets import StoredOffset
from ottla.cli.main import run
from ottla.client import ConsumerConfig, open_consumer, open_producer
from ottla.client.admin import open_admin
from ottla.client.fetch.record_batch import ConsumerRecord
from ottla.model.errors import RefusedError
from ottla.model.ids import TopicPartition
from tests.cli.tier.conftest import offsets_object, put_offsets
from tests.storage.tier.example_bucket import TOPIC_ID, values_of

pytestmark = pytest.mark.cluster
ORDERS = TopicPartition("orders", 0)
COMMITTED = StoredOffset("billing", "orders", 0, TOPIC_ID, 30, 4, "", 5)
TIMEOUT_S = 60.0


@pytest.mark.parametrize("options", [(), ("--in-place",)], ids=["copied", "in place"])
def test_a_restored_cluster_serves_records_at_their_offsets_and_continues_after_them(
    bucket: Path, tmp_path: Path, up: Callable[..., Any], options: tuple[str, ...]
) -> None:
    put_offsets(bucket, *offsets_object(COMMITTED, epoch=9))
    words = ["--uri", f"file://{bucket}", "--into", str(tmp_path / "data"), "--port", "0"]
    assert run(["tier", "restore", *words, "--yes", "--old-cluster-is-gone", *options]) == 0
    up("--no-console")
    found = json.loads((tmp_path / "data" / "cluster.json").read_text())
    host, _, port = found["bootstrap"].rpartition(":")
    with_timeout(check, ((host, int(port)),))


def with_timeout(body: Callable[..., Any], *arguments: Any) -> None:
    async def limited() -> None:
        with trio.fail_after(TIMEOUT_S):
            await body(*arguments)

    trio.run(limited)


async def check(bootstrap: tuple[tuple[str, int], ...]) -> None:
    async with open_admin(bootstrap) as admin:
        topic = (await admin.describe_topics(["orders"]))["orders"]
        assert not isinstance(topic, RefusedError)
        assert topic.topic_id == TOPIC_ID
        assert (await admin.topic_configs("orders"))["retention.ms"].value == "-1"
        committed = await admin.group_offsets("billing")
        assert {at: one.offset for at, one in committed.items()} == {ORDERS: 30}
    async with open_producer(bootstrap) as producer:
        delivery = await producer.send("orders", b"after", partition=0)
        assert (await delivery).offset == 74
    settings = ConsumerConfig(auto_offset_reset="earliest")
    async with open_consumer(bootstrap, settings) as consumer:
        consumer.assign([ORDERS])
        records: list[ConsumerRecord] = []
        while len(records) < 75:
            records += await consumer.poll()
    assert [one.offset for one in records] == list(range(75))
    assert [one.value for one in records] == [*values_of(0, 40)[:74], b"after"]
    epochs = [one.leader_epoch for one in records]
    assert (epochs[0], epochs[30], epochs[73], epochs[74]) == (3, 4, 6, 7)
