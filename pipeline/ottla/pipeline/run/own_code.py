"""A user's own pipeline: a file with `def build(spark, …)`, or a plain script.

`build` is given, by the names of its parameters: `spark`; `arguments`, the words that follow the
file; `trigger`, the keywords for `DataStreamWriter.trigger`.  What it started is followed to its
end, whether it returns the queries or not.  A plain script runs as `__main__`; the session its
`SparkSession.builder.getOrCreate()` finds is there already.
"""

import ast
import inspect
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
    """A file of a user's, and what there is to run in it."""

    path: Path
    has_build: bool

    def run_script(self, arguments: Sequence[str]) -> None:
        """Run it as Python would."""
        argv = sys.argv
        sys.argv = [str(self.path), *arguments]
        sys.path.insert(0, str(self.path.parent))
        try:
            with self._telling_where():
                runpy.run_path(str(self.path), run_name="__main__")
        finally:
            sys.path.remove(str(self.path.parent))
            sys.argv = argv

    def build(
        self, spark: "SparkSession", arguments: Sequence[str], trigger: Mapping[str, Any]
    ) -> list[Any]:
        """Have it start its queries; return all that run."""
        with self._telling_where():
            function = getattr(load_file("FILE", self.path), BUILD)
        offered = {"spark": spark, "arguments": list(arguments), "trigger": dict(trigger)}
        wanted = list(inspect.signature(function).parameters)
        unknown = [name for name in wanted if name not in offered]
        if unknown:
            raise ConfigError(
                str(self.path),
                f"build() asks for {', '.join(unknown)}; it can have {', '.join(offered)}",
            )
        with self._telling_where():
            started = function(**{name: offered[name] for name in wanted})
        queries = [*_queries_of(started), *spark.streams.active]
        return list({query.runId: query for query in queries}.values())

    @contextmanager
    def _telling_where(self) -> Iterator[None]:
        """Note in what Spark raises the line of the file that led to it."""
        try:
            yield
        except spark_exceptions() as error:
            own = self._own_frames(error)
            if own:
                error.add_note(f"{self.path}, line {own[-1].tb_lineno}")
            raise

    def trace_of(self, error: BaseException) -> TracebackType | None:
        """Return an error's trace from the file on, without what called it."""
        return next(iter(self._own_frames(error)), error.__traceback__)

    def _own_frames(self, error: BaseException) -> list[TracebackType]:
        return [
            frame
            for frame in _frames(error.__traceback__)
            if frame.tb_frame.f_code.co_filename == str(self.path)
        ]


def read_own_code(path: Path) -> OwnCode:
    """Look into a file without running it; ConfigError if it is no Python."""
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
    """Return the queries in what build() returned: one, several, or none."""
    if started is None:
        return ()
    return started if isinstance(started, Iterable) else (started,)
