"""A metadata log that a newer release wrote can still be dumped."""

from types import SimpleNamespace
from typing import Any

from ottla.cli.logs.log_view import metadata_of


def test_a_record_of_an_unknown_kind_is_a_problem_of_its_row() -> None:
    row: Any = SimpleNamespace(value=b"\xfa\x7f\x00")

    assert "a newer release wrote it" in metadata_of(row)["problem"]
