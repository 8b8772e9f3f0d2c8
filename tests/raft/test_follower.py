"""Follower: fetching, truncating, taking snapshots, losing and finding the leader."""

import pytest

from ottla.jepsen.quorum.memory_log import Entries, MemoryEntry
from ottla.jepsen.quorum.solo import Solo
from ottla.jepsen.quorum.world import CLUSTER_ID, voter
from ottla.model.errors import ErrorCode
from ottla.model.ids import Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.effects import FollowerAppend
from ottla.raft.election_state import ElectionState
from ottla.raft.follower import PATIENCE_JITTER_DIVISOR
from ottla.raft.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    Records,
)
from ottla.raft.transitions import Role
from ottla.raft.voters import ReplicaKey


def following(
    *,
    node_id: int = 1,
    entry_epochs: tuple[int, ...] = (),
    epoch: int = 2,
    is_watched: bool = True,
) -> Solo:
    """Return a replica that follows voter 3 and has just sent its first fetch."""
    state = ElectionState(epoch=Epoch(epoch), leader_id=NodeId(3))
    solo = Solo(node_id, election=state, entry_epochs=entry_epochs, is_watched=is_watched)
    solo.tick()
    return solo


def entries(*values: str, epoch: int = 2) -> Entries:
    return Entries(MemoryEntry(Epoch(epoch), value) for value in values)


def fetched(
    records: Records = b"",
    *,
    high_watermark: int = 0,
    diverging: OffsetAndEpoch | None = None,
    snapshot_id: OffsetAndEpoch | None = None,
) -> FetchResponse:
    return FetchResponse(
        leader_id=NodeId(3),
        leader_epoch=Epoch(2),
        high_watermark=Offset(high_watermark),
        records=records,
        diverging=diverging,
        snapshot_id=snapshot_id,
    )


def only_fetch(solo: Solo) -> FetchRequest:
    (outgoing,) = solo.sent
    assert isinstance(outgoing.request, FetchRequest)
    return outgoing.request


def goodbye(*preferred: int, leader: int = 3, epoch: int = 2) -> EndQuorumEpochRequest:
    return EndQuorumEpochRequest(
        cluster_id=CLUSTER_ID,
        leader_id=NodeId(leader),
        leader_epoch=Epoch(epoch),
        preferred_candidates=tuple(voter(each).key for each in preferred),
    )


def test_a_follower_fetches_from_its_logs_end_with_its_last_epoch() -> None:
    solo = following(entry_epochs=(1, 2))

    request = only_fetch(solo)

    assert solo.sent[0].to == 3
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 2)
    assert request.current_leader_epoch == 2
    assert request.wait_ms_max == solo.config.fetch_wait_ms_max


def test_the_next_fetch_waits_for_the_flush_as_it_is_the_acknowledgement() -> None:
    solo = following()

    effects = solo.respond(solo.sent[0], fetched(entries("a", "b")))
    assert effects.append == [FollowerAppend(records=entries("a", "b"), epoch_max=Epoch(2))]
    assert effects.flush
    solo.tick()
    assert solo.sent == []
    solo.flushed()

    assert only_fetch(solo).fetch_offset == 2


def test_an_observer_fetches_on_without_flushing() -> None:
    solo = following(node_id=9)

    effects = solo.respond(solo.sent[0], fetched(entries("a")))
    assert not effects.flush
    assert effects.next_wake_ms == solo.now_ms
    solo.tick()

    assert only_fetch(solo).fetch_offset == 1


def test_an_answer_of_an_epoch_that_is_over_is_left_alone() -> None:
    """Its records may be lost since, by the same leader in a later epoch."""
    solo = following(epoch=2)
    (outgoing,) = solo.sent
    late = FetchResponse(leader_id=NodeId(3), leader_epoch=Epoch(1), records=entries("x", epoch=1))

    effects = solo.respond(outgoing, late)

    assert effects.append == []
    assert solo.log.end_offset == 0


