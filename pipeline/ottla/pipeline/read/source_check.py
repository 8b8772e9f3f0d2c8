"""Checks what a stream or batch will read with the plain client, before a JVM starts.

The same options, questions and sentences as in the query itself, so that a query that passes
fails later only because the cluster changed meanwhile.  Needs no pyspark.
"""

from collections.abc import Mapping

from ottla.client.network.connection import ConnectionLostError
from ottla.pipeline.read.asking import Asking
from ottla.pipeline.read.places import ending_position, present, starting_position
from ottla.pipeline.read.source_options import parse_source_options

ANSWER_TIMEOUT_S = 2.0
"""Shorter, and a broker across an ocean is taken for none; longer, and a wrong address costs the
patience that this check is to save."""


def check_source(texts: Mapping[str, str], *, is_stream: bool, is_resumed: bool = False) -> None:
    """Raise what the query would fail with: its options, the address, topics, where it begins.

    `is_resumed`: a checkpoint says where it begins.  ConfigError for an option, RefusedError for a
    topic or an offset that is not there, ConnectionLostError if no broker answers.
    """
    options = parse_source_options(texts, is_stream=is_stream)
    asking = Asking(options.read, first_answer_timeout_s=ANSWER_TIMEOUT_S)
    try:
        if is_resumed and not options.read.fail_on_data_loss:
            asking.find_topics(options.topics)  # whether a broker answers
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
