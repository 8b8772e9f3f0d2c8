"""A data engineer's first hour: the README's start, then docs/spark.md as pasted.

It installs pyspark and fetches Spark's Kafka connector from Maven, so it is one of the long forms.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = [
    pytest.mark.cluster,
    pytest.mark.timeout(2_400),
    pytest.mark.skipif("OTTLA_SPARK_LONG" not in os.environ, reason="OTTLA_SPARK_LONG is not set"),
]

NOT_TRIED = {
    "An archive": "its first command goes on until Ctrl-C; tests/pipeline/archive has the verbs",
    "On a cluster": "needs machines of the reader's; tests/pipeline/test_spark_cluster.py has one",
    "An object store": "needs a bucket of the reader's; the same test has one",
}
"""Sections that are not replayed."""


def test_the_page_of_spark_works_as_pasted(
    checkout: Path,
    open_terminal: Callable[..., Any],
    is_free: Callable[[int], bool],
    page: Any,
    steps: list[Any],
) -> None:
    if not is_free(9092):
        pytest.skip("port 9092 is taken")
    readme, spark = page("README.md"), page("docs/spark.md")
    for block in spark.blocks:
        named = re.match(r"# (\w+\.py)\n", block.text)
        if block.language == "python" and named is not None:
            (checkout / named[1]).write_text(block.text)
    terminal = open_terminal(checkout)
    start, _, activate = readme.commands()[:3]
    assert start.endswith("ottla up --detach")
    try:
        for command in (start, activate):
            terminal.step(readme, "", command)
        for section in spark.sections():
            if section not in NOT_TRIED:
                printed = terminal.replay(spark, section)
                if section.startswith("From Spark's own"):
                    batches = [text for text in printed if "10 rows in 1 batch" in text]
                    assert len(batches) == 3
    finally:
        terminal.type("ottla down")
    replayed = {step.heading for step in steps if step.page == spark.name}
    assert replayed | NOT_TRIED.keys() == set(spark.sections())