def test_a_watermark_ahead_of_our_log_commits_only_what_is_flushed_here() -> None:
    solo = following()

    solo.respond(solo.sent[0], fetched(entries("a"), high_watermark=9))
    assert solo.core.high_watermark == 0
    effects = solo.flushed()

    assert solo.core.high_watermark == effects.high_watermark == 1


def test_a_diverging_log_is_truncated_to_where_it_may_agree() -> None:
    solo = following(entry_epochs=(1, 1, 1, 2))

    effects = solo.respond(solo.sent[0], fetched(diverging=OffsetAndEpoch(Offset(2), Epoch(1))))
    assert effects.truncate_to == 2
    solo.tick()

    request = only_fetch(solo)
    assert (request.fetch_offset, request.last_fetched_epoch) == (2, 1)


def test_a_leaders_epoch_we_lack_truncates_to_our_last_one_below_it() -> None:
    solo = following(entry_epochs=(1, 1, 4), epoch=5)

    effects = solo.respond(
        solo.sent[0],
        FetchResponse(
            leader_id=NodeId(3),
            leader_epoch=Epoch(5),
            diverging=OffsetAndEpoch(Offset(9), Epoch(3)),
        ),
    )

    assert effects.truncate_to == 2


def test_a_diverging_answers_watermark_commits_nothing() -> None:
    # Found by the random walk: what is left after truncating may still differ from the leader's.
    solo = following(entry_epochs=(1, 1, 1, 2))

    solo.respond(
        solo.sent[0],
        fetched(diverging=OffsetAndEpoch(Offset(3), Epoch(1)), high_watermark=3),
    )
    solo.tick()

    assert solo.core.high_watermark == 0


def test_what_is_committed_is_never_truncated() -> None:
    solo = following(is_watched=False)
    solo.respond(solo.sent[0], fetched(entries("a", "b"), high_watermark=2))
    solo.flushed()
    assert solo.core.high_watermark == 2

    effects = solo.respond(solo.sent[0], fetched(diverging=OffsetAndEpoch(Offset(1), Epoch(2))))
    assert effects.truncate_to is None
    assert effects.rejected is not None
    assert effects.rejected.why.startswith("ConsistentCommittedData")


def test_a_failed_fetch_is_tried_again_after_its_back_off() -> None:
    solo = following()

    solo.fail(solo.sent[0])
    assert solo.sent == []
    solo.tick_when_due()

    assert solo.now_ms == solo.config.retry_backoff_ms
    assert only_fetch(solo).fetch_offset == 0


def test_a_fetch_that_is_never_answered_is_tried_again_by_an_observer() -> None:
    solo = following(node_id=9)

    solo.tick(solo.config.request_timeout_ms)
    solo.tick_when_due()

    assert isinstance(solo.sent[0].request, FetchRequest)


