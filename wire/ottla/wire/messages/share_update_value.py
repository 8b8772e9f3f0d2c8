"""ShareUpdateValue.

Generated from schemas/share_state_records.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from ottla.wire.codec_types import EMPTY, Message, Struct


class StateBatch(Struct):
    __slots__ = (
        "first_offset",
        "last_offset",
        "delivery_state",
        "delivery_count",
    )

    def __init__(
        self,
        *,
        first_offset: int = 0,
        last_offset: int = 0,
        delivery_state: int = 0,
        delivery_count: int = 0,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.delivery_state = delivery_state
        self.delivery_count = delivery_count


class ShareUpdateValue(Message):
    __slots__ = (
        "snapshot_epoch",
        "leader_epoch",
        "start_offset",
        "delivery_complete_count",
        "state_batches",
    )
    API_KEY = -1
    VERSIONS = range(1)
    FLEXIBLE_FROM = 0
    SCHEMA = "share_state_records"

    def __init__(
        self,
        *,
        snapshot_epoch: int = 0,
        leader_epoch: int = 0,
        start_offset: int = 0,
        delivery_complete_count: int = -1,
        state_batches: list[StateBatch] = EMPTY,
    ) -> None:
        self.snapshot_epoch = snapshot_epoch
        self.leader_epoch = leader_epoch
        self.start_offset = start_offset
        self.delivery_complete_count = delivery_complete_count
        self.state_batches = [] if state_batches is EMPTY else state_batches
