"""Verdicts on a voter's files: a table of damages, and the standing after each."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla.model.ids import NO_OFFSET, Epoch, NodeId, Offset, OffsetAndEpoch
from ottla.raft.election_state import ElectionState
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import (
    FILE_BYTES,
    SLOT_BYTES,
    VoterCheckpoint,
    VoterFiles,
    check_files,
    decode_file,
    encode_slot,
)
from ottla.raft.voters import ReplicaKey

VOTED = ElectionState(epoch=Epoch(3), voted=ReplicaKey(NodeId(2)))
LED = replace(VOTED, leader_id=NodeId(2))
KEPT = VoterCheckpoint(flushed=OffsetAndEpoch(Offset(20), Epoch(3)), election=LED)
WHOLE = VoterFiles(
    checkpoint=KEPT,
    election=LED,
    is_checkpoint_expected=True,
    is_state_expected=True,
    end_offset=Offset(20),
    snapshot_end=Offset(0),
    epoch_of=lambda _offset: Epoch(3),
)
OLDER = replace(KEPT, election=replace(VOTED, voted=None))

CASES: dict[str, tuple[dict[str, Any], Standing, int]] = {
    "whole": ({}, Standing.FULL, 3),
    "log longer than flushed": ({"end_offset": Offset(25)}, Standing.FULL, 3),
    "log cut": ({"end_offset": Offset(19)}, Standing.CATCHING_UP, 3),
    "log gone": ({"end_offset": Offset(0)}, Standing.CATCHING_UP, 3),
    "log of another epoch": ({"epoch_of": lambda _offset: Epoch(2)}, Standing.CATCHING_UP, 3),
    "log cut, below a snapshot": (
        {"end_offset": Offset(20), "snapshot_end": Offset(20), "epoch_of": lambda _: Epoch(0)},
        Standing.FULL,
        3,
    ),
    "quorum-state gone": ({"election": None}, Standing.FULL, 3),
    "quorum-state older": ({"election": ElectionState(epoch=Epoch(1))}, Standing.FULL, 3),
    "quorum-state without its vote": (
        {"election": ElectionState(epoch=Epoch(3))},
        Standing.FULL,
        3,
    ),
    "checkpoint gone": ({"checkpoint": None}, Standing.CATCHING_UP, 3),
    "checkpoint of an earlier epoch": (
        {"election": replace(LED, epoch=Epoch(4))},
        Standing.CATCHING_UP,
        4,
    ),
    "checkpoint without the vote": ({"checkpoint": OLDER}, Standing.CATCHING_UP, 3),
    "both gone": ({"checkpoint": None, "election": None}, Standing.AMNESIAC, 0),
    "both gone, nothing written": (
        {"checkpoint": None, "election": None, "end_offset": Offset(0)},
        Standing.AMNESIAC,
        0,
    ),
    "earlier version": (
        {"checkpoint": None, "is_checkpoint_expected": False, "is_state_expected": False},
        Standing.FULL,
        3,
    ),
    "earlier version, never started": (
        {
            "checkpoint": None,
            "election": None,
            "is_checkpoint_expected": False,
            "is_state_expected": False,
            "end_offset": Offset(0),
        },
        Standing.FULL,
        0,
    ),
    "earlier version, without its vote": (
        {
            "checkpoint": None,
            "election": None,
            "is_checkpoint_expected": False,
            "is_state_expected": False,
        },
        Standing.AMNESIAC,
        0,
    ),
    "an earlier version went on from here": (
        {
            "election": ElectionState(epoch=Epoch(5)),
            "is_checkpoint_expected": False,
            "end_offset": Offset(18),
            "epoch_of": lambda _offset: Epoch(5),
        },
        Standing.FULL,
        5,
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_each_damage_leaves_the_standing_that_the_files_prove(name: str) -> None:
    changes, standing, epoch = CASES[name]

    verdict = check_files(replace(WHOLE, **changes))

    assert verdict.checkpoint.election.standing is standing, verdict.damages
    assert verdict.checkpoint.election.epoch == epoch
    assert bool(verdict.damages) == (standing is not Standing.FULL)
    if epoch == 3:
        assert verdict.checkpoint.election.voted == VOTED.voted, "the vote is kept in one of both"


def test_a_standing_outlives_restarts_and_further_damage() -> None:
    first = check_files(replace(WHOLE, end_offset=Offset(12)))
    again = check_files(replace(WHOLE, checkpoint=first.checkpoint, end_offset=Offset(12)))
    worse = check_files(replace(WHOLE, checkpoint=again.checkpoint, end_offset=Offset(5)))

    for verdict in (first, again, worse):
        assert verdict.checkpoint.election.standing is Standing.CATCHING_UP
        assert verdict.checkpoint.promised_end == 20
    assert again.damages == ()


OFFSETS = st.integers(0, 2**63 - 1).map(Offset)
EPOCHS = st.integers(0, 2**31 - 1).map(Epoch)
CHECKPOINTS = st.builds(
    VoterCheckpoint,
    flushed=st.builds(OffsetAndEpoch, OFFSETS, EPOCHS),
    election=st.builds(
        ElectionState,
        epoch=EPOCHS,
        leader_id=st.none() | st.integers(0, 2**31 - 1).map(NodeId),
        voted=st.none() | st.builds(ReplicaKey, st.integers(0, 2**31 - 1), st.uuids()),
        standing=st.sampled_from(Standing),
    ),
    promised_end=st.just(NO_OFFSET) | OFFSETS,
)


@given(old=CHECKPOINTS, new=CHECKPOINTS, torn_at=st.integers(0, SLOT_BYTES), data=st.data())
def test_a_torn_slot_leaves_the_other_and_a_whole_one_is_read_as_written(
    old: VoterCheckpoint, new: VoterCheckpoint, torn_at: int, data: st.DataObject
) -> None:
    first = encode_slot(7, old).ljust(SLOT_BYTES, b"\0")
    second = encode_slot(8, new)
    whole = (first + second).ljust(FILE_BYTES, b"\0")

    found = decode_file(whole)
    assert found is not None
    assert (found.sequence, found.checkpoint) == (8, new)
    if torn_at < len(second):
        torn = first + second[:torn_at]
        kept = decode_file(torn)
        assert kept is not None
        assert kept.checkpoint == old
    flipped = bytearray(whole)
    flipped[data.draw(st.integers(0, len(second) - 1)) + SLOT_BYTES] ^= 0x10
    kept = decode_file(bytes(flipped))
    assert kept is not None
    assert kept.checkpoint == old


@given(st.binary(max_size=2 * FILE_BYTES))
def test_any_bytes_are_a_checkpoint_or_none(data: bytes) -> None:
    found = decode_file(data)
    assert found is None or isinstance(found.checkpoint, VoterCheckpoint)
