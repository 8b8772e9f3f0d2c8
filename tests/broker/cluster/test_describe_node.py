"""DescribeNode, our own: state, recovery and numbers."""

from collections.abc import Callable
from typing import Any

from ottla.broker.cluster.describe_node import DescribeNodeApi, offline_problems
from ottla.model.ids import NodeId, TopicPartition
from ottla.model.settings.storage.disks import DiskConfig
from ottla.storage.directories.free_space import FreeSpace
from ottla.storage.disk.disk_seam import Space
from ottla.wire.messages.describe_node_request import DescribeNodeRequest

Client = Any  # the class of the fixture, in conftest.py
NewClient = Callable[..., Client]


async def test_describe_node_tells_the_state_the_recovery_and_the_numbers(
    new_client: NewClient,
) -> None:
    answer = await new_client().ask(DescribeNodeRequest(), 0)
    assert (answer.node_id, answer.state) == (1, "RECOVERY")
    assert [(r.log_dir, r.remaining_logs, r.bytes_done) for r in answer.recovery] == [
        ("/data", 3, 400)
    ]
    assert [(m.name, m.value) for m in answer.metrics] == [("a", 1.0), ("b", 2.0)]


def test_free_space_of_directories_is_described_and_problems_come_first() -> None:
    filling, full, unknown = (FreeSpace(f"/{name}", DiskConfig()) for name in "abc")
    filling.on_measured(Space(1_000, 50), 0)
    full.on_measured(Space(1_000, 0), 0)
    api = DescribeNodeApi(
        node_id=NodeId(1),
        state=lambda: "RUNNING",
        recovery=tuple,
        problems=lambda: ["another"],
        metric_sources=(),
        directories=lambda: [room.report(0) for room in (filling, full, unknown)],
    )
    answer = api.handle(None, DescribeNodeRequest())  # type: ignore[arg-type]
    assert [text.split(" (")[0] for text in answer.problems] == [
        "log directory /b is full",
        "another",
    ]
    assert [text.split(" (")[0] for text in answer.warnings] == ["log directory /a fills up"]
    assert [
        (one.path, one.state, one.total_bytes, one.usable_bytes) for one in answer.directories
    ] == [
        ("/a", "filling", 1_000, 50),
        ("/b", "full", 1_000, 0),
    ]


def test_many_partitions_that_are_offline_for_one_reason_are_one_sentence() -> None:
    offline = [(TopicPartition("t", index), "the disk is full") for index in range(50)]
    offline.append((TopicPartition("u", 0), "gone"))
    assert list(offline_problems(offline)) == [
        "50 partitions are offline (t-0, t-1, t-2, …): the disk is full",
        "u-0 is offline: gone",
    ]
