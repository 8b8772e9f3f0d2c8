"""A user's own pipeline: a file with `def build(spark, …)`, or an ordinary script.

The parameters of `build` may be, by name: `spark`, the session; `arguments`, the command-line words
after the file; `trigger`, the keyword arguments for `DataStreamWriter.trigger`. The queries that it
starts are watched until they end, whether or not it returns them. An ordinary script runs as
`__main__`, and its `SparkSession.builder.getOrCreate()` returns the present session.
"""

import ast
import inspect
import os
import runpy
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from ottla.model.errors import ConfigError
from ottla.pipeline.run.session import spark_exceptions
from ottla.pipeline.run.transforms import load_file

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BUILD = "build"


class OwnCode(NamedTuple):
    """A user's pipeline file: its path, and whether it defines `build`."""

    path: Path
    has_build: bool

    def run_script(self, arguments: Sequence[str]) -> None:
        """Run the user's pipeline file as a script, as Python would."""
        argv = sys.argv
        sys.argv = [str(self.path), *arguments]
        sys.path.insert(0, str(self.path.parent))
        try:
            with self._locating_errors():
                runpy.run_path(str(self.path), run_name="__main__")
        finally:
            sys.path.remove(str(self.path.parent))
            sys.argv = argv

    def build(
        self, spark: "SparkSession", arguments: Sequence[str], trigger: Mapping[str, Any]
    ) -> list[Any]:
        """Call the function `build` of the user's pipeline file. Returns all queries that are
        running afterwards."""
        with self._locating_errors():
            function = getattr(load_file("FILE", self.path), BUILD)
        offered = {"spark": spark, "arguments": list(arguments), "trigger": dict(trigger)}
        wanted = list(inspect.signature(function).parameters)
        unknown = [name for name in wanted if name not in offered]
        if unknown:
            raise ConfigError(
                str(self.path),
                f"build() asks for {', '.join(unknown)}; it can have {', '.join(offered)}",
            )
        with self._locating_errors():
            started = function(**{name: offered[name] for name in wanted})
        queries = [*_queries_of(started), *spark.streams.active]
        return list({query.runId: query for query in queries}.values())

    @contextmanager
    def _locating_errors(self) -> Iterator[None]:
        """Add the line number in the user's pipeline file to errors that Spark raises in the `with`
        block."""
        try:
            yield
        except spark_exceptions() as error:
            own = self._own_frames(error)
            if own:
                error.add_note(f"{self.path}, line {own[-1].tb_lineno}")
            raise

    def trace_of(self, error: BaseException) -> TracebackType | None:
        """Return the traceback of an error, without the frames before the first frame in the user's
        pipeline file."""
        return next(iter(self._own_frames(error)), error.__traceback__)

    def _own_frames(self, error: BaseException) -> list[TracebackType]:
        return [
            frame
            for frame in _frames(error.__traceback__)
            # The import makes a relative path absolute, and a script keeps it.
            if os.path.abspath(frame.tb_frame.f_code.co_filename) == os.path.abspath(self.path)
        ]


def read_own_code(path: Path) -> OwnCode:
    """Parse a user's pipeline file, without running it. Raises ConfigError if the file is not valid
    Python."""
    if not path.is_file():
        raise ConfigError("FILE", f"there is no file {path}")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise ConfigError(str(path), f"is not Python: {error}") from None
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    return OwnCode(path, BUILD in names)


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _queries_of(started: Any) -> Iterable[Any]:
    """Return the queries in the return value of a user's `build` function: one, several, or
    none."""
    if started is None:
        return ()
    return started if isinstance(started, Iterable) else (started,)
