"""`ottla storage format`: an identity for a directory, once."""

from base64 import b64encode
from pathlib import Path

import pytest
import trio

from ottla.cli.cluster.add_scram import first_credential
from ottla.cli.main import run
from ottla.metadata.features import bootstrap_records
from ottla.metadata.fold import apply_all
from ottla.metadata.image import EMPTY, MetadataImage
from ottla.model.errors import ConfigError
from ottla.model.ids import NodeId
from ottla.model.security.scram import SCRAM_SHA_256, SCRAM_SHA_512, ScramCredential
from ottla.node.identity import read_first_records
from ottla.raft.snapshot import voters_of
from ottla.raft.voters import VoterEndpoint
from ottla.storage.directories.meta_properties import uuid_to_text
from ottla.storage.disk.real_disk_driver import RealDisk
from tests.stock_files import broker_settings, server_settings, write_settings

CLUSTER_ID = "K0lbLvxZTqKDhfSnhqsLnw"
IDS = ("LgU8y1xiQCGivTtmzu3cCw", "AiWIXYG3R1aaK78FtukWQQ", "umC3TV_LRoCBnHHlVE-jIQ")
VOTERS = "101@one:9093,102@two:9093,103@three:9093"
LIST = ",".join(f"{voter}:{id_}" for voter, id_ in zip(VOTERS.split(","), IDS, strict=True))


def formatted(directory: Path, node_id: int, initial: str = LIST, *more: str) -> int:
    directory.mkdir(exist_ok=True)
    path = directory / "controller.properties"
    path.write_text(
        f"process.roles=controller\nnode.id={node_id}\nmetadata.log.dir={directory}/metadata\n"
        f"controller.quorum.voters={VOTERS},104@four:9093\n"
    )
    options = [f"--config={path}", f"--cluster-id={CLUSTER_ID}", f"--initial-controllers={initial}"]
    return run(["storage", "format", *options, *more])


def test_controllers_formatted_on_three_machines_begin_with_the_same_bytes(tmp_path: Path) -> None:
    assert [formatted(tmp_path / str(id_), id_) for id_ in (101, 102, 103)] == [0, 0, 0]

    snapshots = [next((tmp_path / str(id_)).rglob("*.checkpoint")) for id_ in (101, 102, 103)]
    assert len({path.read_bytes() for path in snapshots}) == 1
    properties = (tmp_path / "102" / "metadata" / "meta.properties").read_text()
    assert f"directory.id={IDS[1]}" in properties


def test_a_directory_is_formatted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert formatted(tmp_path, 101) == 0
    assert formatted(tmp_path, 101) == 1
    assert "is formatted already" in capsys.readouterr().err


def test_a_controller_that_the_list_does_not_name_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 104) == 1
    assert "does not name this controller, 104" in capsys.readouterr().err


def test_an_invalid_list_is_refused_with_the_allowed_form(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 101, "101@one:9093") == 1
    assert "it must be id@host:port:directoryId" in capsys.readouterr().err


# Users that a cluster begins with.


def test_users_lie_ready_for_the_first_controller(tmp_path: Path) -> None:
    more = (
        "--add-scram=SCRAM-SHA-256=[name=al,password=hush,iterations=8192]",
        "--add-scram=SCRAM-SHA-512=[name=broker,password=between]",
    )
    assert formatted(tmp_path, 101, LIST, *more) == 0

    async def body() -> MetadataImage:
        async with RealDisk() as disk:
            return apply_all(EMPTY, await read_first_records(disk, str(tmp_path / "metadata")))

    credentials = trio.run(body).scram_credentials
    assert {number: list(users) for number, users in credentials.items()} == {
        1: ["al"],
        2: ["broker"],
    }
    found = credentials[1]["al"]
    assert found == ScramCredential.of_password(SCRAM_SHA_256, "hush", found.salt, 8_192)
    assert b"hush" not in (tmp_path / "metadata" / "bootstrap.checkpoint").read_bytes()


