"""Controllers on loopback with real files: all first voters are replaced while metadata is
committed."""

from pathlib import Path

import pytest
import trio

from ottla.metadata.features import KRAFT_VERSION, OTTLA_VERSION
from ottla.metadata.records import feature_level_record
from ottla.model.errors import ErrorCode
from ottla.model.ids import NodeId, Offset
from ottla.raft.messages import (
    AddVoterRequest,
    RemoveVoterRequest,
    VoterChangeRequest,
    VoterChangeResponse,
)
from tests.node.quorum.test_quorum_of_three import CLUSTER_ID, TOPIC, Quorum, with_quorum

RETRIED = (ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER)
"""Errors after which the voters are looked up, and the request is repeated if it had no effect."""


async def change(quorum: Quorum, request: VoterChangeRequest) -> None:
    """Make one change of the voters at whichever controller leads."""
    while True:
        response = await (await quorum.leader()).answer(request)
        assert isinstance(response, VoterChangeResponse)
        if response.error in (
            ErrorCode.NONE,
            ErrorCode.DUPLICATE_VOTER,
            ErrorCode.VOTER_NOT_FOUND,
        ):
            return
        assert response.error in RETRIED, response
        await trio.sleep(0.02)


@pytest.mark.parametrize("has_ids", [True, False], ids=["voters", "bootstrap servers"])
async def test_three_voters_are_replaced_one_by_one_under_commits(
    tmp_path: Path, has_ids: bool
) -> None:
    async def body(quorum: Quorum) -> None:
        quorum.has_ids_in_settings = has_ids
        committed: list[str] = []

        async def commit_on() -> None:
            while True:
                name = f"key.{len(committed)}"
                await quorum.commit(name, "x")
                committed.append(name)
                await trio.sleep(0.005)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit_on)
            for old_id in tuple(quorum.ids):
                new_id = NodeId(old_id + 100)
                old = quorum.members[old_id].identity.key
                voter = await quorum.format_joining(new_id)
                await quorum.start(new_id)
                await change(quorum, AddVoterRequest(cluster_id=CLUSTER_ID, voter=voter))
                await change(quorum, RemoveVoterRequest(cluster_id=CLUSTER_ID, voter_key=old))
                await quorum.stop(old_id)
            nursery.cancel_scope.cancel()
        offset = await quorum.commit("last", "x")
        for member in quorum.members.values():
            await member.wait_applied(Offset(offset + 1))
            assert member.identity.voters.ids == (201, 202, 203)
            assert {*committed, "last"} <= set(member.image.config(TOPIC, "otters"))

        for node_id in tuple(quorum.members):
            await quorum.stop(node_id)
        for new in (201, 202, 203):
            await quorum.start(NodeId(new))
        await quorum.commit("after the restart", "x")
        assert {*committed, "last"} <= set((await quorum.leader()).image.config(TOPIC, "otters"))

    await with_quorum(tmp_path, body)


async def test_a_snapshot_contains_the_voters_of_its_offset(tmp_path: Path) -> None:
    async def body(quorum: Quorum) -> None:
        voter = await quorum.format_joining(NodeId(104))
        await quorum.start(NodeId(104))
        await change(quorum, AddVoterRequest(cluster_id=CLUSTER_ID, voter=voter))
        offset = await quorum.commit("a", "1")
        for member in quorum.members.values():
            await member.wait_applied(Offset(offset + 1))
            await member.write_snapshot()
        name = f"{offset + 1:020d}-"
        written = [
            {each: data for each, data in quorum.snapshots(node_id).items() if name in each}
            for node_id in quorum.ids
        ]
        assert len(written[0]) == 1
        assert all(one == written[0] for one in written)
        await quorum.stop(NodeId(104))
        await quorum.start(NodeId(104))
        assert quorum.members[NodeId(104)].identity.voters.ids == (101, 102, 103, 104)

    await with_quorum(tmp_path, body)


async def test_voters_are_fixed_until_the_level_of_the_cluster_allows_changes(
    tmp_path: Path,
) -> None:
    async def body(quorum: Quorum) -> None:
        for node_id in tuple(quorum.ids):
            await quorum.stop(node_id)
        quorum.are_voters_fixed = True
        for node_id in tuple(quorum.ids):
            await quorum.start(node_id)
        await quorum.commit("a", "1")
        leader = await quorum.leader()
        removed = next(one.key for one in leader.identity.peers)
        request = RemoveVoterRequest(cluster_id=CLUSTER_ID, voter_key=removed)
        refused = await leader.answer(request)
        assert refused.error is ErrorCode.UNSUPPORTED_VERSION

        offset = await quorum.commit_record(feature_level_record(OTTLA_VERSION, 1))
        for member in quorum.members.values():
            await member.wait_applied(Offset(offset + 1))
        refused = await (await quorum.leader()).answer(request)
        assert refused.error is ErrorCode.UNSUPPORTED_VERSION, "kraft.version is 0"
        offset = await quorum.commit_record(feature_level_record(KRAFT_VERSION, 1))
        for member in quorum.members.values():
            await member.wait_applied(Offset(offset + 1))
        await change(quorum, request)

        assert removed.id not in (await quorum.leader()).identity.voters

    await with_quorum(tmp_path, body)
