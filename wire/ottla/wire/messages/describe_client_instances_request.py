"""DescribeClientInstancesRequest.

Generated from schemas/describe_client_instances.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DescribeClientInstancesRequest(Message):
    __slots__ = ()
    API_KEY = 20002
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_client_instances"