def test_a_salted_password_is_taken_as_kafkas_tool_takes_it() -> None:
    salted = SCRAM_SHA_512.salted_password("pw", b"salt", 4_096)
    text = b64encode(salted).decode()
    record = first_credential(
        f'SCRAM-SHA-512=[name="a,l", iterations=4096,salt=c2FsdA==,saltedpassword="{text}"]'
    )
    expected = ScramCredential.of_password(SCRAM_SHA_512, "pw", b"salt", 4_096)
    assert apply_all(EMPTY, [record]).scram_credentials[2]["a,l"] == expected


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("", "must be MECHANISM=[…], one of SCRAM-SHA-256, SCRAM-SHA-512"),
        ("PLAIN=[name=al,password=hush]", "must be MECHANISM=[…]"),
        ("SCRAM-SHA-256=[password=hush]", "must have name="),
        ("SCRAM-SHA-256=[name=al]", "must have either password= or saltedpassword="),
        ("SCRAM-SHA-256=[name=al,password=]", "has an empty password="),
        ("SCRAM-SHA-256=[name=al,password=hush,password=hush]", "may have each of name, "),
        ("SCRAM-SHA-256=[name=al,word=hush]", "may have each of name, "),
        ("SCRAM-SHA-256=[name=al,password=hush,iterations=1]", "must have iterations= of 4096 to"),
        ("SCRAM-SHA-256=[name=al,password=hush,salt=!]", "must have salt= in base64"),
        ("SCRAM-SHA-256=[name=al,saltedpassword=YWJj]", "must have salt= with saltedpassword="),
        (
            "SCRAM-SHA-256=[name=al,salt=YWJj,saltedpassword=YWJj]",
            "must have saltedpassword= of 32 bytes",
        ),
    ],
)
def test_a_user_that_cannot_be_is_refused_without_the_password(text: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as caught:
        first_credential(text)
    assert str(caught.value).startswith(f"--add-scram: {sentence}")
    assert "hush" not in str(caught.value)


def test_a_loss_is_shown_and_accepted_by_decision_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 101) == 0
    config = str(tmp_path / "controller.properties")
    assert run(["storage", "accept-loss", "--config", config]) == 0
    assert "nothing is lost" in capsys.readouterr().out
    for name in ("quorum-state", "voter-checkpoint"):
        (tmp_path / "metadata" / "__cluster_metadata-0" / name).unlink()

    assert run(["storage", "accept-loss", "--config", config]) == 2
    shown = capsys.readouterr()
    assert run(["storage", "accept-loss", "--config", config, "--yes"]) == 0
    done = capsys.readouterr()
    assert run(["storage", "accept-loss", "--config", config]) == 0

    assert "quorum-state and voter-checkpoint are gone or damaged" in shown.out
    assert "no terminal can confirm it; add --yes" in shown.err
    assert "what is missing is lost for good" in done.out
    assert "nothing is lost" in capsys.readouterr().out


def test_a_loss_is_not_accepted_of_a_directory_that_is_not_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "controller.properties").write_text(
        f"node.id=101\nmetadata.log.dir={tmp_path}/metadata\ncontroller.quorum.voters={VOTERS}\n"
    )
    config = str(tmp_path / "controller.properties")
    (tmp_path / "metadata").mkdir()

    assert run(["storage", "accept-loss", "--config", config]) == 1
    assert "is not formatted" in capsys.readouterr().err


# Controllers that join, and single ones.


def snapshot_of(directory: Path) -> bytes:
    """Return the bootstrap snapshot in a formatted directory."""
    return next(directory.rglob("*.checkpoint")).read_bytes()


def test_fixed_voters_are_formatted_by_the_option_in_the_refusal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert formatted(tmp_path, 101, "", "--feature=kraft.version=0") == 1
    refusal = capsys.readouterr().err
    assert "controller.quorum.voters does not have the ids of directories" in refusal
    option, voters = refusal.split()[-2:]
    assert option == "--initial-controllers"
    assert [voter.rpartition(":")[0] for voter in voters.split(",")] == [
        *VOTERS.split(","),
        "104@four:9093",
    ]
    for node in (101, 102):
        assert formatted(tmp_path / str(node), node, voters, "--feature=kraft.version=0") == 0
    first, second = (next((tmp_path / str(node)).rglob("*.checkpoint")) for node in (101, 102))
    assert first.read_bytes() == second.read_bytes()


def test_a_controller_that_joins_has_no_voters(tmp_path: Path) -> None:
    assert formatted(tmp_path, 104, "", "--no-initial-controllers") == 0

    assert voters_of(snapshot_of(tmp_path)) is None


def test_a_standalone_controller_is_the_only_voter(tmp_path: Path) -> None:
    assert formatted(tmp_path, 102, "", "--standalone") == 0

    voters = voters_of(snapshot_of(tmp_path))
    assert voters is not None
    assert voters.ids == (102,)
    assert voters.endpoints_of(NodeId(102)) == (VoterEndpoint("CONTROLLER", "two", 9093),)