def test_a_leader_silent_for_the_fetch_timeout_is_challenged_by_a_voter() -> None:
    solo = following()

    solo.tick(solo.config.fetch_timeout_ms - 1)
    assert solo.role() is Role.FOLLOWER
    solo.tick(1 + solo.config.fetch_timeout_ms // PATIENCE_JITTER_DIVISOR)

    assert solo.role() is Role.PROSPECTIVE


def test_each_answer_renews_the_fetch_timeout() -> None:
    solo = following()
    for _ in range(10):
        solo.now_ms += 500
        solo.respond(solo.sent[0], fetched())

    assert solo.role() is Role.FOLLOWER


def test_an_observer_asks_another_voter_when_its_leader_fails() -> None:
    solo = following(node_id=9)

    solo.fail(solo.sent[0])

    (outgoing,) = solo.sent
    assert outgoing.to in (1, 2)
    assert isinstance(outgoing.request, FetchRequest)
    assert outgoing.request.wait_ms_max == 0


def test_a_refusal_that_names_a_newer_leader_is_followed() -> None:
    solo = following(node_id=9)

    solo.respond(
        solo.sent[0],
        FetchResponse(
            error=ErrorCode.FENCED_LEADER_EPOCH, leader_epoch=Epoch(6), leader_id=NodeId(2)
        ),
    )

    assert solo.core.leader_id == 2
    assert solo.core.epoch == 6
    assert [message.to for message in solo.sent] == [2]
    assert solo.persisted == ElectionState(epoch=Epoch(6), leader_id=NodeId(2))


@pytest.mark.parametrize(
    ("error", "leader_id"),
    [(ErrorCode.INCONSISTENT_CLUSTER_ID, 3), (ErrorCode.NOT_LEADER_OR_FOLLOWER, 77)],
    ids=["of another cluster", "that is no voter"],
)
def test_a_hint_of_a_leader_that_can_not_be_ours_is_not_followed(
    error: ErrorCode, leader_id: int
) -> None:
    solo = Solo(1, election=ElectionState(epoch=Epoch(1), leader_id=NodeId(2)))
    solo.tick()

    solo.respond(
        solo.sent[0],
        FetchResponse(error=error, leader_id=NodeId(leader_id), leader_epoch=Epoch(9)),
    )

    assert solo.core.leader_id in (None, 2)
    assert (solo.core.epoch == 1) is (error is ErrorCode.INCONSISTENT_CLUSTER_ID)


def test_an_observer_without_a_leader_learns_it_from_any_voter() -> None:
    solo = Solo(9)
    solo.tick()

    solo.respond(
        solo.sent[0],
        FetchResponse(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(1), leader_id=NodeId(2)
        ),
    )

    assert solo.role() is Role.FOLLOWER
    assert solo.core.leader_id == 2


def test_an_observer_never_stands_for_election() -> None:
    solo = Solo(9)

    for _ in range(50):
        solo.tick(1_000)
        assert solo.role() is Role.UNATTACHED


def test_a_newer_leader_that_makes_itself_known_is_followed_at_once() -> None:
    solo = following()

    answer = solo.ask(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=NodeId(1),
            voter_directory_id=voter(1).directory_id,
            leader_id=NodeId(2),
            leader_epoch=Epoch(3),
        )
    )

    assert answer is not None
    assert answer.error is ErrorCode.NONE
    assert solo.core.leader_id == 2
    assert only_fetch(solo).current_leader_epoch == 3


def test_a_leader_that_is_no_voter_is_not_believed() -> None:
    solo = following()

    answer = solo.ask(
        BeginQuorumEpochRequest(
            cluster_id=CLUSTER_ID,
            voter_id=NodeId(1),
            leader_id=NodeId(8),
            leader_epoch=Epoch(9),
        )
    )

    assert answer is not None
    assert answer.error is ErrorCode.INVALID_REQUEST
    assert solo.core.epoch == 2


class TestGoodbyes:
    """EndQuorumEpoch."""

    def test_the_preferred_successor_stands_at_once(self) -> None:
        solo = following()

        solo.ask(goodbye(1, 2))

        assert solo.role() is Role.PROSPECTIVE

    def test_the_next_one_waits_and_would_welcome_the_first(self) -> None:
        solo = following()
        solo.respond(solo.sent[0], fetched())

        solo.ask(goodbye(2, 1))
        answer = solo.ask(solo.vote_request(2, epoch=2, pre_vote=True))

        assert solo.role() is Role.UNATTACHED
        assert getattr(answer, "vote_granted", False)
        solo.tick(solo.config.election_backoff_ms_max)
        assert solo.role() is Role.PROSPECTIVE

    def test_the_epoch_that_had_a_leader_gets_no_second_one(self) -> None:
        solo = following()
        solo.ask(goodbye(2, 1))

        answer = solo.ask(solo.vote_request(2, epoch=2, end_offset=99))

        assert not getattr(answer, "vote_granted", True)
        assert solo.core.leader_id is None

    def test_hints_to_the_leader_that_has_gone_are_ignored(self) -> None:
        solo = following()
        solo.ask(goodbye(2, 1))
        (search,) = solo.sent

        solo.respond(
            search,
            FetchResponse(
                error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(2), leader_id=NodeId(3)
            ),
        )

        assert solo.role() is Role.UNATTACHED

    def test_an_old_leaders_goodbye_is_fenced(self) -> None:
        solo = following()

        answer = solo.ask(goodbye(1, 3, leader=2, epoch=1))

        assert answer is not None
        assert answer.error is ErrorCode.FENCED_LEADER_EPOCH
        assert solo.core.leader_id == 3


