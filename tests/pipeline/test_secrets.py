"""Spark on a secure cluster: its passwords are in no plan, no event log and no log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.security.test_planted_secrets import encrypted_key

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(700),
    pytest.mark.skipif(
        os.environ.get("OTTLA_FAULTS") != "full", reason="a minute of Spark: OTTLA_FAULTS=full"
    ),
]

Authority = Any  # the class of the fixture, in tests/conftest.py
KEY_PASSWORD = "planted-key-password"
CONTROL = "planted-where-all-may-read"
TIMEOUT_S = 60
PROGRAM_S = 400
PROGRAM = """
import json, sys
from pathlib import Path
from pyspark.sql import SparkSession
import ottla.pipeline

options, directory, control = json.loads(Path(sys.argv[1]).read_text()), *sys.argv[2:]
spark = (
    SparkSession.builder.master("local[1]")
    .config("spark.ui.enabled", "false")
    .config("spark.driver.memory", "512m")
    .config("spark.eventLog.enabled", "true")
    .config("spark.eventLog.compress", "false")
    .config("spark.eventLog.dir", f"file://{directory}")
    .getOrCreate()
)
# INFO alone is taken to be set already, while a filter of shells lets nothing below WARN through.
for level in ("WARN", "INFO"):
    spark.sparkContext.setLogLevel(level)
ottla.pipeline.register(spark)
# What must be found: in a plan, which goes to the event log, and in the log of level INFO.
spark.range(1).selectExpr(f"'{control}' AS control").collect()
spark._jvm.org.apache.logging.log4j.LogManager.getLogger("control").info(control)
rows = spark.range(3).selectExpr("CAST(id AS STRING) AS value")
rows.write.format("ottla").mode("append").options(**options).option("topic", "t").save()
read = spark.read.format("ottla").options(**options).option("subscribe", "t").load()
read.explain(True)
print(repr(read), "rows:", len(read.collect()))
stream = spark.readStream.format("ottla").options(**options).option("subscribe", "t")
query = (
    stream.option("startingOffsets", "earliest").load().select("value")
    .writeStream.format("ottla").queryName("copy").options(**options).option("topic", "copied")
    .option("checkpointLocation", f"{directory}/checkpoint").trigger(availableNow=True).start()
)
query.awaitTermination()
query.explain(True)
copied = spark.read.format("ottla").options(**options).option("subscribe", "copied").load()
print("copied:", copied.count())
try:
    bad = {**options, "kafka.sasl.mechanism": "no-such"}
    spark.read.format("ottla").options(**bad).option("subscribe", "t").load().count()
except Exception as error:
    print("refused:", error)
spark.stop()
"""


@pytest.fixture(scope="module")
def secure_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a running `ottla up --secure` with the topics t and copied."""
    directory = tmp_path_factory.mktemp("secure") / "data"
    command = [sys.executable, "-m", "ottla.cli", "up", "--secure", "--dir", str(directory)]
    command += ["--port", "0", "--controllers", "1", "--brokers", "1"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("Logs:"):
                break
        assert process.poll() is None
        try:
            topics = [NewTopic(name, 1, replication_factor=1) for name in ("t", "copied")]
            admin = AdminClient(settings_of(directory / "client.properties"))
            for made in admin.create_topics(topics).values():
                made.result(TIMEOUT_S)
            yield directory
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(TIMEOUT_S)


def settings_of(path: Path) -> dict[str, str]:
    """Return the settings of a client that is the cluster's admin."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def run_program(tmp_path: Path, *command: str) -> str:
    """Run a program that must succeed; return all its output."""
    log = tmp_path / "said"
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, *command],
            stdout=output,
            stderr=output,
            env={**os.environ, "SPARK_LOCAL_IP": "127.0.0.1"},
            timeout=PROGRAM_S,
            check=False,
        )
    said = log.read_text(errors="replace")
    assert done.returncode == 0, said[-3_000:]
    return said


def test_a_login_over_tls_is_in_no_plan_no_event_log_and_no_log(
    spark_environment: None, secure_directory: Path, authority: Authority, tmp_path: Path
) -> None:
    settings = settings_of(secure_directory / "client-java.properties")
    password = settings_of(secure_directory / "client.properties")["sasl.password"]
    assert password in settings["sasl.jaas.config"]
    key, chain = encrypted_key(authority.issue("client"), KEY_PASSWORD)
    options = {f"kafka.{name}": text for name, text in settings.items()} | {
        "kafka.ssl.keystore.type": "PEM",
        "kafka.ssl.keystore.key": key.replace("\\n", "\n"),
        "kafka.ssl.keystore.certificate.chain": chain.replace("\\n", "\n"),
        "kafka.ssl.key.password": KEY_PASSWORD,
    }
    given, program, events = tmp_path / "options.json", tmp_path / "program.py", tmp_path / "events"
    given.write_text(json.dumps(options))
    program.write_text(PROGRAM)
    events.mkdir()

    said = run_program(tmp_path, str(program), str(given), str(events), CONTROL)

    assert "rows: 3" in said and "copied: 3" in said and "refused: " in said
    assert "== Physical Plan ==" in said
    reported = {"what it said": said}
    reported["the event log"] = "".join(
        path.read_text(errors="replace") for path in events.rglob("*") if path.is_file()
    )
    assert "SparkListenerJobEnd" in reported["the event log"]
    # The search sees what leaks there.
    assert f" INFO control: {CONTROL}" in said
    assert [where for where, text in reported.items() if CONTROL in text] == [*reported]
    hidden = {
        "password": password,
        "key password": KEY_PASSWORD,
        "key": key.split("\\n")[3],
    }
    found = [
        f"{name} in {where}: {text[max(0, text.index(secret) - 200) :][:250]}"
        for where, text in reported.items()
        for name, secret in hidden.items()
        if secret in text
    ]
    assert found == []
