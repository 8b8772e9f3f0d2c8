"""Contents of a share session's requests."""

from uuid import UUID

import pytest

from ottla.client.share.acknowledgement_ranges import AcknowledgementRange
from ottla.client.share.share_session import ShareSessionHandler
from ottla.model.ids import TopicIdPartition
from ottla.model.limits import INT32_MAX
from ottla.wire.messages.share_acknowledge_request import ShareAcknowledgeRequest
from ottla.wire.messages.share_fetch_request import ShareFetchRequest

TOPIC = UUID(int=900)


def at(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, index)


def accepted(*indexes: int) -> dict[TopicIdPartition, list[AcknowledgementRange]]:
    return {at(one): [AcknowledgementRange(4, 5, (1,))] for one in indexes}


def fetch(
    session: ShareSessionHandler, wanted: tuple[int, ...], *acknowledged: int
) -> tuple[int, dict[int, int], list[int]]:
    """Return (epoch, number of acknowledged ranges by named partition, forgotten partitions)."""
    request = ShareFetchRequest()
    session.fill_fetch(request, [at(one) for one in wanted], accepted(*acknowledged))
    assert (request.group_id, request.member_id) == ("g", "m")
    return (
        request.share_session_epoch,
        {
            one.partition_index: len(one.acknowledgement_batches)
            for topic in request.topics
            for one in topic.partitions
        },
        [one for topic in request.forgotten_topics_data for one in topic.partitions],
    )


def asked(request: ShareAcknowledgeRequest) -> tuple[int, list[int]]:
    found = [one.partition_index for topic in request.topics for one in topic.partitions]
    return request.share_session_epoch, found


@pytest.fixture
def session() -> ShareSessionHandler:
    """A session open over partitions 0 and 1."""
    session = ShareSessionHandler("g", "m")
    assert fetch(session, (0, 1)) == (0, {0: 0, 1: 0}, [])
    session.on_success()
    return session


def test_the_first_fetch_opens_the_session_and_the_next_ones_name_only_changes(
    session: ShareSessionHandler,
) -> None:
    assert fetch(session, (0, 1)) == (1, {}, [])
    session.on_success()
    assert fetch(session, (1, 2)) == (2, {2: 0}, [0])
    session.on_success()
    assert fetch(session, (1, 2)) == (3, {}, [])


def test_a_fetch_carries_acknowledgements(session: ShareSessionHandler) -> None:
    assert fetch(session, (0, 1), 1) == (1, {1: 1}, [])


def test_an_acknowledgement_has_the_next_epoch_and_adds_no_partition(
    session: ShareSessionHandler,
) -> None:
    assert asked(session.acknowledge_request(accepted(5))) == (1, [5])
    session.on_success()
    assert fetch(session, (0, 1)) == (2, {}, [])


def test_a_failed_request_leaves_the_partitions_unknown_until_the_session_opens_again(
    session: ShareSessionHandler,
) -> None:
    fetch(session, (0, 1, 2))
    session.on_loss()
    assert not session.is_open
    assert fetch(session, (0, 2)) == (0, {0: 0, 2: 0}, [])


def test_the_last_request_closes_the_session(session: ShareSessionHandler) -> None:
    assert asked(session.acknowledge_request({}, is_last=True)) == (-1, [])


def test_the_epoch_after_the_highest_is_one(session: ShareSessionHandler) -> None:
    session._epoch = INT32_MAX
    session.on_success()
    assert fetch(session, (0, 1))[0] == 1


def test_a_request_that_opens_a_session_acknowledges_nothing() -> None:
    with pytest.raises(AssertionError):
        ShareSessionHandler("g", "m").acknowledge_request(accepted(0))
