"""Leader and eligible replicas of one partition: tables and a property."""

from collections.abc import Collection, Iterable
from dataclasses import replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.controller.replication.partition_change import Election, Rules, change_partition
from ottla.metadata import topics_fold
from ottla.metadata.directories import UNASSIGNED
from ottla.metadata.image import PartitionState, RecoveryState
from ottla.model.ids import NO_NODE, NodeId, TopicIdPartition

PARTITION = TopicIdPartition(UUID(int=0xA000), 0)
ONE, TWO, THREE = NodeId(1), NodeId(2), NodeId(3)
ALL = (ONE, TWO, THREE)


def partition(
    *,
    isr: tuple[NodeId, ...] = ALL,
    elr: tuple[NodeId, ...] = (),
    last_known_elr: tuple[NodeId, ...] = (),
    leader: NodeId = ONE,
) -> PartitionState:
    return PartitionState(
        replicas=ALL,
        directories=(UNASSIGNED,) * 3,
        isr=isr,
        elr=elr,
        last_known_elr=last_known_elr,
        leader=leader,
    )


def rules(*alive: NodeId, min_isr: int = 2, elr: bool = True, unclean: bool = False) -> Rules:
    return Rules(
        can_lead=lambda replica: replica in alive,
        min_insync_replicas=min_isr,
        is_elr_enabled=elr,
        allows_unclean=unclean,
    )


def after(
    state: PartitionState,
    rules: Rules,
    isr: tuple[NodeId, ...] | None = None,
    *,
    uncleanly_stopped: Collection[NodeId] = (),
    lost: Collection[NodeId] = (),
    recovery_state: RecoveryState | None = None,
    election: Election = Election.IF_NEEDED,
) -> PartitionState:
    record = change_partition(
        PARTITION,
        state,
        rules,
        isr=isr,
        uncleanly_stopped=uncleanly_stopped,
        lost=lost,
        recovery_state=recovery_state,
        election=election,
    )
    return state if record is None else topics_fold.merge(state, record.partition_change)


def test_a_lost_leader_is_followed_by_the_next_replica_in_sync() -> None:
    state = after(partition(), rules(TWO, THREE), (TWO, THREE))

    assert (state.leader, state.isr, state.elr) == (TWO, (TWO, THREE), ())


def test_a_lost_follower_leaves_leader_and_leader_epoch_alone() -> None:
    state = after(partition(), rules(ONE, TWO), (ONE, TWO))

    assert (state.leader, state.leader_epoch, state.partition_epoch) == (ONE, 0, 1)


def test_a_replica_that_leaves_the_isr_below_min_isr_stays_eligible() -> None:
    state = after(partition(isr=(ONE, TWO)), rules(ONE), (ONE,))

    assert (state.isr, state.elr) == ((ONE,), (TWO,))


def test_no_other_replica_is_eligible_with_enough_in_sync_replicas() -> None:
    state = after(partition(isr=(ONE,), elr=(TWO,)), rules(ONE, TWO, THREE), (ONE, THREE))

    assert (state.isr, state.elr) == ((ONE, THREE), ())


def test_the_last_in_sync_leaves_an_empty_isr_and_its_name() -> None:
    state = after(partition(isr=(ONE,), elr=(TWO,)), rules(), ())

    assert (state.leader, state.isr, state.elr) == (NO_NODE, (), (ONE, TWO))
    assert state.last_known_elr == (ONE,)


def test_an_eligible_replica_leads_alone_when_it_comes_back() -> None:
    down = partition(isr=(), elr=(ONE, TWO), last_known_elr=(ONE,), leader=NO_NODE)

    state = after(down, rules(TWO))

    assert (state.leader, state.isr, state.elr) == (TWO, (TWO,), (ONE,))
    assert state.last_known_elr == ()
    assert state.recovery_state is RecoveryState.RECOVERED


