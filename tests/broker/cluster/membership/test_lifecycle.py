"""Broker lifecycle: the heartbeats sent in each state, and the events that end it."""

import pytest

from ottla.broker.cluster.membership.lifecycle import (
    LEAVABLE,
    SHUTDOWN_FAILURES_MAX,
    BrokerState,
    Lifecycle,
)
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Offset

BROKER = 1


def registered() -> Lifecycle:
    lifecycle = Lifecycle()
    lifecycle.become(BrokerState.STARTING)
    lifecycle.on_caught_up()
    lifecycle.on_registered(42)
    return lifecycle


def running() -> Lifecycle:
    lifecycle = registered()
    lifecycle.become(BrokerState.RUNNING)
    lifecycle.on_heartbeat_answer(is_fenced=False, should_shut_down=False)
    return lifecycle


def test_a_broker_wants_to_stay_fenced_until_it_has_recovered() -> None:
    lifecycle = registered()
    assert lifecycle.heartbeat(Offset(50)).wants_fence
    lifecycle.become(BrokerState.RUNNING)
    said = lifecycle.heartbeat(Offset(51))
    assert not said.wants_fence
    assert (said.broker_epoch, said.metadata_offset) == (42, 51)


def test_it_serves_when_the_controller_says_so() -> None:
    lifecycle = registered()
    lifecycle.become(BrokerState.RUNNING)
    assert lifecycle.is_fenced
    lifecycle.on_heartbeat_answer(is_fenced=False, should_shut_down=False)
    assert not lifecycle.is_fenced


def test_it_leaves_only_when_it_may() -> None:
    lifecycle = running()
    lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert lifecycle.heartbeat(Offset(60)).wants_shut_down
    lifecycle.on_heartbeat_answer(is_fenced=False, should_shut_down=False)
    assert not lifecycle.is_leave_granted
    lifecycle.on_heartbeat_answer(is_fenced=True, should_shut_down=True)
    assert lifecycle.is_leave_granted


def test_without_a_controller_it_leaves_after_some_attempts() -> None:
    lifecycle = running()
    lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    for _ in range(SHUTDOWN_FAILURES_MAX):
        assert not lifecycle.is_leave_granted
        lifecycle.on_heartbeat_refused(RefusedError(ErrorCode.NETWORK_EXCEPTION), BROKER)
    assert lifecycle.is_leave_granted


def test_a_running_broker_outlives_any_number_of_lost_heartbeats() -> None:
    lifecycle = running()
    for _ in range(100):
        lifecycle.on_heartbeat_refused(RefusedError(ErrorCode.REQUEST_TIMED_OUT), BROKER)
    assert lifecycle.state is BrokerState.RUNNING


def test_another_incarnation_of_our_id_ends_this_process() -> None:
    with pytest.raises(RefusedError, match="another process has registered as broker 1"):
        running().on_heartbeat_refused(RefusedError(ErrorCode.STALE_BROKER_EPOCH), BROKER)


def judge(code: ErrorCode, *, is_late: bool = False) -> str:
    lifecycle = Lifecycle()
    lifecycle.become(BrokerState.STARTING)
    return lifecycle.judge_registration(RefusedError(code), broker_id=BROKER, is_late=is_late)


def test_a_duplicate_waits_for_the_other_session_and_says_so() -> None:
    text = judge(ErrorCode.DUPLICATE_BROKER_REGISTRATION)
    assert "another broker 1 is registered and alive" in text


def test_a_registration_that_comes_too_late_names_the_setting() -> None:
    with pytest.raises(RefusedError, match=r"initial\.broker\.registration\.timeout\.ms"):
        judge(ErrorCode.NETWORK_EXCEPTION, is_late=True)


@pytest.mark.parametrize("code", [ErrorCode.INCONSISTENT_CLUSTER_ID, ErrorCode.UNSUPPORTED_VERSION])
def test_what_waiting_cannot_heal_ends_at_once(code: ErrorCode) -> None:
    with pytest.raises(RefusedError) as refused:
        judge(code)
    assert refused.value.code is code


@pytest.mark.parametrize("state", [BrokerState.RUNNING, BrokerState.STARTING])
def test_states_do_not_go_back(state: BrokerState) -> None:
    lifecycle = running()
    with pytest.raises(AssertionError):
        lifecycle.become(state)


def granted(lifecycle: Lifecycle) -> None:
    lifecycle.on_heartbeat_answer(is_fenced=True, should_shut_down=True)


def drained() -> Lifecycle:
    lifecycle = running()
    lifecycle.drain()
    granted(lifecycle)
    return lifecycle


def test_a_draining_broker_asks_as_before_a_stop_until_that_is_granted() -> None:
    lifecycle = running()
    lifecycle.drain()
    lifecycle.on_heartbeat_answer(is_fenced=False, should_shut_down=False)

    said = lifecycle.heartbeat(Offset(50))
    assert said.wants_shut_down
    assert not said.wants_fence

    granted(lifecycle)
    assert lifecycle.state is BrokerState.DRAINED


def test_a_drained_broker_wants_to_stay_fenced_but_not_to_stop() -> None:
    said = drained().heartbeat(Offset(50))

    assert said.wants_fence
    assert not said.wants_shut_down


def test_no_number_of_lost_heartbeats_drains_a_broker() -> None:
    lifecycle = running()
    lifecycle.drain()
    for _ in range(SHUTDOWN_FAILURES_MAX + 1):
        lifecycle.on_heartbeat_refused(RefusedError(ErrorCode.NETWORK_EXCEPTION), BROKER)

    assert lifecycle.state is BrokerState.DRAINING


def test_to_drain_twice_is_to_drain_once() -> None:
    lifecycle = drained()
    lifecycle.drain()
    assert lifecycle.state is BrokerState.DRAINED


def test_an_undone_drain_asks_to_be_unfenced() -> None:
    lifecycle = drained()
    lifecycle.undo_drain()

    said = lifecycle.heartbeat(Offset(50))
    assert not said.wants_fence
    assert not said.wants_shut_down


def test_a_drain_is_not_undone_halfway() -> None:
    lifecycle = running()
    lifecycle.drain()
    with pytest.raises(RefusedError, match="when it is DRAINED"):
        lifecycle.undo_drain()


def test_a_broker_that_is_starting_cannot_be_drained() -> None:
    with pytest.raises(RefusedError, match="it is RECOVERY and cannot be drained"):
        registered().drain()


def test_a_broker_that_still_recovers_says_goodbye_too() -> None:
    """Its next start would wait for the session of this one otherwise."""
    lifecycle = registered()
    assert lifecycle.state in LEAVABLE
    lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert lifecycle.heartbeat(Offset(50)).wants_shut_down


@pytest.mark.parametrize("state", [BrokerState.DRAINING, BrokerState.DRAINED])
def test_a_broker_that_drains_may_stop(state: BrokerState) -> None:
    lifecycle = drained() if state is BrokerState.DRAINED else running()
    if state is BrokerState.DRAINING:
        lifecycle.drain()
    lifecycle.become(BrokerState.PENDING_CONTROLLED_SHUTDOWN)
    assert lifecycle.heartbeat(Offset(50)).wants_shut_down
    granted(lifecycle)
    assert lifecycle.is_leave_granted
