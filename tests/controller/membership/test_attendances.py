"""Which ends of a broker's open call may end its session early, and which never do."""

from dataclasses import replace
from uuid import UUID

import pytest

from ottla.controller.membership.attendances import (
    PROBE_INTERVAL_MS,
    Attendance,
    Attendances,
    Suspicion,
)
from ottla.controller.membership.sessions import BrokerSessions
from ottla.metadata.image import EMPTY, BrokerRegistration, Endpoint, MetadataImage
from ottla.metadata.persistent_map import PersistentMap
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset

ONE = NodeId(1)
SESSION_MS = 9_000
EPOCH = Epoch(7)
ELECTED_MS = 100_000
SETTLED_MS = ELECTED_MS + SESSION_MS
CUT_OFF_MS = SETTLED_MS + 60_000

BROKER = BrokerRegistration(
    id=ONE,
    epoch=5,
    incarnation_id=UUID(int=0xB000),
    is_fenced=False,
    endpoints=(Endpoint("CLIENTS", "public", 9092, 0), Endpoint("INSIDE", "inside", 9094, 0)),
)


def image_of(broker: BrokerRegistration) -> MetadataImage:
    return MetadataImage(brokers=PersistentMap({broker.id: broker}))


IMAGE = image_of(BROKER)


class Story:
    """A controller that was elected, and a broker that keeps a call open there."""

    def __init__(self, *, has_accepted: bool = True) -> None:
        self.sessions = BrokerSessions(SESSION_MS)
        self.attendances = Attendances(self.sessions)
        self.attendances.begin_turn(EPOCH, ELECTED_MS)
        self.call = self.attend()
        if has_accepted:
            self.attendances.note_probe(self.call, SETTLED_MS)
            self.attendances.note_accepting(self.call)
        self.send_heartbeat(CUT_OFF_MS - 500)

    def attend(self) -> Attendance:
        return self.attendances.arrive(BROKER, "INSIDE", EPOCH)

    def send_heartbeat(self, now_ms: int, epoch: int = BROKER.epoch) -> None:
        self.sessions.touch(ONE, epoch, Offset(1), now_ms)

    def suspect(self, now_ms: int = CUT_OFF_MS) -> Suspicion | None:
        return self.attendances.suspect(self.call, IMAGE, EPOCH, now_ms)

    def suspicion(self) -> Suspicion:
        found = self.suspect()
        assert found is not None
        return found

    def is_suspected(
        self,
        suspicion: Suspicion,
        *,
        image: MetadataImage = IMAGE,
        epoch: Epoch | None = EPOCH,
        now_ms: int = CUT_OFF_MS + 300,
    ) -> bool:
        return self.attendances.is_suspected(suspicion, image, epoch, now_ms)


def test_a_call_that_is_cut_off_raises_a_suspicion_until_the_broker_is_heard() -> None:
    story = Story()

    suspicion = story.suspicion()

    assert suspicion.attendance.endpoint == Endpoint("INSIDE", "inside", 9094, 0)
    assert story.is_suspected(suspicion)


@pytest.mark.parametrize("cut_off_ms", [ELECTED_MS + 1, CUT_OFF_MS])
def test_the_silence_of_a_broker_is_measured_from_the_end_of_its_latest_call(
    cut_off_ms: int,
) -> None:
    """Also while the controller has been active for less than a session."""
    story = Story()
    assert story.sessions.silent_ms(ONE, cut_off_ms) == 0

    story.suspect(cut_off_ms)
    assert story.sessions.silent_ms(ONE, cut_off_ms + 300) == 300

    story.attend()
    assert story.sessions.silent_ms(ONE, cut_off_ms + 300) == 0
    story.suspect(cut_off_ms)
    assert story.sessions.silent_ms(ONE, cut_off_ms + 300) == 0, "an earlier call has ended"


def test_a_newer_call_of_the_broker_ends_the_suspicion() -> None:
    story = Story()
    suspicion = story.suspicion()

    story.attend()

    assert not story.is_suspected(suspicion)


def test_an_older_call_that_ends_after_a_newer_one_came_means_nothing() -> None:
    story = Story()

    story.attend()

    assert story.suspect() is None


@pytest.mark.parametrize("late_ms", [0, 1, 299])
def test_a_heartbeat_since_then_ends_the_suspicion(late_ms: int) -> None:
    """Even one of the same millisecond."""
    story = Story()
    suspicion = story.suspicion()

    story.send_heartbeat(CUT_OFF_MS + late_ms)

    assert not story.is_suspected(suspicion)


