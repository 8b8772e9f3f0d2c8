"""Entries of the metadata log in words."""

from uuid import UUID

from ottla.jepsen.quorum.world import voter
from ottla.metadata import fold, records
from ottla.metadata.image import EMPTY
from ottla.model.ids import Epoch, NodeId, Offset
from ottla.node.quorum.log_changes import changes_in, end_offset_of
from ottla.node.quorum.record_batches import batch_of
from ottla.raft.control_records import leader_change_batch, voters_batch
from ottla.raft.effects import LeaderChangeAppend, VotersAppend
from ottla.raft.voters import VoterSet

TOPIC = UUID(int=7)
IMAGE = fold.apply_all(EMPTY, [records.topic_record("orders", TOPIC)])


def test_control_records_and_records_are_in_the_order_of_their_offsets() -> None:
    leader = LeaderChangeAppend(
        leader_epoch=Epoch(3), leader_id=NodeId(1), voters=(), granting_voters=()
    )
    voters = VotersAppend(leader_epoch=Epoch(3), voters=VoterSet((voter(1), voter(2))))
    data = leader_change_batch(leader, timestamp_ms=5, base_offset=Offset(10))
    data += voters_batch(voters, timestamp_ms=5, base_offset=Offset(11))

    found = list(changes_in(data, IMAGE))

    assert [(one.offset, one.epoch, one.kind, one.text) for one in found] == [
        (10, 3, "leader_change", "controller 1 leads"),
        (11, 3, "voters", "the voters are 1, 2"),
    ]
    assert end_offset_of(data) == 12
    assert end_offset_of(b"") == 0


def test_records_that_change_nothing_are_left_out_and_topics_are_named() -> None:
    data = batch_of(
        [
            records.no_op_record(),
            records.remove_topic_record(TOPIC),
            records.remove_topic_record(UUID(int=8)),
        ],
        timestamp_ms=5,
    )

    found = list(changes_in(data, IMAGE))

    assert [(one.offset, one.text) for one in found] == [
        (1, "topic orders was deleted"),
        (2, f"topic {UUID(int=8)} was deleted"),
    ]
    assert [one.offset for one in changes_in(data, IMAGE, start_offset=Offset(2))] == [2]
