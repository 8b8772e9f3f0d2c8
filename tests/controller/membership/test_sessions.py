"""The soft memory of heartbeats."""

from uuid import UUID

from ottla.controller.membership.sessions import BrokerSessions
from ottla.metadata.image import BrokerRegistration, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.ids import NodeId, Offset

ONE = NodeId(1)


def broker(epoch: int = 5) -> BrokerRegistration:
    return BrokerRegistration(id=ONE, epoch=epoch, incarnation_id=UUID(int=0xB000), is_fenced=False)


def image() -> MetadataImage:
    return MetadataImage(brokers=PersistentMap({ONE: broker()}))


def test_a_late_heartbeat_takes_nothing_back() -> None:
    sessions = BrokerSessions(9_000)
    sessions.touch(ONE, 5, Offset(100), 1_000)

    sessions.touch(ONE, 5, Offset(90), 500)

    assert sessions.lowest_active_offset(image()) == 100
    assert sessions.next_expiry_ms(image()) == 10_000


def test_a_session_belongs_to_one_registration() -> None:
    sessions = BrokerSessions(9_000)
    sessions.touch(ONE, 5, Offset(100), 1_000)

    assert sessions.is_valid(broker(5), 9_999)
    assert not sessions.is_valid(broker(5), 10_000)
    assert not sessions.is_valid(broker(6), 1_000)


def test_a_broker_that_was_never_heard_from_is_expired_at_once() -> None:
    sessions = BrokerSessions(9_000)

    assert sessions.next_expiry_ms(image()) is None
    assert sessions.lowest_active_offset(image()) is None
    assert sessions.expired(image(), 0) == (broker(),)


def test_time_in_which_the_controller_stood_still_is_given_back() -> None:
    sessions = BrokerSessions(9_000)
    sessions.touch(ONE, 5, Offset(100), 0)
    sessions.look(1_000)

    stall_ms = sessions.look(61_000)

    assert stall_ms == 60_000
    assert sessions.next_expiry_ms(image()) == 69_000


def test_a_session_never_reaches_into_the_future() -> None:
    sessions = BrokerSessions(9_000)
    sessions.look(1_000)
    sessions.touch(ONE, 5, Offset(100), 61_000)

    sessions.look(61_000)

    assert sessions.next_expiry_ms(image()) == 70_000


def test_a_controller_that_looks_often_enough_gives_nothing_back() -> None:
    sessions = BrokerSessions(9_000)
    sessions.touch(ONE, 5, Offset(100), 0)

    stalls = [sessions.look(now_ms) for now_ms in range(0, 9_001, sessions.look_interval_ms * 2)]

    assert set(stalls) == {0}
    assert sessions.next_expiry_ms(image()) == 9_000
