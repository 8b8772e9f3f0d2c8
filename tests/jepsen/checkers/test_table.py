"""Every checker has a name, and findings of the harness about servers are judged as recorded."""

import gc

from ottla.jepsen.checkers.table import CHECKERS, combined, judge
from ottla.jepsen.checkers.verdict import DirectoryCheck, RunFacts
from ottla.jepsen.history import History

NAMES = {
    "log", "cycles", "offsets", "groups", "metadata", "producer-ids", "list-offsets",
    "availability", "servers", "transactions", "shares", "share-order",
}  # fmt: skip


def test_a_history_of_nothing_passes_every_judge_by_its_name() -> None:
    verdicts = judge(sorted(CHECKERS), History([]), RunFacts())
    assert [verdict.checker for verdict in verdicts] == sorted(NAMES)
    assert combined(verdicts) is True
    assert gc.isenabled(), "it is only paused"


def test_server_errors_and_damaged_directories_are_each_reported() -> None:
    sound = DirectoryCheck("b1", is_sound=True)
    unsound = DirectoryCheck("b2", is_sound=False, detail="CRC of batch 7 of q-0")
    for facts, counts in (
        (RunFacts(directory_checks=(sound,)), {}),
        (RunFacts(directory_checks=(sound, unsound)), {"unsound-directory": 1}),
        (RunFacts(server_errors=(("b1", "AssertionError"),)), {"server-error": 1}),
    ):
        (verdict,) = judge(["servers"], History([]), facts)
        assert verdict.findings_count == counts
        assert verdict.valid is (not counts)
    assert "b1: AssertionError" in verdict.findings[0].detail
