"""ElectLeadersResponse.

Generated from schemas/elect_leaders.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class PartitionResult(Struct):
    __slots__ = (
        "partition_id",
        "error_code",
        "error_message",
    )

    def __init__(
        self,
        *,
        partition_id: int = 0,
        error_code: int = 0,
        error_message: str | None = "",
    ) -> None:
        self.partition_id = partition_id
        self.error_code = error_code
        self.error_message = error_message


class ReplicaElectionResult(Struct):
    __slots__ = (
        "topic",
        "partition_result",
    )

    def __init__(
        self,
        *,
        topic: str = "",
        partition_result: list[PartitionResult] = EMPTY,
    ) -> None:
        self.topic = topic
        self.partition_result = [] if partition_result is EMPTY else partition_result


class ElectLeadersResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "replica_election_results",
    )
    API_KEY = 43
    VERSIONS = range(3)
    FLEXIBLE_FROM = 2
    SCHEMA = "elect_leaders"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        replica_election_results: list[ReplicaElectionResult] = EMPTY,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.replica_election_results = (
            [] if replica_election_results is EMPTY else replica_election_results
        )
