"""DescribeClusterRequest.

Generated from schemas/describe_cluster.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class DescribeClusterRequest(Message):
    __slots__ = (
        "include_cluster_authorized_operations",
        "endpoint_type",
        "include_fenced_brokers",
    )
    API_KEY = 60
    VERSIONS = range(3)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_cluster"

    def __init__(
        self,
        *,
        include_cluster_authorized_operations: bool = False,
        endpoint_type: int = 1,
        include_fenced_brokers: bool = False,
    ) -> None:
        self.include_cluster_authorized_operations = include_cluster_authorized_operations
        self.endpoint_type = endpoint_type
        self.include_fenced_brokers = include_fenced_brokers
