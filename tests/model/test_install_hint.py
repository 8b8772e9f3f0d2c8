"""Hints name an installation that works: Ottla is on no package index."""

from pathlib import Path

import pytest

from ottla.model.install_hint import install_hint


@pytest.mark.interpreted_only("the compiled form is a wheel")
def test_a_checkout_installs_as_the_readme_does() -> None:
    assert install_hint("spark") == "pip install -e '.[spark]' in the checkout of Ottla"


def test_a_wheel_installs_the_packages_of_the_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = ["trio>=0.30", "numpy>=2; extra == 'spark'", "numpy>=3; extra == 'other'"]
    monkeypatch.setattr("importlib.metadata.requires", lambda name: found)

    assert install_hint("spark", tmp_path) == "pip install 'numpy>=2'"
