"""`ottla storage format`: an identity for a directory, once."""

from pathlib import Path

import pytest

from ottla.cli.main import run

CLUSTER_ID = "K0lbLvxZTqKDhfSnhqsLnw"
IDS = ("LgU8y1xiQCGivTtmzu3cCw", "AiWIXYG3R1aaK78FtukWQQ", "umC3TV_LRoCBnHHlVE-jIQ")
VOTERS = "101@one:9093,102@two:9093,103@three:9093"
LIST = ",".join(f"{voter}:{id_}" for voter, id_ in zip(VOTERS.split(","), IDS, strict=True))


def formatted(directory: Path, node_id: int, initial: str = LIST) -> int:
    directory.mkdir(exist_ok=True)
    path = directory / "controller.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\nmetadata.log.dir={directory}/metadata\n"
        f"controller.quorum.voters={VOTERS},104@four:9093\n"
    )
    options = [f"--config={path}", f"--cluster-id={CLUSTER_ID}", f"--initial-controllers={initial}"]
    return run(["storage", "format", *options])


def test_controllers_formatted_on_three_machines_begin_with_the_same_bytes(tmp_path: Path) -> None:
    assert [formatted(tmp_path / str(id_), id_) for id_ in (101, 102, 103)] == [0, 0, 0]

    snapshots = [next((tmp_path / str(id_)).rglob("*.checkpoint")) for id_ in (101, 102, 103)]
    assert len({path.read_bytes() for path in snapshots}) == 1
    told = (tmp_path / "102" / "metadata" / "meta.properties").read_text()
    assert f"directory.id={IDS[1]}" in told


def test_a_directory_is_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formatted(tmp_path, 101) == 0
    assert formatted(tmp_path, 101) == 1
    assert "is formatted already" in capsys.readouterr().err


def test_a_controller_that_the_list_does_not_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 104) == 1
    assert "does not name this controller, 104" in capsys.readouterr().err


def test_a_list_nobody_understands_says_what_is_allowed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 101, "101@one:9093") == 1
    assert "it must be id@host:port:directoryId" in capsys.readouterr().err
