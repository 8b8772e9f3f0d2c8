"""A client's reaction to the cluster's answers about a topic."""

from collections.abc import Iterable
from typing import Any, cast

import pytest
import trio
import trio.testing

from ottla.client.network.cluster import Cluster
from ottla.client.network.connection import ConnectionLostError
from ottla.client.network.pipeline import Pipeline
from ottla.model.errors import ErrorCode, OttlaError, RefusedError
from ottla.model.ids import TopicPartition
from ottla.wire.messages.metadata_response import (
    MetadataResponse,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


class ClusterThatSays(Cluster):
    """A cluster that answers with these codes in turn, then for good with the last of them."""

    def __init__(self, *codes: ErrorCode) -> None:
        super().__init__([])
        self._codes = list(codes)

    async def metadata(
        self, topics: Iterable[str] | None = None, *, may_create: bool = False
    ) -> MetadataResponse:
        code = self._codes.pop(0) if len(self._codes) > 1 else self._codes[0]
        partitions = [MetadataResponsePartition(leader_id=1)] if code == ErrorCode.NONE else []
        return MetadataResponse(
            topics=[MetadataResponseTopic(error_code=code, name="t", partitions=partitions)]
        )


def ask(cluster: Cluster, *, may_create: bool) -> tuple[list[int] | ErrorCode, float]:
    """Return the partitions, or why there are none, and how long that took."""

    async def body() -> tuple[list[int] | ErrorCode, float]:
        started = trio.current_time()
        try:
            found: list[int] | ErrorCode = await cluster.partitions_of("t", may_create=may_create)
        except RefusedError as error:
            found = error.code
        return found, trio.current_time() - started

    return trio.run(body, clock=trio.testing.MockClock(autojump_threshold=0))


@pytest.mark.parametrize("may_create", [False, True])
def test_a_name_that_can_never_be_a_topic_is_refused_at_once(may_create: bool) -> None:
    cluster = ClusterThatSays(ErrorCode.INVALID_TOPIC_EXCEPTION)

    assert ask(cluster, may_create=may_create) == (ErrorCode.INVALID_TOPIC_EXCEPTION, 0)


def test_a_topic_that_is_being_created_is_waited_for() -> None:
    cluster = ClusterThatSays(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NONE
    )

    found, waited_s = ask(cluster, may_create=True)

    assert found == [0]
    assert waited_s < 1


def test_a_topic_that_is_never_created_is_unknown_in_the_end() -> None:
    cluster = ClusterThatSays(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    found, waited_s = ask(cluster, may_create=True)

    assert found == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert waited_s == pytest.approx(10, abs=0.2)


def test_a_topic_that_is_not_there_is_unknown_at_once_for_a_reader() -> None:
    cluster = ClusterThatSays(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    assert ask(cluster, may_create=False) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0)


class HangingCluster(Cluster):
    """Brokers of which the first takes the connection and never answers."""

    async def _at(self, address: tuple[str, int]) -> Pipeline:
        if address == ("hangs", 1):
            await trio.sleep_forever()
        if address == ("gone", 1):
            raise ConnectionLostError("cannot connect to gone:1")
        assert address == ("answers", 1)
        return ANSWERS


ANSWERS = cast(Pipeline, object())


@pytest.mark.parametrize("first", ["hangs", "gone"])
def test_a_broker_that_hangs_or_is_gone_does_not_keep_from_the_next(first: str) -> None:
    async def body() -> tuple[Pipeline, float]:
        found = await HangingCluster([(first, 1), ("answers", 1)])._any()
        return found, trio.current_time()

    found, waited_s = trio.run(body, clock=trio.testing.MockClock(autojump_threshold=0))

    assert found is ANSWERS
    assert waited_s < 1


def test_without_an_answer_the_last_reason_is_reported() -> None:
    async def body() -> None:
        await HangingCluster([("gone", 1)])._any()

    with pytest.raises(ConnectionLostError, match="cannot connect to gone:1"):
        trio.run(body)


NAMES_NO_LEADER = MetadataResponse(
    topics=[MetadataResponseTopic(name="t", partitions=[MetadataResponsePartition(leader_id=-1)])]
)


def ask_for_leader(cluster: Cluster) -> None:
    async def body() -> None:
        await cluster.leader_of(TopicPartition("t", 0))

    trio.run(body, clock=trio.testing.MockClock(autojump_threshold=0))


def test_a_leader_of_whom_no_broker_speaks_is_not_called_missing() -> None:
    with pytest.raises(ConnectionLostError, match="no broker answered in 10 s"):
        ask_for_leader(HangingCluster([("hangs", 1)]))


@pytest.mark.parametrize("is_reachable", [True, False])
def test_brokers_out_of_reach_since_they_knew_no_leader_are_named(is_reachable: bool) -> None:
    class FadingCluster(Cluster):
        """Brokers that answer once that there is no leader, and may then be out of reach."""

        async def request(self, *_: Any, **__: Any) -> Any:
            if not is_reachable and self.topics:
                self._reachability.note_failure(
                    ("b", 1), "cannot connect to b:1", began_s=0, now_s=0
                )
                await trio.sleep_forever()
            return NAMES_NO_LEADER

    error: type[OttlaError]
    error, words = RefusedError, "partition t-0 has no leader"
    if not is_reachable:
        error, words = ConnectionLostError, "cannot connect to b:1"
    with pytest.raises(error, match=words):
        ask_for_leader(FadingCluster([]))
