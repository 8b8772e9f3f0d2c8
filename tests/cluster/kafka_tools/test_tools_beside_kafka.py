"""Kafka's own tools at Ottla and at Kafka: the same exit codes and outputs.

Both run a controller and a broker, or three of each by OTTLA_TESTS=full, from the same settings.
Outputs are compared without addresses, ids, times and traces.  A row that differs has the reason,
and docs/reference/compatibility.md names it for users.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release.
"""

import difflib
import os
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.cluster.kafka_tools.invocations import AFTER, BEFORE, FILES, WITH_MEMBERS, Invocation
from tests.cluster.kafka_tools.tool_process import Outcome, ToolProcess, simplified
from tests.cluster.kafka_tools.two_systems import (
    PlannedCluster,
    kafka_cluster,
    ottla_cluster,
    plan_cluster,
)
from tests.cluster.upgrades.group_readers import GroupReader, LibrdkafkaReader, ShareReader

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

JARS = "OTTLA_KAFKA_JARS"
NODE_COUNT = 3 if os.environ.get("OTTLA_TESTS") == "full" else 1
MEMBER_TOPIC = "numbers"
PROTOCOLS, SHARING = ("classic", "consumer"), "sharing"
READ_TIMEOUT_S = 30.0
COMMIT_OFTEN = {"auto.commit.interval.ms": "100"}
"""Settings of members whose offsets a tool shows: by default they commit after five seconds."""
CHANGES = ("--add", "--alter", "--create", "--delete", "--execute", "--remove", "upgrade")
FOLLOWED_S = 0.3
"""Seconds for brokers to follow the controller that has answered a tool."""


@pytest.fixture(scope="module")
def jars() -> Path:
    found = os.environ.get(JARS)
    if not found:
        pytest.skip(f"LOUD: {JARS} is not set; Kafka's tools were NOT run here")
    return Path(found)


@pytest.fixture(scope="module")
def tools(jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToolProcess]:
    with ToolProcess(jars, tmp_path_factory.mktemp("classes")) as process:
        yield process


class Script:
    """The invocations at one cluster, and their outcomes."""

    def __init__(self, cluster: PlannedCluster, tools: ToolProcess) -> None:
        self.outcomes: list[Outcome] = []
        self._tools = tools
        self._cluster = cluster
        files = cluster.directory / "files"
        files.mkdir()
        for name, text in FILES.items():
            (files / name).write_text(text.replace("BROKERS", cluster.bootstrap))
        brokers, first = list(cluster.brokers), min(cluster.brokers)
        replicas = ":".join(map(str, brokers))
        turned = ":".join(map(str, [*brokers[1:], *brokers[:1]]))
        self._words = {
            "b": f"--bootstrap-server {cluster.bootstrap}",
            "c": f"--bootstrap-controller {cluster.controller_bootstrap}",
            "brokers": cluster.bootstrap,
            "dir": str(files),
            "data": str(cluster.data(first)),
            "broker_file": str(cluster.file(first)),
            "controller_file": str(cluster.file(min(cluster.controllers))),
            "controller": str(min(cluster.controllers)),
            "n": str(len(brokers)),
            "one": replicas,
            "two": f"{replicas},{turned}",
        }

    def run(self, invocations: Sequence[Invocation]) -> None:
        """Run tools one after the other."""
        for one in invocations:
            words = shlex.split(one.words.format(**self._words))
            run = self._tools.run_alone if one.is_alone else self._tools.run
            code, text = run(one.tool, words, one.given, one.seconds)
            if any(word in words for word in CHANGES):
                time.sleep(FOLLOWED_S)
            names = {str(self._cluster.directory): "DIRECTORY"}
            lines = simplified(text, names, are_numbers_kept=not one.any_numbers)
            self.outcomes.append(Outcome(code, sorted(set(lines)) if one.any_order else lines))

    def run_all(self) -> list[Outcome]:
        """Run the whole script; return the outcomes."""
        self.run(BEFORE)
        client = {"bootstrap.servers": self._cluster.bootstrap}
        with ExitStack() as running:
            readers: list[GroupReader] = [
                LibrdkafkaReader(client | COMMIT_OFTEN, one, [MEMBER_TOPIC], one)
                for one in PROTOCOLS
            ]
            readers.append(ShareReader(client, SHARING, [MEMBER_TOPIC], "share"))
            for reader in readers:
                running.enter_context(reader).wait_until_reading(READ_TIMEOUT_S)
            self.run(WITH_MEMBERS)
        assert [reader.fault for reader in readers] == [None] * len(readers)
        self.run(AFTER)
        return self.outcomes


def test_tools_have_the_same_codes_and_outputs(
    jars: Path, tools: ToolProcess, tmp_path_factory: pytest.TempPathFactory
) -> None:
    ours, theirs = (
        plan_cluster(tmp_path_factory.mktemp(name), NODE_COUNT) for name in ("ottla", "kafka")
    )
    with ottla_cluster(ours):
        of_ottla = Script(ours, tools).run_all()
    with kafka_cluster(theirs, jars, tools):
        of_kafka = Script(theirs, tools).run_all()
    script = (*BEFORE, *WITH_MEMBERS, *AFTER)
    differences = [
        difference_of(*row)
        for row in zip(script, of_ottla, of_kafka, strict=True)
        if not is_as_expected(*row)
    ]
    assert differences == [], "\n\n".join(differences)


def is_as_expected(one: Invocation, ours: Outcome, theirs: Outcome) -> bool:
    """Return whether the outcomes differ exactly where the row gives a reason."""
    do_codes_match = (ours.code != theirs.code) == one.codes_differ
    return do_codes_match and (ours.lines != theirs.lines) == bool(one.differs)


def difference_of(one: Invocation, ours: Outcome, theirs: Outcome) -> str:
    """Return the difference of two outcomes as text."""
    lines = difflib.unified_diff(theirs.lines, ours.lines, "kafka", "ottla", n=1, lineterm="")
    title = f"{one.tool} {one.words} (reason: {one.differs or 'none'})"
    return "\n".join([f"{title}: codes {theirs.code} and {ours.code}", *lines])
