"""Contents of a fetch session's requests, and full requests."""

from uuid import UUID

import pytest

from ottla.client.fetch.fetch_session import FetchSessionHandler
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import TopicIdPartition
from ottla.wire.messages.fetch_request import FetchPartition, FetchRequest
from ottla.wire.messages.fetch_response import FetchResponse

TOPIC = UUID(int=900)
SESSION_ID = 77


def at(index: int) -> TopicIdPartition:
    return TopicIdPartition(TOPIC, index)


def asked(index: int, offset: int) -> FetchPartition:
    return FetchPartition(partition=index, fetch_offset=offset)


def reported(session: FetchSessionHandler) -> tuple[int, int, dict[int, int], list[int]]:
    """Return (id, epoch, offsets asked by partition, partitions forgotten) of the next request."""
    request = FetchRequest()
    session.fill(request)
    return (
        request.session_id,
        request.session_epoch,
        {one.partition: one.fetch_offset for topic in request.topics for one in topic.partitions},
        [one for topic in request.forgotten_topics_data for one in topic.partitions],
    )


@pytest.fixture
def session() -> FetchSessionHandler:
    """A session open over partitions 0 and 1."""
    session = FetchSessionHandler()
    session.want(at(0), asked(0, 10))
    session.want(at(1), asked(1, 20))
    assert reported(session) == (0, 0, {0: 10, 1: 20}, [])
    session.take(FetchResponse(session_id=SESSION_ID))
    return session


def test_once_open_only_changes_are_reported(session: FetchSessionHandler) -> None:
    session.want(at(1), asked(1, 21))
    assert reported(session) == (SESSION_ID, 1, {1: 21}, [])
    session.take(FetchResponse(session_id=SESSION_ID))
    assert reported(session) == (SESSION_ID, 2, {}, [])


def test_an_unwanted_partition_is_forgotten_once(session: FetchSessionHandler) -> None:
    session.forget(at(0))
    session.forget(at(0))
    assert reported(session) == (SESSION_ID, 1, {}, [0])
    session.take(FetchResponse(session_id=SESSION_ID))
    assert reported(session) == (SESSION_ID, 2, {}, [])


def test_what_is_forgotten_and_wanted_again_is_only_wanted(session: FetchSessionHandler) -> None:
    session.forget(at(0))
    session.want(at(0), asked(0, 5))
    assert reported(session) == (SESSION_ID, 1, {0: 5}, [])


def test_an_answer_that_was_lost_ends_the_session_and_all_is_reported_again(
    session: FetchSessionHandler,
) -> None:
    session.want(at(1), asked(1, 21))
    reported(session)
    session.reset()
    assert reported(session) == (SESSION_ID, 0, {0: 10, 1: 21}, []), (
        "naming what the broker may drop"
    )


@pytest.mark.parametrize(
    "code", [ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH]
)
def test_a_refused_session_is_opened_again(session: FetchSessionHandler, code: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refused:
        session.take(FetchResponse(error_code=code))
    assert refused.value.code is code
    assert reported(session) == (SESSION_ID, 0, {0: 10, 1: 20}, [])


def test_a_broker_without_room_for_sessions_receives_everything_each_time() -> None:
    session = FetchSessionHandler()
    session.want(at(0), asked(0, 10))
    for _ in range(2):
        assert reported(session) == (0, 0, {0: 10}, [])
        session.take(FetchResponse(session_id=0))
