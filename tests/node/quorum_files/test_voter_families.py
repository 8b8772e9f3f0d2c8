"""Metrics of the findings at a controller's start."""

from pathlib import Path

import pytest

from ottla.node.quorum.quorum_metrics import voter_families
from ottla.raft.election_state import QUORUM_STATE_FILE
from ottla.raft.transitions import Standing
from ottla.raft.voter_checkpoint import VOTER_CHECKPOINT_FILE
from tests.node.quorum_files.test_voter_opening import DAMAGES, ENTRIES, LOG, files_of, opened, used


@pytest.mark.parametrize(
    ("names", "standing", "damages", "repairs", "entries"),
    [
        ((), Standing.FULL, 0, 0, 0),
        ((QUORUM_STATE_FILE,), Standing.FULL, 0, 1, 0),
        ((LOG,), Standing.CATCHING_UP, 1, 0, ENTRIES),
        ((QUORUM_STATE_FILE, VOTER_CHECKPOINT_FILE), Standing.AMNESIAC, 1, 0, 0),
    ],
)
async def test_what_a_start_found_is_counted(
    tmp_path: Path,
    names: tuple[str, ...],
    standing: Standing,
    damages: int,
    repairs: int,
    entries: int,
) -> None:
    await used(tmp_path)
    for name in names:
        DAMAGES["emptied"](files_of(tmp_path) / name)
    log, election = await opened(tmp_path)
    log.abandon()

    families = list(voter_families(election.standing, log.found))
    found = {one.name: each[1] for one in families for each in one.samples if each is not None}

    assert found == {
        "ottla_controller_standing": standing.value,
        "ottla_controller_start_damages": damages,
        "ottla_controller_start_repairs": repairs,
        "ottla_controller_start_lost_entries": entries,
    }
