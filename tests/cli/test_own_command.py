"""Printed commands work in the user's current directory."""

import sys
from pathlib import Path

import pytest

from ottla.cli.main import run
from ottla.cli.own_command import as_typed
from ottla.cli.terminal import note


def make_program(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_an_activated_environment_needs_the_name_alone(tmp_path: Path) -> None:
    program = make_program(tmp_path / ".venv/bin/ottla")
    assert as_typed(program, program, tmp_path) == "ottla"
    assert as_typed(".venv/bin/ottla", program, tmp_path) == "ottla"


def test_a_link_on_the_path_is_the_program_too(tmp_path: Path) -> None:
    program = make_program(tmp_path / "opt/bin/ottla")
    (tmp_path / "ottla").symlink_to(program)
    assert as_typed(program, str(tmp_path / "ottla"), tmp_path) == "ottla"


@pytest.mark.parametrize("is_another_on_path", [False, True])
def test_a_program_that_the_shell_would_not_find_is_named_by_its_path(
    tmp_path: Path, is_another_on_path: bool
) -> None:
    program = make_program(tmp_path / ".venv/bin/ottla")
    other = make_program(tmp_path / "other/ottla") if is_another_on_path else None
    assert as_typed(".venv/bin/ottla", other, tmp_path) == ".venv/bin/ottla"
    assert as_typed(program, other, tmp_path) == ".venv/bin/ottla"
    assert as_typed(program, other, tmp_path / "elsewhere") == program


def test_a_module_is_called_as_one(tmp_path: Path) -> None:
    found = as_typed("/site-packages/ottla/cli/__main__.py", None, tmp_path)
    assert found == f"{sys.executable} -m ottla.cli"


def test_another_program_that_runs_our_commands_is_not_named(tmp_path: Path) -> None:
    assert as_typed("/usr/lib/pytest/__main__.py", None, tmp_path) == "ottla"


def test_messages_and_help_name_commands_as_the_user_can_type_them(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    program = make_program(tmp_path / ".venv/bin/ottla")
    monkeypatch.setattr(sys, "argv", [program])
    monkeypatch.chdir(tmp_path)

    assert run(["status", "--dir", str(tmp_path)]) == 1
    assert "start the cluster with '.venv/bin/ottla up'" in capsys.readouterr().err
    assert run(["topic", "creat"]) == 1
    assert "see '.venv/bin/ottla topic --help'" in capsys.readouterr().err
    assert run(["produce", "--help"]) == 0
    assert "| .venv/bin/ottla produce" in capsys.readouterr().out
    note("nothing was changed; 'ottla broker remove 3 --yes' does it")
    assert "'.venv/bin/ottla broker remove 3 --yes'" in capsys.readouterr().err
