"""Every failure that was ever kept runs clean now.

One of a whole cluster costs more than 20 s of CPU and runs with OTTLA_WORLDS=full alone.
"""

from pathlib import Path

import pytest

from ottla.jepsen.world.corpus import Case, cases_in, replay
from tests.jepsen.search_length import IS_FULL

CORPUS = Path(__file__).parents[1] / "corpus"
LONG = frozenset({"whole-disks-EncryptionHolds-20015"})
CASES = [(path, case) for path, case in cases_in(CORPUS) if IS_FULL or path.stem not in LONG]


@pytest.mark.parametrize(("path", "case"), CASES, ids=[path.stem for path, _ in CASES])
def test_what_failed_once_holds_now(path: Path, case: Case) -> None:
    assert path.name == case.file_name
    assert case.fixed_in, "a case that is still open belongs to no test run"
    outcome = replay(case)
    assert outcome.violation is None, f"{case.what}: {outcome.violation}"
