"""AllocateProducerIdsRequest.

Generated from schemas/allocate_producer_ids.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import Message


class AllocateProducerIdsRequest(Message):
    __slots__ = (
        "broker_id",
        "broker_epoch",
    )
    API_KEY = 67
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "allocate_producer_ids"

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
