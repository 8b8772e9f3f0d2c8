"""AllocateProducerIdsResponse.

Generated from schemas/allocate_producer_ids.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class AllocateProducerIdsResponse(Message):
    __slots__ = (
        "throttle_time_ms",
        "error_code",
        "producer_id_start",
        "producer_id_len",
    )
    API_KEY = 67
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "allocate_producer_ids"

    def __init__(
        self,
        *,
        throttle_time_ms: int = 0,
        error_code: int = 0,
        producer_id_start: int = 0,
        producer_id_len: int = 0,
    ) -> None:
        self.throttle_time_ms = throttle_time_ms
        self.error_code = error_code
        self.producer_id_start = producer_id_start
        self.producer_id_len = producer_id_len
