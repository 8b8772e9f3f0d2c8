"""Kafka's own kafka-acls, unmodified, makes, shows and removes entries.

Runs where OTTLA_KAFKA_JARS names a directory with the jars of Kafka's release.
"""

import os
import subprocess
from pathlib import Path

import pytest

from ottla.bench.kafka.kafka_server import java_program
from ottla.cli.cluster.cluster_file import make_plan
from ottla.model.settings.security.jaas import PLAIN_MODULE
from tests.cluster.conftest import Processes
from tests.cluster.security.test_acls import PASSWORD, SETTINGS

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

JARS = "OTTLA_KAFKA_JARS"
TOOL_TIMEOUT_S = 120.0


class Tool:
    """kafka-acls beside one cluster."""

    def __init__(self, jars: str, processes: Processes, directory: Path) -> None:
        self._class_path = f"{jars}/*"
        self._bootstrap = processes.bootstrap
        self._directory = directory

    def run(self, user: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run the tool as a user."""
        settings = self._directory / f"{user}.properties"
        login = f'{PLAIN_MODULE} required username="{user}" password="{PASSWORD}";'
        settings.write_text(
            f"security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config={login}\n"
        )
        program = [java_program(os.environ), "-cp", self._class_path]
        program += ["org.apache.kafka.tools.AclCommand", "--bootstrap-server", self._bootstrap]
        program += ["--command-config", str(settings), *arguments]
        return subprocess.run(program, capture_output=True, text=True, timeout=TOOL_TIMEOUT_S)

    def shown(self, user: str, *arguments: str) -> str:
        """Run the tool, assert its success and return its output."""
        ran = self.run(user, *arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout


def test_entries_are_made_shown_and_removed(tmp_path: Path) -> None:
    jars = os.environ.get(JARS)
    if not jars:
        pytest.skip(f"LOUD: {JARS} is not set; kafka-acls was NOT run here")
    plan = make_plan(tmp_path / "cluster", host="127.0.0.1", port=0, controllers=1, brokers=1)
    plan.settings = SETTINGS
    plan.write_properties()
    processes = Processes(plan)
    try:
        processes.start()
        tool = Tool(jars, processes, tmp_path)
        ann = ("--allow-principal", "User:ann")
        prefixed = ("--topic", "shop-", "--resource-pattern-type", "prefixed")
        ranged = ("--deny-principal", "User:ben", "--deny-host", "10.0.0.0/8")
        tool.shown("admin", "--add", *ann, "--operation", "Read", *prefixed)
        tool.shown("admin", "--add", *ranged, "--operation", "All", "--topic", "*")
        tool.shown("admin", "--add", *ann, "--producer", "--topic", "t")

        matching = ("--list", "--topic", "shop-a", "--resource-pattern-type", "match")
        shown = tool.shown("admin", *matching)
        assert "(principal=User:ann, host=*, operation=READ, permissionType=ALLOW)" in shown
        assert "(principal=User:ben, host=10.0.0.0/8, operation=ALL, permissionType=DENY)" in shown
        assert "name=t," not in shown
        assert "name=t," in tool.shown("admin", "--list")

        tool.shown("admin", "--remove", "--force", "--topic", "t")
        assert "name=t," not in tool.shown("admin", "--list")

        refused = tool.run("eve", "--list")
        assert refused.returncode == 1
        assert "ClusterAuthorizationException" in refused.stdout + refused.stderr
    finally:
        processes.stop_all()