def test_with_min_isr_one_an_elected_eligible_replica_clears_the_others() -> None:
    down = partition(isr=(), elr=(ONE, TWO), leader=NO_NODE)

    assert after(down, rules(TWO, min_isr=1)).elr == ()


def test_a_replica_that_is_neither_in_sync_nor_eligible_does_not_lead() -> None:
    down = partition(isr=(), elr=(ONE, TWO), last_known_elr=(ONE,), leader=NO_NODE)

    assert after(down, rules(THREE)) == down


def test_the_last_known_leader_leads_when_no_replica_is_eligible() -> None:
    down = partition(isr=(), elr=(), last_known_elr=(TWO,), leader=NO_NODE)

    state = after(down, rules(TWO, THREE))

    assert (state.leader, state.isr, state.last_known_elr) == (TWO, (TWO,), ())
    assert state.recovery_state is RecoveryState.RECOVERING


def test_the_epoch_of_the_last_unclean_election_is_remembered() -> None:
    down = partition(isr=(), elr=(), last_known_elr=(TWO,), leader=NO_NODE)

    led = after(down, rules(TWO, THREE))
    assert led.unclean_leader_epoch == led.leader_epoch > down.unclean_leader_epoch == 0

    recovered = after(led, rules(*ALL), recovery_state=RecoveryState.RECOVERED)
    moved = after(after(recovered, rules(*ALL), (TWO, THREE)), rules(THREE), (THREE,))
    assert moved.leader_epoch > moved.unclean_leader_epoch == led.unclean_leader_epoch


def test_unclean_elections_elect_any_live_replica_where_they_are_allowed() -> None:
    down = partition(isr=(), elr=(ONE, TWO), last_known_elr=(ONE,), leader=NO_NODE)

    state = after(down, rules(THREE, unclean=True))

    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (THREE, (THREE,), (), ())
    assert state.recovery_state is RecoveryState.RECOVERING


def test_an_unclean_stop_takes_eligibility_away() -> None:
    state = after(
        partition(isr=(ONE,), elr=(TWO, THREE)), rules(ONE), (ONE,), uncleanly_stopped=(TWO,)
    )

    assert state.elr == (THREE,)


def test_without_elr_the_last_in_sync_stays_in_the_isr() -> None:
    state = after(partition(isr=(ONE,)), rules(elr=False), ())

    assert (state.leader, state.isr, state.elr) == (NO_NODE, (ONE,), ())
    assert after(state, rules(ONE, elr=False)).leader == ONE
    assert after(state, rules(TWO, elr=False)) == state


def test_the_preferred_leader_gets_leadership_back_only_when_asked() -> None:
    moved = partition(leader=TWO)

    assert after(moved, rules(*ALL)) == moved
    assert after(moved, rules(*ALL), election=Election.PREFERRED).leader == ONE


def test_the_preferred_leader_out_of_sync_changes_nothing() -> None:
    moved = partition(isr=(TWO, THREE), leader=TWO)

    assert after(moved, rules(*ALL), election=Election.PREFERRED) == moved


def test_a_preferred_election_elects_only_the_preferred_replica() -> None:
    """Kafka's electPreferredLeader: the preferred replica if it can lead, otherwise no change of
    leader."""
    led_by_the_last = partition(isr=(TWO, THREE), leader=THREE)

    assert after(led_by_the_last, rules(*ALL), election=Election.PREFERRED) == led_by_the_last


def test_those_who_leave_together_leave_the_name_of_who_led() -> None:
    state = after(partition(), rules(), ())

    assert (state.leader, state.isr, state.elr) == (NO_NODE, (), ALL)
    assert state.last_known_elr == (ONE,)


def test_without_elr_all_who_leave_together_stay_in_the_isr_until_one_leads() -> None:
    down = after(partition(), rules(elr=False), ())
    back = after(down, rules(TWO, elr=False))

    assert (down.leader, down.isr) == (NO_NODE, ALL)
    assert (back.leader, back.isr) == (TWO, (TWO,))


