"""`ottla pipeline archive` as its user runs it: a process that starts Spark, and ends with it."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ottla.cli.main import run
from ottla.cli.pipelines import pipeline_common
from ottla.client import TopicPartition
from ottla.pipeline.archive.archive_directory import LOCK, ArchiveDirectory

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(240)]

END_S = 60
SPARK = ("--master", "local[2]", "--conf", "spark.driver.memory=1g")


def jvm_of(parent: int) -> int:
    """Return the process id of the Java that a process has started."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            name, state = (path / "stat").read_text().rsplit(")", 1)
        except OSError:
            continue  # it has just ended
        if name.endswith("(java") and int(state.split()[1]) == parent:
            return int(path.name)
    raise AssertionError(f"process {parent} has no Java")


def open_files(process: int) -> set[str]:
    """Return the names, without directories, of the files that a process holds open."""
    return {
        Path(os.readlink(link)).name
        for link in Path(f"/proc/{process}/fd").iterdir()
        if os.path.lexists(link)
    }


def test_ctrl_c_ends_an_archive_after_its_batch(live_cluster: Any, tmp_path: Path) -> None:
    topic = live_cluster.new_topic(1)
    live_cluster.produce(topic, [b"one", b"two", b"three"])
    log = tmp_path / "spark.log"
    command = [sys.executable, "-m", "ottla.cli", "pipeline", "archive", topic]
    command += ["-o", str(tmp_path / "lake"), "--bootstrap", live_cluster.bootstrap]
    command += ["--format", "json", "--trigger", "1s", "--spark-log", str(log), *SPARK]
    child = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
    )
    try:
        assert child.stdout is not None
        first = json.loads(child.stdout.readline() or "{}")
        assert LOCK in open_files(jvm_of(child.pid)), "it may outlive a command that is killed"
        # As a terminal does it: every process of the command gets it.
        os.killpg(child.pid, signal.SIGINT)
        _rest, reported = child.communicate(timeout=END_S)
    finally:
        child.kill()
        child.wait()
    assert (child.returncode, reported) == (
        0,
        "ending after this batch; once more to end at once\n",
    )
    assert (first["query"], first["batch"], first["row_count"], first["lag_count"]) == (
        *("archive-lake", 0, 3, 0),
    )
    assert len(ArchiveDirectory(tmp_path / "lake").live()) == 1
    assert "Exception" not in log.read_text()
    assert live_cluster.group("spark-archive-lake") == {TopicPartition(topic, 0): 3}


def test_what_the_cluster_has_not_is_reported_before_a_jvm_starts(
    live_cluster: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def start(*_given: object) -> None:
        raise AssertionError("a JVM starts")

    monkeypatch.setattr(pipeline_common, "open_session", start)
    topic = live_cluster.new_topic(1)
    output = tmp_path / "lake"
    words = ["pipeline", "archive", "-o", str(output), "--bootstrap", live_cluster.bootstrap]
    for more, why in [
        (["no-such"], "there is no topic 'no-such'"),
        (["no-such", "--from", "1h"], "there is no topic 'no-such'"),
        ([topic, "--starting", f'{{"{topic}": {{"0": 7}}}}'], "whose log has [0, 0)"),
    ]:
        assert run([*words, *more]) == 1
        reported = capsys.readouterr().err
        assert reported.startswith("ottla pipeline: ")
        assert why in reported
        assert reported.count("\n") == 1
    assert not output.exists()
    # A stream that goes on without what is lost judges that itself.
    offsets = output / "_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").touch()
    with pytest.raises(AssertionError, match="a JVM starts"):
        run([*words, "no-such", "--option", "failOnDataLoss=false"])
    assert run([*words, "no-such"]) == 1
