"""Each command of docs/tiered-storage.md is typed, and does what the page says."""

import re
import shlex
from pathlib import Path

import pytest

from ottla.cli.main import run
from tests.cli.tier.conftest import cluster_in

PAGE = Path(__file__).parents[3] / "docs" / "tiered-storage.md"


def commands() -> list[str]:
    """Return the commands of the page that need no running cluster, in their order."""
    found = re.findall(r"^(?:    )?ottla (.*)$", PAGE.read_text(), re.MULTILINE)
    return [line for line in found if not line.startswith(("up ", "topic ", "tier status"))]


def test_the_commands_of_the_page_work_in_their_order(
    bucket: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    cluster_in(tmp_path / "ottla-data", f"remote.log.storage.uri=file://{bucket}")
    lines = commands()
    assert len(lines) == 8
    for line in lines:
        words = shlex.split(line.replace("/srv/tier", str(bucket)), comments=True)
        if words[1] == "restore":
            words += ["--port", "0"]
        assert run(words) == 0, (line, capsys.readouterr())
    output = capsys.readouterr().out
    for text in ("orders  Dw4NDAsKSQiHBgUEAwIBAA", "sound: 12 segments", "all topics", "whole"):
        assert text in output
    assert (tmp_path / "restored" / "cluster.json").exists()