def test_an_isr_that_crashes_without_a_leader_leaves_a_last_known_leader_too() -> None:
    """Left so by a cluster that did not keep ELRs when the last member was fenced."""
    down = partition(isr=(TWO,), leader=NO_NODE)

    state = after(down, rules(), (), uncleanly_stopped=(TWO,))

    assert (state.isr, state.elr, state.last_known_elr) == ((), (), (TWO,))


def test_what_changes_nothing_makes_no_record() -> None:
    assert change_partition(PARTITION, partition(), rules(*ALL), isr=ALL) is None


def test_a_lost_replica_is_neither_eligible_nor_the_last_known_leader() -> None:
    down = partition(isr=(), elr=(ONE, TWO), last_known_elr=(ONE,), leader=NO_NODE)

    state = after(down, rules(), (), lost=(ONE,))
    assert (state.isr, state.elr, state.last_known_elr) == ((), (TWO,), ())
    assert after(state, rules(ONE)) == state
    assert after(state, rules(ONE, TWO)).leader == TWO

    state = after(state, rules(), (), lost=(TWO,))
    assert (state.isr, state.elr, state.last_known_elr) == ((), (), ())
    assert after(state, rules(*ALL)) == state
    assert after(state, rules(TWO), election=Election.UNCLEAN).leader == TWO


def test_a_leader_that_lost_its_records_leaves_no_name() -> None:
    state = after(partition(isr=(ONE,)), rules(TWO, THREE), (), lost=(ONE,))

    assert (state.leader, state.isr, state.elr, state.last_known_elr) == (NO_NODE, (), (), ())


def test_without_elr_a_lost_replica_leaves_an_empty_isr() -> None:
    down = after(partition(isr=(ONE,)), rules(elr=False), ())

    state = after(down, rules(elr=False), (), lost=(ONE,))

    assert (state.leader, state.isr) == (NO_NODE, ())
    assert after(state, rules(*ALL, elr=False)) == state
    assert after(state, rules(ONE, elr=False), election=Election.UNCLEAN).isr == (ONE,)


def test_an_unclean_election_takes_a_lost_replica_last() -> None:
    down = partition(isr=(), elr=(ONE,), leader=NO_NODE)
    state = after(down, rules(), (), lost=(ONE,))
    assert state.lost == (ONE,)

    assert after(state, rules(*ALL), election=Election.UNCLEAN).leader == TWO
    assert after(state, rules(*ALL, unclean=True)).leader == TWO
    led = after(state, rules(ONE, unclean=True))
    assert (led.leader, led.isr, led.lost) == (ONE, (ONE,), ())


def test_a_lost_replica_is_whole_again_when_it_joins_the_isr() -> None:
    state = after(partition(), rules(TWO, THREE), (TWO, THREE), lost=(ONE,))
    assert (state.leader, state.lost) == (TWO, (ONE,))

    assert after(state, rules(*ALL), (TWO, THREE, ONE)).lost == ()


Step = tuple[str, NodeId]
STEPS = st.lists(
    st.tuples(st.sampled_from(["die", "crash", "come", "join"]), st.sampled_from(ALL)),
    max_size=25,
)


