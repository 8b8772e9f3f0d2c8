"""Leader and Resigned: commitment, parked fetches, losing the majority, saying goodbye."""

from typing import Any

import pytest

from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode, RefusedError
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.effects import Effects, LeaderAppend
from ottla.raft.election_state import ElectionState
from ottla.raft.events import AppendRequested, ResignRequested, ShutdownRequested
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    EndQuorumEpochRequest,
    EndQuorumEpochResponse,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    VoteResponse,
)
from ottla.raft.transitions import Role

GRANTED = VoteResponse(leader_epoch=Epoch(1), vote_granted=True)


@pytest.fixture
def leader() -> Solo:
    """Return voter 1 of three, leading epoch 1, its LeaderChange at 0 flushed."""
    solo = Solo(1)
    solo.become_leader()
    return solo


def append(solo: Solo, *values: str) -> Effects:
    epoch = solo.core.epoch
    records = Entries(MemoryEntry(epoch, value) for value in values)
    return solo.step(AppendRequested(epoch=epoch, records=records))


def fetched(solo: Solo, sender: int, offset: int, **more: Any) -> FetchResponse | None:
    answer = solo.ask(solo.fetch_request(sender, offset=offset, last_epoch=1, **more))
    assert answer is None or isinstance(answer, FetchResponse)
    return answer


def test_nothing_is_committed_before_an_entry_of_the_leaders_own_epoch() -> None:
    old = ElectionState(epoch=Epoch(1))
    solo = Solo(1, election=old, entry_epochs=(1, 1))
    solo.become_leader()
    epoch = solo.core.epoch

    solo.ask(solo.fetch_request(2, offset=2, last_epoch=1))
    assert solo.core.high_watermark == 0, "both have the old entries, but none of this epoch"
    solo.ask(solo.fetch_request(2, offset=3, last_epoch=epoch))

    assert solo.core.high_watermark == 3


def test_the_leaders_own_end_counts_only_once_flushed(leader: Solo) -> None:
    append(leader, "a")
    fetched(leader, 2, 2)
    assert leader.core.high_watermark == 1

    leader.flushed()

    assert leader.core.high_watermark == 2


def test_two_followers_commit_what_the_leader_has_not_flushed(leader: Solo) -> None:
    append(leader, "a")

    fetched(leader, 2, 2)
    fetched(leader, 3, 2)

    assert leader.core.high_watermark == 2


def test_an_observer_commits_nothing(leader: Solo) -> None:
    fetched(leader, 9, 1)

    assert leader.core.high_watermark == 0


def test_a_wiped_voters_fetches_commit_nothing(leader: Solo) -> None:
    request = leader.fetch_request(2, offset=1, last_epoch=1)
    stranger = type(request)(
        **{
            **{name: getattr(request, name) for name in request.__dataclass_fields__},
            "replica_directory_id": voter(7).directory_id,
        }
    )

    leader.ask(stranger)

    assert leader.core.high_watermark == 0


def test_a_fetch_of_an_earlier_offset_takes_no_acknowledgement_back(leader: Solo) -> None:
    fetched(leader, 2, 1)
    fetched(leader, 2, 0)
    append(leader, "a")
    leader.flushed()

    fetched(leader, 3, 2)

    assert leader.core.high_watermark == 2


def test_an_append_under_another_epoch_is_refused_and_changes_nothing(leader: Solo) -> None:
    with pytest.raises(RefusedError) as refused:
        leader.step(AppendRequested(epoch=Epoch(9), records=Entries([MemoryEntry(Epoch(9), "x")])))

    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leader.log.end_offset == 1


def test_a_follower_may_not_append() -> None:
    solo = Solo(2)
    solo.tick()

    with pytest.raises(RefusedError):
        append(solo, "x")


