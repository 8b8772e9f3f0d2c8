"""Checks the sources of a stream or batch query with Ottla's own client, before a JVM starts.

The check uses the same options, requests and messages as the query. If it succeeds, the query's own
requests can fail only if the cluster changes in between. It does not need pyspark.
"""

from collections.abc import Mapping

from ottla.client.network.connection import ConnectionLostError
from ottla.pipeline.read.cluster_queries import ClusterQueries
from ottla.pipeline.read.places import ending_position, present, starting_position
from ottla.pipeline.read.source_options import parse_source_options

ANSWER_TIMEOUT_S = 2.0
"""Time in seconds within which a broker must respond to the check of a source. With a shorter time,
a distant broker is reported as missing. With a longer time, the user of a wrong address waits,
which this check should prevent."""


def check_source(texts: Mapping[str, str], *, is_stream: bool, is_resumed: bool = False) -> None:
    """Raise the error that a query would raise for its addresses, topics, start or other options.

    `is_resumed` is true if the query's start is in a checkpoint. Raises ConfigError for an invalid
    option, RefusedError for a missing topic or offset, ConnectionLostError if no broker responds.
    """
    options = parse_source_options(texts, is_stream=is_stream)
    asking = ClusterQueries(options.read, first_answer_timeout_s=ANSWER_TIMEOUT_S)
    try:
        if is_resumed and not options.read.fail_on_data_loss:
            asking.find_topics(options.topics)  # Raises an error if no broker responds.
            return
        topics = present(asking, options)
        if is_resumed:
            return
        starting_position(asking, options, topics)
        if not is_stream:
            ending_position(asking, options, topics)
    except ConnectionLostError as error:
        raise ConnectionLostError(f"can not read topics: {error}") from None
    finally:
        asking.close()
