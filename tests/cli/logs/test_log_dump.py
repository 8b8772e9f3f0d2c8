"""`ottla log dump` as a person and as a program read it."""

import json
from pathlib import Path
from struct import pack

import pytest

from ottla.cli.main import run
from ottla.metadata.records import encode_record
from ottla.model.ids import Epoch, Offset
from ottla.proto import metadata_pb2 as pb
from ottla.raft.election_state import ElectionState, encode
from ottla.wire.batch_builder import build_batch

LOG = "00000000000000000007.log"
BATCH = build_batch(
    [(5, b"key", b"value"), (6, None, b"\xff\n")], base_offset=Offset(7), leader_epoch=Epoch(3)
)


def dumped(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    assert run(["log", "dump", *arguments]) == code
    return capsys.readouterr().out


def test_a_log_is_shown_as_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / LOG
    path.write_bytes(BATCH)
    lines = dumped(capsys, str(path)).splitlines()
    assert lines[0] == str(path)
    assert lines[1].split()[:4] == ["POSITION", "OFFSETS", "RECORDS", "BYTES"]
    assert lines[2].split() == [
        "0",
        "7…8",
        "2",
        str(len(BATCH)),
        "3",
        "none",
        "5…6",
        "-",
        "-",
        "ok",
    ]


def test_records_are_shown_when_asked_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / LOG
    path.write_bytes(BATCH)
    lines = dumped(capsys, str(path), "--records").splitlines()
    assert lines[4].split() == ["7", "5", "key", "-", "value"]
    assert lines[5].split() == ["8", "6", "null", "-", "0xff0a"]


def test_json_holds_every_field(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / LOG
    path.write_bytes(BATCH)
    (file,) = json.loads(dumped(capsys, str(path), "--records", "--format", "json"))
    assert file["file"] == str(path)
    batch, first, second = file["rows"]
    assert (batch["kind"], batch["base_offset"], batch["is_crc_valid"]) == ("batch", 7, True)
    assert (first["kind"], first["key"], first["value"]) == ("record", "key", "value")
    assert second["value"] == {"base64": "/wo="}


def test_damage_is_exit_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / LOG
    path.write_bytes(BATCH[:-1] + b"?" + BATCH[:20])
    output = dumped(capsys, str(path), code=2)
    assert "WRONG" in output
    assert f"!! at {len(BATCH)}: " in output


def test_a_directory_stands_for_the_files_we_know(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / LOG).write_bytes(BATCH)
    (tmp_path / "00000000000000000007.index").write_bytes(pack(">ii", 1, 100))
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n1\n3 7\n")
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n1\na 0 7\n")
    (tmp_path / "quorum-state").write_bytes(encode(ElectionState(epoch=Epoch(4))))
    (tmp_path / "notes.txt").write_text("not ours")
    files = json.loads(dumped(capsys, str(tmp_path), "--format", "json"))
    rows = {Path(file["file"]).name: file["rows"][0] for file in files}
    assert len(rows) == 5
    assert rows["00000000000000000007.index"] == {
        "kind": "offsetindex",
        "offset": 8,
        "position": 100,
    }
    assert rows["leader-epoch-checkpoint"]["start_offset"] == 7
    assert rows["recovery-point-offset-checkpoint"]["topic"] == "a"
    assert rows["quorum-state"] == {"kind": "field", "field": "leader_epoch", "value": 4}


def test_the_metadata_log_is_read_as_metadata(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = pb.MetadataRecord(feature_level=pb.FeatureLevel(name="metadata.version", level=25))
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(build_batch([(0, None, encode_record(record)), (0, None, b"\xff\xff")]))
    (file,) = json.loads(dumped(capsys, str(path), "--records", "--format", "json"))
    assert file["rows"][1]["metadata"] == {
        "feature_level": {"name": "metadata.version", "level": 25}
    }
    assert "problem" in file["rows"][2]["metadata"]
    assert '"metadata.version"' in dumped(capsys, str(path), "--metadata")


@pytest.mark.parametrize(
    ("name", "sentence"),
    [("none.log", "is not there"), ("notes.txt", "its name says what it holds")],
)
def test_what_cannot_be_dumped_is_refused_in_one_sentence(
    name: str, sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert run(["log", "dump", str(tmp_path / name)]) == 1
    captured = capsys.readouterr()
    assert captured.err.count("\n") == 1
    assert sentence in captured.err
