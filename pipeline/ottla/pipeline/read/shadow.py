"""Has the progress of streams seen: each commits what it has read to a group, `spark-<name>`.

`ottla group lag` shows such a group as any other; it has no members, and nobody reads by it: where
a stream goes on is in Spark's checkpoint alone.  A data source is told neither its query's name nor
its last batch, so a listener of the session does it.  Where the listener cannot see a stream's
options (Spark Connect), only the option `shadowGroup` is left.
"""

# ruff: noqa: N802 - Spark names these methods

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql.streaming.listener import (
    QueryIdleEvent,
    QueryProgressEvent,
    QueryStartedEvent,
    QueryTerminatedEvent,
    StreamingQueryListener,
)

from ottla.model.errors import OttlaError
from ottla.pipeline.read.asking import Asking
from ottla.pipeline.read.offsets import StreamPosition
from ottla.pipeline.read.source_options import SourceOptions, parse_source_options
from ottla.pipeline.run.progress import SHADOW_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.pipeline")


@dataclass(slots=True)
class _Query:
    """What is known of one run of a query; owns a connection for each cluster it reads."""

    name: str | None
    java: Any
    """The query in the JVM, which tells its sources once it runs."""
    sources: Mapping[str, SourceOptions] | None = None
    """By the description under which progress names them."""
    asking: dict[str, Asking] = field(default_factory=dict)
    told: dict[str, StreamPosition] = field(default_factory=dict)


class ShadowListener(StreamingQueryListener):
    """Commits the offsets of every stream of one session that is named, or names a group."""

    def __init__(self, session: "SparkSession", format_name: str) -> None:
        self._session = session
        self._format = format_name
        self._queries: dict[str, _Query] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Keep hold of the query: once it has ended, its session has forgotten it."""
        session: Any = self._session
        query_id = session._jvm.java.util.UUID.fromString(str(event.id))
        java = session._jsparkSession.streams().get(query_id)
        if java is not None:
            self._queries[str(event.runId)] = _Query(event.name, java)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit what the batch has read."""
        progress = event.progress
        query = self._queries.get(str(progress.runId))
        if query is None:
            return
        try:
            if query.sources is None:
                query.sources = _sources(query.java, self._format)
            for source in progress.sources:
                options = query.sources.get(source.description)
                if options is not None and source.endOffset not in (None, "null"):
                    end = StreamPosition.from_json(json.loads(source.endOffset))
                    _tell(query, source.description, options, end, progress.batchId)
        except (OttlaError, Py4JError, PySparkException) as error:
            # The stream is not worse for it.
            logger.warning("the group of query %s is not told: %s", query.name, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: what was read was told."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close what was opened for the query."""
        query = self._queries.pop(str(event.runId), None)
        for asking in query.asking.values() if query else ():
            asking.close()


def listen(session: "SparkSession", format_name: str) -> None:
    """Have the streams of a session seen from now on; again does no harm."""
    if session not in _listeners and hasattr(session, "_jsparkSession"):
        _listeners[session] = ShadowListener(session, format_name)
        session.streams.addListener(_listeners[session])


_listeners: "WeakKeyDictionary[SparkSession, ShadowListener]" = WeakKeyDictionary()


def _tell(
    query: _Query, source: str, options: SourceOptions, end: StreamPosition, batch_id: int
) -> None:
    group = options.shadow_group or (SHADOW_PREFIX + query.name if query.name else None)
    if group is None or query.told.get(source) == end:
        return
    if source not in query.asking:
        query.asking[source] = Asking(options.read)
    query.asking[source].commit(group, end, f"batch {batch_id}")
    query.told[source] = end


def _sources(java: Any, format_name: str) -> dict[str, SourceOptions]:
    """Return the options of a query's sources of our format, which only the JVM knows."""
    found: dict[str, SourceOptions] = {}
    leaves = java.streamingQuery().logicalPlan().collectLeaves()
    for index in range(leaves.size()):
        leaf = leaves.apply(index)
        if "StreamingDataSourceV2" in leaf.getClass().getSimpleName() and (
            leaf.relation().table().name() == format_name
        ):
            texts = dict(leaf.relation().options().asCaseSensitiveMap())
            found[leaf.stream().toString()] = parse_source_options(texts, is_stream=True)
    return found