@pytest.mark.parametrize("min_isr", [1, 2, 3])
@given(steps=STEPS)
def test_no_clean_election_loses_what_was_acknowledged(min_isr: int, steps: Iterable[Step]) -> None:
    """NoAcknowledgedRecordLost against an obvious model: sets of brokers that hold all records.

    acks=all is answered only with min.insync.replicas in sync, so acknowledged records are on all
    of the ISR. A crash may lose them on that one broker.
    """
    state = partition()
    alive = set(ALL)
    holders = set(ALL)
    for what, broker in steps:
        if what in ("die", "crash") and broker in alive:
            alive.discard(broker)
            if what == "crash":
                holders.discard(broker)
            left = tuple(one for one in state.isr if one != broker)
            stopped = (broker,) if what == "crash" else ()
            state = after(state, rules(*alive, min_isr=min_isr), left, uncleanly_stopped=stopped)
        elif what == "come" and broker not in alive:
            alive.add(broker)
            state = after(state, rules(*alive, min_isr=min_isr))
        elif what == "join" and broker in alive and state.leader != NO_NODE:
            joined = tuple(dict.fromkeys((*state.isr, broker)))
            state = after(state, rules(*alive, min_isr=min_isr), joined)
        if state.recovery_state is RecoveryState.RECOVERING:
            return  # Said openly: this leader may lack records.
        # The leader and the replicas it admits hold all records; with enough in sync, more is
        # acknowledged, and a replica that is not in sync no longer holds all.
        if state.leader != NO_NODE:
            holders |= set(state.isr)
            if len(state.isr) >= min_isr:
                holders = set(state.isr)
        assert set(state.elr) <= holders
        assert state.leader == NO_NODE or state.leader in holders
        assert len(state.isr) < min_isr or not state.elr


LOSSES = st.lists(
    st.tuples(st.sampled_from(["die", "crash", "come", "lose", "join"]), st.sampled_from(ALL)),
    max_size=25,
)


@pytest.mark.parametrize("elr", [True, False])
@given(steps=LOSSES, min_isr=st.sampled_from([1, 2, 3]))
def test_no_replica_leads_between_its_loss_and_its_return_to_the_isr(
    elr: bool, min_isr: int, steps: Iterable[Step]
) -> None:
    """It is not even the last known leader, whose election does not count as clean."""
    state = partition()
    alive = set(ALL)
    lossy: set[NodeId] = set()
    for what, broker in steps:
        if what in ("die", "crash") and broker in alive:
            alive.discard(broker)
            left = tuple(one for one in state.isr if one != broker)
            stopped = (broker,) if what == "crash" else ()
            state = after(
                state, rules(*alive, min_isr=min_isr, elr=elr), left, uncleanly_stopped=stopped
            )
        elif what == "lose" and broker not in alive:
            lossy.add(broker)
            left = tuple(one for one in state.isr if one != broker)
            state = after(state, rules(*alive, min_isr=min_isr, elr=elr), left, lost=(broker,))
        elif what == "come" and broker not in alive:
            alive.add(broker)
            state = after(state, rules(*alive, min_isr=min_isr, elr=elr))
        elif what == "join" and broker in alive and state.leader != NO_NODE:
            joined = tuple(dict.fromkeys((*state.isr, broker)))
            state = after(state, rules(*alive, min_isr=min_isr, elr=elr), joined)
            lossy.discard(broker)
        assert lossy.isdisjoint({state.leader, *state.isr, *state.elr, *state.last_known_elr})


@given(steps=STEPS, unclean=st.booleans(), elr=st.booleans())
def test_every_change_fits_the_image(steps: Iterable[Step], unclean: bool, elr: bool) -> None:
    state = partition()
    alive = set(ALL)
    for what, broker in steps:
        isr = state.isr
        if what == "come":
            alive.add(broker)
        elif what == "join" and broker in alive and state.leader != NO_NODE:
            isr = tuple(dict.fromkeys((*isr, broker)))
        else:
            alive.discard(broker)
            isr = tuple(one for one in isr if one != broker)
        before = state
        state = after(state, rules(*alive, elr=elr, unclean=unclean), isr)
        assert set(state.isr).isdisjoint(state.elr)
        assert state.leader == NO_NODE or state.leader in state.isr
        assert state.leader == NO_NODE or state.leader in alive
        assert state.leader != NO_NODE or not (set(state.isr) & alive)
        if state.leader != before.leader:
            assert state.leader_epoch == before.leader_epoch + 1
        else:
            assert state.leader_epoch == before.leader_epoch
        if unclean and alive:
            assert state.leader != NO_NODE
        assert replace(state, partition_epoch=0) == replace(before, partition_epoch=0) or (
            state.partition_epoch == before.partition_epoch + 1
        )
