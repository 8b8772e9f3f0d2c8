"""Commits the progress of streams to groups `spark-<name>`, so that tools show their lag.

`ottla group lag` shows such a group like any other. The group has no members, and its offsets are
never read: a stream continues from Spark's checkpoint alone. A data source receives neither the
name of its query nor the end of the last batch. A listener of the Spark session therefore commits
the offsets. With Spark Connect, the listener cannot see a stream's options. Only the option
`shadowGroup` works then.
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
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.offsets import StreamPosition
from ottla.pipeline.read.source_options import SourceOptions, parse_source_options
from ottla.pipeline.run.progress import SHADOW_PREFIX

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.pipeline")


@dataclass(slots=True)
class _Query:
    """State of one run of a streaming query. It owns one connection to each cluster that the query
    reads."""

    name: str | None
    java: Any
    """Java object of the streaming query in the JVM, which lists its sources once the query is
    running."""
    sources: Mapping[str, SourceOptions] | None = None
    """Options of the query's sources, by the source's description in Spark's progress events. None
    until they are first needed."""
    asking: dict[str, ClusterQueries] = field(default_factory=dict)
    committed: dict[str, StreamPosition] = field(default_factory=dict)


class ShadowListener(StreamingQueryListener):
    """Listener that commits the offsets of a Spark session's streams to their groups. Streams with
    neither a name nor the option `shadowGroup` are ignored."""

    def __init__(self, session: "SparkSession", format_name: str) -> None:
        self._session = session
        self._format = format_name
        self._queries: dict[str, _Query] = {}

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Store the object of a started streaming query, because the session drops it when the
        query has ended."""
        session: Any = self._session
        query_id = session._jvm.java.util.UUID.fromString(str(event.id))
        java = session._jsparkSession.streams().get(query_id)
        if java is not None:
            self._queries[str(event.runId)] = _Query(event.name, java)

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Commit the end offsets of a batch to the group of its streaming query."""
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
                    _commit_end(query, source.description, options, end, progress.batchId)
        except (OttlaError, Py4JError, PySparkException) as error:
            # The stream itself is unaffected.
            logger.warning("no progress is committed for query %s: %s", query.name, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: the end offsets of the streaming query's last batch are already committed."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Close the connections that belong to a streaming query that has ended."""
        query = self._queries.pop(str(event.runId), None)
        for asking in query.asking.values() if query else ():
            asking.close()


def listen(session: "SparkSession", format_name: str) -> None:
    """Start committing the progress of a Spark session's streams to their groups. Repeated calls
    have no effect."""
    if session not in _listeners and hasattr(session, "_jsparkSession"):
        _listeners[session] = ShadowListener(session, format_name)
        session.streams.addListener(_listeners[session])


_listeners: "WeakKeyDictionary[SparkSession, ShadowListener]" = WeakKeyDictionary()


def _commit_end(
    query: _Query, source: str, options: SourceOptions, end: StreamPosition, batch_id: int
) -> None:
    group = options.shadow_group or (SHADOW_PREFIX + query.name if query.name else None)
    if group is None or query.committed.get(source) == end:
        return
    if source not in query.asking:
        query.asking[source] = ClusterQueries(options.read)
    query.asking[source].commit(group, end, f"batch {batch_id}")
    query.committed[source] = end


def _sources(java: Any, format_name: str) -> dict[str, SourceOptions]:
    """Return the options of a streaming query's sources that have the format `format_name`, by the
    sources' descriptions. Only the JVM knows the sources."""
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
