"""DescribeNodeRequest.

Generated from schemas/describe_node.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class DescribeNodeRequest(Message):
    __slots__ = ()
    API_KEY = 20000
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_node"
