"""Formatting of directories, and the replica identity that results."""

from pathlib import Path
from uuid import UUID

import pytest

from ottla.model.errors import ConfigError
from ottla.model.ids import ZERO_UUID, NodeId
from ottla.model.settings.controller import ControllerConfig
from ottla.model.settings.endpoints import ConfiguredVoter as ConfiguredVoter
from ottla.node.clock_driver import RealRng
from ottla.node.identity import (
    format_directories,
    prepare_controller_directory,
    quorum_identity,
    read_meta_properties,
)
from ottla.raft.snapshot import check_whole, voters_of
from ottla.raft.voters import Voter, VoterEndpoint, VoterSet
from ottla.storage.disk.real_disk_driver import RealDisk

CLUSTER_ID = "31KS2JtqQaygF2owBPlqAQ"
LONE = ConfiguredVoter(NodeId(101), "host", 9093)


def config_of(directory: Path, *voters: ConfiguredVoter) -> ControllerConfig:
    return ControllerConfig(
        node_id=NodeId(101), metadata_log_dir=str(directory), controller_quorum_voters=voters
    )


async def test_a_lone_voter_formats_its_empty_directory_once(tmp_path: Path) -> None:
    config = config_of(tmp_path, LONE)
    first = await prepare_controller_directory(RealDisk(), config, RealRng(), wall_ms=7)
    second = await prepare_controller_directory(RealDisk(), config, RealRng(), wall_ms=8)
    assert first == second
    assert first.node_id == 101


async def test_the_bootstrap_snapshot_names_the_voter_with_its_directory(tmp_path: Path) -> None:
    config = config_of(tmp_path, LONE)
    properties = await prepare_controller_directory(RealDisk(), config, RealRng(), wall_ms=7)
    path = tmp_path / "__cluster_metadata-0" / "00000000000000000000-0000000000.checkpoint"
    check_whole(path.read_bytes())
    voters = voters_of(path.read_bytes())
    assert voters is not None
    assert [voter.key for voter in voters] == [(101, properties.directory_id)]


async def test_a_voter_with_peers_does_not_format(tmp_path: Path) -> None:
    config = config_of(tmp_path, LONE, ConfiguredVoter(NodeId(102), "host", 9094))
    with pytest.raises(ConfigError, match="or --no-initial-controllers on one that joins"):
        await prepare_controller_directory(RealDisk(), config, RealRng(), wall_ms=7)


async def formatted(directory: Path, *voters: Voter) -> None:
    await format_directories(
        RealDisk(),
        {str(directory): MINE},
        cluster_id=CLUSTER_ID,
        node_id=NodeId(101),
        metadata_log_dir=str(directory),
        initial_voters=VoterSet(voters) if voters else None,
    )


PEER = Voter(id=NodeId(102), directory_id=UUID(int=1002))
MINE = UUID(int=1001)


async def test_a_voter_with_the_directory_it_votes_with_may_start(tmp_path: Path) -> None:
    await formatted(tmp_path, Voter(id=NodeId(101), directory_id=MINE), PEER)

    known = await prepare_controller_directory(
        RealDisk(), config_of(tmp_path, LONE), RealRng(), wall_ms=7
    )

    assert known.directory_id == MINE


async def test_a_controller_whose_metadata_was_wiped_says_so_and_does_not_start(
    tmp_path: Path,
) -> None:
    """Two of three such would make a majority that knows nothing."""
    await formatted(tmp_path)

    with pytest.raises(ConfigError, match=f"{tmp_path} has lost the snapshot.*bring the old"):
        await prepare_controller_directory(
            RealDisk(), config_of(tmp_path, LONE), RealRng(), wall_ms=7
        )


@pytest.mark.parametrize(
    ("voters", "complaint"),
    [
        ((Voter(id=NodeId(101), directory_id=UUID(int=9)), PEER), "has the id .* votes with"),
        ((PEER,), "was formatted for the controllers 102; give this node"),
    ],
    ids=["another directory", "another node"],
)
async def test_a_directory_without_a_vote_is_refused(
    tmp_path: Path, voters: tuple[Voter, ...], complaint: str
) -> None:
    await formatted(tmp_path, *voters)

    with pytest.raises(ConfigError, match=complaint):
        await prepare_controller_directory(
            RealDisk(), config_of(tmp_path, LONE), RealRng(), wall_ms=7
        )


