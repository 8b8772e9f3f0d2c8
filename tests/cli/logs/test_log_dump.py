"""`ottla log dump` as a person and as a program read it."""

import json
from base64 import b64encode
from pathlib import Path
from struct import pack
from uuid import UUID

import pytest

from ottla.broker.transactions.transaction import TransactionFacts, TransactionStatus
from ottla.broker.transactions.transaction_records import state_record
from ottla.cli.main import run
from ottla.metadata.records import config_record, encode_record
from ottla.model.ids import Epoch, Offset, ProducerId, TopicPartition
from ottla.proto import metadata_pb2 as pb
from ottla.raft.election_state import ElectionState, encode
from ottla.storage.directories.checkpoint_topics import format_topic_ids
from ottla.storage.directories.meta_properties import uuid_to_text
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
        "1970-01-01T00:00:00.005Z",
        "+1",
        "ms",
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
    assert lines[4].split() == ["7", "1970-01-01T00:00:00.005Z", "key", "-", "value"]
    assert lines[5].split() == ["8", "1970-01-01T00:00:00.006Z", "null", "-", "0xff0a"]


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


def test_a_private_key_in_the_metadata_log_is_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record = config_record(4, "1", "listener.name.out.ssl.keystore.key", "a private key")
    shown = config_record(4, "1", "listener.name.out.ssl.keystore.location", "/node.pem")
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(build_batch([(0, None, encode_record(one)) for one in (record, shown)]))
    for options in (("--records", "--format", "json"), ("--metadata",)):
        text = dumped(capsys, str(path), *options)
        assert "a private key" not in text
        assert "(hidden)" in text and "/node.pem" in text


def test_the_keys_of_users_in_the_metadata_log_are_not_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    credential = pb.UserScramCredential(
        name="al", mechanism=1, salt=b"SALT1234", stored_key=b"STORED", server_key=b"SERVER"
    )
    record = pb.MetadataRecord(user_scram_credential=credential)
    directory = tmp_path / "__cluster_metadata-0"
    directory.mkdir()
    path = directory / "00000000000000000000-0000000000.checkpoint"
    path.write_bytes(build_batch([(0, None, encode_record(record))]))
    for options in (("--records", "--format", "json"), ("--metadata",)):
        text = dumped(capsys, str(path), *options)
        assert "al" in text and "(hidden)" in text
        for secret in (credential.salt, credential.stored_key, credential.server_key):
            assert secret.decode() not in text
            assert b64encode(secret).decode() not in text


def test_the_state_of_transactions_is_read_as_such(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    facts = TransactionFacts(
        producer_id=ProducerId(7),
        producer_epoch=5,
        timeout_ms=60_000,
        status=TransactionStatus.PREPARE_COMMIT,
        partitions=frozenset((TopicPartition("orders", 3),)),
        start_ms=1,
        last_update_ms=2,
    )
    records = [state_record("t", facts), state_record("t", None), (b"\0\1", b""), (b"\0", b"")]
    directory = tmp_path / "__transaction_state-4"
    directory.mkdir()
    path = directory / LOG
    path.write_bytes(build_batch([(0, key, value) for key, value in records]))
    (file,) = json.loads(dumped(capsys, str(path), "--records", "--format", "json"))
    prepared, forgotten, later, broken = [row["transaction"] for row in file["rows"][1:]]
    assert prepared == {
        "transactional_id": "t",
        "state": "PrepareCommit",
        "producer_id": 7,
        "previous_producer_id": -1,
        "next_producer_id": -1,
        "producer_epoch": 5,
        "timeout_ms": 60_000,
        "partitions": ["orders-3"],
        "start_ms": 1,
        "last_update_ms": 2,
        "client_version": 0,
    }
    assert forgotten == {"transactional_id": "t", "forgotten": True}
    assert "problem" in later
    assert "problem" in broken
    assert "PrepareCommit" in dumped(capsys, str(path), "--records")


def test_values_are_cut_in_a_table_and_whole_in_json(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / LOG
    path.write_bytes(build_batch([(5, None, b"v" * 900)]))
    assert "… (900 bytes)" in dumped(capsys, str(path), "--records")
    options = (str(path), "--records", "--format", "json")
    assert json.loads(dumped(capsys, *options))[0]["rows"][1]["value"] == "v" * 900
    cut = json.loads(dumped(capsys, *options, "--value-bytes", "3"))[0]["rows"][1]["value"]
    assert cut == {"base64": "dnZ2", "bytes": 900}
    assert run(["log", "dump", *options, "--value-bytes", "-1"]) == 1
    assert capsys.readouterr().out == ""


def test_an_index_is_shown_with_what_does_not_fit(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / LOG).write_bytes(BATCH)
    path = tmp_path / "00000000000000000007.index"
    path.write_bytes(pack(">ii", 1, 100))
    assert run(["log", "index", str(path)]) == 2
    lines = capsys.readouterr().out.splitlines()
    assert lines[2].split(maxsplit=3) == ["0", "8", "100", f"it is beyond the end of {LOG}"]
    (tmp_path / LOG).unlink()
    assert run(["log", "index", str(path), "--format", "json"]) == 2
    first, second = json.loads(capsys.readouterr().out)[0]["rows"]
    assert first["problem"] == f"{LOG} is not beside it"
    assert (second["at"], second["offset"]) == (0, 8)


def test_a_checkpoint_has_the_topic_ids_that_lie_beside_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    topic_id = UUID(int=5)
    (tmp_path / "recovery-point-offset-checkpoint").write_text("0\n2\na 0 7\nb 0 8\n")
    (tmp_path / "checkpoint-topic-ids").write_bytes(
        format_topic_ids({TopicPartition("a", 0): topic_id})
    )
    path = str(tmp_path / "recovery-point-offset-checkpoint")
    assert run(["log", "checkpoint", path, "--format", "json"]) == 0
    first, second = json.loads(capsys.readouterr().out)[0]["rows"]
    assert (first["offset"], first["topic_id"]) == (7, uuid_to_text(topic_id))
    assert (second["offset"], second["topic_id"]) == (8, None)


def test_a_verb_refuses_the_files_of_another(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / LOG).write_bytes(BATCH)
    for verb in ("index", "snapshot", "checkpoint"):
        assert run(["log", verb, str(tmp_path / LOG)]) == 1
        assert "'log dump' shows it" in capsys.readouterr().err


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
