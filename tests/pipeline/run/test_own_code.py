"""A user's own file: looked into, then run."""

import re
import sys
import traceback
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from py4j.protocol import Py4JError

from ottla.model.errors import ConfigError
from ottla.pipeline.run.own_code import read_own_code
from ottla.pipeline.run.spark_errors import failure_of


class FakeSpark:
    """The part of a Spark session that build() gets."""

    def __init__(self, *active: Any) -> None:
        self.streams = SimpleNamespace(active=list(active))


def query(run: str) -> Any:
    return SimpleNamespace(runId=run)


def built(path: Path, text: str, spark: FakeSpark, *arguments: str) -> list[str]:
    path.write_text(text)
    code = read_own_code(path)
    assert code.has_build
    found = code.build(spark, arguments, {"availableNow": True})  # type: ignore[arg-type]
    return [one.runId for one in found]


def test_build_gets_what_its_parameters_ask_for(tmp_path: Path) -> None:
    text = (
        "def build(arguments, spark, trigger):\n"
        "    assert arguments == ['a', 'b']\n"
        "    assert trigger == {'availableNow': True}\n"
        "    return spark.streams.active[0]\n"
    )
    assert built(tmp_path / "mine_1.py", text, FakeSpark(query("q")), "a", "b") == ["q"]


def test_queries_are_followed_whether_build_returns_them_or_not(tmp_path: Path) -> None:
    spark = FakeSpark(query("one"), query("two"))
    text = "def build(spark):\n    return [spark.streams.active[1]]\n"
    assert built(tmp_path / "mine_2.py", text, spark) == ["two", "one"]
    text = "def build(spark):\n    pass\n"
    assert built(tmp_path / "mine_3.py", text, spark) == ["one", "two"]


def test_build_that_asks_for_what_there_is_not_is_refused(tmp_path: Path) -> None:
    text = "def build(spark, topic):\n    pass\n"
    with pytest.raises(ConfigError, match="asks for topic; it can have spark, arguments, trigger"):
        built(tmp_path / "mine_4.py", text, FakeSpark())


def test_a_script_sees_its_own_arguments_and_neighbours(tmp_path: Path) -> None:
    (tmp_path / "neighbour_of_mine.py").write_text("NAME = 'n'\n")
    path = tmp_path / "script.py"
    path.write_text(
        "import sys, pathlib, neighbour_of_mine\n"
        "assert __name__ == '__main__'\n"
        "pathlib.Path(sys.argv[1]).write_text(neighbour_of_mine.NAME)\n"
    )
    before = (list(sys.argv), list(sys.path))
    code = read_own_code(path)
    assert not code.has_build
    code.run_script([str(tmp_path / "out")])
    assert (tmp_path / "out").read_text() == "n"
    assert (sys.argv, sys.path) == before


@pytest.mark.parametrize(
    ("text", "why"), [(None, "there is no file"), ("def build(:\n", "is not Python")]
)
def test_what_is_no_python_file_is_refused(tmp_path: Path, text: str | None, why: str) -> None:
    path = tmp_path / "mine.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(ConfigError, match=why):
        read_own_code(path)


def test_an_error_is_traced_from_the_file_on(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text("def double(x):\n    return x + None\n\ndouble(2)\n")
    code = read_own_code(path)
    with pytest.raises(TypeError) as caught:
        code.run_script([])
    lines = [one.lineno for one in traceback.extract_tb(code.trace_of(caught.value))]
    assert lines == [4, 2]


def test_what_spark_raises_is_reported_with_the_line_that_led_to_it(tmp_path: Path) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from py4j.protocol import Py4JError\n"
        "def build(spark):\n"
        "    raise Py4JError('no such column')\n"
    )
    with pytest.raises(Py4JError) as caught:
        read_own_code(path).build(FakeSpark(), [], {})  # type: ignore[arg-type]
    failure, _tells_more = failure_of(caught.value, "/tmp/spark.log")
    assert str(failure).startswith(f"{path}, line 3: no such column")


def test_lines_of_a_file_are_found_by_its_relative_path_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    lines = "from py4j.protocol import Py4JError\nraise Py4JError('no such column')\n"
    Path("mine_7.py").write_text(lines)
    Path("mine_8.py").write_text("def build(spark):\n    raise Py4JError\n" + lines)
    with pytest.raises(Py4JError) as caught:
        read_own_code(Path("mine_7.py")).run_script([])
    assert caught.value.__notes__ == ["mine_7.py, line 2"]
    with pytest.raises(Py4JError) as caught:
        read_own_code(Path("mine_8.py")).build(FakeSpark(), [], {})  # type: ignore[arg-type]
    assert caught.value.__notes__ == ["mine_8.py, line 4"]


@pytest.mark.cluster
def test_the_pipeline_of_the_page_runs_and_goes_on_where_it_was(
    spark: Any, live_cluster: Any, tmp_path: Path
) -> None:
    page = (Path(__file__).parents[3] / "docs" / "spark.md").read_text()
    (text,) = (
        block
        for block in re.findall(r"^```python\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
        if block.startswith("# long_orders.py")
    )
    path = tmp_path / "long_orders.py"
    topic = live_cluster.new_topic(2)
    path.write_text(
        text.replace('"long-orders"', f'"{topic}-long"').replace('"orders"', f'"{topic}"')
    )
    live_cluster.new_topic(1, name=f"{topic}-long")
    arguments = [live_cluster.bootstrap, str(tmp_path / "checkpoint")]
    for values in ([b"a", b"bb", b"ccc"], [b"d", b"ee"]):
        live_cluster.produce(topic, values)
        (query,) = read_own_code(path).build(spark, arguments, {"availableNow": True})
        assert query.awaitTermination(60)
    rows = (
        spark.read.format("ottla")
        .option("kafka.bootstrap.servers", live_cluster.bootstrap)
        .option("subscribe", f"{topic}-long")
        .load()
        .collect()
    )
    assert sorted(bytes(row.value) for row in rows) == [b"bb", b"ccc", b"ee"]
