"""The rules of language find each violation, and nothing else."""

from pathlib import Path

import pytest

from tests.plain_english import violations


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        ('"""What a broker owns."""', ["a docstring that opens with 'What'"]),
        ('LIMIT = 1\n"""How many."""', ["a docstring that opens with 'How'"]),
        ("class Settled: ...", ["a class named by the participle 'Settled'"]),
        ("class _Taken: ...", ["a class named by the participle '_Taken'"]),
        ("class SettledBatch: ...\nclass Feed: ...", []),
        ("is_told = 1\nclass PeersTold: ...", ["the word 'told'", "the word 'told'"]),
        ("# There is no\n# more room.", ["the word 'no more'"]),
        ("# There are no more than three untold stories.", []),
        ("# The whole shows somehow.", []),
    ],
)
def test_rules_of_language_find_what_they_forbid(
    tmp_path: Path, text: str, rules: list[str]
) -> None:
    (tmp_path / "module.py").write_text(text)
    found = [one.split(": ", 1)[1] for one in violations(tmp_path / "module.py")]
    assert found == rules