async def test_a_metadata_log_without_identity_is_not_formatted_over(tmp_path: Path) -> None:
    (tmp_path / "__cluster_metadata-0").mkdir()
    with pytest.raises(ConfigError, match="put that file back"):
        await prepare_controller_directory(
            RealDisk(), config_of(tmp_path, LONE), RealRng(), wall_ms=7
        )


async def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    await format_directories(
        RealDisk(), {str(tmp_path): RealRng().uuid()}, cluster_id=CLUSTER_ID, node_id=NodeId(5)
    )
    with pytest.raises(ConfigError, match="belongs to node 5"):
        await prepare_controller_directory(
            RealDisk(), config_of(tmp_path, LONE), RealRng(), wall_ms=7
        )


async def test_a_directory_is_formatted_only_once(tmp_path: Path) -> None:
    await format_directories(
        RealDisk(), {str(tmp_path): RealRng().uuid()}, cluster_id=CLUSTER_ID, node_id=NodeId(5)
    )
    with pytest.raises(ConfigError, match="formatted already"):
        await format_directories(
            RealDisk(), {str(tmp_path): RealRng().uuid()}, cluster_id=CLUSTER_ID, node_id=NodeId(5)
        )


async def test_addresses_of_voters_come_from_the_snapshot_and_from_the_settings(
    tmp_path: Path,
) -> None:
    directory_id = RealRng().uuid()
    stored = Voter(
        id=NodeId(101),
        directory_id=directory_id,
        endpoints=(VoterEndpoint("CONTROLLER", "old", 1),),
    )
    await format_directories(
        RealDisk(),
        {str(tmp_path): directory_id},
        cluster_id=CLUSTER_ID,
        node_id=NodeId(101),
        metadata_log_dir=str(tmp_path),
        initial_voters=VoterSet((stored,)),
    )
    properties = await read_meta_properties(RealDisk(), str(tmp_path))
    assert properties is not None
    identity = await quorum_identity(
        RealDisk(), str(tmp_path), properties, [LONE], is_controller=True
    )
    in_settings = (VoterEndpoint("CONTROLLER", "host", 9093),)
    assert identity.is_voter
    assert identity.voters.endpoints_of(NodeId(101)) == stored.endpoints
    assert [voter.endpoints for voter in identity.configured] == [in_settings]
    assert identity.endpoints == in_settings


async def test_a_controller_that_joins_knows_no_voters_but_whom_to_ask(tmp_path: Path) -> None:
    await format_directories(
        RealDisk(),
        {str(tmp_path): MINE},
        cluster_id=CLUSTER_ID,
        node_id=NodeId(101),
        metadata_log_dir=str(tmp_path),
        is_joining=True,
    )
    peer = ConfiguredVoter(NodeId(102), "other", 9094)
    known = await prepare_controller_directory(
        RealDisk(), config_of(tmp_path, LONE, peer), RealRng(), wall_ms=7
    )

    identity = await quorum_identity(
        RealDisk(), str(tmp_path), known, [LONE, peer], is_controller=True
    )

    assert len(identity.voters) == 0
    assert not identity.is_voter
    assert [voter.id for voter in identity.bootstrap] == [102]


async def test_a_voter_whose_disk_was_wiped_is_an_observer(tmp_path: Path) -> None:
    voters = VoterSet((Voter(id=NodeId(101), directory_id=RealRng().uuid()),))
    await format_directories(
        RealDisk(),
        {str(tmp_path): RealRng().uuid()},
        cluster_id=CLUSTER_ID,
        node_id=NodeId(101),
        metadata_log_dir=str(tmp_path),
        initial_voters=voters,
    )
    properties = await read_meta_properties(RealDisk(), str(tmp_path))
    assert properties is not None
    identity = await quorum_identity(RealDisk(), str(tmp_path), properties, [LONE])
    assert not identity.is_voter


async def test_a_broker_knows_the_voters_by_their_ids_alone(tmp_path: Path) -> None:
    await format_directories(
        RealDisk(), {str(tmp_path): RealRng().uuid()}, cluster_id=CLUSTER_ID, node_id=NodeId(1)
    )
    properties = await read_meta_properties(RealDisk(), str(tmp_path))
    assert properties is not None
    identity = await quorum_identity(RealDisk(), str(tmp_path), properties, [LONE])
    assert [voter.key for voter in identity.voters] == [(101, ZERO_UUID)]
    assert not identity.is_voter
