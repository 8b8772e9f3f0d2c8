"""Every failure that was ever kept runs clean now."""

from pathlib import Path

import pytest

from ottla.jepsen.world.corpus import Case, cases_in, replay

CORPUS = Path(__file__).parents[1] / "corpus"
CASES = list(cases_in(CORPUS))


@pytest.mark.parametrize(("path", "case"), CASES, ids=[path.stem for path, _ in CASES])
def test_what_failed_once_holds_now(path: Path, case: Case) -> None:
    assert path.name == case.file_name
    assert case.fixed_in, "a case that is still open belongs to no test run"
    outcome = replay(case)
    assert outcome.violation is None, f"{case.what}: {outcome.violation}"
