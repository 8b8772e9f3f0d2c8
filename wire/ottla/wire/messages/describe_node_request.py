"""DescribeNodeRequest.

Generated from schemas/describe_node.schema; never edited.
"""

from ottla.wire.codec_types import Message


class DescribeNodeRequest(Message):
    __slots__ = ()
    API_KEY = 20000
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_node"
