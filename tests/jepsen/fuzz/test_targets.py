"""A short hunt of every target: what was found once, good inputs, and new ones made of them.

With OTTLA_FAULTS=full it is twice as long; `ottla world fuzz` runs for as long as its options say.
"""

import os
from pathlib import Path

import pytest

from ottla.jepsen.fuzz.kept import read_kept
from ottla.jepsen.fuzz.plain_driver import fuzz
from ottla.jepsen.fuzz.table import TARGETS, all_targets, target_of

CORPUS = Path(__file__).parent / "corpus"
IS_FULL = os.environ.get("OTTLA_FAULTS") == "full"
SECONDS_MAX = 6.0
COUNTS = {
    "frames": 1_200,
    "messages": 12_000,
    "answers": 600,
    "batches": 6_000,
    "codecs": 8_000,
    "recovery": 2_000,
    "files": 10_000,
    "metadata": 6_000,
    "groups": 5_000,
    "peers": 6_000,
    "decisions": 3_500,
    "pushes": 2_000,
    "logins": 8_000,
    "scram": 8_000,
    "jwts": 6_000,
    "acls": 2_500,
    "principals": 20_000,
}
"""Inputs of each, about two seconds; half of them where the hunt is short."""


@pytest.mark.parametrize("name", TARGETS)
def test_nothing_escapes_takes_long_or_takes_much(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    target = target_of(name)
    kept = list(read_kept(CORPUS, name))

    count = COUNTS[name] // (1 if IS_FULL else 2)
    judge = fuzz(target, count=count, seconds=SECONDS_MAX, kept=kept)

    with capsys.disabled():
        print(f" {name}: {judge.input_count} inputs, {judge.refused_count} refused;", end="")
    assert not judge.findings, "\n".join(
        f"{one.what}: {one.data.hex()}" for one in judge.findings.values()
    )
    assert judge.input_count > judge.refused_count, "nothing good was read"


def test_every_file_of_the_corpus_is_a_targets() -> None:
    assert {path.stem for path in CORPUS.iterdir()} <= set(TARGETS)


def test_every_target_says_what_it_reads() -> None:
    assert all(target.sentence and target.input_bytes_max > 0 for target in all_targets())
