"""`ottla down`: the nodes that it signals, and nodes that end by themselves at the same time."""

import argparse
import os
import signal
from pathlib import Path

import pytest

from ottla.cli.cluster import down
from ottla.cli.common import CLUSTER_FILE


def test_a_node_that_ends_between_two_signals_keeps_no_other_from_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / CLUSTER_FILE).touch()
    cluster = {"brokers": [{"pid": 11}, {"pid": 12}], "controllers": [{"pid": 13}]}
    sent: list[tuple[int, int]] = []

    def kill(pid: int, number: int) -> None:
        if pid == 11 and number == signal.SIGCONT:
            raise ProcessLookupError
        sent.append((pid, number))

    monkeypatch.setattr(down, "read_cluster_file", lambda _: cluster)
    monkeypatch.setattr(down, "is_node", lambda _: True)
    monkeypatch.setattr(down, "is_alive", lambda _: False)
    monkeypatch.setattr(os, "kill", kill)

    assert down.run(argparse.Namespace(dir=str(tmp_path))) == 0

    assert [pid for pid, number in sent if number == signal.SIGTERM] == [11, 12, 13]
    assert (12, signal.SIGCONT) in sent
