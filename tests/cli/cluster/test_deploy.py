"""The files of `deploy/` are valid for nodes, systemd and the shell."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from ottla.model.settings.broker import load_broker_config
from ottla.model.settings.controller import load_controller_config
from ottla.node.properties import parse_properties

DEPLOY = Path(__file__).parents[3] / "deploy"
CONFIGS = sorted([*DEPLOY.rglob("examples/*.properties"), *DEPLOY.rglob("config/*.properties")])
UNITS = sorted((DEPLOY / "systemd").glob("*.service"))
CONTROLLERS = ("101", "102", "103")


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_every_setting_of_the_examples_is_known(path: Path) -> None:
    texts = parse_properties(path.read_text())
    if texts["process.roles"] == "controller":
        _, unknown = load_controller_config(texts)
    else:
        # What differs from broker to broker, compose.yaml sets on the command line.
        own = {"node.id": "1", "listeners": "INSIDE://:9092"}
        _, unknown = load_broker_config({**own, **texts})
    assert unknown == set()


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="LOUD: units are NOT verified")
@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_systemd_understands_the_units(path: Path, tmp_path: Path) -> None:
    unit = tmp_path / path.name.replace("@", "@7")
    unit.write_text(path.read_text().replace("/opt/ottla/bin/ottla", "/bin/true"))

    done = subprocess.run(
        ["systemd-analyze", "verify", "--man=no", str(unit)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


class FormatOnce:
    """The containers' first start, on this machine."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        (directory / "state").mkdir()
        (directory / "bin").mkdir()
        command = directory / "bin" / "ottla"
        command.write_text(f'#!/bin/sh\nexec {sys.executable} -m ottla.cli "$@"\n')
        command.chmod(0o755)
        for id_ in CONTROLLERS:
            text = (DEPLOY / "containers/config" / f"controller-{id_}.properties").read_text()
            self.config(id_).write_text(text.replace("/var/lib/ottla", str(directory)))

    def config(self, id_: str) -> Path:
        return self.directory / f"controller-{id_}.properties"

    def identity(self, id_: str) -> Path:
        return self.directory / f"controller-{id_}" / "metadata" / "meta.properties"

    def run(self) -> None:
        subprocess.run(
            [
                str(DEPLOY / "containers/format-once"),
                str(self.directory / "state"),
                *(str(self.config(id_)) for id_ in CONTROLLERS),
            ],
            env={**os.environ, "PATH": f"{self.directory}/bin:{os.environ['PATH']}"},
            check=True,
            capture_output=True,
            timeout=240,
        )


def test_the_first_start_of_the_containers_formats_and_no_later_one_does(tmp_path: Path) -> None:
    first = FormatOnce(tmp_path)
    first.run()
    found = [parse_properties(first.identity(id_).read_text()) for id_ in CONTROLLERS]
    assert len({each["cluster.id"] for each in found}) == 1
    assert len({each["directory.id"] for each in found}) == 3

    shutil.rmtree(first.identity("102").parent)
    first.run()

    assert not first.identity("102").exists()


def test_a_first_start_of_the_containers_that_was_cut_short_goes_on(tmp_path: Path) -> None:
    first = FormatOnce(tmp_path)
    first.run()
    before = first.identity("103").read_text()
    shutil.rmtree(first.identity("103").parent)
    (tmp_path / "state" / "formatted").unlink()

    first.run()

    assert first.identity("103").read_text() == before
