"""BrokerHeartbeatRequest.

Generated from schemas/broker_heartbeat.schema; never edited.
"""

# ruff: noqa: RUF023  # slots stand in the order of the wire

from uuid import UUID

from ottla.wire.codec_types import EMPTY, Message, fresh


class BrokerHeartbeatRequest(Message):
    __slots__ = (
        "broker_id",
        "broker_epoch",
        "current_metadata_offset",
        "want_fence",
        "want_shut_down",
        "offline_log_dirs",
        "cordoned_log_dirs",
    )
    API_KEY = 63
    VERSIONS = range(3)
    FLEXIBLE_FROM = 0
    SCHEMA = "broker_heartbeat"

    def __init__(
        self,
        *,
        broker_id: int = 0,
        broker_epoch: int = -1,
        current_metadata_offset: int = 0,
        want_fence: bool = False,
        want_shut_down: bool = False,
        offline_log_dirs: list[UUID] = EMPTY,
        cordoned_log_dirs: list[UUID] | None = None,
    ) -> None:
        self.broker_id = broker_id
        self.broker_epoch = broker_epoch
        self.current_metadata_offset = current_metadata_offset
        self.want_fence = want_fence
        self.want_shut_down = want_shut_down
        self.offline_log_dirs = fresh(offline_log_dirs)
        self.cordoned_log_dirs = cordoned_log_dirs