def test_another_incarnation_is_not_what_was_suspected() -> None:
    story = Story()
    suspicion = story.suspicion()
    again = replace(BROKER, epoch=9, incarnation_id=UUID(int=0xB001))

    assert not story.is_suspected(suspicion, image=image_of(again))
    story.send_heartbeat(CUT_OFF_MS + 1, epoch=9)
    assert not story.is_suspected(suspicion, image=image_of(again))


def test_an_incarnation_is_more_than_its_epoch() -> None:
    story = Story()
    suspicion = story.suspicion()
    odd = replace(BROKER, incarnation_id=UUID(int=0xB001))

    assert not story.is_suspected(suspicion, image=image_of(odd))


def test_a_broker_that_was_unregistered_is_no_longer_suspected() -> None:
    story = Story()

    assert not story.is_suspected(story.suspicion(), image=EMPTY)


def test_a_broker_that_advertises_another_address_by_now_is_no_longer_suspected() -> None:
    story = Story()
    moved = replace(BROKER, endpoints=(Endpoint("INSIDE", "elsewhere", 9094, 0),))

    assert not story.is_suspected(story.suspicion(), image=image_of(moved))


@pytest.mark.parametrize("epoch", [None, Epoch(8)])
def test_a_suspicion_ends_with_the_leadership_in_which_it_was_raised(epoch: Epoch | None) -> None:
    story = Story()
    suspicion = story.suspicion()

    assert not story.is_suspected(suspicion, epoch=epoch)
    story.attendances.begin_turn(epoch, CUT_OFF_MS + 1)
    assert not story.is_suspected(suspicion, epoch=epoch)


def test_calls_that_end_with_the_leadership_mean_nothing() -> None:
    story = Story()

    story.attendances.begin_turn(None, CUT_OFF_MS)

    assert story.suspect() is None


def test_a_controller_suspects_nothing_before_it_led_for_a_session() -> None:
    """Brokers have just changed over to it."""
    story = Story()
    story.send_heartbeat(SETTLED_MS - 500)

    assert story.suspect(SETTLED_MS - 1) is None
    assert story.suspect(SETTLED_MS) is not None


def test_an_address_that_never_accepted_a_connection_says_nothing_by_refusing() -> None:
    """It may be another machine's: `localhost` in a broker's container, say."""
    story = Story(has_accepted=False)

    assert story.suspect() is None


def test_what_an_earlier_incarnations_address_accepted_says_nothing_of_this_one() -> None:
    story = Story()
    again = replace(BROKER, epoch=9)
    call = story.attendances.arrive(again, "INSIDE", EPOCH)
    story.send_heartbeat(CUT_OFF_MS - 10, epoch=9)

    assert story.attendances.suspect(call, image_of(again), EPOCH, CUT_OFF_MS) is None


def test_a_broker_in_controlled_shutdown_that_was_let_go_has_no_session_to_end() -> None:
    story = Story()
    story.sessions.forget(ONE)

    assert story.suspect() is None


def test_a_session_that_is_over_needs_no_early_end() -> None:
    story = Story()

    assert story.suspect(CUT_OFF_MS - 500 + SESSION_MS) is None


def test_a_call_that_was_answered_raises_no_suspicion() -> None:
    story = Story()

    story.attendances.leave(story.call)

    assert story.suspect() is None


def test_a_broker_that_drops_calls_again_and_again_has_its_address_tried_once_a_second() -> None:
    story = Story()
    tried = 0
    for now_ms in range(CUT_OFF_MS, CUT_OFF_MS + 5_000, 10):
        story.call = story.attend()
        story.send_heartbeat(now_ms)
        if story.suspect(now_ms) is not None:
            story.attendances.note_probe(story.call, now_ms)
            tried += 1

    assert tried == 5


def test_an_address_is_first_tried_when_the_controller_has_led_for_a_session() -> None:
    story = Story(has_accepted=False)
    wait_ms = story.attendances.first_probe_wait_ms

    assert wait_ms(story.call, ELECTED_MS) == SESSION_MS
    assert wait_ms(story.call, SETTLED_MS) == 0
    story.attendances.note_probe(story.call, SETTLED_MS)
    assert wait_ms(story.call, SETTLED_MS + 400) == PROBE_INTERVAL_MS - 400
    story.attendances.note_accepting(story.call)
    assert wait_ms(story.call, CUT_OFF_MS) is None


def test_an_address_that_accepted_is_not_tried_again_while_its_broker_lives() -> None:
    story = Story()

    assert story.attendances.first_probe_wait_ms(story.attend(), CUT_OFF_MS) is None


def test_a_listener_that_is_not_of_the_registration_is_refused() -> None:
    """Only addresses of the registration are ever tried."""
    story = Story()

    with pytest.raises(RefusedError) as refused:
        story.attendances.arrive(BROKER, "ELSEWHERE", EPOCH)

    assert refused.value.code is ErrorCode.INVALID_REQUEST