@pytest.mark.parametrize(
    ("initial", "more", "sentence"),
    [
        (LIST, ("--standalone",), "--standalone: cannot be combined with --initial-controllers"),
        ("", ("-s", "-N"), "--no-initial-controllers: cannot be combined with --standalone"),
        ("", ("-N", "-S", "SCRAM-SHA-256=[name=a,password=b]"), "this controller joins one"),
    ],
)
def test_flags_that_contradict_are_refused(
    tmp_path: Path,
    initial: str,
    more: tuple[str, ...],
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert formatted(tmp_path, 101, initial, *more) == 1
    assert sentence in capsys.readouterr().err


# Kafka's stock files, and directories that are formatted already.


def stock(tmp_path: Path, *options: str, **changes: str) -> int:
    """Format the node of Kafka's server.properties."""
    settings = server_settings(tmp_path / "data") | changes
    path = write_settings(tmp_path / "server.properties", settings)
    return run(["storage", "format", "-t", CLUSTER_ID, "-c", str(path), *options])


def test_a_node_with_both_roles_has_its_metadata_in_log_dirs(tmp_path: Path) -> None:
    assert stock(tmp_path, "-s") == 0

    voters = voters_of(snapshot_of(tmp_path / "data" / "__cluster_metadata-0"))
    assert voters is not None
    assert voters.endpoints_of(NodeId(1)) == (VoterEndpoint("CONTROLLER", "localhost", 9093),)
    identity = uuid_to_text(next(iter(voters)).directory_id)
    assert f"directory.id={identity}" in (tmp_path / "data" / "meta.properties").read_text()


def test_controllers_of_a_file_without_voters_are_named_by_an_option(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stock(tmp_path) == 1
    sentence = "name the first voters of this cluster, or format with --standalone"
    assert sentence in capsys.readouterr().err


def test_every_directory_of_both_roles_is_formatted(tmp_path: Path) -> None:
    paths = [f"{tmp_path}/one", f"{tmp_path}/two"]
    changes = {"log.dirs": ",".join(paths), "metadata.log.dir": f"{tmp_path}/metadata"}

    assert stock(tmp_path, "-s", **changes) == 0

    found = [Path(path, "meta.properties") for path in (*paths, f"{tmp_path}/metadata")]
    assert len({path.read_text() for path in found}) == len(found)


def test_a_lone_voter_of_the_settings_needs_no_flag(tmp_path: Path) -> None:
    assert stock(tmp_path, **{"controller.quorum.voters": "1@localhost:9093"}) == 0


def test_formatted_directories_are_skipped_if_asked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stock(tmp_path, "-s") == 0
    before = snapshot_of(tmp_path)
    assert stock(tmp_path, "-s") == 1
    assert "--ignore-formatted skips such directories" in capsys.readouterr().err

    assert stock(tmp_path, "-s", "-g") == 0
    assert "all directories are formatted already" in capsys.readouterr().out
    more = {"log.dirs": f"{tmp_path}/data,{tmp_path}/more"}
    assert stock(tmp_path, "-s", "--ignore-formatted", **more) == 0
    assert snapshot_of(tmp_path) == before
    assert (tmp_path / "more" / "meta.properties").exists()


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "sentence"),
    [(IDS[0], "1", "belongs to cluster"), (CLUSTER_ID, "7", "belongs to node 1")],
)
def test_a_foreign_directory_is_never_skipped(
    tmp_path: Path,
    cluster_id: str,
    node_id: str,
    sentence: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert stock(tmp_path, "-s") == 0
    assert stock(tmp_path, "-s", "-g", "-t", cluster_id, **{"node.id": node_id}) == 1
    assert sentence in capsys.readouterr().err


def test_a_broker_is_formatted_without_voters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_settings(tmp_path / "broker.properties", broker_settings(tmp_path / "data"))
    options = ["storage", "format", "-t", CLUSTER_ID, "-c", str(path)]

    assert run([*options, "-s"]) == 1
    assert "--standalone: is for controllers" in capsys.readouterr().err
    assert run([*options, "--initial-controllers", LIST]) == 0
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_the_brokers_of_a_host_are_not_formatted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = broker_settings(tmp_path / "data") | {"ottla.brokers.per.host": "auto"}
    path = write_settings(tmp_path / "broker.properties", settings)

    assert run(["storage", "format", "-t", CLUSTER_ID, "-c", str(path)]) == 1
    assert "brokers of a host are not formatted" in capsys.readouterr().err
    assert not (tmp_path / "data").exists()


def test_levels_of_features_lie_ready_for_the_first_controller(tmp_path: Path) -> None:
    assert stock(tmp_path, "-s", "--release-version", "4.3", "--feature", "group.version=0") == 0

    async def body() -> MetadataImage:
        async with RealDisk() as disk:
            first = await read_first_records(disk, str(tmp_path / "data"))
            return apply_all(EMPTY, bootstrap_records(min_insync_replicas=1, more=first))

    features = trio.run(body).features
    assert features["metadata.version"] == 30
    assert "group.version" not in features