class TestSnapshots:
    """Taking a snapshot instead of a log that the leader no longer has."""

    SNAPSHOT_ID = OffsetAndEpoch(Offset(3), Epoch(1))

    def chunk(self, position: int, *values: str) -> FetchSnapshotResponse:
        return FetchSnapshotResponse(
            leader_id=NodeId(3),
            leader_epoch=Epoch(2),
            snapshot_id=self.SNAPSHOT_ID,
            size_bytes=3,
            position=position,
            data=entries(*values, epoch=1),
        )

    def test_the_snapshot_is_fetched_piece_by_piece_and_replaces_the_log(self) -> None:
        solo = following(entry_epochs=(1,))

        solo.respond(solo.sent[0], fetched(snapshot_id=self.SNAPSHOT_ID, high_watermark=9))
        (outgoing,) = solo.sent
        assert isinstance(outgoing.request, FetchSnapshotRequest)
        assert outgoing.request.position == 0
        solo.respond(outgoing, self.chunk(0, "a", "b"))
        solo.tick()
        (outgoing,) = solo.sent
        assert isinstance(outgoing.request, FetchSnapshotRequest)
        assert outgoing.request.position == 2
        effects = solo.respond(outgoing, self.chunk(2, "c"))

        assert effects.snapshot_chunk is not None
        assert effects.snapshot_chunk.is_last
        assert solo.core.high_watermark == 3
        assert (solo.log.start_offset, solo.log.end_offset) == (3, 3)
        solo.tick()
        request = only_fetch(solo)
        assert (request.fetch_offset, request.last_fetched_epoch) == (3, 1)

    def test_a_piece_from_elsewhere_restarts_the_fetch(self) -> None:
        solo = following()
        solo.respond(solo.sent[0], fetched(snapshot_id=self.SNAPSHOT_ID))

        effects = solo.respond(solo.sent[0], self.chunk(1, "b"))
        assert effects.snapshot_chunk is None
        solo.tick_when_due()

        assert only_fetch(solo).fetch_offset == 0

    def test_a_snapshot_that_has_gone_restarts_the_fetch(self) -> None:
        solo = following()
        solo.respond(solo.sent[0], fetched(snapshot_id=self.SNAPSHOT_ID))

        solo.respond(
            solo.sent[0],
            FetchSnapshotResponse(
                error=ErrorCode.SNAPSHOT_NOT_FOUND, leader_epoch=Epoch(2), leader_id=NodeId(3)
            ),
        )
        solo.tick_when_due()

        assert only_fetch(solo).fetch_offset == 0

    def test_a_restart_begins_above_the_snapshot(self) -> None:
        solo = following(entry_epochs=(1, 1))
        solo.log.snapshot_at(Offset(2), keeps_log=False)
        solo.member.stop()

        solo.member.start(solo.now_ms)

        assert solo.core.high_watermark == 2


def test_a_wiped_voter_follows_as_an_observer() -> None:
    solo = Solo(1, is_wiped=True)
    solo.tick()

    solo.respond(
        solo.sent[0],
        FetchResponse(
            error=ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_epoch=Epoch(1), leader_id=NodeId(2)
        ),
    )

    assert solo.role() is Role.FOLLOWER
    request = only_fetch(solo)
    assert request.replica_key == ReplicaKey(NodeId(1), solo.member.identity.directory_id)
    assert request.replica_directory_id != voter(1).directory_id
