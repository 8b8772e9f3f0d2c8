"""Module globals of a program: copies for each start of an instance, and a warning without them."""

import sys
import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest

import ottla.testing.world as world
from tests.testing.world import caching_program

MODULE = "tests.testing.world.caching_program"


@pytest.fixture(autouse=True)
def _fresh_globals() -> Iterator[None]:
    yield
    caching_program.SEEN.clear()
    caching_program.Settings.retries = 0


def marks_of_two_instances(monkeypatch: pytest.MonkeyPatch, *modules: str) -> list[str]:
    """Start two instances, kill and start one again. Returns the marks that they passed."""
    passed = []

    async def scenario(w: world.World) -> None:
        monkeypatch.setattr(w, "on_mark", lambda _, name: passed.append(name))
        for name in ("a", "b"):
            w.start(name, caching_program.see, name, runtime="trio", modules=modules)
            await w.sleep(1)
        w.instances["a"].kill()
        w.instances["a"].restart()
        await w.sleep(1)

    world.run(scenario)
    return passed


def test_each_start_has_its_own_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        passed = marks_of_two_instances(monkeypatch, "tests")

    assert passed == ["a 1", "b 1", "a 1"]
    assert not caching_program.SEEN
    assert sys.modules[MODULE] is caching_program


def test_modules_that_no_directory_of_the_path_has_are_copied(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """pytest's import mode `importlib` loads a user's modules so."""
    monkeypatch.setattr(sys, "path", [one for one in sys.path if not Path(one, "tests").is_dir()])

    assert marks_of_two_instances(monkeypatch, "tests") == ["a 1", "b 1", "a 1"]
    assert sys.modules[MODULE] is caching_program


def test_globals_that_instances_share_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(world.SharedGlobalsWarning) as found:
        passed = marks_of_two_instances(monkeypatch)

    assert passed == ["a 1", "a,b 2", "a,b,a 3"]
    (text,) = {str(one.message) for one in found}
    assert text.startswith(f"{MODULE}.SEEN, {MODULE}.Settings changed during the run.")
    assert 'modules=["' in text


@pytest.mark.parametrize(
    ("modules", "sentence"),
    [
        (["json"], "see of .* is no function of the modules json; start"),
        (["tests", "no_module"], "there is no module 'no_module'"),
        ([MODULE], "can only be copied as a whole; write 'tests' in `modules`"),
    ],
)
def test_modules_that_do_not_define_the_program_are_refused(
    modules: list[str], sentence: str
) -> None:
    async def scenario(w: world.World) -> None:
        w.start("a", caching_program.see, "a", runtime="trio", modules=modules)

    with pytest.raises(world.WorldError, match=sentence):
        world.run(scenario)


def test_an_error_at_the_import_of_a_copy_fails_the_instance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(w: world.World) -> None:
        monkeypatch.setattr(world, "mark", None)
        with monkeypatch.context() as patch:
            patch.setitem(sys.modules, "trio", None)
            instance = w.start(
                "a", caching_program.see, "a", runtime="trio", restarts=False, modules=["tests"]
            )
            await w.sleep(1)
        assert isinstance(instance.failure, ImportError)

    world.run(scenario)
