"""Common fixtures of the quorum's tests."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--rewrite-transcripts",
        action="store_true",
        help="write the conversations of tests/raft/transcripts again, to be reviewed as a diff",
    )
