"""Fast path of `ottla topic list`, which prints the list with few imports. It requires that the
command has no login and no TLS, and that all brokers respond at once.

It uses blocking sockets instead of trio, because importing trio would take most of the command's
time. In all other cases, `topic_list` waits, prints notes and explains errors.
"""

import argparse
from collections import Counter
from contextlib import ExitStack

from ottla.cli.common import plain_bootstrap_of
from ottla.cli.topics.topic_rows import show_list
from ottla.client.network.blocking_connection import BlockingConnection
from ottla.model.errors import ErrorCode, OttlaError
from ottla.wire.messages.describe_cluster_request import DescribeClusterRequest
from ottla.wire.messages.describe_cluster_response import DescribeClusterResponse
from ottla.wire.messages.describe_log_dirs_request import DescribeLogDirsRequest
from ottla.wire.messages.describe_log_dirs_response import DescribeLogDirsResponse
from ottla.wire.messages.metadata_request import MetadataRequest
from ottla.wire.messages.metadata_response import MetadataResponse, MetadataResponseTopic

CLIENT_ID = "ottla"
WAIT_S = 1.0
"""Maximum seconds that the fast path of `ottla topic list` waits for one broker. With a smaller
value, requests to a busy broker are sent twice. With a larger value, a broker that does not respond
delays the list."""

BROKERS_MAX = 16
"""Maximum number of brokers for which the fast path of `ottla topic list` is used. The fast path
sends requests to brokers sequentially, while `topic_list` sends them concurrently."""


class _UnusualError(Exception):
    """Error if the fast path of `ottla topic list` cannot be used."""


def list_at_once(arguments: argparse.Namespace) -> bool:
    """List all topics with the fast path, which uses blocking sockets. If the fast path cannot be
    used, prints nothing and returns False."""
    addresses = plain_bootstrap_of(arguments)
    if addresses is None:
        return False
    try:
        topics, held = _ask(addresses[0])
    except (OSError, OttlaError, _UnusualError):
        return False
    show_list(arguments, topics, held)
    return True


def _ask(address: tuple[str, int]) -> tuple[list[MetadataResponseTopic], Counter[str]]:
    """Request topics and log sizes from all brokers, starting with the broker at `address`. Returns
    the topics, and the total bytes of each topic's replicas."""
    held: Counter[str] = Counter()
    with ExitStack() as opened:
        connections: dict[tuple[str, int], BlockingConnection] = {}

        def at(place: tuple[str, int]) -> BlockingConnection:
            found = connections.get(place)
            if found is None:
                found = connections[place] = opened.enter_context(
                    BlockingConnection(*place, client_id=CLIENT_ID, timeout_s=WAIT_S)
                )
            return found

        metadata = at(address).request(
            MetadataRequest(topics=None, allow_auto_topic_creation=False), MetadataResponse
        )
        cluster = at(address).request(
            DescribeClusterRequest(include_fenced_brokers=True), DescribeClusterResponse
        )
        _check(cluster.error_code)
        if len(cluster.brokers) > BROKERS_MAX or any(one.is_fenced for one in cluster.brokers):
            raise _UnusualError
        for broker in cluster.brokers:
            answer = at((broker.host, broker.port)).request(
                DescribeLogDirsRequest(topics=None), DescribeLogDirsResponse
            )
            _check(answer.error_code)
            for directory in answer.results:
                for topic in directory.topics:
                    held[topic.name] += sum(one.partition_size for one in topic.partitions)
    return metadata.topics, held


def _check(code: int) -> None:
    if code != ErrorCode.NONE:
        raise _UnusualError