class TestFetching:
    """Answers to fetches, and their times."""

    def test_a_fetch_with_something_to_get_is_answered_at_once(self, leader: Solo) -> None:
        answer = leader.ask(leader.fetch_request(2, offset=0, last_epoch=0))

        assert isinstance(answer, FetchResponse)
        assert len(answer.records) == 1
        assert answer.leader_id == 1

    def test_a_fetch_at_the_end_waits_until_its_deadline(self, leader: Solo) -> None:
        assert fetched(leader, 2, 1, high_watermark=1) is None
        token = leader.last_token

        leader.tick(499)
        assert token not in leader.answers
        leader.tick(1)

        answer = leader.answers[token]
        assert isinstance(answer, FetchResponse)
        assert len(answer.records) == 0

    def test_an_append_wakes_a_waiting_fetch_with_what_was_appended(self, leader: Solo) -> None:
        assert fetched(leader, 2, 1, high_watermark=1) is None

        effects = append(leader, "a")

        answer = leader.answers[leader.last_token]
        assert isinstance(effects.append[0], LeaderAppend)
        assert isinstance(answer, FetchResponse)
        assert answer.records == Entries([MemoryEntry(Epoch(1), "a")])

    def test_an_observer_receives_what_was_appended_once_it_is_committed(
        self, leader: Solo
    ) -> None:
        """One response for each change: without its entries, the observer would fetch again for
        the high watermark."""
        fetched(leader, 2, 1)
        assert fetched(leader, 9, 1, high_watermark=1) is None
        waiting = leader.last_token

        append(leader, "a")
        leader.flushed()
        assert waiting not in leader.answers
        fetched(leader, 2, 2, high_watermark=1)

        answer = leader.answers[waiting]
        assert isinstance(answer, FetchResponse)
        assert answer.high_watermark == 2
        assert answer.records == Entries([MemoryEntry(Epoch(1), "a")])

    def test_an_observer_with_all_committed_entries_waits(self, leader: Solo) -> None:
        fetched(leader, 2, 1)
        append(leader, "a")

        assert fetched(leader, 9, 1, high_watermark=1) is None
        assert fetched(leader, 9, 0, high_watermark=0) is not None

    def test_a_higher_watermark_wakes_who_does_not_know_it(self, leader: Solo) -> None:
        fetched(leader, 2, 1)
        append(leader, "a")
        assert fetched(leader, 3, 2, high_watermark=1) is None
        waiting = leader.last_token

        leader.flushed()

        answer = leader.answers[waiting]
        assert isinstance(answer, FetchResponse)
        assert answer.high_watermark == 2

    def test_a_second_fetch_of_a_replica_releases_its_first(self, leader: Solo) -> None:
        assert fetched(leader, 2, 1, high_watermark=1) is None
        first = leader.last_token

        assert fetched(leader, 2, 1, high_watermark=1) is None

        assert first in leader.answers

    def test_losing_the_leadership_releases_everybody(self, leader: Solo) -> None:
        assert fetched(leader, 2, 1, high_watermark=1) is None
        waiting = leader.last_token

        leader.ask(leader.vote_request(3, epoch=5, end_offset=9, last_epoch=1))

        answer = leader.answers[waiting]
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.leader_epoch == 5

    @pytest.mark.parametrize(
        ("epoch", "error"),
        [(0, ErrorCode.FENCED_LEADER_EPOCH), (2, ErrorCode.UNKNOWN_LEADER_EPOCH)],
    )
    def test_a_fetch_of_another_epoch_is_answered_with_ours(
        self, leader: Solo, epoch: int, error: ErrorCode
    ) -> None:
        answer = leader.ask(leader.fetch_request(2, offset=0, last_epoch=0, epoch=epoch))

        assert answer is not None
        assert (answer.error, answer.leader_id, answer.leader_epoch) == (error, 1, 1)
        assert answer.leader_endpoints == voter(1).endpoints

    def test_a_voter_without_leadership_names_its_leader(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(2), leader_id=NodeId(3)))

        answer = solo.ask(solo.fetch_request(9, offset=0, last_epoch=0))

        assert answer is not None
        assert answer.error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert answer.leader_id == 3
        assert answer.leader_endpoints == voter(3).endpoints

    def test_a_diverging_log_is_answered_with_the_point_of_divergence(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(4)), entry_epochs=(1, 1, 4))
        solo.become_leader()

        answer = solo.ask(solo.fetch_request(2, offset=6, last_epoch=2))

        assert isinstance(answer, FetchResponse)
        assert answer.diverging == OffsetAndEpoch(Offset(2), Epoch(1))
        assert solo.core.high_watermark == 0

    def test_a_log_of_another_epoch_diverges_even_where_ours_is_longer(self) -> None:
        solo = Solo(1, election=ElectionState(epoch=Epoch(4)), entry_epochs=(1, 1, 4, 4))
        solo.become_leader()

        answer = solo.ask(solo.fetch_request(2, offset=2, last_epoch=3))

        assert isinstance(answer, FetchResponse)
        assert answer.diverging == OffsetAndEpoch(Offset(2), Epoch(1))

    def test_a_log_longer_than_ours_in_one_epoch_diverges_at_our_end(self, leader: Solo) -> None:
        answer = fetched(leader, 2, 5)

        assert answer is not None
        assert answer.diverging == OffsetAndEpoch(Offset(1), Epoch(1))

    def test_an_offset_below_the_log_is_sent_to_the_snapshot(self, leader: Solo) -> None:
        append(leader, "a", "b")
        leader.flushed()
        fetched(leader, 2, 3)
        snapshot_id = leader.log.snapshot_at(Offset(2), keeps_log=False)

        answer = leader.ask(leader.fetch_request(3, offset=0, last_epoch=0))

        assert isinstance(answer, FetchResponse)
        assert answer.snapshot_id == snapshot_id == OffsetAndEpoch(Offset(2), Epoch(1))

    def test_a_nonsense_fetch_is_refused(self, leader: Solo) -> None:
        answer = leader.ask(leader.fetch_request(2, offset=-1, last_epoch=0))

        assert answer is not None
        assert answer.error is ErrorCode.INVALID_REQUEST


