"""The command line of `ottla pipeline`, up to the start of Spark."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest

from ottla.cli.main import run
from ottla.cli.parser import Parser
from ottla.cli.pipelines import pipeline, pipeline_common, pipeline_start
from ottla.cli.pipelines.pipeline_archive import archive_options, default_name, span_of
from ottla.cli.pipelines.pipeline_common import (
    RunningShown,
    exit_code,
    line_of,
    session_options,
)
from ottla.cli.pipelines.pipeline_lag import QueryLag, summed
from ottla.cli.pipelines.pipeline_run import parse_words
from ottla.cli.pipelines.pipeline_start import check_session, check_store, start_shown
from ottla.cli.pipelines.pipeline_telemetry import telemetry_options
from ottla.cli.verbs import declare
from ottla.model.errors import ConfigError, OttlaError
from ottla.model.ids import TopicPartition
from ottla.pipeline.archive.backfill import TimeSpan
from ottla.pipeline.read.source_options import parse_source_options
from ottla.pipeline.rollup.stream import source_of
from ottla.pipeline.run.progress import BatchProgress
from ottla.pipeline.run.session import SessionOptions
from ottla.pipeline.run.spark_errors import SparkFailedError


def parsed(*words: str) -> object:
    parser = Parser(prog="ottla pipeline")
    declare(parser, pipeline)
    return parser.parse_args(list(words))


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port of this machine that is reserved, but has no listener."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield taken.getsockname()[1]


def test_every_verb_says_what_it_does(capsys: pytest.CaptureFixture[str]) -> None:
    for verb in pipeline.VERBS:
        assert run(["pipeline", verb.name, "--help"]) == 0
        assert verb.summary in " ".join(capsys.readouterr().out.split())


def test_help_starts_no_spark() -> None:
    script = (
        "import sys; from ottla.cli.main import run; run(['pipeline', 'archive', '--help']);"
        "print(sorted({'pyspark', 'pyarrow', 'numpy', 'trio'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert done.stderr.strip() == "[]"


def test_an_archive_is_described_by_its_arguments() -> None:
    found = archive_options(
        parsed(
            *("archive", "orders", "payments", "-o", "/lake/raw/", "--bootstrap", "b1:1,b2:2"),
            *("--headers", "--option", "maxOffsetsPerTrigger=5", "--trigger", "10s"),
        )  # type: ignore[arg-type]
    )
    assert found.name == "archive-raw"
    assert found.checkpoint_path == "/lake/raw/_checkpoint"
    assert found.trigger_s == 10.0
    assert found.source == {
        "kafka.bootstrap.servers": "b1:1,b2:2",
        "subscribe": "orders,payments",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "5",
    }


LOGIN = {
    "security.protocol": "SASL_SSL",
    "sasl.mechanisms": "SCRAM-SHA-256",
    "sasl.username": "al",
    "sasl.password": "secret",
    "enable.ssl.certificate.verification": "true",
}


@pytest.mark.parametrize("verb", ["archive", "telemetry"])
def test_sparks_processes_log_in_as_the_file_of_command_config_says(
    verb: str, authority: Any, tmp_path: Path
) -> None:
    file = tmp_path / "client.properties"
    settings = {**LOGIN, "ssl.ca.location": str(authority.file), "bootstrap.servers": "b1:1"}
    file.write_text("".join(f"{key}={text}\n" for key, text in settings.items()))
    file.chmod(0o600)
    words: Any = (*([] if verb == "telemetry" else ["t"]), "-o", "/x", "--command-config", file)

    arguments: Any = parsed(verb, *map(str, words))
    made: Any
    if verb == "archive":
        options = archive_options(arguments).source
    else:
        made = telemetry_options(arguments)
        options = source_of(made)
        assert "secret" not in repr(made)

    assert options["kafka.bootstrap.servers"] == "b1:1"
    config = parse_source_options(options, is_stream=True).read.consumer_config()
    login = config.login()
    assert login is not None
    assert login.mechanism == "SCRAM-SHA-256"
    assert config.tls() is not None


@pytest.mark.parametrize(
    ("output", "name"),
    [
        ("s3a://bucket/lake/raw", "archive-raw"),
        ("/a b/c d/", "archive-c-d"),
        ("/", "archive-root"),
    ],
)
def test_a_query_is_named_after_its_output(output: str, name: str) -> None:
    assert default_name(output) == name


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["archive", "-o", "x"], "name topics, or a --pattern"),
        (["archive", "t", "--pattern", "t.*", "-o", "x"], "name topics, or a --pattern"),
        (["archive", "t", "-o", "x", "--trigger", "soon"], "must be a duration"),
        (["archive", "t", "-o", "x", "--option", "a"], "must be KEY=VALUE"),
        (["archive", "t", "-o", "x", "--transform", "json"], "must be module:function"),
        (["archive", "t", "-o", "x", "--transform", "no_such:f"], "no module 'no_such'"),
        (["archive", "t", "-o", "x", "--transform", "json:f"], "no function 'f' in json"),
        (["archive", "t", "-o", "x", "--transform", "no.py:f"], "there is no file no.py"),
        (["archive", "t", "-o", "x", "--bootstrap", "nowhere"], "must be host:port"),
        (["archive", "t", "-o", "x", "--schema", "id BIGIN"], "is it BIGINT?"),
        (["archive", "t", "-o", "x", "--option", "maxOffset=1"], "there is no such option"),
        (["run", "no-such-file.py"], "there is no file"),
        (["run", "no-such-file.py", "--sometimes"], "unrecognized arguments: --sometimes"),
    ],
)
def test_an_invalid_command_line_is_reported_in_one_sentence_before_spark_starts(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = run(["pipeline", *words])
    except SystemExit as ending:
        code = int(ending.code or 0)
    printed = capsys.readouterr().err
    assert code == 1
    assert why in printed
    assert printed.count("\n") == 1


def test_options_may_follow_the_file_and_its_own_words_follow_two_dashes() -> None:
    arguments = parsed("run", "--master", "yarn", "f.py", "--once", "--", "--once", "-x")
    assert parse_words(arguments) == ["--once", "-x"]  # type: ignore[arg-type]
    assert (arguments.master, arguments.once) == ("yarn", True)  # type: ignore[attr-defined]
    assert arguments.file == "f.py"  # type: ignore[attr-defined]
    arguments = parsed("run", "--once", "f.py", "--", "--once", "-x")
    assert parse_words(arguments) == ["--once", "-x"]  # type: ignore[arg-type]
    assert parse_words(parsed("run", "f.py")) == []  # type: ignore[arg-type]


def test_settings_of_the_user_win() -> None:
    arguments = parsed(
        *("run", "--jars", "a.jar", "--conf", "spark.jars=b.jar", "--conf", "k=v=w", "f.py")
    )
    found = session_options(arguments, "f")  # type: ignore[arg-type]
    assert dict(found.conf) == {"spark.jars": "b.jar", "k": "v=w"}


def test_a_batch_is_a_line() -> None:
    batch = BatchProgress("q", 3, "2026-07-31T12:00:01.500Z", 12_345, 1_000.4, 12.34, 7)
    assert line_of(batch) == "12:00:01  q  batch 3: 12,345 rows in 12.3 s (1,000 rows/s, lag 7)"
    one = batch._replace(row_count=1, lag_count=None)
    assert line_of(one) == "12:00:01  q  batch 3: 1 row in 12.3 s (1,000 rows/s)"


def test_a_cluster_that_does_not_answer_has_an_exit_code_of_its_own() -> None:
    assert exit_code(SparkFailedError("can not read topics: no listener")) == 3
    at_line = "mine.py, line 3: can not write to topics: no listener"
    assert exit_code(SparkFailedError(at_line)) == 3
    assert exit_code(SparkFailedError("topic 'x' is not there")) == 1
    assert exit_code(SparkFailedError("kafka.sasl.mechanism: can not be honoured")) == 1


ICEBERG = ["-o", "iceberg:local.t"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["t", *ICEBERG], "which needs --table-format iceberg"),
        (["t", "-o", "x", "--table-format", "iceberg"], "is iceberg:CATALOG.TABLE"),
        (["t", "-o", "x", "--catalog-option", "uri=x"], "--catalog-option: needs --table-format"),
        (["t", "u", *ICEBERG, "--table-format", "iceberg"], "name one TOPIC"),
        (["--pattern", "t.*", "-o", "x", "--table-format", "delta"], "name one TOPIC"),
        (["t", "-o", "x", "--table-format", "delta", "--from", "1h"], "has no gaps to fill"),
        (["t", "-o", "x", "--table-format", "delta", "--checkpoint", "c"], "has the offsets"),
        (["t", "-o", "s3a://x", "--table-format", "delta"], "must be a directory of this machine"),
    ],
)
def test_a_table_of_a_form_that_does_not_exist_is_refused_in_one_sentence(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "archive", *words]) == 1
    printed = capsys.readouterr().err
    assert why in printed
    assert printed.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--to", "1h"], "--to: needs --from"),
        (["--from", "1h", "--to", "2h"], "--from: must be before --to"),
        (["--from", "soon"], "must be a time"),
        (["--from", "1h", "--late", "x"], "must be a duration"),
    ],
)
def test_a_span_of_time_that_is_none_is_refused(
    words: list[str], why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "archive", "t", "-o", "x", *words]) == 1
    assert why in capsys.readouterr().err


def test_a_span_of_time_is_what_two_times_say() -> None:
    arguments = parsed(
        *("archive", "t", "-o", "x", "--from", "2026-07-31", "--to", "2026-08-01T00:00+02:00")
    )
    span = span_of(arguments)  # type: ignore[arg-type]
    assert span == TimeSpan(start_ms=1785456000000, end_ms=1785535200000, late_ms=3_600_000)
    assert span_of(parsed("archive", "t", "-o", "x")) is None  # type: ignore[arg-type]


def test_a_directory_that_is_no_archive_is_not_compacted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["pipeline", "compact", str(tmp_path / "none")]) == 1
    assert run(["pipeline", "compact", str(tmp_path)]) == 1
    assert run(["pipeline", "compact", str(tmp_path), "--target-mib", "0"]) == 1
    printed = capsys.readouterr().err.splitlines()
    assert "is no directory on this machine" in printed[0]
    assert "no archive of a streaming query" in printed[1]
    assert "must be at least 1" in printed[2]


def test_an_output_that_is_a_file_is_refused_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "file"
    path.write_text("")
    for output in (path, path / "below"):
        assert run(["pipeline", "archive", "t", "-o", str(output)]) == 1
        assert capsys.readouterr().err == f"ottla pipeline: {path}: is no directory\n"


def test_an_unreachable_bootstrap_address_is_reported_before_spark_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], closed_port: int
) -> None:
    output = tmp_path / "lake"
    address = f"127.0.0.1:{closed_port}"
    words = ["pipeline", "archive", "t", "-o", str(output), "--bootstrap", address]
    for more in ([], ["--from", "1h"]):
        assert run([*words, *more]) == 3
        assert capsys.readouterr().err.startswith(
            f"ottla pipeline: can not read topics: cannot connect to {address}"
        )
    assert run(["pipeline", "telemetry", "-o", str(output), "--bootstrap", address]) == 3
    assert not output.exists()


def test_an_unreachable_master_is_reported_before_spark_starts(closed_port: int) -> None:
    master = f"spark://127.0.0.1:{closed_port},127.0.0.1:{closed_port}"
    with pytest.raises(OttlaError, match=r"^--master: no Spark master answers at 127\.0\.0\.1:"):
        check_session(SessionOptions(name="x", master=master))
    with pytest.raises(ConfigError, match="must be spark://host:port"):
        check_session(SessionOptions(name="x", master="spark://"))


def test_an_absent_executor_file_is_reported_before_spark_starts(
    tmp_path: Path,
) -> None:
    there = tmp_path / "env.tar.gz"
    there.touch()
    known = f"{there}#env,s3a://b/x.jar,local:/opt/y.jar,jars/*"
    check_session(SessionOptions(name="x", conf=(("spark.archives", known),)))
    with pytest.raises(ConfigError, match=r"^spark\.jars: there is no file no\.jar$"):
        check_session(SessionOptions(name="x", conf=(("spark.jars", "no.jar"),)))


def test_an_output_in_s3_without_its_file_system_is_reported_before_spark_starts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SPARK_HOME", raising=False)
    monkeypatch.setattr(pipeline_start, "pyspark_jars", lambda: ["hadoop-client-api-3.5.0.jar"])
    bare = SessionOptions(name="x")
    with pytest.raises(ConfigError, match=r"add --packages org.apache.hadoop:hadoop-aws:3\.5\.0$"):
        check_store("--output", "s3a://lake/raw", bare)
    with pytest.raises(ConfigError, match="name for S3 is s3a://"):
        check_store("--output", "s3://lake/raw", bare)
    package = "org.apache.hadoop:hadoop-aws:3.5.0"
    check_store("--output", "s3a://a", replace(bare, conf=(("spark.jars.packages", package),)))
    check_store("--output", "hdfs://a", bare)
    monkeypatch.setattr(pipeline_start, "pyspark_jars", lambda: ["hadoop-aws-3.5.0.jar"])
    check_store("--output", "s3a://lake/raw", bare)


def test_on_a_terminal_the_start_and_the_running_batch_are_drawn(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for module in (pipeline_start, pipeline_common):
        monkeypatch.setattr(module, "is_watched", lambda: True)
    with start_shown("local[2]"):
        pass
    query = SimpleNamespace(name="q", isActive=True, status={"message": "Processing new data"})
    running = RunningShown()
    running([query])
    running([query])
    running.end()
    drawn = [one for one in capsys.readouterr().err.split("\r\033[K") if one]
    assert drawn[-1:] == ["q  processing new data (0 s)"]
    assert set(drawn[:-1]) <= {"starting Spark (local[2])… 0 s"}


def test_elsewhere_nothing_is_drawn(capsys: pytest.CaptureFixture[str]) -> None:
    with start_shown("local[2]"):
        RunningShown()([SimpleNamespace(name="q", isActive=True, status={"message": "x"})])
    assert capsys.readouterr().err == ""


def test_the_zip_for_spark_submit_is_written_where_it_is_wanted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "ours.zip"
    assert run(["pipeline", "zip", str(path)]) == 0
    assert "--py-files" in capsys.readouterr().out
    assert "pyspark_ottla/__init__.py" in ZipFile(path).namelist()


def test_the_lag_of_a_query_is_that_of_all_its_partitions() -> None:
    first, second, third = (TopicPartition(*at) for at in (("a", 0), ("a", 1), ("b", 0)))
    committed = {first: 5, second: 7, third: 0}
    ends = {first: 6, second: 7, third: 9}
    assert summed("spark-archive", committed, ends) == QueryLag("archive", 2, 3, 10)
    assert summed("spark-archive", committed, None).lag is None
    # A topic made again ends before what was read of the old one.
    assert summed("spark-archive", {first: 5}, {first: 2}).lag == 0
