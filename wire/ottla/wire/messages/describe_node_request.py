"""DescribeNodeRequest.

Generated from schemas/describe_node.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class WantedReplicas(Struct):
    __slots__ = (
        "topic",
        "partitions",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partitions: list[int] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partitions = [] if partitions is EMPTY else partitions


class DescribeNodeRequest(Message):
    __slots__ = (
        "replicas",
        "include_registrations",
        "include_traffic",
        "watch_clients_ms",
    )
    API_KEY = 20000
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "describe_node"

    def __init__(
        self,
        *,
        replicas: list[WantedReplicas] = EMPTY,
        include_registrations: bool = False,
        include_traffic: bool = False,
        watch_clients_ms: int = 0,
    ) -> None:
        self.replicas = [] if replicas is EMPTY else replicas
        self.include_registrations = include_registrations
        self.include_traffic = include_traffic
        self.watch_clients_ms = watch_clients_ms