class TestFetchingSnapshots:
    """Byte ranges of a snapshot."""

    def request(self, *, position: int, offset: int = 2) -> FetchSnapshotRequest:
        return FetchSnapshotRequest(
            cluster_id=CLUSTER_ID,
            replica_id=NodeId(3),
            replica_directory_id=voter(3).directory_id,
            current_leader_epoch=Epoch(1),
            snapshot_id=OffsetAndEpoch(Offset(offset), Epoch(1)),
            position=position,
            bytes_max=1,
        )

    @pytest.fixture
    def holder(self, leader: Solo) -> Solo:
        append(leader, "a", "b")
        leader.flushed()
        fetched(leader, 2, 3)
        leader.log.snapshot_at(Offset(2), keeps_log=False)
        return leader

    def test_a_range_is_answered_with_the_whole_size(self, holder: Solo) -> None:
        answer = holder.ask(self.request(position=1))

        assert isinstance(answer, FetchSnapshotResponse)
        assert (answer.position, answer.size_bytes, len(answer.data)) == (1, 2, 1)

    @pytest.mark.parametrize("position", [-1, 2])
    def test_a_position_outside_is_refused(self, holder: Solo, position: int) -> None:
        answer = holder.ask(self.request(position=position))

        assert answer is not None
        assert answer.error is ErrorCode.POSITION_OUT_OF_RANGE

    def test_a_snapshot_that_is_gone_is_refused(self, holder: Solo) -> None:
        answer = holder.ask(self.request(position=0, offset=1))

        assert answer is not None
        assert answer.error is ErrorCode.SNAPSHOT_NOT_FOUND


