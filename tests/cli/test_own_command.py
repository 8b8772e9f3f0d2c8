"""Commands that are printed work from where the user stands."""

import sys
from pathlib import Path

import pytest

from ottla.cli.own_command import as_typed


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