class TestMakingItselfKnown:
    """BeginQuorumEpoch."""

    def test_a_new_leader_tells_every_voter_at_once(self) -> None:
        solo = Solo(1)
        solo.become_candidate()
        solo.respond(solo.sent[0], GRANTED)

        begins = [m for m in solo.sent if isinstance(m.request, BeginQuorumEpochRequest)]

        assert [message.to for message in begins] == [2, 3]

    def test_an_acknowledgement_postpones_the_next_one(self) -> None:
        solo = Solo(1)
        solo.become_candidate()
        solo.respond(solo.sent[0], GRANTED)
        begins = {message.to: message for message in solo.sent}
        solo.respond(
            begins[NodeId(2)], BeginQuorumEpochResponse(leader_epoch=Epoch(1), leader_id=NodeId(1))
        )

        solo.tick(solo.config.fetch_timeout_ms // 2 - 1)
        assert solo.sent == []
        solo.tick(1)

        assert [message.to for message in solo.sent] == [2]


class TestGivingUp:
    """Check-quorum, resignation, shutdown."""

    def test_a_leader_without_a_majoritys_fetches_resigns(self, leader: Solo) -> None:
        patience_ms = leader.config.fetch_timeout_ms * 3 // 2

        leader.tick(patience_ms - 1)
        assert leader.core.is_leader
        leader.tick(1)

        assert leader.role() is Role.RESIGNED
        assert leader.core.leader_id is None

    def test_one_follower_of_two_keeps_a_leader(self, leader: Solo) -> None:
        for _ in range(10):
            leader.tick(1_000)
            fetched(leader, 3, 1)

        assert leader.core.is_leader

    def test_a_goodbye_names_the_longest_log_first(self, leader: Solo) -> None:
        append(leader, "a")
        fetched(leader, 2, 1)
        fetched(leader, 3, 2)

        leader.step(ShutdownRequested())

        goodbyes = [m.request for m in leader.sent]
        assert len(goodbyes) == 2
        for goodbye in goodbyes:
            assert isinstance(goodbye, EndQuorumEpochRequest)
            assert [key.id for key in goodbye.preferred_candidates] == [3, 2]

    def test_a_shutdown_is_over_when_a_successor_has_won(self, leader: Solo) -> None:
        leader.step(ShutdownRequested())
        for goodbye in list(leader.sent):
            leader.respond(goodbye, EndQuorumEpochResponse(leader_epoch=Epoch(1)))
        vote = leader.ask(leader.vote_request(2, epoch=2, end_offset=1, last_epoch=1))
        assert getattr(vote, "vote_granted", False), "its vote may be the one that is missing"
        assert not leader.core.is_handed_over

        leader.ask(
            BeginQuorumEpochRequest(
                cluster_id=CLUSTER_ID,
                voter_id=NodeId(1),
                leader_id=NodeId(2),
                leader_epoch=Epoch(2),
            )
        )

        assert leader.core.is_handed_over

    def test_a_leader_that_stops_with_all_the_others_does_not_wait(self, leader: Solo) -> None:
        leader.step(ShutdownRequested())
        for goodbye in list(leader.sent):
            leader.respond(goodbye, EndQuorumEpochResponse(leader_epoch=Epoch(1)))
        assert not leader.core.is_handed_over

        for _ in range(10):
            for probe in list(leader.sent):
                leader.fail(probe)
            leader.tick_when_due()

        assert leader.core.is_handed_over

    def test_a_follower_shuts_down_at_once(self) -> None:
        follower = Solo(1, election=ElectionState(epoch=Epoch(1), leader_id=NodeId(2)))

        follower.step(ShutdownRequested())

        assert follower.core.is_handed_over

    def test_a_leader_that_slept_resigns_before_it_hears_what_lay_waiting(
        self, leader: Solo
    ) -> None:
        """Check quorum (KIP-595): a fetch sent long ago is no sign of a majority today."""
        leader.now_ms += 3 * leader.config.fetch_timeout_ms // 2

        answer = leader.ask(leader.fetch_request(2, offset=1, last_epoch=1))

        assert leader.role() is Role.RESIGNED
        assert getattr(answer, "error", None) is ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_a_node_that_shuts_down_never_stands_again(self, leader: Solo) -> None:
        leader.step(ShutdownRequested())

        for _ in range(20):
            leader.tick(1_000)

        assert leader.role() is Role.RESIGNED

    def test_a_resigned_leader_stands_again_only_in_a_later_epoch(self, leader: Solo) -> None:
        leader.step(ResignRequested(epoch=Epoch(1)))
        assert leader.role() is Role.RESIGNED

        leader.tick(2 * leader.config.election_timeout_ms)
        assert leader.role() is Role.UNATTACHED
        answer = leader.ask(leader.vote_request(2, epoch=1, end_offset=9))

        assert answer is not None
        assert not getattr(answer, "vote_granted", True), "epoch 1 had its leader"

    def test_a_leader_that_restarts_says_goodbye_to_its_epoch(self) -> None:
        state = ElectionState(epoch=Epoch(3), leader_id=NodeId(1), voted=voter(1).key)
        solo = Solo(1, election=state, entry_epochs=(3,))

        solo.tick()

        assert solo.role() is Role.RESIGNED
        assert {message.to for message in solo.sent} == {2, 3}
        assert all(isinstance(message.request, EndQuorumEpochRequest) for message in solo.sent)

    def test_a_resignation_of_another_epoch_is_ignored(self, leader: Solo) -> None:
        leader.step(ResignRequested(epoch=Epoch(0)))

        assert leader.core.is_leader


def test_a_leader_describes_who_has_got_how_far(leader: Solo) -> None:
    append(leader, "a")
    leader.tick(10)
    fetched(leader, 2, 2)
    fetched(leader, 9, 1)

    description = leader.core.describe()

    assert description is not None
    assert [(s.key.id, s.end_offset) for s in description.voters] == [(1, 2), (2, 2), (3, -1)]
    assert [(s.key.id, s.end_offset) for s in description.observers] == [(9, 1)]
    assert description.voters[1].last_caught_up_ms == leader.now_ms


def test_an_observer_silent_for_five_minutes_is_not_described(leader: Solo) -> None:
    fetched(leader, 9, 1)
    for _ in range(301):
        leader.tick(1_000)
        fetched(leader, 2, 1)

    description = leader.core.describe()

    assert description is not None
    assert description.observers == ()
